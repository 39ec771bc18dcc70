"""The holder's view of one lease: until when may it be trusted?

Theory of operation. The holder counts a term from the moment it *sent* the request, on its own
clock: the grantor cannot have begun earlier, so the holder stops trusting before the grantor ends.
From each term a fraction, `margin`, is left out for clocks that run at different speeds.

Each request is a `Send`. Answers may come in any order, or not at all:

- a granted answer is credited to its own send, and only if no later send was credited before;
- a request for *less* than the holder has may take effect at any time after it was sent: from then
  until its answer the view is held down to the end that was asked for. A definite failure lifts
  that again. An indefinite one leaves it: the grantor may have done it, and a holder must not count
  on time that it may have given away.
"""

from dataclasses import dataclass
from typing import Final

from leasehold.core.duration import NEVER, Duration, Requested, seconds_of

NOT_HELD_DOWN: Final = NEVER


@dataclass(slots=True, eq=False)
class Send:
    """A request for a term that was sent and is not settled."""

    number: int
    sent_at: float
    cap: float


class Holding:
    """A lease's end as its holder may trust it, in the holder's time."""

    __slots__ = ("_caps", "_credited", "_end", "_margin", "_sends", "term_s")

    def __init__(self, sent_at: float, granted: Duration, margin: float = 0.0) -> None:
        if not 0.0 <= margin < 1.0:
            raise ValueError(f"margin must be a fraction of a term from 0 to 1, not {margin!r}")
        self._margin = margin
        self._sends = 0
        self._credited = 0
        self._caps: list[Send] = []
        self.term_s = seconds_of(granted)
        self._end = self._end_of(sent_at, self.term_s)

    @property
    def end(self) -> float:
        """When to stop trusting; `NEVER` if it does not end."""
        if not self._caps:
            return self._end
        return min(self._end, *(send.cap for send in self._caps))

    def remaining_s(self, now: float) -> float:
        """How long the lease may still be trusted, never less than zero."""
        return max(0.0, self.end - now)

    def send(self, requested: Requested, now: float) -> Send:
        """Note that a term is asked for now."""
        self._sends += 1
        send = Send(self._sends, now, NOT_HELD_DOWN)
        if isinstance(requested, float):
            end = self._end_of(now, requested)
            if end < self.end:
                send.cap = end
                self._caps.append(send)
        return send

    def answered(self, send: Send, granted: Duration) -> None:
        """Credit a term that was granted to the send that asked for it."""
        self._lift(send)
        term_s = seconds_of(granted)
        end = self._end_of(send.sent_at, term_s)
        if send.number > self._credited:
            self._credited = send.number
            self._end = end
            self.term_s = term_s
        elif send.cap != NOT_HELD_DOWN:
            self._end = min(self._end, end)

    def failed(self, send: Send, *, definite: bool) -> None:
        """Note that a request failed, and whether it is known to have had no effect."""
        self._lift(send)
        if not definite:
            self._end = min(self._end, send.cap)

    def end_at(self, now: float) -> None:
        """Trust it no longer."""
        self._end = min(self._end, now)

    def _lift(self, send: Send) -> None:
        if send.cap != NOT_HELD_DOWN:
            self._caps.remove(send)

    def _end_of(self, sent_at: float, term_s: float) -> float:
        return sent_at + term_s * (1.0 - self._margin)
