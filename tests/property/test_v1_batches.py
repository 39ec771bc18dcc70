"""RenewAll, RevokeAll and List do what the single calls do, one lease after the other.

Two stores live through the same random history in virtual time: one is asked in batches on
`leasehold.v1`, the other with etcd's single calls. What is told of each lease, and what is left,
must be the same; a listing must be the table.
"""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.basics.durations import to_wire_ms
from leasehold.errors import EndReason, LeaseholdError, UnknownLease
from leasehold.keyspace.operations import Grant, Put, Revoke
from leasehold.testing import run_virtual
from leasehold.wire import leases_pb2 as pb
from tests.support.v1 import Office

IDS = st.integers(-2, 9)
BATCHES = st.lists(IDS, max_size=12)
TERMS_MS = st.sampled_from([500, 1_000, 1_500, 2_000, 60_000])
STEPS = st.one_of(
    st.tuples(st.just("grant"), IDS, TERMS_MS, st.sampled_from(["", "anna", "bert"])),
    st.tuples(st.just("put"), st.sampled_from([b"a/1", b"a/2", b"b/1"]), IDS),
    st.tuples(st.just("renew"), BATCHES),
    st.tuples(st.just("revoke"), BATCHES),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 0.4, 1.0, 2.5])),
    st.tuples(
        st.just("list"),
        st.sampled_from(["", "anna"]),
        st.sampled_from([b"", b"a/", b"b"]),
        st.integers(1, 4),
    ),
)
REASONS = {
    EndReason.UNKNOWN: pb.UNKNOWN,
    EndReason.EXPIRED: pb.EXPIRED,
    EndReason.CANCELLED: pb.REVOKED,
}


class Pair:
    """The store that is asked in batches, and the one that is asked one by one."""

    def __init__(self) -> None:
        self.batched, self.single = Office(), Office()

    async def close(self) -> None:
        await self.batched.close()
        await self.single.close()

    def both(self, op: Any) -> None:
        results = []
        for office in (self.batched, self.single):
            office.store.leases.enter()
            try:
                result = office.store.apply(op)[0]
            except LeaseholdError as error:
                result = type(error), str(error)
            results.append(result)
        assert results[0] == results[1]

    async def renew(self, leases: list[int]) -> None:
        answer = await self.batched.renew_all(*leases)
        said: dict[int, Any] = dict.fromkeys(range(len(leases)), answer.ttl_ms)
        said.update(zip(answer.others, answer.others_ttl_ms, strict=True))
        reasons = zip(answer.unknown, answer.unknown_reasons, strict=True)
        said.update((place, ("unknown", reason)) for place, reason in reasons)
        assert [said[place] for place in range(len(leases))] == [
            self._renewed_alone(lease) for lease in leases
        ]
        known = [term for term in said.values() if isinstance(term, int)]
        if known:
            assert known.count(answer.ttl_ms) == max(map(known.count, known)), "the shortest answer"

    def _renewed_alone(self, lease: int) -> Any:
        self.single.store.leases.enter()
        try:
            return to_wire_ms(self.single.store.leases.renew(lease).ttl_s)
        except UnknownLease as error:
            return "unknown", REASONS[error.reason]

    async def revoke(self, leases: list[int]) -> None:
        answer = await self.batched.revoke_all(*leases)
        expected = {}
        for place, lease in enumerate(leases):
            self.single.store.leases.enter()
            try:
                self.single.store.apply(Revoke(lease))
            except UnknownLease as error:
                expected[place] = REASONS[error.reason]
        assert dict(zip(answer.unknown, answer.unknown_reasons, strict=True)) == expected
        assert answer.header.revision == self.single.store.revision

    async def list(self, holder: str, prefix: bytes, page_size: int) -> None:
        listed = await self.batched.listed(holder=holder, key_prefix=prefix, page_size=page_size)
        leases = self.single.store.leases
        leases.enter()
        expected = [
            (record.id, to_wire_ms(record.ttl_s), len(record.keys), record.holder)
            for record in (leased.resource for leased in list(leases.table))
            if leases.is_live(record.id)
            and holder in ("", record.holder)
            and (not prefix or any(key.startswith(prefix) for key in record.keys))
        ]
        found = [(each.id, each.ttl_ms, each.keys, each.holder) for each in listed]
        assert found == sorted(expected)
        for each in listed:
            assert each.remaining_ms == int(leases.remaining_s(each.id) * 1000.0)

    def look(self) -> None:
        for office in (self.batched, self.single):
            office.store.leases.enter()
        ones, others = (
            {leased.cookie: leased.deadline for leased in office.store.leases.table}
            for office in (self.batched, self.single)
        )
        assert ones == others
        assert self.batched.store.revision == self.single.store.revision


async def _live_through(steps: list[tuple[Any, ...]]) -> None:
    pair = Pair()
    try:
        for name, *arguments in steps:
            if name == "grant":
                lease, ttl_ms, holder = arguments
                if lease:
                    pair.both(Grant(lease, ttl_ms / 1000.0, holder))
            elif name == "put":
                key, lease = arguments
                pair.both(Put(key, b"", lease))
            elif name == "wait":
                await asyncio.sleep(arguments[0])
            else:
                await getattr(pair, name)(*arguments)
            await asyncio.sleep(0)  # what was granted is answered
            await asyncio.sleep(0)
            pair.look()
    finally:
        await pair.close()


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=3, max_size=40))
def test_a_batch_is_its_leases_one_by_one(steps: list[tuple[Any, ...]]) -> None:
    run_virtual(lambda: _live_through(steps))
