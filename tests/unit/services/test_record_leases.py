"""Leases of records, renewed and ended at any server."""

import asyncio
import logging
from collections.abc import Hashable, Sequence

import pytest

from leasehold.basics.durations import ANY, FOREVER, Duration, Requested
from leasehold.errors import (
    CallFailed,
    ConnectFailed,
    ConnectionLost,
    EndReason,
    LeaseDenied,
    LeaseholdError,
    ShardLost,
    Status,
    UnknownLease,
    is_definite,
)
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.protocol import RpcError
from leasehold.landlord.batch_messages import Outcomes, terms_of
from leasehold.leases.lease import Outcome
from leasehold.leases.lease_codec import name_to_bytes
from leasehold.leases.policies import DurationPolicy, Leased
from leasehold.services.forwarding import TIMEOUT_S, Forwarder, methods_of
from leasehold.services.record_leases import (
    CONCURRENT_RENEWALS,
    RENEW_ALL,
    SERVICE,
    RecordLeases,
    RecordsRpc,
)
from leasehold.wire import leases_pb2 as pb
from tests.support.faulty_engine import World
from tests.support.record_service import (
    Record,
    ServiceProcess,
    play_services,
    start_elected,
    start_local,
)
from tests.support.server_calls import ServerCalls, a_context

NO_SUCH_ID = "0" * 32
DENIED = 77.0
"""The term that is denied."""
FAILED = 78.0
"""The term for which the policy fails."""


class Denying(DurationPolicy):
    """Denies one term, and fails for another."""

    def renew(self, leased: Leased, requested: Requested, now: float) -> Duration:  # type: ignore[type-arg]
        if requested == DENIED:
            raise LeaseDenied("not today")
        if requested == FAILED:
            raise ZeroDivisionError("a mistake in the policy")
        return super().renew(leased, requested, now)


class Server:
    """A server with the leases of its records."""

    def __init__(self, calls: ServerCalls, process: ServiceProcess) -> None:
        self.process = process
        self.records = process.records
        self.records.table.policy = Denying(7200.0, 3600.0)
        self.forwarder = Forwarder(process.shards, calls.channel)
        self.leases = RecordLeases(self.records, self.forwarder)
        self.rpc = RecordsRpc([self.leases])
        methods = methods_of(SERVICE, {"RenewAll": self.rpc.renew_all})
        calls.servers[process.shards.address] = methods

    async def create(self, count: int = 1) -> list[Record]:
        return [await self.process.create(100.0) for _ in range(count)]

    async def close(self) -> None:
        for record in self.records:
            await self.records.cancel(record.id)
        await self.forwarder.close()
        await self.process.close()


async def start_pair(world: World, calls: ServerCalls) -> tuple[Server, Server]:
    """Start two servers, and wait until each has half of the shards."""
    one, other = await start_elected(world, "a"), await start_elected(world, "b")

    def is_shared() -> bool:
        return [len(each.shard_numbers) for each in (one, other)] == [8, 8] and all(
            each.shards.address_of(number) for each in (one, other) for number in range(16)
        )

    await world.until(is_shared)
    await asyncio.sleep(1.0)  # their shards are loaded
    return Server(calls, one), Server(calls, other)


def _described(outcomes: Sequence[Outcome]) -> list[object]:
    return [
        (type(outcome).__name__, outcome.reason) if isinstance(outcome, UnknownLease) else outcome
        for outcome in outcomes
    ]


def _requests(calls: ServerCalls) -> list[pb.RenewAllRequest]:
    return [pb.RenewAllRequest.FromString(call.message) for call in calls.made]


