"""What locks are for: a number that is read, and written a while later, by whoever has the lock.

It lives on a host of its own, outside the lock service, and there is nothing that would keep two
from doing that at the same time; but each request carries the token of its sender's guard, and
those with a lower one than it has seen are refused. Reads carry it, too: a write that is under way
when the next holder reads would else be accepted after that, and be lost with the holder's own.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from leasehold.fencing.token import Token
from leasehold.testing import Host, Network

TIMEOUT_S: Final = 5.0


class Refused(Exception):
    """Somebody with a higher token was there."""


class Write(NamedTuple):
    """A write that was accepted."""

    token: Token
    base: int
    """What its sender had read."""
    value: int


class Resource:
    """A number for each lock."""

    def __init__(self, network: Network, host: Host, *, is_fenced: bool = True) -> None:
        self.host = host
        self._network = network
        self._is_fenced = is_fenced
        self.values: Counter[str] = Counter()
        self.accepted: dict[str, list[Write]] = {}
        self._highest: dict[str, Token] = {}
        self.refused = 0
        self.on_lost_update: Callable[[str], object] = print
        self.on_refused: Callable[[str, Token, Token], object] = print
        """Told of the token that was too low, and of the highest."""
        network.serve(host, "read", self._read)
        network.serve(host, "write", self._write)

    # On the side of a holder.

    async def read(self, host: Host, lock: str, token: Token) -> int:
        """Read the number."""
        payload = (lock, token)
        value: int = await self._network.call(host, self.host, "read", payload, TIMEOUT_S)
        return value

    async def write(self, host: Host, lock: str, token: Token, base: int) -> None:
        """Write the next number after what was read."""
        payload = (lock, token, base)
        await self._network.call(host, self.host, "write", payload, TIMEOUT_S)

    # On the side of the storage.

    def _admit(self, lock: str, token: Token) -> None:
        highest = self._highest.get(lock, token)
        if self._is_fenced and token < highest:
            self.refused += 1
            self.on_refused(lock, token, highest)
            raise Refused(f"{lock}: {token} is below {highest}")
        self._highest[lock] = max(token, highest)

    def _read(self, request: tuple[str, Token]) -> int:
        lock, token = request
        self._admit(lock, token)
        return self.values[lock]

    def _write(self, request: tuple[str, Token, int]) -> None:
        lock, token, base = request
        self._admit(lock, token)
        now = self.values[lock]
        if base != now:
            self.on_lost_update(f"{lock}: {token} has read {base}, and now it is {now}")
        self.values[lock] = base + 1
        self.accepted.setdefault(lock, []).append(Write(token, base, base + 1))
