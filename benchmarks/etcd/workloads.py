"""The calls to the servers, and the checks that they were executed."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from random import Random
from time import monotonic
from typing import ClassVar

from benchmarks.etcd import messages
from benchmarks.etcd.connection import BadStatus
from benchmarks.etcd.control import Control

KEYS = 100
"""How many keys or leases our own load spreads its calls over."""

VALUE = bytes(range(ord("a"), ord("a") + 16)) * 2
PREFIX = b"bench/"
LONE_KEY = b"lone-bench-key"
"""The key of loads that can only send the same call again and again."""

TTL_S = 3_600
"""Long enough that no lease ends while it is looked at."""

UNIMPLEMENTED = 12
COUNT_IN_JOURNAL = "to be counted in the journal"

SENT_FOR_SURE = 8
"""A connection has sent at least this part of what all have sent on average."""

LEASES_PER_BATCH = 1_000
"""Leases in one message of RenewAll."""

CHECKED = 50
"""How many leases are looked at, one by one, after a load."""


class Unverified(Exception):
    """The server acknowledged something that it did not do."""


class Workload(ABC):
    """One kind of call against one fresh server; created for each load."""

    path: ClassVar[str]
    same_answer: ClassVar[bool] = False
    """Whether the same call is always answered with the same bytes."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.rng = Random(0)

    @abstractmethod
    def prepare(self) -> None:
        """Make what the calls need."""

    @abstractmethod
    def body(self) -> bytes:
        """The message for a load that sends the same one again and again."""

    @abstractmethod
    def bodies(self, connection: int) -> Iterator[bytes]:
        """The messages that a connection sends, without end."""

    @abstractmethod
    def verify(self, done: int, samples: Sequence[bytes]) -> str:
        """Check that the calls were executed, and return how; else raise `Unverified`."""


def key_of(number: int) -> bytes:
    """One of the keys that calls are spread over."""
    return PREFIX + b"%06d" % number


class Put(Workload):
    """Write a key: our own load alternates between many, h2load uses one."""

    path = messages.PUT

    def prepare(self) -> None:
        """Remember what is there."""
        self._before = self._versions()

    def body(self) -> bytes:
        """Always the same key."""
        return messages.put_request(LONE_KEY, VALUE)

    def bodies(self, _connection: int) -> Iterator[bytes]:
        """Any of the keys."""
        encoded = [messages.put_request(key_of(number), VALUE) for number in range(KEYS)]
        while True:
            yield from self.rng.sample(encoded, KEYS)

    def verify(self, done: int, _samples: Sequence[bytes]) -> str:
        """Each Put of a key adds one to its version."""
        added = self._versions() - self._before
        if added != done:
            raise Unverified(f"{done} Puts were acknowledged, but versions grew by {added}")
        return f"versions grew by {added:,}"

    def _versions(self) -> int:
        many = messages.range_request(PREFIX, messages.prefix_end(PREFIX))
        return sum(
            version
            for request in (messages.range_request(LONE_KEY), many)
            for _, version, _ in messages.key_values(self.control.call(messages.RANGE, request))
        )


class LeasedPut(Put):
    """Write a key under a lease: the same lease for a key each time."""

    def prepare(self) -> None:
        """Grant the leases."""
        super().prepare()
        self._leases = granted(self.control, KEYS)

    def body(self) -> bytes:
        """Always the same key and lease."""
        return messages.put_request(LONE_KEY, VALUE, self._leases[0])

    def bodies(self, _connection: int) -> Iterator[bytes]:
        """Any of the keys, with its lease."""
        encoded = [
            messages.put_request(key_of(number), VALUE, lease_id)
            for number, lease_id in enumerate(self._leases)
        ]
        while True:
            yield from self.rng.sample(encoded, KEYS)