def test_records_of_both_servers_are_renewed_with_one_call() -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        here, there = await a.create(3), await b.create(3)
        ended = [(await a.create())[0], (await b.create())[0]]
        for server, record in zip((a, b), ended, strict=True):
            await server.records.cancel(record.id)
        wants: list[tuple[Hashable, Requested]] = [
            (there[0].id, 0.0),
            (here[0].id, 60.0),
            (there[1].id, 61.0),
            (NO_SUCH_ID, 62.0),
            (here[1].id, 0.0),
            (7, 63.0),
            (b"bytes", 64.0),
            (there[2].id, ANY),
            (here[2].id, FOREVER),
            (ended[0].id, 65.0),
            (ended[1].id, 65.0),
            ("", 66.0),
            ("not an id \N{SNOWMAN}", 66.0),
        ]
        outcomes = await a.leases.renew_all(wants)
        cancelled = ("UnknownLease", EndReason.CANCELLED)
        unknown = ("UnknownLease", EndReason.UNKNOWN)
        assert _described(outcomes) == [
            *(0.0, 60.0, 61.0, unknown, 0.0, unknown, unknown, 3600.0, 7200.0),
            *(cancelled, cancelled, unknown, unknown),
        ]
        for (cookie, _), outcome in zip(wants, outcomes, strict=True):
            if isinstance(outcome, UnknownLease):
                assert outcome.lease == cookie
        (call,) = calls.made
        assert (call.address, call.path, call.timeout_s) == ("b:1", RENEW_ALL, TIMEOUT_S)
        assert here[0].remaining_s == pytest.approx(60.0, abs=1.0)
        assert there[1].remaining_s == pytest.approx(61.0, abs=1.0)
        assert sorted(record.id for record in b.records) == sorted([there[1].id, there[2].id])
        await a.close()
        await b.close()

    play_services(scene)


def test_records_of_this_server_need_no_call() -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        server = Server(calls, await start_local(world))
        (record,) = await server.create()
        assert await server.leases.renew_all([(record.id, 60.0)]) == [60.0]
        assert await server.leases.renew_all([]) == []
        assert server.leases.grantor == server.records.grantor
        assert calls.made == []
        await server.close()

    play_services(scene)


def test_a_renewal_that_waited_is_not_executed_if_it_is_not_wanted_any_more() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        leases = RecordLeases(server.records, Forwarder(server.shards))
        record = await server.create(10.0)
        wanted = True

        def check(_cookie: Hashable) -> None:
            if not wanted:
                raise ShardLost(0, "its set has ended")

        async with record.key_lock:
            renewing = asyncio.ensure_future(leases.renew_all([(record.id, 1000.0)], check))
            await asyncio.sleep(1.0)
            wanted = False
        (outcome,) = await renewing
        assert isinstance(outcome, ShardLost)
        assert record.remaining_s < 10.0
        await server.records.cancel(record.id)
        await server.close()

    play_services(scene)


@pytest.mark.parametrize("while_connecting", [False, True])
def test_a_renewal_that_is_not_wanted_any_more_is_left_out_of_a_call(
    while_connecting: bool,
) -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        over, live = await b.create(2)
        unwanted: set[Hashable] = set()

        def check(cookie: Hashable) -> None:
            if cookie in unwanted:
                raise ShardLost(0, "its set has ended")

        if while_connecting:
            calls.connecting = lambda: unwanted.add(over.id)
        else:
            unwanted.add(over.id)
        lost, renewed = await a.leases.renew_all([(over.id, 1000.0), (live.id, 60.0)], check)
        assert isinstance(lost, ShardLost)
        assert renewed == 60.0
        assert over.remaining_s < 200.0
        assert len(calls.made) == 1
        await a.close()
        await b.close()

    play_services(scene)


def test_a_denied_renewal_is_denied_wherever_the_record_is() -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        (record,) = await b.create()
        (here,), (there,) = [
            await server.leases.renew_all([(record.id, DENIED)]) for server in (b, a)
        ]
        for outcome in (here, there):
            assert isinstance(outcome, LeaseDenied)
            assert (outcome.why, outcome.lease, outcome.requested) == (
                "not today",
                record.id,
                DENIED,
            )
        assert record.remaining_s > 90.0
        await a.close()
        await b.close()

    play_services(scene)


