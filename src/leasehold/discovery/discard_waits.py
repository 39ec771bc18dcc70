"""How long a registrar is left alone after it was discarded. Pure.

A registrar that did not work is discarded, and found again when it answers a call after a wait. If
it is discarded again within `AGAIN_S` of its return, the next wait is twice as long. Times are
seconds.
"""

from typing import Final, NamedTuple

AGAIN_S: Final = 60.0
"""A registrar that is discarded again within this time of its return waits twice as long."""

MAX_WAIT_S: Final = 900.0

MAX_DISCARDED: Final = 1_000
"""Registrars whose waits are remembered."""


class Discarded(NamedTuple):
    """A registrar that was discarded."""

    times: int
    """How often before, each time soon after its return."""
    at: float


class DiscardWaits:
    """The registrars that were discarded, by id, and those that have returned since."""

    def __init__(self) -> None:
        self.discarded: dict[str, Discarded] = {}
        self.returned: dict[str, Discarded] = {}
        """Those that were found again: `at` is the time of their return."""

    def discard(self, registrar: str, now: float) -> None:
        """Begin the wait of a registrar."""
        earlier = self.returned.pop(registrar, None)
        is_soon = earlier is not None and now - earlier.at <= AGAIN_S
        self.discarded[registrar] = Discarded(earlier.times + 1 if earlier and is_soon else 0, now)
        if len(self.discarded) > MAX_DISCARDED:
            del self.discarded[next(iter(self.discarded))]

    def found(self, registrar: str, now: float) -> None:
        """Record that a registrar was found: its wait is over."""
        if not self.discarded and not self.returned:
            return
        earlier = self.discarded.pop(registrar, None)
        for each in [each for each, (_, at) in self.returned.items() if now - at > AGAIN_S]:
            del self.returned[each]
        if earlier is not None:
            self.returned[registrar] = Discarded(earlier.times, now)

    def end(self, registrar: str, first_s: float) -> float:
        """Return when the wait of a registrar ends, if the first one takes `first_s`.

        The lowest of all times if it was not discarded.
        """
        discarded = self.discarded.get(registrar)
        if discarded is None:
            return float("-inf")
        return discarded.at + min(MAX_WAIT_S, first_s * 2.0 ** min(discarded.times, 10))
