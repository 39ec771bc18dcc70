"""The end of a `with` block, also if an exception of a signal handler is raised in it.

Theory of operation. Python runs signal handlers between two instructions, also before the first one
of `__exit__`. If the handler raises an exception then, no code of `__exit__` has run and none will.
So `__exit__` is not a plain method here but a descriptor. The `with` statement asks for it before
the block begins, gets an object of its own, a `Block`, and has the only reference to it until the
block has ended in whatever way. `__enter__` tells the block what it has acquired (`begin`). If the
block is collected without having released that, a finalizer has it released (`abandon`).

`contextlib.ExitStack` gets the plain function, and so has no such block: an exception at that one
point leaves to the garbage collector what was acquired.
"""

from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from weakref import ref

F = TypeVar("F", bound=Callable[..., None])


class Held(Protocol):
    """What a block has acquired."""

    def abandon(self) -> None:
        """Have the loop release it, unless it was released; in any thread, from a finalizer."""
        ...


class Sentinel:
    """Belongs to one block at a time: finds that the block was collected without being left.

    Sentinels are used again, so that leaving a block runs no finalizer: Python would report an
    exception of a signal handler in it, and not raise it.
    """

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: Held | None = None

    def __del__(self) -> None:
        held = getattr(self, "held", None)  # it may have been interrupted while it was made
        if held is not None:
            held.abandon()


class Block:
    """The end of one block: what its `with` statement calls."""

    __slots__ = ("__weakref__", "leave", "owner", "sentinel")

    def __init__(self, leave: Callable[..., None], owner: object) -> None:
        self.leave = leave
        self.owner = owner
        self.sentinel: Sentinel | None = None

    def __call__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave(self.owner, exc_type, exc, traceback)
        sentinel = self.sentinel
        if sentinel is not None:
            self.sentinel = sentinel.held = None
            if len(_spare) < MAX_SPARE:
                _spare.append(sentinel)


MAX_SPARE: Final = 256
"""Sentinels that are kept: as many as there are blocks at the same time in most programs."""

_spare: list[Sentinel] = []

_next: dict[int, ref[Block]] = {}
"""The block that a thread is about to enter: one entry for each thread that was about to."""


class _BlockExit(Generic[F]):
    """`__exit__` of a context manager: a new `Block` each time that it is asked for."""

    def __init__(self, exit_: F) -> None:
        self._exit = exit_

    def __get__(self, owner: object, kind: type) -> Any:
        if owner is None:
            return self._exit
        block = Block(self._exit, owner)
        _next[get_ident()] = ref(block)
        return block


def block_exit(exit_: F) -> F:
    """Make a method the `__exit__` of blocks that are ended in any case."""
    return cast("F", _BlockExit(exit_))


def begin(owner: object, held: Held, leave: Callable[..., None] | None = None) -> bool:
    """Have `held` released with the block that is about to begin; at the end of `__enter__`.

    With `leave` the block ends with `leave(held, exc_type, exc, traceback)`, not with `__exit__` of
    its owner. False if there is no such block: `__enter__` was not called by a `with` statement.
    """
    try:
        block = _next.pop(get_ident())()
    except KeyError:
        return False
    if block is None or block.owner is not owner:
        return False
    try:
        sentinel = _spare.pop()
    except IndexError:
        sentinel = Sentinel()
    block.sentinel = sentinel
    sentinel.held = held
    if leave is not None:
        block.leave = leave
        block.owner = held
    return True
