"""Objects that take a while to make, and are closed in the end: to be awaited, or entered."""

import warnings
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

E = TypeVar("E", bound=AbstractAsyncContextManager[Any, bool | None])


class Pending(Generic[E]):
    """An object that is about to be made.

    `await` makes it, and leaves closing it to the caller; `async with` does both.
    """

    __slots__ = ("_made", "_make", "_unused")

    def __init__(
        self, make: Callable[[], Awaitable[E]], call: str = "", *, on_loop_only: bool = True
    ) -> None:
        """`call` is the call that has returned it, for the warning if it is never awaited.

        With `on_loop_only` there is no warning if it was made in a thread without a running event
        loop: blocking code hands it over to another thread, and may be interrupted before that.
        """
        self._unused = call if not on_loop_only or _get_running_loop() is not None else ""
        self._make = make
        self._made: E | None = None

    def handed_over(self) -> Self:
        """Disable the warning: a thread with an event loop awaits it, unless that has ended."""
        self._unused = ""
        return self

    def __del__(self) -> None:
        if self._unused:
            text = f"{self._unused} was never awaited, nor entered with `async with`"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    def __await__(self) -> Generator[Any, None, E]:
        self._unused = ""
        return self._make().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # looked up by introspection
            raise AttributeError(name)
        raise AttributeError(f"{name} is not available yet: use `await` or `async with` first")

    async def __aenter__(self) -> E:
        self._unused = ""
        if self._made is not None:
            raise RuntimeError("this object was already entered: make another one")
        self._made = await self._make()
        entered: E = await self._made.__aenter__()
        return entered

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._made is not None, "it was entered"
        return await self._made.__aexit__(exc_type, exc, traceback)
