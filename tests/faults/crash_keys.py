"""Clients of the crash tests that use keys: shared ones, pairs, the past; and one that compacts."""

import random
from itertools import count
from typing import Any, Final

import grpc

from leasehold.wire import rpc_pb2 as pb
from tests.faults.crash_ledger import Ledger, put_op, range_op, read_of
from tests.faults.etcd_calls import EtcdCalls
from tests.support.linearizability import (
    Cas,
    Compare,
    Delete,
    Deleted,
    Get,
    ModIs,
    Put,
    Read,
    ValueIs,
    VersionIs,
    Written,
)

SHARED: Final = (b"shared/", b"shared0")
SHARED_KEYS: Final = (b"shared/0", b"shared/1", b"shared/2")
PAIR: Final = (b"pair/", b"pair0")
PAIR_KEYS: Final = (b"pair/left", b"pair/right")
EVERYTHING: Final = (b"\0", b"\0")
MOST_SNAPSHOTS: Final = 8
COMPACTION_S: Final = 0.05
FARTHEST_BACK: Final = 300

Range = tuple[bytes, bytes]


class KeyUser:
    """Puts, reads, deletes and swaps keys that others use too."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng
        self._numbers = count()
        self._known = dict.fromkeys(SHARED_KEYS, Read(None, 0, 0, 0))

    def use(self, calls: EtcdCalls) -> None:
        """Do something with one of the keys."""
        key = self._rng.choice(SHARED_KEYS)
        [do] = self._rng.choices([self._put, self._get, self._delete, self._swap], [4, 3, 1, 4])
        do(calls, key)

    def _value(self) -> bytes:
        return f"{self.name} {next(self._numbers)}".encode()

    def _put(self, calls: EtcdCalls, key: bytes) -> None:
        self._ledger.put(self.name, calls, key, self._value())

    def _get(self, calls: EtcdCalls, key: bytes) -> None:
        if self._rng.random() < 0.5:
            self._known[key] = self._ledger.get(self.name, calls, key)
            return
        with self._ledger.history.call(self.name, key, Get()) as noted:
            answer = calls.txn([], [range_op(key)])
            [found] = answer.responses
            read = read_of(found.response_range.kvs, answer.header.revision)
            noted.returned(read)
        self._known[key] = read
        self._ledger.heard()

    def _delete(self, calls: EtcdCalls, key: bytes) -> None:
        with self._ledger.history.call(self.name, key, Delete()) as noted:
            answer = calls.delete(key)
            noted.returned(Deleted(answer.deleted, answer.header.revision))
        self._ledger.heard()

    def _swap(self, calls: EtcdCalls, key: bytes) -> None:
        if self._rng.random() < 0.7:
            self._get(calls, key)
        compare, on_wire = self._compare(key)
        value = self._value()
        with self._ledger.history.call(self.name, key, Cas(compare, value)) as noted:
            answer = calls.txn([on_wire], [put_op(key, value)], [range_op(key)])
            result = _swapped(answer)
            noted.returned(result)
        if isinstance(result, Read):
            self._known[key] = result
        self._ledger.heard()

    def _compare(self, key: bytes) -> tuple[Compare, pb.Compare]:
        known = self._known[key]
        mod, version = known.mod_revision or 0, known.version or 0
        kind = self._rng.randrange(2 if known.value is None else 3)
        if kind == 0:
            return ModIs(mod), pb.Compare(key=key, target=pb.Compare.MOD, mod_revision=mod)
        if kind == 1:
            on_wire = pb.Compare(key=key, target=pb.Compare.VERSION, version=version)
            return VersionIs(version), on_wire
        assert known.value is not None
        on_wire = pb.Compare(key=key, target=pb.Compare.VALUE, value=known.value)
        return ValueIs(known.value), on_wire


def _swapped(answer: pb.TxnResponse) -> Written | Read:
    if answer.succeeded:
        return Written(answer.header.revision)
    [found] = answer.responses
    return read_of(found.response_range.kvs, answer.header.revision)


class PairWriter:
    """Puts two keys at once, and now and then deletes them at once."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng
        self._numbers = count()

    def use(self, calls: EtcdCalls) -> None:
        """Change both keys."""
        transaction = f"{self.name} {next(self._numbers)}"
        if self._rng.random() < 0.1:
            self._delete(calls, transaction)
        else:
            self._put(calls, transaction)

    def _put(self, calls: EtcdCalls, transaction: str) -> None:
        value = transaction.encode()
        with self._ledger.together(self.name, PAIR_KEYS, Put(value), transaction) as noted:
            answer = calls.txn([], [put_op(key, value) for key in PAIR_KEYS])
            for each in noted:
                each.returned(Written(answer.header.revision))

    def _delete(self, calls: EtcdCalls, transaction: str) -> None:
        with self._ledger.together(self.name, PAIR_KEYS, Delete(), transaction) as noted:
            answer = calls.delete(*PAIR)
            assert answer.deleted in {0, len(PAIR_KEYS)}, f"half a pair: {answer}"
            for each in noted:
                each.returned(Deleted(bool(answer.deleted), answer.header.revision))


