"""Locks and elections against the plain rule, whatever comes in between.

The rule: who waits has its turn at the first revision at which no key under the name is older than
its own, and is out when its own key is gone. A spy keeps what is under all names at each revision.
Limits are so small that lines are read in slices, and deletes are done in steps.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.errors import LeaseExists, UnknownLease
from leasehold.keyspace.keyspace import FROM_KEY, Change, Item
from leasehold.keyspace.operations import Delete, Grant, Put, Revoke
from leasehold.testing import run_virtual
from tests.property.store_kit import make_limits_small
from tests.support.lock_shop import Caller, Shop

NAMES: Final = [b"l", b"l", b"l", b"l/m", b""]
LEASES: Final = [1, 2, 3, -4]
KEYS: Final = [b"l/x", b"l/y", b"l/m/y", b"l/1", b"l/2", b"l/m/2", b"/z", b"other"]

names = st.sampled_from(NAMES)
leases = st.sampled_from(LEASES)
some = st.integers(0, 30)
actions = st.one_of(
    st.tuples(st.just("lock"), names, st.sampled_from([0, *LEASES])),
    st.tuples(st.just("lock"), names, leases),
    st.tuples(st.just("campaign"), names, leases, st.sampled_from([b"", b"v", b"w"])),
    st.tuples(st.just("observe"), names),
    st.tuples(st.just("go"), some),
    st.tuples(st.just("go"), some),
    st.tuples(st.just("unlock"), some),
    st.tuples(st.just("unlock"), some),
    st.tuples(st.just("revoke"), leases),
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("commit")),
    st.tuples(st.just("turns"), st.integers(1, 8)),
    st.tuples(st.just("settle")),
)


class Spy:
    """What there is at each revision."""

    key, end, next_revision, has_room, wants_previous = b"\0", FROM_KEY, 0, True, False

    def __init__(self, shop: Shop) -> None:
        self.states: dict[int, dict[bytes, Item]] = {shop.store.revision: {}}
        self._now: dict[bytes, Item] = {}
        shop.store.watchers.join(self)

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Take the changes of one revision."""
        for change in changes:
            if change.item is None:
                del self._now[change.key]
            else:
                self._now[change.key] = change.item
        self.states[changes[0].revision] = dict(self._now)
        return True

    def line(self, name: bytes, revision: int) -> list[Item]:
        """Who stands in line, the oldest one first."""
        prefix = name + b"/"
        found = [item for key, item in self.states[revision].items() if key.startswith(prefix)]
        return sorted(found, key=lambda item: (item[1], item[5]))

    def has_turn(self, name: bytes, item: Item, revision: int) -> bool:
        """Say whether no key is older than this one, which is there."""
        line = self.line(name, revision)
        ours = [each for each in line if each[5] == item[5] and each[1] == item[1]]
        return bool(ours) and line[0][1] == item[1]

    def settle(self) -> None: ...
    def joined(self, revision: int, position: int) -> None: ...
    def failed(self, error: Any) -> None: ...
    def cancelled(self, compacted: int) -> None: ...


@dataclass
class Claim:
    """A call of Lock or Campaign, and the key that it has claimed, once that is there."""

    call: Caller[Any]
    name: bytes
    lease: int
    since: int
    """The revision when it was made."""
    item: Item | None = None


