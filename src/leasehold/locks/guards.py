"""Guards: the options of acquisitions, the base of all guards, and the blocks of a handle.

Blocking code uses them, too: there a guard is checked in any thread, and only the rest of a release
is left to the loop. Threads enter and exit the blocks of a handle at the same time, and each exits
the block it has entered. So nothing there uses an index, which another thread could invalidate: an
entry that is found is removed by value in one step, or another thread has removed it.
"""

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar
from weakref import ref

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import check_seconds
from leasehold.engine.time_limits import Timeout
from leasehold.errors import Forked, LockLost
from leasehold.fencing.token import Token
from leasehold.sessions.kept_lease import CancelScope, Signal

logger = logging.getLogger(__name__)

RECALL_S: Final = 1.0
"""With `timeout=0`: how long to wait for the holder's answer, by default."""

OnLoss: TypeAlias = Callable[[Any, BaseException | None], object]
"""Called with a guard that was lost, and the cause: the error of its session's last renewal."""


def check_wait(timeout: Timeout) -> float | None:
    """Check a timeout: None for no limit, 0 to not wait for others."""
    if timeout is None:
        return None
    if not isinstance(timeout, bool) and timeout in (0, timedelta()):
        return 0.0
    return check_seconds(timeout, "timeout")


@dataclass(frozen=True, slots=True)
class LockOptions:
    """The options of one acquisition of a lock."""

    cache: bool
    """Keep the lock when it is released, until another client waits or it was idle for long."""
    recall: bool
    """Give it up for others as soon as it is idle."""
    idle_s: float
    recall_s: float
    on_loss: OnLoss | None = None
    cancel_on_loss: bool = False
    count: bool = False
    """Keep the number of acquisitions when the lock is free."""


def options_of(
    defaults: LockOptions,
    *,
    cache: bool,
    recall: bool,
    idle_timeout: float | timedelta | None,
    recall_timeout: float | timedelta,
    on_loss: OnLoss | None,
    cancel_on_loss: bool,
    count: bool,
) -> LockOptions:
    """Check and return the options of a lock."""
    given = (cache, recall, idle_timeout, recall_timeout, on_loss, cancel_on_loss, count)
    if given == (True, True, None, RECALL_S, None, False, False):
        return defaults  # as almost always; this is called often
    check_plain_callback(on_loss, "on_loss")
    idle_s = defaults.idle_s
    if idle_timeout is not None:
        idle_s = check_seconds(idle_timeout, "idle_timeout")
    recall_s = check_seconds(recall_timeout, "recall_timeout")
    return LockOptions(cache, recall, idle_s, recall_s, on_loss, cancel_on_loss, count)


G = TypeVar("G")


