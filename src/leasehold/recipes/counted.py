"""Lines in which all must agree on a number: the permits of a semaphore, the parties of a barrier.

The number is the first part of each key, `<name>/<kind>/<number>.<lease in hex>.<number>`. So the
transaction that puts a key there can compare that there is none with another number.
"""

from collections.abc import Sequence
from typing import Final

from leasehold.engine.values import KeyValue
from leasehold.recipes.line import Line
from leasehold.recipes.naming import LEASE_HEX, text_of

FIRST: Final = b"0"
LAST: Final = b":"
"""Where keys begin and end that begin with a digit."""


def check_count(count: int, name: str, maximum: int, why: str) -> int:
    """Check a number that all must agree on; `why` says where the highest one comes from."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be an int, not {count!r}")
    if not 1 <= count <= maximum:
        raise ValueError(f"{name} must be between 1 and {maximum} ({why}), not {count}")
    return count


class CountedLine(Line):
    """A line in which keys with another number are not wanted."""

    def __init__(self, name: bytes, kind: bytes, count: int, noun: str) -> None:
        """`noun` is what the number is called."""
        super().__init__(name, kind, rb"%d\.%b\.[0-9]{1,19}" % (count, LEASE_HEX))
        self._count = count
        self._noun = noun

    def tail(self, lease: bytes, number: int) -> bytes:
        """Give what a new key has after the prefix."""
        return b"%d.%b.%d" % (self._count, lease, number)

    @property
    def excluded(self) -> Sequence[tuple[bytes, bytes]]:
        """All keys with another number."""
        own = self.prefix + b"%d" % self._count
        return [(self.prefix + FIRST, own + b"."), (own + b"/", self.prefix + LAST)]

    def lets_in(self, ahead: Sequence[KeyValue]) -> bool:
        """Let in as many as the number says."""
        return len(ahead) < self._count

    def conflict(self, other: KeyValue) -> Exception:
        """Say who has another number."""
        theirs = other.key[len(self.prefix) :].split(b".")[0].decode()
        return ValueError(
            f"{text_of(self.name)!r} is in use with {self._noun}={theirs} by {self.who(other)}, so "
            f"it cannot be used with {self._noun}={self._count}: all must agree on it"
        )