def test_a_failing_policy_fails_only_its_own_record(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        records = [*await a.create(2), *await b.create(2)]
        wants = list(zip([each.id for each in records], [FAILED, 60.0] * 2, strict=True))
        outcomes = await a.leases.renew_all(wants)
        assert outcomes[1::2] == [60.0, 60.0]
        for outcome in outcomes[::2]:
            assert isinstance(outcome, Exception)
            assert is_definite(outcome)
        await a.close()
        await b.close()

    caplog.set_level(logging.ERROR)
    play_services(scene)
    assert "a mistake in the policy" in caplog.text


def test_a_shard_without_an_owner_fails_only_its_own_records() -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        (here,), (there,) = await a.create(), await b.create()
        await b.process.shards.close()
        shard = b.process.shards.shard_of(there.id)
        await world.until(lambda: not a.process.shards.address_of(shard))
        renewed, lost = await a.leases.renew_all([(here.id, 60.0), (there.id, 60.0)])
        assert renewed == 60.0
        assert isinstance(lost, ShardLost)
        assert (lost.shard, lost.not_executed) == (shard, True)
        assert calls.made == []
        await world.until(lambda: there.id in [record.id for record in a.records])
        await b.close()
        await a.close()

    play_services(scene)


def test_a_shard_that_the_other_server_has_lost_is_unavailable() -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        lost, kept = await b.create(2)
        while b.process.shards.shard_of(kept.id) == b.process.shards.shard_of(lost.id):
            (kept,) = await b.create()
        ownership = lost.ownership
        b.process.shards._lose(ownership)  # its key is still there
        outcome, renewed = await a.leases.renew_all([(lost.id, 60.0), (kept.id, 60.0)])
        assert renewed == 60.0
        assert isinstance(outcome, LeaseholdError)
        assert outcome.status is Status.UNAVAILABLE
        assert not is_definite(outcome)
        assert str(outcome) == (
            f"shard {ownership.number:02x} is not served here: "
            "it belongs to another server, or has no owner at present"
        )
        assert len(calls.made) == 1, "b does not pass it on again"
        for server in (b, a):
            await server.close()
        await asyncio.sleep(200.0)  # until the lost record has expired
        last = await start_elected(world, "c")
        await world.until(lambda: len(last.shard_numbers) == 16)
        await asyncio.sleep(1.0)
        await last.close()

    play_services(scene)


@pytest.mark.parametrize(
    ("failure", "not_executed"),
    [
        (ConnectFailed("no server listens"), True),
        (ConnectionLost("the answer was lost"), False),
        (RpcError(Status.UNAVAILABLE, "the server is stopping"), False),
    ],
)
def test_a_call_that_fails_is_the_outcome_of_its_records(
    failure: Exception, not_executed: bool
) -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        (here,), there = await a.create(), await b.create(2)
        calls.failure = failure
        wants: list[tuple[Hashable, Requested]] = [
            (there[0].id, 60.0),
            (here.id, 60.0),
            (there[1].id, 0.0),
        ]
        first, renewed, last = await a.leases.renew_all(wants)
        assert renewed == 60.0
        for outcome in (first, last):
            assert isinstance(outcome, LeaseholdError)
            assert outcome.status is Status.UNAVAILABLE
            assert outcome.not_executed is not_executed
            assert str(getattr(failure, "message", failure)) in str(outcome)
        calls.failure = None
        await a.close()
        await b.close()

    play_services(scene)


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff",
        pb.RenewAllResponse(unknown=[5], unknown_reasons=[pb.EXPIRED]).SerializeToString(),
        pb.RenewAllResponse(unknown=[0]).SerializeToString(),
        pb.RenewAllResponse(failures=[pb.LeaseFailure(place=9)]).SerializeToString(),
        pb.RenewAllResponse(ttl_ms=-1).SerializeToString(),
        pb.RenewAllResponse(ttl_ms=-7).SerializeToString(),
    ],
    ids=["not a message", "place", "no reason", "place of a failure", "any", "term"],
)
def test_an_answer_that_is_not_valid_fails_only_the_records_of_its_call(answer: bytes) -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        (here,), (there,) = await a.create(), await b.create()

        async def wrong(_message: bytes, _context: CallContext) -> bytes:
            return answer

        calls.servers["b:1"] = methods_of(SERVICE, {"RenewAll": wrong})
        outcome, renewed = await a.leases.renew_all([(there.id, 60.0), (here.id, 60.0)])
        assert renewed == 60.0
        assert isinstance(outcome, CallFailed)
        assert not outcome.not_executed
        await a.close()
        await b.close()

    play_services(scene)


