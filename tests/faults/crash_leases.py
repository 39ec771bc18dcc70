"""Clients of the crash tests that hold leases: kept, left to end, revoked, and their keys moved."""

import random
from collections.abc import Iterator
from itertools import count
from typing import Final

from leasehold.wire import rpc_pb2 as pb
from tests.faults.crash_ledger import Ledger
from tests.faults.etcd_calls import EtcdCalls

LEFT: Final = (b"left/", b"left0")
SHORT_S: Final = 2
KEPT_S: Final = 3
LONG_S: Final = 3600
RENEWAL_S: Final = 0.1
LISTING_S: Final = 0.1
REVOKED_OF_TEN: Final = 7
NEW_LEASES: Final = 3

Numbers = Iterator[int]


class Keeper:
    """Keeps a lease alive, through all crashes, and a key under it."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random, numbers: Numbers) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng
        self._numbers = numbers
        self._values = count()
        self._lease: int | None = None
        self._keys = _Keys()

    def use(self, calls: EtcdCalls) -> None:
        """Renew, and see to it that the key is there."""
        if self._lease is None:
            lease = next(self._numbers)
            self._keys = _Keys()
            self._ledger.grant(self.name, calls, lease, KEPT_S)
            self._lease = lease
        self._renew(calls, self._lease)
        self._ledger.pause(RENEWAL_S)

    def _renew(self, calls: EtcdCalls, lease: int) -> None:
        ledger = self._ledger
        if not ledger.renew(self.name, calls, lease):
            self._lease = None
            return
        if self._rng.random() < 0.5:
            key = b"kept/%d/%d" % (lease, self._rng.randrange(2))
            value = f"{self.name} {next(self._values)}".encode()
            ledger.may_end(lease, key)
            self._keys.sent.add(key)
            if ledger.put(self.name, calls, key, value, lease):
                self._keys.known.add(key)
        self._keys.check(ledger.time_to_live(self.name, calls, lease))


class _Keys:
    """The keys that were put under a lease, and those of which it is known."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.known: set[bytes] = set()

    def check(self, answer: pb.LeaseTimeToLiveResponse) -> None:
        """Compare with what the server says of the lease, if it is there."""
        if answer.TTL >= 0:
            keys = set(answer.keys)
            assert self.known <= keys <= self.sent, f"{answer.ID} has other keys: {keys}"


class Leaver:
    """Begins leases, leaves them to end by themselves, and looks after them."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random, numbers: Numbers) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng
        self._numbers = numbers
        self.left: dict[int, _Keys] = {}

    def use(self, calls: EtcdCalls) -> None:
        """Begin a lease, and look after others."""
        if len(self.left) < 4:
            self._begin(calls, next(self._numbers))
        self.look(calls, self._rng.choice(list(self.left)))
        self._ledger.pause(RENEWAL_S)

    def _begin(self, calls: EtcdCalls, lease: int) -> None:
        keys = self.left[lease] = _Keys()
        self._ledger.grant(self.name, calls, lease, SHORT_S)
        for number in range(2):
            key = left_key(lease, number)
            self._ledger.may_end(lease, key)
            keys.sent.add(key)
            if self._ledger.put(self.name, calls, key, b"left", lease):
                keys.known.add(key)

    def look(self, calls: EtcdCalls, lease: int) -> None:
        """See whether a lease is there; if not, its keys are not, either."""
        keys = self.left[lease]
        answer = self._ledger.time_to_live(self.name, calls, lease)
        keys.check(answer)
        if answer.TTL >= 0:
            return
        for key in sorted(keys.sent):
            found = self._ledger.get(self.name, calls, key)
            assert found.value is None, f"lease {lease} has gone without {key!r}: {found}"
        del self.left[lease]
        self._ledger.heard(ends=bool(keys.known))


def left_key(lease: int, number: int) -> bytes:
    """Name a key under a lease that was left."""
    return b"left/%d/%d" % (lease, number)


def lease_of_left_key(key: bytes) -> int:
    """Say to which lease such a key belongs."""
    return int(key.split(b"/")[1])


class Revoker:
    """Begins long leases with keys, and revokes most of them."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random, numbers: Numbers) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng
        self._numbers = numbers

    def use(self, calls: EtcdCalls) -> None:
        """Begin a lease, and most often end it."""
        ledger, lease = self._ledger, next(self._numbers)
        keys = [b"revoked/%d/%d" % (lease, number) for number in range(self._rng.randrange(3))]
        ledger.grant(self.name, calls, lease, LONG_S)
        for key in keys:
            assert ledger.put(self.name, calls, key, b"held", lease), f"lease {lease} is lost"
        if self._rng.randrange(10) < REVOKED_OF_TEN:
            ledger.revoke(self.name, calls, lease, keys)
        answer = ledger.time_to_live(self.name, calls, lease)
        assert answer.TTL < 0 or sorted(answer.keys) == keys


class Mover:
    """Moves a key from lease to lease: it goes with the last one only."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random, numbers: Numbers) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng
        self._numbers = numbers

    def use(self, calls: EtcdCalls) -> None:
        """Move a key once or twice, and end all leases."""
        ledger, name = self._ledger, self.name
        lease = next(self._numbers)
        key = b"moved/%d" % lease
        ledger.grant(name, calls, lease, LONG_S)
        assert ledger.put(name, calls, key, b"%d" % lease, lease)
        for _ in range(self._rng.randrange(1, 3)):
            old, lease = lease, next(self._numbers)
            ledger.grant(name, calls, lease, LONG_S)
            assert ledger.put(name, calls, key, b"%d" % lease, lease)
            ledger.revoke(name, calls, old)
            assert ledger.get(name, calls, key).value == b"%d" % lease
        ledger.revoke(name, calls, lease, [key])
        assert ledger.get(name, calls, key).value is None


class Asker:
    """Asks for leases that others are just granting or revoking, and renews them."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng

    def use(self, calls: EtcdCalls) -> None:
        """Ask for one of the last leases; those that are left to end must not be renewed."""
        leases = list(self._ledger.leases)[-NEW_LEASES:]
        if not leases:
            self._ledger.pause(RENEWAL_S)
            return
        lease = self._rng.choice(leases)
        if self._ledger.terms_s[lease] == LONG_S and self._rng.random() < 0.5:
            self._ledger.renew(self.name, calls, lease)
        else:
            self._ledger.time_to_live(self.name, calls, lease)


class Lister:
    """Lists the leases."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self._ledger = ledger

    def use(self, calls: EtcdCalls) -> None:
        """List them once."""
        self._ledger.list_leases(self.name, calls)
        self._ledger.pause(LISTING_S)