class PairReader:
    """Reads both keys at once, and finds both as one transaction has left them."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng
        self._numbers = count()

    def use(self, calls: EtcdCalls) -> None:
        """Read both keys."""
        transaction = f"{self.name} {next(self._numbers)}"
        read = self._range if self._rng.random() < 0.5 else self._txn
        with self._ledger.together(self.name, PAIR_KEYS, Get(), transaction) as noted:
            reads = read(calls)
            for each, found in zip(noted, reads, strict=True):
                each.returned(found)
        assert reads[0] == reads[1], f"half a transaction: {reads[0]} and {reads[1]}"

    def _range(self, calls: EtcdCalls) -> list[Read]:
        answer = calls.range(*PAIR)
        return [
            read_of([each for each in answer.kvs if each.key == key], answer.header.revision)
            for key in PAIR_KEYS
        ]

    def _txn(self, calls: EtcdCalls) -> list[Read]:
        answer = calls.txn([], [range_op(key) for key in PAIR_KEYS])
        return [
            read_of(each.response_range.kvs, answer.header.revision) for each in answer.responses
        ]


class PastReader:
    """Remembers what it has read, and reads it again at the same revision until it is compacted."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng
        self._snapshots: dict[tuple[Range, int], list[Any]] = {}

    def use(self, calls: EtcdCalls) -> None:
        """Remember what is there, or look at the past."""
        if len(self._snapshots) < MOST_SNAPSHOTS or self._rng.random() < 0.1:
            self._look(calls, self._rng.choice([SHARED, PAIR]))
        else:
            self._look_again(calls, *self._rng.choice(list(self._snapshots)))

    def look_again(self, calls: EtcdCalls) -> None:
        """Read again whatever is remembered."""
        for which, revision in list(self._snapshots):
            self._look_again(calls, which, revision)

    def _look(self, calls: EtcdCalls, which: Range) -> None:
        answer = self._ledger.ask(self.name, "read all", lambda: calls.range(*which))
        self._snapshots[which, answer.header.revision] = list(answer.kvs)
        self._ledger.places[self.name] = min(revision for _, revision in self._snapshots)

    def _look_again(self, calls: EtcdCalls, which: Range, revision: int) -> None:
        must_be_gone = revision < self._ledger.compaction_answered
        found = read_past(self._ledger, self.name, calls, which, revision)
        if found is None:
            del self._snapshots[which, revision]
            return
        assert not must_be_gone, f"revision {revision} was compacted, and is back"
        assert found == self._snapshots[which, revision], f"the past changed at {revision}"


def read_past(
    ledger: Ledger, client: str, calls: EtcdCalls, which: Range, revision: int
) -> list[Any] | None:
    """Read a range at a revision; None if that was compacted."""
    try:
        answer = ledger.ask(
            client, f"read all at {revision}", lambda: calls.range(*which, revision=revision)
        )
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.OUT_OF_RANGE:
            raise
        refusal = str(error.details())
    else:
        return list(answer.kvs)
    assert "compacted" in refusal, f"undone: {client} was at {revision}, {refusal}"
    assert revision < ledger.compaction_sent, f"nobody compacted {revision}"
    return None


class Compactor:
    """Compacts behind the others, or where it hurts."""

    def __init__(self, name: str, ledger: Ledger, rng: random.Random) -> None:
        self.name = name
        self._ledger = ledger
        self._rng = rng

    def use(self, calls: EtcdCalls) -> None:
        """Compact once."""
        ledger, rng = self._ledger, self._rng
        answer = ledger.ask(self.name, "ask", lambda: calls.range(b"nothing"))
        behind = answer.header.revision - rng.randrange(FARTHEST_BACK)
        places = [
            place for place in list(ledger.places.values()) if place <= answer.header.revision
        ]
        at = rng.choice([*places, behind, behind, behind])
        if at > ledger.compaction_sent:
            self.compact(calls, at)
        ledger.pause(COMPACTION_S)

    def compact(self, calls: EtcdCalls, at: int) -> None:
        """Compact at a revision that is later than the last one."""
        self._ledger.compaction_sent = at  # nobody else compacts
        physical = self._rng.random() < 0.5
        self._ledger.ask(
            self.name, f"compact at {at}", lambda: calls.compact(at, physical=physical)
        )
        self._ledger.compaction_answered = at
