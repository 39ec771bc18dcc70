"""A holder's own check, for blocking code: it is made in a thread of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Check: TypeAlias = Callable[[], bool]
"""Whether its holder is well."""


def run_aside(check: Check | None) -> Callable[[], Awaitable[bool]] | None:
    """Make a check for the loop of one that may block: it is run in a thread."""
    if check is None:
        return None
    ask_holder = check

    def ask() -> bool:
        try:
            return ask_holder()
        except Exception:
            raise
        except BaseException as error:  # sys.exit would end the loop
            raise RuntimeError(f"a check must answer, and not end its thread: {error!r}") from error

    async def ask_aside() -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, ask)

    return ask_aside
