"""Time limits of calls, and what to say when one is over."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar

from leasehold.core.duration import check_seconds
from leasehold.engine.interface import Engine

TIMEOUT_S: Final = 10.0
"""How long a call may take, unless told otherwise."""

Timeout: TypeAlias = float | timedelta | None
"""Seconds, or None for what the client was made with."""

T = TypeVar("T")


class Patience:
    """How long the calls of a client wait for their engine."""

    __slots__ = ("_engine", "timeout_s")

    def __init__(self, engine: Engine, timeout: float | timedelta) -> None:
        self._engine = engine
        self.timeout_s = check_seconds(timeout, "timeout")

    def seconds(self, timeout: Timeout) -> float:
        """Give the limit for a call."""
        return self.timeout_s if timeout is None else check_seconds(timeout, "timeout")

    async def wait(self, call: Awaitable[T], timeout: Timeout) -> T:  # noqa: ASYNC109  to be checked
        """Wait for a call; `TimeoutError` says why there was no answer, if that is known.

        What became of a call that has changed something is not known then.
        """
        seconds = self.seconds(timeout)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await call
        except TimeoutError as error:
            if not limit.expired():
                raise
            why = self._engine.trouble
            said = f"no answer within {seconds:g} s"
            raise TimeoutError(f"{said}: {why}" if why else said) from error
