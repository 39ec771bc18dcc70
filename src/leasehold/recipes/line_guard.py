"""`LineGuard`: what whoever was let in has, until it leaves."""

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from leasehold.client.body import Body
from leasehold.client.signal import Signal
from leasehold.core.duration import Duration
from leasehold.errors import LeaseLost, LockLost, NotHeld
from leasehold.recipes.line import Place
from leasehold.recipes.naming import text_of
from leasehold.recipes.token import Token

logger = logging.getLogger(__name__)

OnLoss: TypeAlias = Callable[[Any, BaseException | None], object]
"""Told of a guard that is lost, and of what is behind that, if it is known."""


class LineGuard:
    """One acquisition. Whether it can be relied on `check` says, by the clock."""

    def __init__(
        self, place: Place, *, on_loss: OnLoss | None = None, cancel_on_loss: bool = False
    ) -> None:
        self._place = place
        self._session = place.session
        self._lines = place.lines
        self.name = text_of(place.line.name)
        """What it is a guard of."""
        self.token = Token(place.created, 1)
        """The fencing token: whoever came later has a higher one."""
        self.key = place.key
        """The key that stands for it at the server: it is there while it is held."""
        self.lost = Signal()
        """Set when it is lost: a notification; `check` says whether it is."""
        self._on_loss = on_loss
        self._body = Body() if cancel_on_loss else None
        self._is_released = False
        place.on_loss = self._lose

    @property
    def jeopardy(self) -> Signal:
        """Set while there is no contact, and it may yet be lost."""
        return self._session.lease.jeopardy

    @property
    def is_held(self) -> bool:
        """Whether it can be relied on now."""
        return self.remaining != 0.0

    @property
    def remaining(self) -> Duration:
        """How long it may still be relied on, unless the session is renewed; 0.0 once it is over.

        In seconds, by the clock.
        """
        if self._is_released or self._place.loss is not None:
            return 0.0
        return self._session.lease.remaining

    def check(self) -> None:
        """Raise `LockLost` unless it can be relied on now; `NotHeld` once it was released."""
        self._lines.check()
        if self._is_released:
            raise self._not_held()
        if (loss := self._find_loss()) is not None:
            raise loss

    def release(self) -> None:
        """Let others in. There is nothing to wait for: its key is deleted in the background.

        Raises `NotHeld` if it was released before, and `LockLost` if it was lost before.
        """
        if self._is_released or self._lines.is_forked:
            self._lines.check()
            raise self._not_held()
        loss = self._find_loss()
        self._leave()
        if loss is not None:
            raise loss

    async def __aenter__(self) -> Self:
        try:
            self.check()
        except BaseException:
            self._leave()
            raise
        if self._body is not None:
            self._body.enter()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        is_cancelled = self._body is not None and self._body.leave()
        if self._is_released or self._lines.is_forked:
            return  # released in the block; or it is the parent's
        loss = self._find_loss()
        self._leave()
        if loss is None:
            return
        if exc_type is None or (is_cancelled and exc_type is asyncio.CancelledError):
            raise loss from None

    def abandon(self) -> None:
        """Let others in, whatever has become of it: its owner never got it."""
        if not self._is_released:
            self._leave()

    def _leave(self) -> None:
        self._is_released = True
        self._place.give_up()

    def _not_held(self) -> NotHeld:
        return NotHeld(f"{self.name!r} is not held: this guard was released before")

    def _find_loss(self) -> LockLost | None:
        """Say why it cannot be relied on; None while it can."""
        loss = self._place.loss
        if loss is None and not self._session.is_live:
            loss = self._session.as_expired()
        return None if loss is None else LockLost(self.name, loss.lease, loss.why)

    def _lose(self, loss: LeaseLost, error: BaseException | None) -> None:
        """Learn that it is lost."""
        if self._is_released:
            return
        self.lost.set()
        logger.warning("%s", self._find_loss())
        if self._body is not None:
            self._body.cancel()
        if self._on_loss is None:
            return
        try:
            self._on_loss(self, error or loss)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a CancelledError, too: it is not this task that was cancelled
            logger.exception("a callback for the loss of %r has failed", self.name)

    def __repr__(self) -> str:
        state = "released" if self._is_released else "held" if self.is_held else "lost"
        return f"<{type(self).__name__} {self.name!r} {self.token}: {state}>"