class CompareAndPut(Put):
    """Write a key if it has the value that it has."""

    path = messages.TXN

    def prepare(self) -> None:
        """Write the keys."""
        for key in (LONE_KEY, *map(key_of, range(KEYS))):
            self.control.call(messages.PUT, messages.put_request(key, VALUE))
        super().prepare()

    def body(self) -> bytes:
        """Always the same key."""
        return messages.compare_and_put_request(LONE_KEY, VALUE, VALUE)

    def bodies(self, _connection: int) -> Iterator[bytes]:
        """Any of the keys."""
        encoded = [
            messages.compare_and_put_request(key_of(number), VALUE, VALUE) for number in range(KEYS)
        ]
        while True:
            yield from self.rng.sample(encoded, KEYS)


class Range(Workload):
    """Read one key."""

    path = messages.RANGE
    same_answer = True

    def prepare(self) -> None:
        """Write the keys."""
        for key in (LONE_KEY, *map(key_of, range(KEYS))):
            self.control.call(messages.PUT, messages.put_request(key, VALUE))

    def body(self) -> bytes:
        """Always the same key."""
        return messages.range_request(LONE_KEY)

    def bodies(self, _connection: int) -> Iterator[bytes]:
        """Any of the keys."""
        encoded = [messages.range_request(key_of(number)) for number in range(KEYS)]
        while True:
            yield from self.rng.sample(encoded, KEYS)

    def verify(self, _done: int, samples: Sequence[bytes]) -> str:
        """Look into the last answers, or into one more where the load keeps none."""
        answers = list(samples) or [self.control.call(self.path, self.body())]
        for answer in answers:
            found = messages.key_values(answer)
            if len(found) != 1 or found[0][2] != VALUE:
                raise Unverified(f"a Range of one key was answered with {found}")
        return f"{len(answers)} answers had the key's value"


def granted(control: Control, many: int) -> list[int]:
    """Have so many leases."""
    request = messages.lease_grant_request(TTL_S)
    return [
        messages.lease_id_and_ttl_s(control.call(messages.LEASE_GRANT, request))[0]
        for _ in range(many)
    ]


