"""What a peer may still send that costs something and brings nothing."""

from collections.abc import Callable

from leasehold.rpc.frames import ConnectionFailed, ErrorCode
from leasehold.rpc.limits import Rate


class Budget:
    """What is left of a rate."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._left = float(rate.burst)
        self._at = 0.0

    def spend(self, now: float, earned: int = 0, amount: int = 1) -> bool:
        """Take an amount, after so much was earned in another way; False if there is less."""
        burst, per_s = self._rate
        self._left = min(burst, self._left + (now - self._at) * per_s + earned)
        self._at = now
        if self._left < amount:
            return False
        self._left -= amount
        return True


class Purse:
    """The budgets of a connection, each made when it is first used."""

    __slots__ = ("_budgets", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._budgets: dict[str, Budget] = {}

    def spend(self, rate: Rate, what: str, earned: int = 0, amount: int = 1) -> None:
        """Pay for so many of `what`; whoever cannot loses the connection."""
        budget = self._budgets.get(what)
        if budget is None:
            budget = self._budgets[what] = Budget(rate)
        if not budget.spend(self._now(), earned, amount):
            raise ConnectionFailed(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"too many {what}: {rate.burst}, and then {rate.per_s:g} a second, are suffered",
            )
