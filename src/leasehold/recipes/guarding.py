"""What guards have in common, of locks and of places in line: their blocks, and how they are told.

Also in blocking code, where what may be relied on is asked in any thread, and only the rest of a
release is left to the loop.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from leasehold.client.body import Body
from leasehold.client.signal import Signal
from leasehold.errors import Forked, LockLost
from leasehold.recipes.token import Token

logger = logging.getLogger(__name__)


class AnyGuard(ABC):
    """Something that is held, until `release`. Whoever has this object has it."""

    __slots__ = ("_body", "token", "twin")

    def __init__(self, token: Token) -> None:
        self.token = token
        """The fencing token."""
        self._body: Body | None = None
        self.twin: Any = None
        """What stands for it in blocking code."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of what is held."""

    @property
    @abstractmethod
    def key(self) -> bytes:
        """The key that stands for it at the server: it is there while it is held."""

    @property
    @abstractmethod
    def lost(self) -> Signal:
        """Set once it is lost. It tells; what counts is `check`."""

    @property
    @abstractmethod
    def jeopardy(self) -> Signal:
        """Set while there is no contact, and it may yet be lost."""

    @property
    @abstractmethod
    def is_released(self) -> bool:
        """Whether it was released."""

    @property
    @abstractmethod
    def is_held(self) -> bool:
        """Whether it can be relied on now: by the clock."""

    @property
    @abstractmethod
    def remaining(self) -> float:
        """How long it may still be relied on, unless it is renewed; 0.0 once it may not."""

    @abstractmethod
    def check(self) -> None:
        """Raise `LockLost` unless it can be relied on now: by the clock, whatever was told."""

    def release(self) -> None:
        """Release it. There is nothing to wait for.

        Raises `NotHeld` if that was done before, and `LockLost` if it was lost meanwhile: what was
        done under it since then was not protected.
        """
        if not self.put_back():
            self.put_by()

    @abstractmethod
    def put_back(self) -> bool:
        """Release it in any thread; False if the loop has to see to the rest."""

    @abstractmethod
    def put_by(self) -> None:
        """See to what `put_back` has left to the loop."""

    @abstractmethod
    def as_lost(self) -> LockLost:
        """Make the error for whoever relies on it for too long."""

    # What its recipe says of it.

    @property
    @abstractmethod
    def _on_loss(self) -> Callable[[Any, BaseException | None], object] | None:
        """Who is told if it is lost."""

    @property
    @abstractmethod
    def _cancel_on_loss(self) -> bool:
        """Whether its block is cancelled then."""

    def was_lost(self, error: BaseException | None) -> None:
        """Learn that it is lost; on the loop."""
        if self.is_released:
            return
        if self._body is not None:
            self._body.cancel()
        on_loss = self._on_loss
        if on_loss is None:
            return
        try:
            on_loss(self, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a CancelledError, too: it is not this task that was cancelled
            logger.exception("a callback for %r has failed", self.name)

    # Its block.

    async def __aenter__(self) -> Self:
        self.check()
        self.enter()
        return self

    def enter(self) -> None:
        """Begin its block, in the running task."""
        if self._cancel_on_loss:
            self._body = Body()
            self._body.enter()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave(exc_type)

    def leave(self, exc_type: type[BaseException] | None) -> None:
        """End its block; `LockLost` if it was lost, unless the block has failed of something."""
        is_cancelled = self._body is not None and self._body.leave()
        if self.is_released:
            return  # in the block
        try:
            if not self.put_back():
                self.put_by()
        except Forked:
            return  # the parent has it still
        except LockLost:
            if exc_type is None or (is_cancelled and exc_type is asyncio.CancelledError):
                raise

    def __repr__(self) -> str:
        state = "held" if self.is_held else "not held"
        return f"<{type(self).__name__} of {self.name!r}, token {self.token}: {state}>"
