"""`Guard`: one acquisition of a lock."""

import asyncio
import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from leasehold.client.body import Body
from leasehold.client.signal import Signal
from leasehold.errors import Forked, LockLost, NotHeld
from leasehold.recipes.events import LockEventKind
from leasehold.recipes.options import LockOptions
from leasehold.recipes.token import Token

if TYPE_CHECKING:
    from leasehold.recipes.tenure import Tenure

logger = logging.getLogger(__name__)


class Guard:
    """A lock that is held, until `release`. Whoever has this object has the lock."""

    __slots__ = ("_body", "_claims", "_tenure", "options", "token", "twin")

    def __init__(
        self, tenure: "Tenure", claim: list[int], token: Token, options: LockOptions
    ) -> None:
        self._tenure = tenure
        self._claims = [claim]
        self.token = token
        """The fencing token: higher than that of anybody who had the lock before."""
        self.options = options
        self._body: Body | None = None
        self.twin: Any = None
        """What stands for it in blocking code."""

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._tenure.name

    @property
    def key(self) -> bytes:
        """The key that stands for it at the server: it is there while the lock is held."""
        return self._tenure.key

    @property
    def lost(self) -> Signal:
        """Set once the lock is lost. It tells; what counts is `check`."""
        return self._tenure.lost

    @property
    def jeopardy(self) -> Signal:
        """Set while there is no contact, and the lock may yet be lost."""
        return self._tenure.session.lease.jeopardy

    @property
    def is_released(self) -> bool:
        """Whether it was released."""
        return not self._claims

    @property
    def is_held(self) -> bool:
        """Whether it can be relied on now: by the clock."""
        return bool(self._claims) and self._tenure.is_live

    @property
    def remaining(self) -> float:
        """How long it may still be relied on, unless it is renewed; 0.0 once it may not."""
        return self._tenure.remaining_s if self._claims else 0.0

    def check(self) -> None:
        """Raise `LockLost` unless it can be relied on now: by the clock, whatever was told."""
        self._tenure.cell.check()
        if not self._claims:
            raise self._not_held()
        if not self._tenure.is_live:
            raise self._tenure.as_lost()

    def release(self) -> None:
        """Release it. There is nothing to wait for.

        Raises `NotHeld` if that was done before, and `LockLost` if the lock was lost meanwhile:
        what was done under it since then was not protected.
        """
        if not self.put_back():
            self.put_by()

    def put_by(self) -> None:
        """See to what `put_back` has left to the loop."""
        self._tenure.cell.returned(self._tenure)

    def put_back(self) -> bool:
        """Release it in any thread; False if the loop has to see to the rest."""
        tenure = self._tenure
        try:
            claim = self._claims.pop()
        except IndexError:
            tenure.cell.check()
            raise self._not_held() from None
        is_last = claim.pop() == 0
        if tenure.log.is_on:
            tenure.log.say("application", LockEventKind.RELEASED, tenure.name, token=self.token)
        return tenure.put_back(self) if is_last else True

    def as_lost(self) -> LockLost:
        """Make the error for whoever relies on it for too long."""
        return self._tenure.as_lost()

    def again(self) -> "Guard":
        """Acquire it once more, for whoever has it already: it is free when both are released.

        The token is the same: to a resource they are one holder.
        """
        self.check()
        claim = self._claims[0]
        claim.append(1)
        return Guard(self._tenure, claim, self.token, self.options)

    def _not_held(self) -> NotHeld:
        tenure = self._tenure
        if tenure.log.is_on:
            tenure.log.say("application", LockEventKind.RELEASE_NOT_HELD, tenure.name)
        return NotHeld(f"this guard of {tenure.name!r} was released before")

    def was_lost(self, error: BaseException | None) -> None:
        """Learn that the lock is lost; on the loop."""
        if not self._claims:
            return
        if self._body is not None:
            self._body.cancel()
        if self.options.on_loss is None:
            return
        try:
            self.options.on_loss(self, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            logger.exception("a callback for lock %r has failed", self.name)

    async def __aenter__(self) -> Self:
        self.check()
        self.enter()
        return self

    def enter(self) -> None:
        """Begin its block, in the running task."""
        if self.options.cancel_on_loss:
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
        if not self._claims:
            return  # released in the block
        is_cancelled = self._body is not None and self._body.leave()
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
        return f"<Guard of {self.name!r}, token {self.token}: {state}>"
