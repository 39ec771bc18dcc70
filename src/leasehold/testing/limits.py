"""Limits on turns, so that code that spins is named instead of hanging a test."""

from collections import Counter

from leasehold.testing.errors import Spinning

MAX_TURNS = 5_000_000  # of all hosts in one simulation
MAX_TURNS_AT_ONCE = 100_000  # without time advancing
NEAR = 0.9  # from here on callbacks are counted: naming them all the time would be slow
SHOWN = 5  # callbacks in the message


class TurnLimits:
    """Counts turns, in all and at one instant."""

    def __init__(self, seed: int, max_turns: int) -> None:
        if max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}")
        self.turns = 0
        self._seed = seed
        self._max_turns = max_turns
        self._instant = 0.0
        self._turns_at_once = 0
        self._tally: Counter[str] = Counter()

    def before_turn(self, now: float) -> Counter[str] | None:
        """Count a turn. Return where to count its callbacks, if a limit is near."""
        if now > self._instant:
            self._instant, self._turns_at_once = now, 0
        self.turns += 1
        self._turns_at_once += 1
        near = self.turns > self._max_turns * NEAR or self._turns_at_once > MAX_TURNS_AT_ONCE * NEAR
        if not near:
            self._tally.clear()
        return self._tally if near else None

    def after_turn(self, now: float, host: str) -> None:
        """Raise `Spinning` if that was one too many."""
        if self.turns > self._max_turns:
            limit = f"more than {self._max_turns} turns"
        elif self._turns_at_once > MAX_TURNS_AT_ONCE:
            limit = f"more than {MAX_TURNS_AT_ONCE} turns at one instant"
        else:
            return
        most = ", ".join(f"{name} ({count}x)" for name, count in self._tally.most_common(SHOWN))
        raise Spinning(f"{limit}; ran most: {most}", seed=self._seed, now=now, host=host)
