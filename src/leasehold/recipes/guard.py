"""`Guard`: one acquisition of a lock."""

from typing import TYPE_CHECKING
from weakref import ref

from leasehold.client.body import Body
from leasehold.client.signal import Signal
from leasehold.errors import Forked, LeaseholdError, LockLost, NotHeld
from leasehold.recipes.events import LockEventKind
from leasehold.recipes.guarding import AnyGuard
from leasehold.recipes.options import LockOptions, OnLoss
from leasehold.recipes.token import Token

if TYPE_CHECKING:
    from leasehold.recipes.tenure import Tenure


class Guard(AnyGuard):
    """A lock that is held, until `release`. Whoever has this object has the lock."""

    __slots__ = ("__weakref__", "_claims", "_tenure", "options")

    def __init__(
        self, tenure: "Tenure", depths: list[int], token: Token, options: LockOptions
    ) -> None:
        # All here and not by `super`, as in `enter` and `leave`: cached locks are acquired often.
        self.token = token
        self._body = None
        self.twin = None
        self._tenure = tenure
        self._claims = [depths]
        self.options = options

    def __del__(self) -> None:
        if self._claims and not self._tenure.is_over:
            self._tenure.forgotten(self._claims, self.options)

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
        """Raise `LockLost` unless it can be relied on now: by the clock, whatever was told.

        Its cause is `Closed`, `Forked` or `HistoryLost` if the client was closed, is that of the
        parent process, or has found another keyspace. After a release it raises `NotHeld`.
        """
        if not self._claims:
            raise self._not_held()
        try:
            self._tenure.cell.check()
        except LeaseholdError as error:
            raise LockLost(self.name, self._tenure.session.lease.id, str(error)) from error
        self._tenure.check()

    def put_by(self) -> None:
        """See to what `put_back` has left to the loop."""
        self._tenure.cell.returned_in_any_loop(self._tenure)

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
        if is_last:
            return tenure.put_back(self.options)
        tenure.check()
        return True

    def as_lost(self) -> LockLost:
        """Make the error for whoever relies on it for too long."""
        return self._tenure.as_lost()

    def again(self) -> "Guard":
        """Acquire it once more, for whoever has it already: it is free when both are released.

        The token is the same: to a resource they are one holder.
        """
        self.check()
        try:
            claim = self._claims[0]
        except IndexError:
            raise self._not_held() from None
        claim.append(1)
        if claim[0] != 0:  # the last of them was released in another thread, before that
            claim.remove(1)
            raise self._not_held()
        nested = Guard(self._tenure, claim, self.token, self.options)
        self._tenure.nested.append(ref(nested))
        return nested

    def _not_held(self) -> NotHeld:
        tenure = self._tenure
        if tenure.log.is_on:
            tenure.log.say("application", LockEventKind.RELEASE_NOT_HELD, tenure.name)
        return NotHeld(f"this guard of {tenure.name!r} was released before")

    def enter(self) -> None:
        """Begin its block, in the running task."""
        if self.options.cancel_on_loss:
            self._body = Body()
            self._body.enter()

    def leave(self, exc_type: type[BaseException] | None) -> None:
        """End its block; `LockLost` if it was lost, unless the block has failed of something."""
        if self._body is not None:
            super().leave(exc_type)
            return
        if not self._claims:
            return  # released in the block
        try:
            if not self.put_back():
                self.put_by()
        except Forked:
            return  # the parent has it still
        except LockLost:
            if exc_type is None:
                raise

    # What its recipe says of it.

    @property
    def _on_loss(self) -> OnLoss | None:
        return self.options.on_loss

    @property
    def _cancel_on_loss(self) -> bool:
        return self.options.cancel_on_loss