class Grant(Workload):
    """Make a lease. Our own load chooses the IDs; h2load leaves it to the server."""

    path = messages.LEASE_GRANT

    def prepare(self) -> None:
        """IDs that this run has to itself."""
        self._first = 1 + int(monotonic() * 1e6) % (1 << 47)  # no server grants a million a second
        self._before = self._count()

    def body(self) -> bytes:
        """The server chooses the ID."""
        return messages.lease_grant_request(TTL_S)

    def bodies(self, connection: int) -> Iterator[bytes]:
        """Each connection has IDs of its own, counting up."""
        for lease_id in count(self._id(connection, 0)):
            yield messages.lease_grant_request(TTL_S, lease_id)

    def verify(self, done: int, samples: Sequence[bytes]) -> str:
        """Count them if the server can list them, and ask for some of those whose ID is known.

        Those of a server that cannot are counted in its journal, when it has stopped.
        """
        for connection in range(len(samples)):
            for _ in range(CHECKED // len(samples)):
                sent_for_sure = max(1, done // len(samples) // SENT_FOR_SURE)
                _check_ttl(self.control, self._id(connection, self.rng.randrange(sent_for_sure)), 0)
        if self._before is None:
            return COUNT_IN_JOURNAL
        added = (self._count() or 0) - self._before
        if added != done:
            raise Unverified(f"{done} leases were granted, but there are {added} more")
        return f"{added:,} more leases are listed"

    def _count(self) -> int | None:
        try:
            answer = self.control.call(messages.LEASE_LEASES, b"")
        except BadStatus as error:
            if error.status != UNIMPLEMENTED:
                raise
            return None
        return len(messages.leases_of(answer))

    def _id(self, connection: int, number: int) -> int:
        return self._first + (connection << 48) + number


class KeepAlive(Workload):
    """Renew a lease, in a call that ends after one message, or on a stream that stays."""

    path = messages.LEASE_KEEP_ALIVE
    same_answer = True

    def prepare(self) -> None:
        """Grant the leases."""
        self._ids = granted(self.control, KEYS)

    def body(self) -> bytes:
        """Always the same lease."""
        return messages.lease_request(self._ids[0])

    def bodies(self, _connection: int) -> Iterator[bytes]:
        """Any of the leases."""
        encoded = [messages.lease_request(lease_id) for lease_id in self._ids]
        while True:
            yield from self.rng.sample(encoded, KEYS)

    def verify(self, _done: int, samples: Sequence[bytes]) -> str:
        """The last answers promise the full term, and their leases have it."""
        renewed = set()
        for answer in samples or [self.control.call(self.path, self.body())]:
            lease_id, ttl_s = messages.lease_id_and_ttl_s(answer)
            if lease_id not in self._ids or ttl_s != TTL_S:
                raise Unverified(f"a renewal was answered with lease {lease_id} for {ttl_s} s")
            renewed.add(lease_id)
        for lease_id in renewed:
            _check_ttl(self.control, lease_id, TTL_S - RENEWED_WITHIN_S)
        return f"{len(renewed)} leases were renewed"


class RenewAll(Workload):
    """Renew many leases with one message."""

    path = messages.RENEW_ALL
    same_answer = True

    def prepare(self) -> None:
        """Grant the leases."""
        self._ids = granted(self.control, LEASES_PER_BATCH)

    def body(self) -> bytes:
        """All of the leases."""
        return messages.renew_all_request(self._ids)

    def bodies(self, _connection: int) -> Iterator[bytes]:
        """All of the leases."""
        return repeat(self.body())

    def verify(self, _done: int, samples: Sequence[bytes]) -> str:
        """The last answers promise all leases their full term, without exception."""
        for answer in samples or [self.control.call(self.path, self.body())]:
            kept = {number for number, _ in messages.fields(answer)}
            if messages.number(answer, 2) != TTL_S * 1_000 or not kept <= {1, 2}:
                raise Unverified(
                    f"a renewal of {len(self._ids)} leases was answered with {answer!r}"
                )
        for lease_id in self._ids[:CHECKED]:
            _check_ttl(self.control, lease_id, TTL_S - RENEWED_WITHIN_S)
        return f"{len(self._ids)} leases were renewed with each call"


RENEWED_WITHIN_S = 3
"""How much of its term a lease may have used up when it is looked at after a load: it was renewed
in the last moments, and the time to live is in whole seconds, rounded down."""


def _check_ttl(control: Control, lease_id: int, least_s: int) -> None:
    answer = control.call(messages.LEASE_TIME_TO_LIVE, messages.lease_request(lease_id))
    ttl_s = messages.lease_id_and_ttl_s(answer)[1]
    if ttl_s > TTL_S or ttl_s < max(1, least_s):
        raise Unverified(f"lease {lease_id} has {ttl_s} s left; {least_s} or more were expected")


@dataclass(frozen=True, slots=True)
class Case:
    """A workload with its load, and the target ratio of Leasehold's throughput to etcd's."""

    name: str
    title: str
    workload: type[Workload]
    bar: float
    connections: int = 10
    in_flight: int = 32
    streams: int = 0
    """Streams that stay open on each connection; 0 where every call has its own."""

    most_per_s: int = 60_000
    """More calls than any server here answers in a second: so many are encoded."""

    worth: int = 1
    """What one call counts for, such as the leases that it renews."""

    beside: str = ""
    """The case that etcd is measured with, where it has nothing of the kind."""


CASES = {
    case.name: case
    for case in (
        Case("put", "Put", Put, 1.5),
        Case("put-one", "Put, one in flight", Put, 1.0, 1, 1, most_per_s=15_000),
        Case("put-lease", "Put with a lease", LeasedPut, 1.5),
        Case("grant", "LeaseGrant", Grant, 6.0),
        Case("range", "Range of one key", Range, 1.5, most_per_s=90_000),
        Case("txn", "Txn: compare and put", CompareAndPut, 1.2),
        Case("keepalive", "KeepAlive, one-shot", KeepAlive, 1.3, most_per_s=90_000),
        Case("stream", "KeepAlive on long streams", KeepAlive, 1.0, streams=4),
        Case(
            name="renew-all",
            title="RenewAll, leases, compared with KeepAlive on long streams",
            workload=RenewAll,
            bar=5.0,
            in_flight=2,
            most_per_s=3_000,
            worth=LEASES_PER_BATCH,
            beside="stream",
        ),
    )
}
