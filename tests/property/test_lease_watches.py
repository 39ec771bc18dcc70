"""Nobody who watches leases misses anything without being told so, whoever reads or does not.

Watchers with random filters live through a random history, with limits that are reached all the
time. What each of them is told, in order, must be what a naive watcher would have noted down, but
for gaps of exactly as many events as it was told that it has missed; and all of it is on disk.
"""

import asyncio
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.errors import LeaseExists, UnknownLease
from leasehold.grpc.routes import StreamHandler
from leasehold.keyspace.operations import Grant, Put, Revoke
from leasehold.server.leases import lease_watch
from leasehold.store import lease_watchers
from leasehold.store.lease_watchers import RENEWED_EVERY_S
from leasehold.testing import run_virtual
from leasehold.wire import leases_pb2 as pb
from tests.support.v1 import FakeStream, Office, turns

GRANTED, RENEWED = pb.LeaseEvent.GRANTED, pb.LeaseEvent.RENEWED
REVOKED = pb.LeaseEvent.REVOKED

IDS = st.integers(1, 4)
HOLDERS = st.sampled_from(["", "anna"])
FILTERS = st.sampled_from(
    [
        *(
            (ids, holder, b"", renewals)
            for ids in ((), (1,))
            for holder in ("", "anna")
            for renewals in (False, True)
        ),
        *(((), "", prefix, False) for prefix in (b"a", b"a/1", b"b")),
        *(((1, 2), "", b"", False), ((1, 2), "anna", b"a", False)),
    ]
)
WATCHERS = st.integers(0, 4)
CHANGES = st.one_of(
    st.tuples(st.just("grant"), IDS, HOLDERS),
    st.tuples(st.just("put"), st.sampled_from([b"a/1", b"a/2", b"b"]), IDS),
    st.tuples(st.just("renew"), IDS),
    st.tuples(st.just("revoke"), IDS),
)
READING = st.one_of(
    st.tuples(st.just("watch"), FILTERS),
    st.tuples(st.just("block"), WATCHERS),
    st.tuples(st.just("unblock"), WATCHERS),
    st.tuples(st.just("leave"), WATCHERS),
    st.tuples(st.just("wait")),
)
TURNS = st.one_of(st.tuples(st.just("commit")), st.tuples(st.just("turns"), st.integers(1, 5)))
STEPS = st.lists(st.one_of(CHANGES, CHANGES, TURNS, READING), min_size=10, max_size=100)
LIMITS = {
    lease_watchers: {"MAX_EVENTS": 2, "MAX_PLACES": 3, "EVENTS_PER_MESSAGE": 1, "_DEAD": 2},
    lease_watch: {"VISITS_PER_TURN": 2, "TIDIED_PER_TURN": 1},
}


class Noted(NamedTuple):
    kind: int
    lease: int
    position: int


class NaiveWatcher:
    """Notes everything down that its filter lets through, and never forgets."""

    def __init__(self, office: Office, wanted: Any) -> None:
        self.ids, self.holder, self.prefix, self.renewals = wanted
        self.noted: list[Noted] = []
        self.told = 0
        self.read = 0
        self.stream: FakeStream
        self.handler: StreamHandler
        self.stream, self.handler = office.watch(
            ids=self.ids, holder=self.holder, key_prefix=self.prefix, renewals=self.renewals
        )

    def wants(self, lease: int, holder: str) -> bool:
        is_named = not self.ids or lease in self.ids
        return is_named and (not self.holder or holder == self.holder)

    def note(self, event: Noted, holder: str, keys: set[bytes]) -> None:
        if (
            self.wants(event.lease, holder)
            and (event.kind != RENEWED or self.renewals)
            and (not self.prefix or any(key.startswith(self.prefix) for key in keys))
        ):
            self.noted.append(event)

    def check(self, durable: int) -> None:
        """Compare what was said since the last time."""
        for response in self.stream.said[self.read :]:
            missed = self.noted[self.told : self.told + response.lagged]
            assert len(missed) == response.lagged, "it is told to have missed what never was"
            self.told += response.lagged
            for event in response.events:
                noted = self.noted[self.told]
                assert (event.kind, event.id) == (noted.kind, noted.lease)
                missed.append(noted)
                self.told += 1
            assert all(event.position <= durable for event in missed), "it is not on disk"
        self.read = len(self.stream.said)


