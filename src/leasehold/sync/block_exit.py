"""The end of a `with` block, also if a signal handler raises an exception in the middle of it.

Theory of operation. Python runs signal handlers between two instructions, also before the first one
of `__exit__`. If the handler raises an exception there, no code of `__exit__` has run and none will
run. So `__exit__` is a descriptor here. The `with` statement looks it up before it calls
`__enter__`, receives a callable of its own, and has the only reference to it until the statement is
left in any way. `__enter__` records in its `WithBlock` the object it has acquired (`begin`). A
callable that dies before it has completed `__exit__` was interrupted, and has the event loop
release that object.

The callable is a `partial`, so that no frame, and hence no traceback, refers to it. It is watched
by a weak reference that only its own arguments refer to. The callback therefore runs if the
reference count of the callable drops to zero, and does not run if the garbage collector finds it in
a cycle: then it is in the frame of a generator, which the collector closes, so that `__exit__` is
called as usual, and the rest of the block must not run unprotected. An ordinary end of a block runs
no finalizer: an exception of a signal handler in one is printed by Python and not raised.

A lookup and a call of `__enter__` belong together if one instruction does both. Programs that call
`__enter__` and `__exit__` themselves, as `contextlib.ExitStack` does, have no `WithBlock`.
"""

import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from weakref import ref

F = TypeVar("F", bound=Callable[..., None])


class Abandonable(Protocol):
    """Acquired by a block: guards, leases and clients of blocking code."""

    def abandon(self) -> None:
        """Have the loop release it, unless it was released. Never waits; works in any thread."""
        ...


class WithBlock:
    """The end of one `with` statement."""

    __slots__ = ("entry", "leave", "owner", "where")

    entry: "_BlockRef | None"
    """None once `leave` is completed."""
    leave: Callable[..., None]
    owner: object
    where: tuple[int, int]
    """The frame, and the instruction in it, that has looked it up."""


def _leave(
    block: WithBlock,
    exc_type: type[BaseException] | None,
    exc: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    block.leave(block.owner, exc_type, exc, traceback)
    block.entry = None


class _BlockRef(ref["partial[None]"]):
    """A weak reference to the callable of a block: it has `held` released if that dies early."""

    __slots__ = ("held",)

    held: Abandonable
    """Set when the block has begun."""


def _interrupted(entry: _BlockRef) -> None:
    held = getattr(entry, "held", None)
    if held is not None:
        held.abandon()


_next: dict[int, _BlockRef] = {}
"""The block that each thread is about to enter. Weak references: a statement that is interrupted
before `__enter__` leaves none that another one could take for its own."""

INSTRUCTION_BYTES: Final = 0 if sys.version_info < (3, 14) else 16
"""How far the call of `__enter__` may be behind the lookup: since Python 3.14 these are several
instructions."""


class _BlockExit(Generic[F]):
    """Descriptor for `__exit__` that makes a new `WithBlock` for each `with` statement."""

    def __init__(self, exit_: F) -> None:
        self._exit = exit_

    def __get__(self, owner: object, kind: type) -> Any:
        if owner is None:
            return self._exit
        frame = sys._getframe(1)  # noqa: SLF001  no public alternative
        block = WithBlock()  # no `__init__`: cached locks are acquired often
        block.leave = self._exit
        block.owner = owner
        block.where = (id(frame), frame.f_lasti)
        leave = partial(_leave, block)
        block.entry = entry = _BlockRef(leave, _interrupted)
        _next[get_ident()] = entry
        return leave


def block_exit(exit_: F) -> F:
    """Return a descriptor for an `__exit__` that takes effect in any case."""
    return cast("F", _BlockExit(exit_))


def begin(owner: object, held: Abandonable, leave: Callable[..., None] | None = None) -> bool:
    """Have `held` released with the block that is about to begin; at the end of `__enter__`.

    With `leave` the block ends with `leave(held, exc_type, exc, traceback)`, not with `__exit__` of
    its owner. Returns False if there is no block: `__enter__` was not called by a `with` statement.
    """
    entry = _next.pop(get_ident(), None)
    callable_ = None if entry is None else entry()
    if entry is None or callable_ is None:
        return False
    block: WithBlock = callable_.args[0]
    frame = sys._getframe(2)  # noqa: SLF001
    frame_id, instruction = block.where
    distance = frame.f_lasti - instruction
    if block.owner is not owner or frame_id != id(frame) or not 0 <= distance <= INSTRUCTION_BYTES:
        return False
    entry.held = held
    if leave is not None:
        block.leave = leave
        block.owner = held
    return True
