"""`client.rwlock`: many may read at a time, or one write; first come, first served.

Keys are `<name>/rwlock/<lease in hex>.<number>.read` and `….write`. A writer is let in when nobody
is ahead of it, a reader when no writer is: so a reader behind a writer that waits, waits too, and
no stream of readers keeps a writer out.
"""

from collections.abc import Sequence
from typing import Final

from leasehold.callbacks import check_plain_callback
from leasehold.client.patience import Timeout
from leasehold.client.texts import Octets
from leasehold.engine.values import KeyValue
from leasehold.pending import Pending
from leasehold.recipes.line import Line, Place
from leasehold.recipes.line_guard import LineGuard, OnLoss
from leasehold.recipes.lines import Lines
from leasehold.recipes.naming import LEASE_HEX, Claim, name_of, text_of
from leasehold.recipes.options import check_wait
from leasehold.recipes.stay import stay

READ: Final = b".read"
WRITE: Final = b".write"


class _ReadersAndWriters(Line):
    def __init__(self, name: bytes, role: bytes) -> None:
        super().__init__(name, b"rwlock", LEASE_HEX + rb"\.[0-9]{1,19}\.(?:read|write)")
        self._role = role

    def tail(self, lease: bytes, number: int) -> bytes:
        return b"%b.%d%b" % (lease, number, self._role)

    def lets_in(self, ahead: Sequence[KeyValue]) -> bool:
        if self._role == WRITE:
            return not ahead
        return not any(pair.key.endswith(WRITE) for pair in ahead)


class RWLock:
    """A shared and exclusive lock. A handle: it costs nothing until it is acquired."""

    def __init__(self, lines: Lines, name: Octets) -> None:
        self._lines = lines
        self._name = name_of(name)
        self.name = text_of(self._name)
        """What it is called."""

    def read(
        self,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Pending[LineGuard]:
        """Share it with other readers: to be awaited, or entered with `async with`.

        `timeout` is how long to wait for others: None for as long as it takes, 0 only asks;
        `LockDenied` then. `on_loss(guard, error)` is told if it is lost; with `cancel_on_loss` the
        block is cancelled then, and raises `LockLost`.
        """
        return self._acquire(READ, timeout, on_loss, cancel_on_loss=cancel_on_loss)

    def write(
        self,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Pending[LineGuard]:
        """Have it alone; else as `read`."""
        return self._acquire(WRITE, timeout, on_loss, cancel_on_loss=cancel_on_loss)

    def _acquire(
        self, role: bytes, timeout: Timeout, on_loss: OnLoss | None, *, cancel_on_loss: bool
    ) -> Pending[LineGuard]:
        timeout_s = check_wait(timeout)
        check_plain_callback(on_loss, "on_loss")
        line = _ReadersAndWriters(self._name, role)
        value = Claim(self._lines.who).encode()

        def guard(place: Place) -> LineGuard:
            return LineGuard(place, on_loss=on_loss, cancel_on_loss=cancel_on_loss)

        return Pending(lambda: stay(self._lines, line, value, guard, timeout_s))