class History:
    """The service, and beside it what is known of the leases."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.holders: dict[int, str] = {}
        self.keys: dict[bytes, int] = {}
        self.renewed: dict[int, float] = {}
        self.watchers: list[NaiveWatcher] = []

    def keys_of(self, lease: int) -> set[bytes]:
        return {key for key, owner in self.keys.items() if owner == lease}

    def happened(self, kind: int, lease: int, position: int) -> None:
        keys = self.keys_of(lease) if kind == REVOKED else set()
        for watcher in self.watchers:
            watcher.note(Noted(kind, lease, position), self.holders[lease], keys)

    def grant(self, lease: int, holder: str) -> None:
        try:
            self.office.store.apply(Grant(lease, 1e6, holder))
        except LeaseExists:
            return
        self.holders[lease] = holder
        self.renewed[lease] = -RENEWED_EVERY_S
        self.happened(GRANTED, lease, self.office.store.position)

    def put(self, key: bytes, lease: int) -> None:
        try:
            self.office.store.apply(Put(key, b"", lease))
        except UnknownLease:
            return
        self.keys[key] = lease

    def renew(self, lease: int) -> None:
        try:
            self.office.store.leases.renew(lease)
        except UnknownLease:
            return
        now = self.office.store.leases.table.clock.now
        holder = self.holders[lease]
        is_wanted = any(each.renewals and each.wants(lease, holder) for each in self.watchers)
        if is_wanted and now >= self.renewed[lease] + RENEWED_EVERY_S:
            self.renewed[lease] = now
            self.happened(RENEWED, lease, self.office.store.lease_position(lease))

    def revoke(self, lease: int) -> None:
        try:
            self.office.store.apply(Revoke(lease))
        except UnknownLease:
            return
        self.happened(REVOKED, lease, self.office.store.position)
        del self.holders[lease]
        self.keys = {key: owner for key, owner in self.keys.items() if owner != lease}

    def watch(self, wanted: Any) -> None:
        self.watchers.append(NaiveWatcher(self.office, wanted))

    def block(self, number: int) -> None:
        for watcher in self.watchers[number : number + 1]:
            watcher.stream.has_own_room = False

    def unblock(self, number: int) -> None:
        for watcher in self.watchers[number : number + 1]:
            watcher.stream.has_own_room = True
            watcher.handler.relieved()

    def leave(self, number: int) -> None:
        for watcher in self.watchers[number : number + 1]:
            watcher.handler.gone()
            self.watchers.remove(watcher)

    def commit(self) -> None:
        if self.office.store.position > self.office.store.durable:
            self.office.commit()

    async def step(self, name: str, *arguments: Any) -> None:
        if name == "turns":
            await turns(*arguments)
        elif name == "wait":
            await asyncio.sleep(RENEWED_EVERY_S)
            self.office.store.leases.enter()
        else:
            getattr(self, name)(*arguments)
        self.check()

    def check(self) -> None:
        for watcher in self.watchers:
            watcher.check(self.office.store.durable)

    async def finish(self) -> None:
        """Let everybody read; then all that was noted is told, or said to be missing."""
        self.commit()
        for number in range(len(self.watchers)):
            self.unblock(number)
        await turns(100)
        self.check()
        for watcher in self.watchers:
            assert watcher.told == len(watcher.noted), "something was lost silently"
        index = self.office.store.lease_watchers
        assert len(index.log) == 0, "nobody needs those"
        while self.watchers:
            self.leave(0)
        await turns(100)
        assert not any((index.any, index.named, index.prefixes, index._retired))
        assert not any((index._changes, index._renewals, index._prefixed))


@given(filters=st.lists(FILTERS, min_size=1, max_size=5), steps=STEPS)
@settings(deadline=None)
def test_what_is_told_is_what_happened_but_for_what_is_said_to_be_missing(
    filters: list[Any], steps: list[Any]
) -> None:
    async def main() -> None:
        office = Office(by_hand=True)
        history = History(office)
        try:
            for wanted in filters:
                history.watch(wanted)
            for step in steps:
                await history.step(*step)
            await history.finish()
        finally:
            await office.close()

    with ExitStack() as patches:
        for module, limits in LIMITS.items():
            for name, value in limits.items():
                patches.enter_context(patch.object(module, name, value))
        run_virtual(main)
