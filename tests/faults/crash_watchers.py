"""Watchers of the crash tests: each has a replica of a range, from nothing but events."""

import time
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb
from tests.faults.crash_keys import PAIR_KEYS, Range, read_past
from tests.faults.crash_leases import lease_of_left_key
from tests.faults.crash_ledger import Ledger
from tests.faults.etcd_calls import EtcdCalls

PROGRESS = pb.WatchRequest(progress_request=pb.WatchProgressRequest())


class Watcher:
    """Watches a range, and goes on after each crash with the revision after the last one seen."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        which: Range,
        *,
        previous: bool = False,
        look_at: Callable[[Ledger, "list[kv_pb2.Event]"], None] | None = None,
        from_the_first: bool = False,
    ) -> None:
        self.name = name
        self._ledger = ledger
        self._which = which
        self._previous = previous
        self._look_at = look_at
        self._replica: dict[bytes, Any] | None = {} if from_the_first else None
        self.revision = 1
        """The replica is what was there then."""
        self.resumed = 0
        self.cancelled = 0

    def use(self, calls: EtcdCalls) -> None:
        """Watch until the watch ends."""
        self._begin(calls)
        stream = calls.watch(self._create())
        for response in stream:
            if not self._take(response):
                stream.cancel()
                return

    def catch_up(self, calls: EtcdCalls) -> None:
        """Be told everything up to now, and compare it with what is there."""
        self.compare(calls)
        now = self._ledger.ask(self.name, "ask", lambda: calls.range(b"nothing")).header.revision
        while self.revision < now:
            self._begin(calls)
            self._follow_until(calls, now)
        self.compare(calls)

    def compare(self, calls: EtcdCalls) -> None:
        """Compare the replica with what was there at its revision, unless that is compacted."""
        if self._replica is None:
            return
        found = read_past(self._ledger, self.name, calls, self._which, self.revision)
        if found is not None:
            pairs = {each.key: each for each in found}
            assert pairs == self._replica, f"undone, or a gap: {self.name} at {self.revision}"

    def _begin(self, calls: EtcdCalls) -> None:
        """Read what is there, if that is not known."""
        if self._replica is not None:
            self.resumed += 1
            return
        answer = self._ledger.ask(self.name, "read all", lambda: calls.range(*self._which))
        self._replica = {each.key: each for each in answer.kvs}
        self.revision = answer.header.revision

    def _create(self) -> pb.WatchRequest:
        key, end = self._which
        return pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=key,
                range_end=end,
                start_revision=self.revision + 1,
                prev_kv=self._previous,
            )
        )

    def _follow_until(self, calls: EtcdCalls, revision: int) -> None:
        """Take what comes until it is said that this was everything."""
        stream = calls.watch(self._create(), PROGRESS)
        for response in stream:
            is_progress = not (response.created or response.canceled or response.events)
            if not self._take(response):
                break
            if is_progress:
                assert response.header.revision >= revision
                self.revision = max(self.revision, response.header.revision)
                break
        stream.cancel()

    def _take(self, response: pb.WatchResponse) -> bool:
        """Take an answer; False if the watch has ended, and has to be begun with a read."""
        self._ledger.heard()
        if response.canceled:
            self._cancel(response)
            return False
        for revision, events in groupby(response.events, lambda event: event.kv.mod_revision):
            assert revision > self.revision, f"{self.name}: {revision} comes twice, or in parts"
            self._take_revision(revision, list(events))
        return True

    def _cancel(self, response: pb.WatchResponse) -> None:
        compacted = response.compact_revision
        assert self.revision + 1 < compacted, f"{self.name}: cancelled, {response.cancel_reason}"
        assert compacted <= self._ledger.compaction_sent
        self._replica = None
        self.cancelled += 1

    def _take_revision(self, revision: int, events: list[kv_pb2.Event]) -> None:
        if self._look_at is not None:
            self._look_at(self._ledger, events)
        for event in events:
            self._apply(event)
        self.revision = revision
        self._ledger.places[self.name] = revision + 1

    def _apply(self, event: kv_pb2.Event) -> None:
        assert self._replica is not None
        pair, before = event.kv, self._replica.pop(event.kv.key, None)
        if event.HasField("prev_kv"):
            assert event.prev_kv == before, f"{self.name}: a gap before {event}: {before}"
        if event.type == kv_pb2.Event.DELETE:
            assert before is not None, f"{self.name}: a gap before {event}"
            return
        version = 1 if before is None else before.version + 1
        assert pair.version == version, f"{self.name}: a gap before {event}: {before}"
        self._replica[pair.key] = pair


def whole_pairs(_: Ledger, events: Iterable[kv_pb2.Event]) -> None:
    """Look whether a revision of the pair is complete."""
    changed = list(events)
    assert tuple(event.kv.key for event in changed) == PAIR_KEYS, f"half of a revision: {changed}"
    assert len({event.kv.value for event in changed}) == 1, f"half a transaction: {changed}"


def ends_of_leases(ledger: Ledger, events: Iterable[kv_pb2.Event]) -> None:
    """Note the end of leases that were left; their keys go with nothing else."""
    now = time.monotonic()
    for event in events:
        if event.type == kv_pb2.Event.DELETE:
            ledger.leases[lease_of_left_key(event.kv.key)].seen_gone(now, now)