class AnyGuard(ABC):
    """Base of guards: the owner of this object holds the lock or place, until `release`."""

    __slots__ = ("_cancel_scope", "token", "twin")

    def __init__(self, token: Token) -> None:
        self.token = token
        """The fencing token."""
        self._cancel_scope: CancelScope | None = None
        self.twin: Any = None
        """Its counterpart in the blocking API."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the held lock or place."""

    @property
    @abstractmethod
    def key(self) -> bytes:
        """Its key at the server, which exists while it is held."""

    @property
    @abstractmethod
    def lost(self) -> Signal:
        """Set once it is lost. It only notifies; `check` decides."""

    @property
    @abstractmethod
    def jeopardy(self) -> Signal:
        """Set while there is no contact to the server, and it may yet be lost."""

    @property
    @abstractmethod
    def is_released(self) -> bool:
        """Whether it was released."""

    @property
    @abstractmethod
    def is_held(self) -> bool:
        """Whether it is held now, by the clock."""

    @property
    @abstractmethod
    def remaining(self) -> float:
        """How long it is still held unless it is renewed, in seconds; 0.0 once it is not held."""

    @abstractmethod
    def check(self) -> None:
        """Raise `LockLost` unless it is held now: by the clock, whatever was reported."""

    def release(self) -> None:
        """Release it, without waiting.

        Raises `NotHeld` if it was released before, and `LockLost` if it was lost in the meantime:
        work done under it since then was not protected.
        """
        if not self.put_back():
            self.put_by()

    @abstractmethod
    def put_back(self) -> bool:
        """Release it in any thread; False if the loop has to complete the release."""

    @abstractmethod
    def put_by(self) -> None:
        """Have the loop complete the release that `put_back` has begun."""

    @abstractmethod
    def settle(self) -> None:
        """Release it, or complete a release that was interrupted; on the loop."""

    @abstractmethod
    def as_lost(self) -> LockLost:
        """Return the error for a caller that relies on it after its end."""

    # The options of its recipe.

    @property
    @abstractmethod
    def _on_loss(self) -> Callable[[Any, BaseException | None], object] | None:
        """Called with the guard and the cause if it is lost."""

    @property
    @abstractmethod
    def _cancel_on_loss(self) -> bool:
        """Whether its block is cancelled on a loss."""

    def was_lost(self, error: BaseException | None) -> None:
        """Mark it as lost; on the loop."""
        if self.is_released:
            return
        if self._cancel_scope is not None:
            self._cancel_scope.cancel()
        on_loss = self._on_loss
        if on_loss is None:
            return
        try:
            on_loss(self, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # also a CancelledError: it is not this task that was cancelled
            logger.exception("a callback for %r has failed", self.name)

    # Its block.

    async def __aenter__(self) -> Self:
        self.check()
        self.enter()
        return self

    def enter(self) -> None:
        """Enter its block, in the running task."""
        if self._cancel_on_loss:
            self._cancel_scope = CancelScope()
            self._cancel_scope.enter()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave(exc_type)

    def leave(self, exc_type: type[BaseException] | None) -> None:
        """Exit its block; raises `LockLost` if it was lost, unless the block has raised."""
        is_cancelled = self._cancel_scope is not None and self._cancel_scope.leave()
        if self.is_released:
            return  # released in the block
        try:
            if not self.put_back():
                self.put_by()
        except Forked:
            return  # the parent process still holds it
        except LockLost:
            if exc_type is None or (is_cancelled and exc_type is asyncio.CancelledError):
                raise

    def __repr__(self) -> str:
        state = "held" if self.is_held else "not held"
        return f"<{type(self).__name__} of {self.name!r}, token {self.token}: {state}>"


Entered: TypeAlias = tuple[object, G, FrameType | None]
"""A block that was entered: its task or thread, its guard, and the frame of its statement if that
is known."""


def take_block(entered: list[Entered[G]], who: object, frame: FrameType | None = None) -> G:
    """Remove and return the guard of the block that is exited.

    That is the latest block of this statement in this task or thread. An async generator that its
    program has dropped is closed by another task: then it is that of the statement. A program that
    calls `__exit__` itself has other statements: then it is that of the task. If neither is found
    it is one whose statement is not known, or the only one. Raises `RuntimeError` if there are
    others: the guard of a block that may still run is not released.
    """

    def rank(entry: Entered[G]) -> int:
        if entry[2] is None or frame is None:
            return 1 + 2 * (entry[0] == who)
        return 4 * (entry[2] is frame) + 2 * (entry[0] == who)

    while True:
        blocks = entered.copy()
        if not blocks:
            raise IndexError("no block was entered")
        ranks = [rank(entry) for entry in blocks]
        best = max(ranks)
        if best < 2 and ranks.count(best) > 1:
            raise RuntimeError(
                "cannot tell which block is exited: several are entered, none of them by this task "
                "or thread; call acquire() and use its guard as the context manager"
            )
        entry = blocks[len(ranks) - 1 - ranks[::-1].index(best)]
        with suppress(ValueError):  # another thread without a block of its own has taken it
            entered.remove(entry)
            return entry[1]


class Blocks(Generic[G]):
    """Guards of entered blocks, and their tasks or threads."""

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        self._entered: list[Entered[G]] = []

    def enter(self, who: object, guard: G, frame: FrameType | None = None) -> None:
        """Record the guard of a block, the task or thread that is in it, and its frame."""
        self._entered.append((who, guard, frame))

    def leave(self, who: object, frame: FrameType | None = None) -> G:
        """Return the guard of the block that is exited, see `take_block`."""
        return take_block(self._entered, who, frame)

    def forget(self, guard: G) -> None:
        """Remove the block of a guard."""
        self._entered = [entry for entry in self._entered if entry[1] is not guard]


class _StackBlock:
    """A block of a handle in an `AsyncExitStack`."""

    def __init__(self, frame: FrameType) -> None:
        self.frame = id(frame)
        """The call that has looked up `__aenter__`, and looks up `__aexit__` next."""
        self._guard: AnyGuard | None = None

    async def enter(self, handle: Any) -> AnyGuard:
        guard: AnyGuard = await handle.__aenter__()
        handle._forget_block(guard)  # noqa: SLF001
        self._guard = guard
        return guard

    async def leave(
        self,
        handle: Any,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        guard, self._guard = self._guard, None
        if guard is None:  # it was entered in another way
            await handle.__aexit__(exc_type, exc, traceback)
        else:
            guard.leave(exc_type)


_next_block: dict[int, ref[_StackBlock]] = {}
"""The block that each thread is about to enter."""


class HandleType(type):
    """The type of handles whose blocks may be in an `AsyncExitStack`, which any task may close.

    A stack looks `__aenter__` and `__aexit__` up on the class of the handle, in this order, and
    gets methods of one block: its end releases the guard that its beginning has acquired. The
    `async with` statement does not use the attributes of this type.
    """

    @property
    def __aenter__(cls) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        block = _StackBlock(sys._getframe(1))  # noqa: SLF001  no public alternative
        _next_block[get_ident()] = ref(block)
        return block.enter

    @property
    def __aexit__(cls) -> Callable[..., Coroutine[Any, Any, None]]:  # noqa: PLE0302
        frame = sys._getframe(1)  # noqa: SLF001
        begun = _next_block.pop(get_ident(), None)
        block = None if begun is None else begun()
        return (block if block and block.frame == id(frame) else _StackBlock(frame)).leave
