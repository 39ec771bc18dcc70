"""Lease time: the clock of a grantor, which stands still while the grantor does not run.

Theory of operation. A grantor that was stopped, starved or swapped out for ten seconds has received
no renewal for ten seconds, and must not end leases because of that. So leases age on a clock of
their own. Each entry from the event loop first calls `advance` with a reading of the monotonic
clock; an idle loop does so every `IDLE_TICK_S`. A gap between two calls longer than `MAX_STEP_S`
can then only mean that the grantor did not run, and the rest of it is *cut*: lease time moves on by
`MAX_STEP_S` and no more. Three rules follow from a cut:

- nothing ends in the turn in which it was seen, nor until the sockets were polled once more
  (renewals that came in meanwhile are waiting there): `may_end` is false until `polled`. If a loop
  stalls repeatedly before it gets there, the wait ends after `GRACE_S`, or the leases of dead
  holders would never end;
- after a cut of more than `LONG_CUT_S` no lease ends for the shorter of its own term and `GRACE_S`,
  so that holders in reconnect backoff have time to renew: `earliest_end`;
- what was cut adds up in `lag_s`, for a metric.

Under overload lease time runs slower but never stops. Ending late is safe for exclusion, ending
early never is.
"""

from typing import Final

from leasehold.basics.durations import NEVER

MAX_STEP_S: Final = 0.250
IDLE_TICK_S: Final = 0.100
LONG_CUT_S: Final = 1.0
GRACE_S: Final = 5.0


class LeaseClock:
    """Lease time in `now`, in seconds since this clock was started.

    It runs from the reading it is created with. Created with `NEVER`, it stands still at 0,
    whatever readings it takes, until `start`.
    """

    __slots__ = (
        "_grace_from",
        "_held_from",
        "_monotonic",
        "_stood_s",
        "cuts",
        "lag_s",
        "may_end",
        "now",
    )

    def __init__(self, monotonic: float) -> None:
        self._monotonic = monotonic
        self._grace_from = -GRACE_S
        self._held_from = 0.0
        self._stood_s = 0.0
        self.now = 0.0
        self.lag_s = 0.0
        self.cuts = 0
        self.may_end = True

    def start(self, monotonic: float) -> None:
        """Begin to run, for a clock that was made with `NEVER`."""
        assert self._monotonic == NEVER, "it was started before"
        assert self.now == 0.0, "lease time has passed before the start"
        self._monotonic = monotonic

    def stop(self) -> None:
        """Stand still from now on."""
        self._monotonic = NEVER

    def advance(self, monotonic: float) -> float:
        """Take a reading of the monotonic clock, on each entry from the event loop."""
        gap = monotonic - self._monotonic
        if gap <= 0.0:
            return self.now
        self._monotonic = monotonic
        if gap <= MAX_STEP_S:
            self.now += gap
        else:
            self._cut(gap - MAX_STEP_S)
        return self.now

    def stand_still(self, monotonic: float) -> None:
        """Take a reading in a turn of the loop that has lasted too long to count all of it.

        Otherwise a callback that keeps calling the grantor would hide its own stall.
        """
        gap = monotonic - self._monotonic
        if gap > MAX_STEP_S:
            self.advance(monotonic)
            return
        self._monotonic = max(self._monotonic, monotonic)
        self.lag_s += max(0.0, gap)
        self._stood_s += max(0.0, gap)
        if self.may_end:
            self.hold()
        if self._stood_s > LONG_CUT_S:
            self._grace_from = self.now

    def elapse(self, monotonic: float) -> float:
        """Count the whole gap: for a time in which no holder could be kept waiting.

        That is so while no lease was live, and between two calls to a grantor that has no task of
        its own: then nothing distinguishes a stall from a quiet hour.
        """
        self.now += max(0.0, monotonic - self._monotonic)
        self._monotonic = max(self._monotonic, monotonic)
        return self.now

    def _cut(self, cut_s: float) -> None:
        self.now += MAX_STEP_S
        self.lag_s += cut_s
        self.hold()
        if cut_s > LONG_CUT_S:
            self._grace_from = self.now

    def hold(self) -> None:
        """Let nothing end until the sockets were polled."""
        self.cuts += 1
        if self.may_end:
            self.may_end = False
            self._held_from = self.now

    def polled(self, cuts: int) -> None:
        """Record that a full poll of the sockets was handled since `self.cuts` was `cuts`."""
        assert cuts <= self.cuts
        self._stood_s = 0.0
        if cuts == self.cuts or self.now - self._held_from >= GRACE_S:
            self.may_end = True

    def earliest_end(self, term_s: float) -> float:
        """Return the lease time before which no lease with this term may end."""
        return self._grace_from + min(term_s, GRACE_S)
