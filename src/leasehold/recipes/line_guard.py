"""`LineGuard`: what whoever was let in has, until it leaves."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias
from weakref import ref

from leasehold.client.signal import Signal
from leasehold.core.duration import seconds_of
from leasehold.errors import LeaseholdError, LeaseLost, LockLost, NotHeld
from leasehold.recipes.guarding import AnyGuard
from leasehold.recipes.line import Place
from leasehold.recipes.naming import text_of
from leasehold.recipes.token import Token

logger = logging.getLogger(__name__)

OnLoss: TypeAlias = Callable[[Any, BaseException | None], object]
"""Told of a guard that is lost, and of what is behind that, if it is known."""


class LineGuard(AnyGuard):
    """A place that was let in, until `release`. Its token is higher than that of any ahead."""

    __slots__ = ("__weakref__", "_cancels", "_claim", "_lost", "_place", "_told")

    def __init__(
        self, place: Place, *, on_loss: OnLoss | None = None, cancel_on_loss: bool = False
    ) -> None:
        super().__init__(Token(place.created, 1))
        self._place = place
        self._claim = [place]
        """Who pops it has released it: in any thread."""
        self._lost = Signal()
        self._told = on_loss
        self._cancels = cancel_on_loss
        place.on_loss = partial(_lose, ref(self))

    def __del__(self) -> None:
        place = self._place
        if self._claim and place.loss is None and place.is_wanted and not self._is_forked:
            place.forgotten(self._claim)

    @property
    def name(self) -> str:
        """The name of what is held."""
        return text_of(self._place.line.name)

    @property
    def key(self) -> bytes:
        """The key that stands for it at the server: it is there while it is held."""
        return self._place.key

    @property
    def lost(self) -> Signal:
        """Set once it is lost. It tells; what counts is `check`."""
        return self._lost

    @property
    def jeopardy(self) -> Signal:
        """Set while there is no contact, and it may yet be lost."""
        return self._place.session.lease.jeopardy

    @property
    def is_released(self) -> bool:
        """Whether it was released."""
        return not self._claim

    @property
    def is_held(self) -> bool:
        """Whether it can be relied on now: by the clock."""
        return self.remaining > 0.0

    @property
    def remaining(self) -> float:
        """How long it may still be relied on, unless it is renewed; 0.0 once it may not."""
        place = self._place
        if not self._claim or place.loss is not None or not place.is_wanted or self._is_forked:
            return 0.0
        return seconds_of(place.session.lease.remaining)

    def check(self) -> None:
        """Raise `LockLost` unless it can be relied on now: by the clock, whatever was told.

        Its cause is `Closed`, `Forked` or `HistoryLost` if the client was closed, is that of the
        parent process, or has found another keyspace. After a release it raises `NotHeld`.
        """
        if not self._claim:
            raise self._not_held()
        try:
            self._place.lines.check()
        except LeaseholdError as error:
            raise LockLost(self.name, self._place.session.lease.id, str(error)) from error
        if not self.is_held:
            raise self.as_lost()

    def put_back(self) -> bool:
        """Release it in any thread; False if the loop has to see to the rest."""
        if self._is_forked:
            self._place.lines.check()
        is_held = self.is_held
        try:
            self._claim.pop()
        except IndexError:
            raise self._not_held() from None
        except BaseException:  # such as Ctrl-C: whoever was to tell the loop may not know of it
            self._claim.clear()
            self._place.give_up_soon()
            raise
        if not is_held:
            self._place.give_up_soon()
            raise self.as_lost()
        return False

    def put_by(self) -> None:
        """See to what `put_back` has left to the loop."""
        self._place.give_up_in_any_loop()

    def as_lost(self) -> LockLost:
        """Make the error for whoever relies on it for too long."""
        place = self._place
        lease = place.session.lease.id
        if place.loss is None and not place.is_wanted:
            return LockLost(self.name, lease, "the client was closed")
        loss = place.loss or place.session.as_expired()
        return LockLost(self.name, lease, loss.why)

    @property
    def _is_forked(self) -> bool:
        return self._place.lines.is_forked

    @property
    def _on_loss(self) -> OnLoss | None:
        return self._told

    @property
    def _cancel_on_loss(self) -> bool:
        return self._cancels

    def _not_held(self) -> NotHeld:
        return NotHeld(f"this guard of {self.name!r} was released before")

    def lose(self, error: BaseException | None) -> None:
        """Report that the place is over."""
        if self.is_released:
            return
        self._lost.set()
        logger.warning("%s", self.as_lost())
        self.was_lost(error)


def _lose(guard: ref[LineGuard], _loss: LeaseLost, error: BaseException | None) -> None:
    """Report that a place is over to its guard, unless that was forgotten."""
    if (alive := guard()) is not None:
        alive.lose(error)
