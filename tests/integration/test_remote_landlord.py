"""A landlord on the network, and holders in other places: on real sockets, in one process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    CallFailed,
    CallRefused,
    ConnectFailed,
    ConnectionLost,
    DurationPolicy,
    EndReason,
    Landlord,
    LandlordServer,
    Lease,
    LeaseBatch,
    LeaseBatchError,
    LeaseDenied,
    LeasePolicy,
    LeaseRequest,
    RemoteLandlord,
    RemoteLease,
    RenewalManager,
    Status,
    TooBusy,
    UnknownLease,
    is_definite,
    serve_landlord,
)
from leasehold.basics.durations import seconds_of
from leasehold.errors import STATUS_IS_DEFINITE
from leasehold.grpc.channel import Channel
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.landlord import batch_messages
from leasehold.wire import leases_pb2 as pb
from tests.support.servers import HOST, free_port

POLICY = DurationPolicy(maximum=60.0, default=5.0)
PATH = "/leasehold.v1.Leases/"
PAUSE_S = 5.0
"""How long a starved test may take between an answer and a look at what is left of its term."""


@asynccontextmanager
async def put_out(
    landlord: Landlord[Any], **options: Any
) -> AsyncIterator[tuple[LandlordServer, RemoteLandlord]]:
    options.setdefault("grant", lambda wanted: landlord.grant(wanted.resource, wanted.duration))
    async with (
        await serve_landlord(landlord, **options) as server,
        RemoteLandlord(server.address) as remote,
    ):
        yield server, remote


class Counted(Landlord[Any]):
    """A landlord that counts the calls that come to it."""

    calls = 0

    def renew_all(self, wants: Any) -> Any:
        self.calls += 1
        return super().renew_all(wants)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30.0):
        while not condition():  # noqa: ASYNC110  there is no event to await
            await asyncio.sleep(0.01)


def served(
    test: Callable[[Counted, RemoteLandlord], Coroutine[Any, Any, None]],
) -> Callable[[], None]:
    """Run a test with a landlord, and somebody far from it."""

    async def main() -> None:
        with Counted(POLICY, name="desks") as landlord:
            async with put_out(landlord) as (_, remote):
                await asyncio.wait_for(test(landlord, remote), 60.0)

    def run() -> None:
        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@served
async def test_a_lease_renews_and_cancels_at_its_landlord(
    landlord: Counted, remote: RemoteLandlord
) -> None:
    lease = await remote.grant("desk 1", 10.0, holder="anna")
    assert isinstance(lease, RemoteLease)
    assert (lease.grantor, lease.term) == ("desks", 10.0)
    assert landlord.resource(lease.cookie).resource == "desk 1"
    assert await lease.renew(20.0) == 20.0
    assert 20.0 - PAUSE_S < seconds_of(landlord.resource(lease.cookie).remaining) <= 20.0
    assert await lease.renew(100.0) == 60.0, "the policy decides"
    renewed_s = seconds_of(await lease.renew())
    assert 60.0 - PAUSE_S < renewed_s <= 60.0, "a renewal shortens nothing unasked"
    await lease.cancel()
    assert len(landlord) == 0
    assert lease.remaining == 0.0


@served
async def test_who_leaves_the_choice_gets_the_default_and_forever_the_maximum(
    landlord: Counted, remote: RemoteLandlord
) -> None:
    assert (await remote.grant("a")).term == 5.0
    assert (await remote.grant("b", FOREVER)).term == 60.0
    landlord.policy = DurationPolicy(maximum=FOREVER, default=FOREVER)
    lease = await remote.grant("c", ANY)
    assert (lease.term, lease.remaining) == (FOREVER, FOREVER)
    assert await lease.renew(FOREVER) is FOREVER


def test_the_grantor_is_told_what_is_wanted_and_by_whom() -> None:
    asked: list[LeaseRequest] = []

    async def main() -> None:
        with Landlord[str](POLICY) as landlord:

            async def grant(request: LeaseRequest) -> Lease:
                asked.append(request)
                await asyncio.sleep(0)
                return landlord.grant("x", request.duration)

            async with put_out(landlord, grant=grant) as (_, remote):
                await remote.grant("desk 1", 2.5, holder="anna")
                await remote.grant()

    asyncio.run(main())
    assert asked == [LeaseRequest("desk 1", 2.5, "anna"), LeaseRequest("", ANY, "")]


def test_a_term_counts_from_when_the_request_was_sent() -> None:
    async def main() -> None:
        with Landlord[str](POLICY) as landlord:

            async def grant(request: LeaseRequest) -> Lease:
                lease = landlord.grant("x", request.duration)
                await asyncio.sleep(0.3)
                return lease

            async with put_out(landlord, grant=grant) as (_, remote):
                lease = await remote.grant("x", 10.0)
                assert lease.term == 10.0
                assert seconds_of(lease.remaining) <= 9.7
                left = landlord.resource(lease.cookie).remaining
                assert seconds_of(lease.remaining) <= seconds_of(left), (
                    "never longer than its landlord"
                )

    asyncio.run(main())


def test_an_old_lease_that_is_granted_again_is_counted_with_what_is_left_of_it() -> None:
    async def main() -> None:
        with Landlord[str](POLICY) as landlord:
            old = landlord.grant("x", 10.0)
            await asyncio.sleep(0.3)
            async with put_out(landlord, grant=lambda _: old) as (_, remote):
                lease = await remote.grant("x", 10.0)
                assert seconds_of(lease.term) <= 9.71
                left = landlord.resource(lease.cookie).remaining  # first: time goes on meanwhile
                assert seconds_of(lease.remaining) <= seconds_of(left)

    asyncio.run(main())


@served
async def test_a_lease_travels_as_bytes(landlord: Counted, remote: RemoteLandlord) -> None:
    granted = landlord.grant("desk 1", 10.0)
    lease = remote.lease_from_bytes(granted.to_bytes("duration"))
    assert lease == granted
    assert 10.0 - PAUSE_S < seconds_of(lease.remaining) <= 10.0
    await lease.renew(30.0)
    again = remote.lease_from_bytes(lease.to_bytes("absolute"))
    assert again.can_batch(lease)
    assert 30.0 - PAUSE_S < seconds_of(again.remaining) <= 30.0
    assert landlord.lease_from_bytes(again.to_bytes("duration")) == lease


@served
async def test_what_is_over_is_unknown_with_its_reason(
    landlord: Counted, remote: RemoteLandlord
) -> None:
    expires, cancelled = await remote.grant("a", 0.01), await remote.grant("b")
    landlord.cancel(cancelled.cookie)
    await until(lambda: not len(landlord))
    for lease, reason in ((expires, EndReason.EXPIRED), (cancelled, EndReason.CANCELLED)):
        for ask in (lease.renew, lease.cancel):
            with pytest.raises(UnknownLease) as refused:
                await ask()
            assert (refused.value.lease, refused.value.reason) == (lease.cookie, reason)
        assert lease.remaining == 0.0


@pytest.mark.parametrize("cookie", [7, -(2**63), 2**63, b"\xff\0", "desk ä", b""])
def test_cookies_of_all_kinds_come_through(cookie: Any) -> None:
    async def main() -> None:
        with Landlord[str](POLICY, cookies=lambda: cookie) as landlord:
            async with put_out(landlord) as (_, remote):
                lease = await remote.grant("x")
                assert lease.cookie == cookie
                assert type(lease.cookie) is type(cookie)
                await lease.renew(20.0)
                await lease.cancel()
                assert len(landlord) == 0

    asyncio.run(main())


class Refusing(LeasePolicy):
    """Says no, or fails, as the resource has it."""

    def grant(self, leased: Any, requested: Any, now: float) -> float:
        return 5.0

    def renew(self, leased: Any, requested: Any, now: float) -> float:
        if leased.resource == "denied":
            raise LeaseDenied("the office is closed")
        if leased.resource == "broken":
            raise ZeroDivisionError("a mistake in the policy")
        return float(requested)


def test_each_lease_of_a_batch_succeeds_or_fails_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        cookies = iter([1, "two", 3, b"four", "five", 6])
        with Landlord[str](Refusing(), cookies=cookies.__next__) as landlord:
            async with put_out(landlord) as (_, remote):
                names = ["fine", "denied", "broken", "gone", "fine", "fine"]
                leases = [await remote.grant(name) for name in names]
                fine, denied, broken, gone, *others = leases
                landlord.cancel(gone.cookie)
                batch = LeaseBatch({lease: 7.0 + at for at, lease in enumerate(leases)})
                with pytest.raises(LeaseBatchError) as failed:
                    await batch.renew_all()
                failures = failed.value.failures
                assert {lease.cookie for lease in failures} == {"two", 3, b"four"}
                assert [type(failures[each]) for each in (denied, broken, gone)] == [
                    LeaseDenied,
                    CallRefused,
                    UnknownLease,
                ]
                assert str(failures[denied]) == (
                    "a term for lease 'two' of 8.0 was denied: the office is closed"
                )
                assert [lease.term for lease in (fine, *others)] == [7.0, 11.0, 12.0]
                assert (denied.term, gone.remaining) == (5.0, 0.0)
                with pytest.raises(LeaseDenied):
                    await denied.renew(9.0)
                await LeaseBatch({fine: ANY, others[0]: ANY}).cancel_all()
                assert len(landlord) == 3

    asyncio.run(main())
    assert "a mistake in the policy" in caplog.text, "the program that has it learns of it"


@pytest.mark.parametrize(
    ("error", "status", "definite"),
    [
        (ZeroDivisionError("a mistake"), Status.FAILED_PRECONDITION, True),
        (OSError("no route to the database"), Status.UNAVAILABLE, False),
        (TimeoutError("late"), Status.UNAVAILABLE, False),
    ],
)
def test_an_exception_of_the_policy_is_definite_unless_it_is_one_of_input_and_output(
    error: Exception, status: Status, definite: bool
) -> None:
    outcomes = batch_messages.Outcomes()
    outcomes.add(0, error)
    outcomes.count = 1
    (failure,) = pb.RenewAllResponse.FromString(outcomes.renewed()).failures
    assert failure.status == status
    assert is_definite(batch_messages.error_of(failure)) is definite


@served
async def test_a_manager_renews_many_leases_in_one_message(
    landlord: Counted, remote: RemoteLandlord
) -> None:
    async def keep(term_s: float) -> tuple[int, int]:
        leases = [
            remote.lease_from_bytes(landlord.grant(number, term_s).to_bytes("duration"))
            for number in range(200)
        ]
        async with RenewalManager(rtt=0.1) as manager:
            for lease in leases:
                manager.renew_for(lease, FOREVER, term_s)
            await until(lambda: landlord.calls >= 3 or len(manager) < 200)
            return len(manager), len(landlord)

    for term_s in (3.0, 10.0):  # a starved manager may lose the shorter ones
        landlord.calls = 0
        kept = await keep(term_s)
        if kept == (200, 200):
            break
        await until(lambda: len(landlord) == 0)
    assert kept == (200, 200)
    assert landlord.calls < 20


@served
async def test_a_batch_that_is_too_long_for_one_message_goes_in_several(
    landlord: Counted, remote: RemoteLandlord
) -> None:
    leases = [
        remote.lease_from_bytes(landlord.grant(number, 10.0).to_bytes("duration"))
        for number in range(2_500)
    ]
    landlord.cancel(leases[1_700].cookie)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_messages, "MAX_BATCH", 1_000)
        outcomes = await leases[0].ask_renew_all([(lease, 20.0) for lease in leases])
        assert [type(each) for each in outcomes].count(UnknownLease) == 1
        assert isinstance(outcomes[1_700], UnknownLease)
        patch.setattr(batch_messages, "MAX_BATCH_BYTES", 10_000)
        outcomes = await leases[0].ask_cancel_all(leases)
    assert outcomes.count(0.0) == 2_499
    assert len(landlord) == 0


@served
async def test_a_holder_may_end_a_lease_by_a_term_of_zero(
    landlord: Counted, remote: RemoteLandlord
) -> None:
    one, two = await remote.grant("a"), await remote.grant("b")
    assert await one.renew(0) == 0.0
    ended, unknown = await two.ask_renew_all([(two, 0.0), (one, 5.0)])
    assert ended == 0.0
    assert isinstance(unknown, UnknownLease)
    assert len(landlord) == 0


def test_a_landlord_that_grants_nothing_says_so_and_renews_all_the_same() -> None:
    async def main() -> None:
        with Landlord[str](POLICY, name="desks") as landlord:
            async with put_out(landlord, grant=None) as (_, remote):
                with pytest.raises(
                    CallRefused, match="'desks' does not grant leases over the network"
                ):
                    await remote.grant("desk 1")
                lease = remote.lease_from_bytes(landlord.grant("x").to_bytes("duration"))
                assert await lease.renew(10.0) == 10.0

    asyncio.run(main())


def test_a_denial_comes_back_as_what_it_is() -> None:
    def grant(request: LeaseRequest) -> Lease:
        raise LeaseDenied("all desks are taken")

    async def main() -> None:
        with Landlord[str](POLICY) as landlord:
            async with put_out(landlord, grant=grant) as (_, remote):
                with pytest.raises(LeaseDenied) as denied:
                    await remote.grant("desk 1", 3.0)
                assert str(denied.value) == "a grant of 3.0 was denied: all desks are taken"

    asyncio.run(main())


def test_a_grantor_that_fails_is_a_failure_that_says_nothing_of_the_future() -> None:
    async def main() -> None:
        other = Landlord[str](POLICY)
        with Landlord[str](POLICY) as landlord, other:
            for wrong in (lambda _: None, lambda _: other.grant("x"), lambda _: 1 // 0):
                async with put_out(landlord, grant=wrong) as (_, remote):
                    with pytest.raises(CallFailed) as failed:
                        await remote.grant("desk 1")
                    assert not is_definite(failed.value)

    asyncio.run(main())


def test_a_landlord_that_is_closed_or_away_is_an_indefinite_failure() -> None:
    async def main() -> None:
        landlord = Landlord[str](POLICY)
        async with put_out(landlord) as (server, remote):
            lease = await remote.grant("x")
            end = lease.holding.end
            landlord.close()
            for call in (lease.renew(), lease.cancel(), remote.grant("y")):
                with pytest.raises(CallFailed) as failed:
                    await call
                assert not is_definite(failed.value)
            await server.close()
            with pytest.raises(ConnectionError):
                await lease.renew()
            with pytest.raises(ConnectFailed):
                await lease.renew()
            assert lease.holding.end <= end

    asyncio.run(main())


def test_a_holder_learns_that_its_landlord_was_started_anew() -> None:
    async def main() -> None:
        first = Landlord[str](POLICY, cookies=lambda: 7)
        address = f"{HOST}:{free_port()}"
        async with (
            await serve_landlord(first, address, grant=lambda _: first.grant("x")) as server,
            RemoteLandlord(address) as remote,
        ):
            lease = await remote.grant("x")
            await server.close()
            second = Landlord[str](POLICY, cookies=lambda: 7)
            second.grant("of somebody else")
            async with await serve_landlord(second, address):
                with pytest.raises(UnknownLease) as unknown:
                    await lease.renew()
                assert unknown.value.reason is EndReason.UNKNOWN
                with pytest.raises(UnknownLease):
                    await lease.cancel()
                assert len(second) == 1, "a lease of the same number, but of another landlord"
            second.close()
        first.close()

    asyncio.run(main())


class Deaf(Landlord[Any]):
    """A landlord whose program does not come to answer, though it does what is asked."""

    def renew_all(self, wants: Any) -> Any:
        super().renew_all(wants)
        raise RuntimeError("it was done, but nobody will be told")


def test_no_answer_within_the_time_says_nothing_about_the_lease() -> None:
    async def main() -> None:
        with Landlord[str](POLICY) as landlord:

            async def never(_: LeaseRequest) -> Lease:
                await asyncio.Event().wait()
                raise AssertionError

            async with (
                await serve_landlord(landlord, grant=never) as server,
                RemoteLandlord(server.address, timeout=0.2) as remote,
            ):
                with pytest.raises(TimeoutError) as late:
                    await remote.grant("x")
                assert not is_definite(late.value)

    asyncio.run(main())


def test_a_connection_that_breaks_before_the_answer_says_nothing_about_the_lease() -> None:
    async def main() -> None:
        with Landlord[str](POLICY) as landlord:
            asked = asyncio.Event()

            async def never(_: LeaseRequest) -> Lease:
                asked.set()
                await asyncio.Event().wait()
                raise AssertionError

            async with put_out(landlord, grant=never) as (server, remote):
                granting = asyncio.get_running_loop().create_task(remote.grant("x"))
                await asked.wait()
                server._server.cut_off()
                with pytest.raises(ConnectionLost) as lost:
                    await granting
                assert not is_definite(lost.value)
                lease = remote.lease_from_bytes(landlord.grant("y").to_bytes("duration"))
                assert await lease.renew(10.0) == 10.0, "on another connection"

    asyncio.run(main())


def test_after_a_shorter_term_without_an_answer_the_holder_counts_on_the_shorter_one() -> None:
    async def main() -> None:
        landlord = Deaf(POLICY)
        lease = landlord.grant("x", 30.0)
        async with put_out(landlord) as (_, remote):
            far = remote.lease_from_bytes(lease.to_bytes("duration"))
            with pytest.raises(CallFailed):
                await far.renew(5.0)
            assert seconds_of(far.remaining) <= 5.0
            with pytest.raises(CallFailed):
                await far.cancel()
            assert far.remaining == 0.0
        landlord.close()

    asyncio.run(main())


@served
async def test_who_asks_for_nonsense_is_refused(landlord: Counted, remote: RemoteLandlord) -> None:
    with pytest.raises(ValueError, match="duration must be more than zero"):
        await remote.grant("x", 0)
    with pytest.raises(ValueError, match="not an encoded lease"):
        remote.lease_from_bytes(b"nonsense")
    channel = remote._channel
    for method, request in (
        ("Grant", pb.GrantRequest(ttl_ms=0)),
        ("Grant", pb.GrantRequest(ttl_ms=-5)),
        ("Grant", pb.GrantRequest(ttl_ms=1, id=5)),
        ("Grant", pb.GrantRequest(ttl_ms=1, policy="long")),
        ("RenewAll", pb.RenewAllRequest(cookies=[b"x"])),
        ("RenewAll", pb.RenewAllRequest(ids=[1], ttl_ms=-7)),
        ("RenewAll", pb.RenewAllRequest(ids=[1], ttls_ms=[1, 2])),
        ("RenewAll", pb.RenewAllRequest(ids=range(50_001))),
        ("RevokeAll", pb.RevokeAllRequest(cookies=[b"i\0\0\0\2\0\1"])),
    ):
        with pytest.raises(RpcError) as refused:
            await channel.unary(PATH + method, request.SerializeToString())
        assert refused.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "answer",
    [
        pb.RenewAllResponse(ttl_ms=-1),
        pb.RenewAllResponse(ttl_ms=-9),
        pb.RenewAllResponse(ttl_ms=1, others=[5], others_ttl_ms=[1]),
        pb.RenewAllResponse(ttl_ms=1, others=[0]),
        pb.RenewAllResponse(ttl_ms=1, unknown=[1], unknown_reasons=["UNKNOWN"]),
        pb.RenewAllResponse(ttl_ms=1, unknown=[0]),
        pb.RenewAllResponse(failures=[pb.LeaseFailure(place=1)]),
        pb.RenewAllResponse(failures=[pb.LeaseFailure(place=0, status=99)]),
        b"\xff",
    ],
    ids=repr,
)
def test_an_answer_that_makes_no_sense_is_a_failure_and_moves_no_end(answer: Any) -> None:
    async def main() -> None:
        with Landlord[str](POLICY) as landlord:
            remote = RemoteLandlord("127.0.0.1:1")
            lease = remote.lease_from_bytes(landlord.grant("x", 10.0).to_bytes("duration"))
            end = lease.holding.end

            async def unary(*args: Any, **options: Any) -> bytes:
                return answer if isinstance(answer, bytes) else answer.SerializeToString()

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Channel, "unary", unary)
                with pytest.raises(CallFailed):
                    await lease.renew(10.0)
            assert lease.holding.end == end
            await remote.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [
        pb.GrantResponse(ttl_ms=-1, id=1),
        pb.GrantResponse(ttl_ms=-5, id=1),
        pb.GrantResponse(ttl_ms=1, cookie=b"?"),
    ],
    ids=repr,
)
def test_a_grant_that_makes_no_sense_is_a_failure(answer: pb.GrantResponse) -> None:
    async def main() -> None:
        async def unary(*args: Any, **options: Any) -> bytes:
            return answer.SerializeToString()

        async with RemoteLandlord("127.0.0.1:1") as remote:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Channel, "unary", unary)
                with pytest.raises(
                    CallFailed, match=r"invalid (answer|response) from (the landlord|grantor '')"
                ):
                    await remote.grant("x")

    asyncio.run(main())


def test_what_cannot_be_served_is_refused_at_once() -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="landlord must be a Landlord"):
            await serve_landlord("desks")  # type: ignore[arg-type]
        with Landlord[str](POLICY) as landlord:
            with pytest.raises(TypeError, match="grant"):
                await serve_landlord(landlord, grant=5)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="nowhere"):
                await serve_landlord(landlord, "nowhere")
            with pytest.raises(ValueError, match=r"'0\.0\.0\.0:0' can be reached .* `tls`"):
                await serve_landlord(landlord, ["127.0.0.1:0", "0.0.0.0:0"])

    asyncio.run(main())


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.OK])
def test_a_status_becomes_an_error_that_is_as_definite(status: Status) -> None:
    error = as_ours(RpcError(status, "why"))
    assert is_definite(error) is STATUS_IS_DEFINITE[status]
    assert "why" in str(error)
    if status is Status.RESOURCE_EXHAUSTED:
        assert isinstance(error, TooBusy)
