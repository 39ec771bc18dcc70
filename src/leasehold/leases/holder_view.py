"""The holder's view of one lease: until when may it be trusted?

Theory of operation. The holder counts a term from the moment it *sent* the request, on its own
clock: the grantor cannot have begun earlier, so the holder stops trusting before the grantor ends.
From each term a margin is left out for clocks that run at different speeds: a fraction of it, or
the result of a function.

Each request is a `Send`. Answers may come in any order, or not at all:

- a granted answer is credited to its own send, and only if no later send was credited before;
- a request for less time may take effect at any time after it was sent, whatever the answers to
  requests before it promise: until it is settled the view is held down to the end that was asked
  for. A definite failure lifts that. An indefinite one leaves it: the grantor may have done it, and
  a holder must not count on time that it may have given away. Then only the answer to a later
  request lifts it, since the grantor handles requests in the order in which they were sent (a
  caller that gives up a request for less, and asks for more over another connection, must ensure
  that order);
- once the lease has ended at the grantor, no answer to an earlier request revives it.

Other threads may read the end at any time, and never see one that lies later than both the one
before a change and the one after it. So `_end` is changed first, then what holds it down.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leasehold.basics.durations import NEVER, Duration, Requested, seconds_of

NOT_HELD_DOWN: Final = NEVER

Margin = float | Callable[[float], float]
"""The part of a term that is left out: a fraction, or a function from seconds to seconds."""

SESSION_MARGIN: Final = 0.1
SESSION_MARGIN_MIN_S: Final = 0.05
SESSION_MARGIN_MAX_S: Final = 2.0


def session_margin_s(term_s: float) -> float:
    """Return the margin of sessions, whose end other processes wait for: a tenth, within limits.

    It is at most half of the term, for terms that are hardly longer than the least margin.
    """
    margin_s = max(SESSION_MARGIN_MIN_S, min(term_s * SESSION_MARGIN, SESSION_MARGIN_MAX_S))
    return min(margin_s, term_s / 2)


@dataclass(slots=True, eq=False)
class Send:
    """A request for a term that was sent and is not settled."""

    number: int
    sent_at: float
    cap: float
    shortens: bool


class Holding:
    """A lease's end as its holder may trust it, in the holder's time."""

    __slots__ = (
        "_credited",
        "_credited_at",
        "_doubt",
        "_doubted",
        "_end",
        "_margin",
        "_open",
        "_sends",
        "_sent_at",
        "term_s",
    )

    def __init__(self, sent_at: float, granted: Duration, margin: Margin = 0.0) -> None:
        if not callable(margin) and not 0.0 <= margin < 1.0:
            raise ValueError(
                f"margin must be a fraction of the term, from 0 to less than 1, got {margin!r}"
            )
        self._margin = margin
        self._sent_at = self._credited_at = sent_at
        self._sends = 0
        self._credited = 0
        self._open: list[Send] = []
        self._doubt = NOT_HELD_DOWN  # the least that was requested in lost requests
        self._doubted = 0  # the number of the last of them
        self.term_s = seconds_of(granted)
        self._end = self._end_of(sent_at, self.term_s)

    @property
    def end(self) -> float:
        """When to stop trusting; `NEVER` if it does not end."""
        # The last to be changed is read first, for readers in other threads.
        held_down, doubt, credited = self._open, self._doubt, self._credited
        end = self._end
        if doubt < end:
            end = doubt
        for send in held_down:
            if send.cap < end and (send.shortens or send.number > credited):
                end = send.cap
        return end

    @property
    def promised_end(self) -> float:
        """The end including the margin that `end` leaves out, as promised by the grantor."""
        return self.end + self._margin_s(self.term_s) if self._margin else self.end

    @property
    def credited_at(self) -> float:
        """When the term that the holder relies on was requested."""
        return self._credited_at

    @property
    def is_answered(self) -> bool:
        """Whether the end is an answer to a request, and not the one that the view began with."""
        return self._credited > 0

    @property
    def last_sent_at(self) -> float:
        """When a term was last requested."""
        return self._sent_at

    def remaining_s(self, now: float) -> float:
        """How long the lease may still be trusted, never less than zero."""
        return max(0.0, self.end - now)

    def send(self, requested: Requested, now: float) -> Send:
        """Record that a term is requested now."""
        self._sends += 1
        self._sent_at = now
        cap = NOT_HELD_DOWN
        if isinstance(requested, float):
            cap = self._end_of(now, requested)
        send = Send(self._sends, now, cap, shortens=cap < self.end)
        self._open = [*self._open, send]
        return send

    def answered(self, send: Send, granted: Duration) -> None:
        """Credit a granted term to the send that requested it."""
        term_s = seconds_of(granted)
        end = self._end_of(send.sent_at, term_s)
        if send.number > self._credited:
            self._end = end
            self._credited = send.number
            self._credited_at = send.sent_at
            self.term_s = term_s
            if send.number > self._doubted:
                self._doubt = NOT_HELD_DOWN
        elif send.shortens:
            self._end = min(self._end, end)
        self._settled(send)

    def failed(self, send: Send, *, definite: bool) -> None:
        """Record that a request failed, and whether it is known to have had no effect."""
        if not definite and (send.shortens or send.number > self._credited):
            self._doubt = min(self._doubt, send.cap)
            self._doubted = max(self._doubted, send.number)
        self._settled(send)

    def _settled(self, send: Send) -> None:
        """Stop holding the end down for a send; its outcome is recorded before."""
        assert send in self._open, "it is settled once"
        self._open = [each for each in self._open if each is not send]

    def end_at(self, now: float) -> None:
        """Stop trusting the lease at `now`, whatever was promised before."""
        self._end = min(self._end, now)
        self._credited = self._sends

    def _end_of(self, sent_at: float, term_s: float) -> float:
        if term_s == NEVER:
            return NEVER
        return sent_at + term_s - self._margin_s(term_s)

    def _margin_s(self, term_s: float) -> float:
        return self._margin(term_s) if callable(self._margin) else term_s * self._margin