class World:
    """A shop under a list of actions, and its judge."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.store = self.shop.store
        for lease in LEASES:
            self.shop.grant(lease)
        self.spy = Spy(self.shop)
        self.claims: list[Claim] = []
        self.observers: list[tuple[Caller[Any], bytes]] = []
        self.work: list[asyncio.Future[Any]] = []

    async def do(self, action: tuple[Any, ...]) -> None:
        await getattr(self, action[0])(*action[1:])
        self.learn_keys()
        self.check_answers()

    # What is done.

    async def lock(self, name: bytes, lease: int) -> None:
        self.claims.append(Claim(self.shop.lock(name, lease), name, lease, self.store.revision))

    async def campaign(self, name: bytes, lease: int, value: bytes) -> None:
        call = self.shop.campaign(name, lease, value)
        self.claims.append(Claim(call, name, lease, self.store.revision))

    async def observe(self, name: bytes) -> None:
        self.observers.append((self.shop.observe(name), name))

    async def go(self, which: int) -> None:
        calls = [claim.call for claim in self.claims] + [call for call, _ in self.observers]
        if calls:
            calls[which % len(calls)].go()

    async def unlock(self, which: int) -> None:
        keys = sorted(self.spy.states[self.store.revision])
        if keys:
            answer = self.shop.unlock(keys[which % len(keys)])
            if not isinstance(answer, tuple):
                self.work.append(asyncio.ensure_future(answer))

    async def revoke(self, lease: int) -> None:
        if self.store.is_busy:
            return
        try:
            self.shop.apply(Revoke(lease))
            self.shop.apply(Grant(lease, 100.0))
        except (UnknownLease, LeaseExists):
            pass

    async def put(self, key: bytes) -> None:
        if not self.store.is_busy:
            self.shop.apply(Put(key, b""))

    async def delete(self, name: bytes) -> None:
        delete = Delete(name + b"/", name + b"0")
        self.work.append(asyncio.ensure_future(self.shop.runtime.in_steps(delete)))

    async def commit(self) -> None:
        self.shop.commit()

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        while self.work:
            await asyncio.gather(*self.work)
            self.work = [each for each in self.work if not each.done()]
        await self.shop.quiet()
        self.check_nobody_waits_in_vain()

    # What must hold.

    def learn_keys(self) -> None:
        """Find out which key a call has."""
        for claim in self.claims:
            claimed = claim.call._handler._claimed  # type: ignore[attr-defined]
            if claim.item is None and claimed is not None:
                claim.item = self.spy.states[claimed.created][claimed.key]
                assert claim.lease in (0, claimed.lease)

    def check_answers(self) -> None:
        """Whoever was answered had its turn, at a revision that is on disk if it may know."""
        for claim in self.claims:
            call = claim.call
            if not (call.is_ended and claim.item is not None):
                continue
            if call.error is None:
                turns = [
                    revision
                    for revision in self.spy.states
                    if revision >= claim.since - 1
                    and self.spy.has_turn(claim.name, claim.item, revision)
                ]
                assert turns, "it never had its turn"
                self.check_durable(call.position, max(min(turns), claim.item[1]))
            elif call.error.message.startswith(("mutex", "election")):
                gone = self.gone_at(claim.item)
                assert gone is not None, "its key is there"
                self.check_durable(call.position, gone)
        for call, name in self.observers:
            self.check_told(call, name)

    def gone_at(self, item: Item) -> int | None:
        for revision, state in self.spy.states.items():
            if revision > item[1] and state.get(item[5], (0, 0))[1] != item[1]:
                return revision
        return None

    def check_durable(self, position: int, revision: int) -> None:
        if position <= self.store.durable:
            assert revision <= self.store.durable_revision

    def check_told(self, call: Caller[Any], name: bytes) -> None:
        last = (0, 0)
        for answer, position in call.said:
            line = self.spy.line(name, answer.header.revision)
            kv = answer.kv
            oldest = {item[5]: item[2] for item in line if item[1] == line[0][1]}
            assert oldest.get(kv.key) == kv.mod_revision, "this one did not lead then"
            self.check_durable(position, kv.mod_revision)
            now = (kv.create_revision, kv.mod_revision)
            assert now > last or kv.create_revision == last[0], "it goes backwards"
            last = now

    def check_nobody_waits_in_vain(self) -> None:
        revision = self.store.revision
        for claim in self.claims:
            if claim.call.is_waiting:
                assert claim.item is not None
                assert self.gone_at(claim.item) is None, "its key is gone"
                assert not self.spy.has_turn(claim.name, claim.item, revision), "it is its turn"
            elif claim.call.is_gone and not claim.call.is_ended:
                self.check_withdrawn(claim)
        for call, name in self.observers:
            line = self.spy.line(name, revision)
            if line and not call.is_gone:
                assert call.said
                assert call.said[-1][0].kv.create_revision == line[0][1]
                assert call.said[-1][0].kv.mod_revision == line[0][2]

    def check_withdrawn(self, claim: Claim) -> None:
        """Whoever went away has left no key, unless somebody else has it."""
        others = [each for each in self.claims if each.item and each is not claim]
        if claim.item is None or any(
            each.item and each.item[5] == claim.item[5] and each.item[1] == claim.item[1]
            for each in others
        ):
            return
        now = self.store.keyspace.get(claim.item[5])
        assert now is None or now[1] != claim.item[1], "it has left its key"

    async def end(self) -> None:
        await self.settle()
        for claim in self.claims:
            claim.call.go()
        for call, _ in self.observers:
            call.go()
        await self.settle()
        self.store.watchers.discard(self.spy)
        self.shop.check_nothing_is_left()


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)
    for module in ("leasehold.keyspace.recent_changes", "leasehold.store.store_leases"):
        for limit, value in (("MAX_REVISIONS", 10_000), ("MAX_KEYS", 100)):
            monkeypatch.setattr(f"{module}.{limit}", value, raising=False)


@pytest.mark.usefixtures("_small")
@settings(max_examples=300)
@given(st.lists(actions, max_size=60))
def test_whoever_waits_has_its_turn_by_the_rule(actions: list[tuple[Any, ...]]) -> None:
    async def main() -> None:
        world = World()
        for action in [("observe", b"l"), *actions]:
            await world.do(action)
        await world.end()

    run_virtual(main)
