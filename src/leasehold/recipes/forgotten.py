"""Guards that were garbage-collected without being released.

A guard that its program has lost would be held, and its session renewed, for ever. The finalizer of
a guard only posts to the event loop: it may run in any thread, in the middle of anything, while the
interpreter exits, or after the loop was closed. On the loop a warning is logged and a
`ResourceWarning` issued, both with the name of the lock. The lock is released one session TTL
later: the work that it was acquired for may still be running.
"""

import asyncio
import logging
import warnings
from collections.abc import Callable

from leasehold.owner_loop import post

logger = logging.getLogger(__name__)


def post_forgotten(
    loop: asyncio.AbstractEventLoop | None,
    name: str,
    wait_s: float,
    is_held: Callable[[], bool],
    release: Callable[[], object],
) -> None:
    """Have a forgotten guard reported, and released after `wait_s`; from a finalizer.

    `is_held` and `release` run on the loop, and must not refer to the guard.
    """
    post(loop, _report, loop, name, wait_s, is_held, release)


def _report(
    loop: asyncio.AbstractEventLoop,
    name: str,
    wait_s: float,
    is_held: Callable[[], bool],
    release: Callable[[], object],
) -> None:
    if not is_held():
        return
    text = f"a guard of {name!r} was garbage-collected without being released"
    logger.warning("%s; it is released in %g s", text, wait_s)
    loop.call_later(wait_s, release)
    warnings.warn(text, ResourceWarning, stacklevel=1)