def test_a_reason_of_a_later_version_is_unknown() -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        (there,) = await b.create()
        later = pb.RenewAllResponse(unknown=[0])
        later.MergeFromString(_packed_reason(99))

        async def answer(_message: bytes, _context: CallContext) -> bytes:
            return later.SerializeToString()

        calls.servers["b:1"] = methods_of(SERVICE, {"RenewAll": answer})
        (outcome,) = await a.leases.renew_all([(there.id, 60.0)])
        assert isinstance(outcome, UnknownLease)
        assert outcome.reason is EndReason.UNKNOWN
        await a.close()
        await b.close()

    play_services(scene)


def _packed_reason(code: int) -> bytes:
    number = pb.RenewAllResponse.DESCRIPTOR.fields_by_name["unknown_reasons"].number
    return bytes([number << 3, code])


def test_equal_terms_are_sent_once() -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        records = await b.create(2)
        await a.leases.renew_all([(record.id, 60.0) for record in records])
        await a.leases.renew_all(list(zip([each.id for each in records], [1.5, ANY], strict=True)))
        same, different = _requests(calls)
        assert (same.ttl_ms, list(same.ttls_ms)) == (60_000, [])
        assert list(different.ttls_ms) == [1500, -1]
        assert same.grantor == a.leases.grantor
        assert list(same.cookies) == [name_to_bytes(record.id) for record in records]
        await a.close()
        await b.close()

    play_services(scene)


def test_a_large_batch_is_renewed_in_bounded_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        server = Server(ServerCalls(), await start_local(world))
        under_way, most = 0, 0

        async def renew(record_id: str, requested: Requested, check: object) -> float:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.1)
            under_way -= 1
            return 60.0

        with monkeypatch.context() as patched:
            patched.setattr(server.records, "renew", renew)
            wants = [(f"{number:032x}", 60.0) for number in range(200)]
            assert await server.leases.renew_all(wants) == [60.0] * 200
        assert most == CONCURRENT_RENEWALS
        await server.close()

    play_services(scene)


# The method between servers.


def test_the_method_between_servers_renews_only_what_is_served_there() -> None:
    async def scene(world: World) -> None:
        calls = ServerCalls()
        a, b = await start_pair(world, calls)
        (here,), (there,) = await a.create(), await b.create()
        request = pb.RenewAllRequest(
            grantor=a.leases.grantor,
            cookies=[name_to_bytes(there.id), name_to_bytes(here.id)],
            ttl_ms=60_000,
        )
        answer = pb.RenewAllResponse.FromString(
            await a.rpc.renew_all(request.SerializeToString(), a_context(RENEW_ALL))
        )
        assert terms_of(answer, 2)[1] == 60.0
        (failure,) = answer.failures
        assert (failure.place, failure.status) == (0, Status.UNAVAILABLE)
        assert calls.made == []
        for changes, text in (
            ({"grantor": "other"}, "no service of this server is the grantor 'other'"),
            ({"cookies": [b"x"]}, "invalid cookie"),
            ({"ttls_ms": [1]}, "one term for each of 2"),
        ):
            wrong = pb.RenewAllRequest()
            wrong.CopyFrom(request)
            for name, value in changes.items():
                if isinstance(value, str):
                    setattr(wrong, name, value)
                else:
                    wrong.ClearField(name)
                    getattr(wrong, name).extend(value)
            with pytest.raises(RpcError, match=text) as caught:
                await a.rpc.renew_all(wrong.SerializeToString(), a_context(RENEW_ALL))
            assert caught.value.status is Status.INVALID_ARGUMENT
        with pytest.raises(RpcError, match="unmarshalling"):
            await a.rpc.renew_all(b"\xff", a_context(RENEW_ALL))
        await a.close()
        await b.close()

    play_services(scene)


@pytest.mark.parametrize(
    "terms", [[0.0, 60.0], [0.0, 0.0, 5.0, 5.0, 5.0], [60.0, 0.0], [0.0], [FOREVER, 0.0], []]
)
def test_each_term_of_an_answer_is_at_its_place(terms: list[Duration]) -> None:
    outcomes = Outcomes()
    outcomes.extend(terms[:1])
    outcomes.extend(terms[1:])
    together = Outcomes()
    together.extend(terms)
    for each in (outcomes, together):
        answer = pb.RenewAllResponse.FromString(each.renewed())
        assert terms_of(answer, len(terms)) == terms
