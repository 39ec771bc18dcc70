"""What takes a while to make, and is let go in the end: to be awaited, or entered."""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypeVar


class Entered(Protocol):
    """An async context manager that gives itself."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None: ...


E = TypeVar("E", bound=Entered)


class Pending(Generic[E]):
    """Something that is about to be made.

    `await` makes it, and leaves it to the caller to let it go; `async with` does both.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Awaitable[E]]) -> None:
        self._make = make
        self._made: E | None = None

    def __await__(self) -> Generator[Any, None, E]:
        return self._make().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # some ask for these, to find out what it is
            raise AttributeError(name)
        raise AttributeError(
            f"there is no {name} yet: this is still to be made, with `await` or `async with`"
        )

    async def __aenter__(self) -> E:
        if self._made is not None:
            raise RuntimeError("this was entered before: make another one")
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
