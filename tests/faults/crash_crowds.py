"""A client of the crash tests that makes very many keys and ends all of them at once, in one step.

They are too many to be deleted in one go: the server does it bit by bit, and nobody may notice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from tests.faults.crash_leases import LONG_S
from tests.faults.crash_ledger import Ledger, put_op
from tests.faults.etcd_calls import EtcdCalls

TXNS: Final = 9
KEYS_IN_TXN: Final = 120
KEYS: Final = TXNS * KEYS_IN_TXN
"""More than the server does in one go, which is a thousand."""


@dataclass
class Crowd:
    """Some of the keys, or all of them."""

    number: int
    lease: int
    """All of them are under it; 0 for none."""
    sent: int = 0
    known: int = 0
    is_ending: bool = False

    @property
    def ends(self) -> tuple[bytes, bytes]:
        """The range of its keys."""
        return b"crowd/%d/" % self.number, b"crowd/%d0" % self.number

    def is_possible(self, found: int) -> bool:
        """Say whether so many keys can be there: each transaction is done or not, and the end."""
        if self.is_ending and found == 0:
            return True
        return self.known <= found <= self.sent and found % KEYS_IN_TXN == 0


class CrowdUser:
    """Makes crowds and ends them, by a delete or with their lease."""

    def __init__(self, name: str, ledger: Ledger, numbers: Iterator[int]) -> None:
        self.name = name
        self._ledger = ledger
        self._leases = numbers
        self._numbers = count()
        self._last: Crowd | None = None

    def use(self, calls: EtcdCalls) -> None:
        """End the last crowd, or make another one."""
        if self._last is None:
            self._make(calls, next(self._numbers))
        else:
            self._end(calls, self._last)

    def look(self, calls: EtcdCalls) -> None:
        """See whether the last crowd is there as it should be."""
        if self._last is not None:
            self._count(calls, self._last)

    def _make(self, calls: EtcdCalls, number: int) -> None:
        lease = next(self._leases) if number % 2 else 0
        if lease:
            self._ledger.grant(self.name, calls, lease, LONG_S)
        crowd = self._last = Crowd(number, lease)
        while crowd.sent < KEYS:
            self._make_more(calls, crowd)

    def _make_more(self, calls: EtcdCalls, crowd: Crowd) -> None:
        keys = [
            b"crowd/%d/%d" % (crowd.number, number)
            for number in range(crowd.sent, crowd.sent + KEYS_IN_TXN)
        ]
        crowd.sent += KEYS_IN_TXN
        self._ledger.ask(
            self.name,
            "make more of a crowd",
            lambda: calls.txn([], [put_op(key, b"", crowd.lease) for key in keys]),
        )
        crowd.known = crowd.sent

    def _end(self, calls: EtcdCalls, crowd: Crowd) -> None:
        found = self._count(calls, crowd)
        if found or not crowd.is_ending:
            crowd.is_ending = True
            if crowd.lease:
                self._ledger.revoke(self.name, calls, crowd.lease)
            else:
                deleted = self._ledger.ask(
                    self.name, "end a crowd", lambda: calls.delete(*crowd.ends)
                ).deleted
                assert deleted == found, f"half a delete: {deleted} of {found}"
            crowd.known = crowd.sent = 0
            self._count(calls, crowd)
        self._last = None

    def _count(self, calls: EtcdCalls, crowd: Crowd) -> int:
        answer = self._ledger.ask(self.name, "count a crowd", lambda: calls.range(*crowd.ends))
        found = len(answer.kvs)
        assert crowd.is_possible(found), f"half a crowd: {found}, {crowd}"
        crowd.known = crowd.sent = found
        return found
