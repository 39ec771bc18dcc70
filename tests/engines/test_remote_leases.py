"""Leases of the remote engine where a server answers in parts, or not what was asked."""

import asyncio

import pytest
from google.protobuf.message import Message

from leasehold import CallFailed, EndReason, UnknownLease
from leasehold.engine.remote import leasehold_leases
from leasehold.engine.values import Renewed
from leasehold.errors import Status, TooBusy
from leasehold.grpc.protocol import RpcError
from leasehold.testing.simulation import run_virtual
from leasehold.wire import leases_pb2
from leasehold.wire import rpc_pb2 as pb
from tests.engines.scripted import ScriptedChannel, header

LIST = "/etcdserverpb.Lease/LeaseLeases"
TIME_TO_LIVE = "/etcdserverpb.Lease/LeaseTimeToLive"
OURS = "/leasehold.v1.Leases/"


# On etcd.


def listing(channel: ScriptedChannel, *ids: int) -> None:
    leases = [pb.LeaseStatus(ID=lease) for lease in ids]
    channel.answers[LIST] = lambda _: pb.LeaseLeasesResponse(header=header(), leases=leases)


def test_a_lease_that_ends_while_all_are_listed_is_left_out() -> None:
    def look_up(body: bytes) -> Message:
        lease = pb.LeaseTimeToLiveRequest.FromString(body).ID
        ttl = -1 if lease == 2 else 100 - lease
        return pb.LeaseTimeToLiveResponse(header=header(), ID=lease, TTL=ttl, grantedTTL=100)

    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            listing(channel, 1, 2, 3)
            channel.answers[TIME_TO_LIVE] = look_up
            assert [lease.id for lease in await engine.leases()] == [3, 1]

    run_virtual(main)


def test_a_listing_that_fails_raises_why_and_not_a_group_of_reasons() -> None:
    def refuse(_: bytes) -> Message:
        raise RpcError(Status.RESOURCE_EXHAUSTED, "etcdserver: too many requests")

    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            listing(channel, *range(1, 200))
            channel.answers[TIME_TO_LIVE] = refuse
            with pytest.raises(TooBusy):
                await engine.leases()
            assert len(asyncio.all_tasks()) == 1

    run_virtual(main)


# On our server.


async def renewing(answer: leases_pb2.RenewAllResponse, *ids: int) -> Renewed:
    channel = ScriptedChannel("ours")
    async with await channel.engine() as engine:
        channel.answers[OURS + "RenewAll"] = lambda _: answer
        return await engine.renew_all(ids)


def test_one_answer_has_the_term_of_most_and_what_is_otherwise() -> None:
    async def main() -> None:
        answer = leases_pb2.RenewAllResponse(
            header=header(),
            ttl_ms=5_000,
            others=[1],
            others_ttl_ms=[7_500],
            unknown=[2],
            unknown_reasons=[leases_pb2.EXPIRED],
            failures=[leases_pb2.LeaseFailure(place=3, status=8, message="not now")],
        )
        terms, failures = await renewing(answer, 11, 12, 13, 14)
        assert terms == {11: 5.0, 12: 7.5}
        assert isinstance(failures[13], UnknownLease)
        assert failures[13].reason is EndReason.EXPIRED
        assert isinstance(failures[14], TooBusy)

    run_virtual(main)


@pytest.mark.parametrize(
    "answer",
    [
        leases_pb2.RenewAllResponse(header=header(), others=[0]),
        leases_pb2.RenewAllResponse(header=header(), others=[9], others_ttl_ms=[1]),
        leases_pb2.RenewAllResponse(header=header(), unknown=[0]),
        leases_pb2.RenewAllResponse(
            header=header(), failures=[leases_pb2.LeaseFailure(place=9, status=8)]
        ),
    ],
)
def test_an_answer_that_makes_no_sense_renews_nothing(answer: leases_pb2.RenewAllResponse) -> None:
    async def main() -> None:
        with pytest.raises(CallFailed, match="is invalid"):
            await renewing(answer, 11)

    run_virtual(main)


def test_a_part_whose_call_fails_fails_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasehold_leases, "MAX_BATCH", 2)

    def renew(body: bytes) -> Message:
        if 13 in leases_pb2.RenewAllRequest.FromString(body).ids:
            raise RpcError(Status.RESOURCE_EXHAUSTED, "not now")
        return leases_pb2.RenewAllResponse(header=header(), ttl_ms=5_000)

    async def main() -> None:
        channel = ScriptedChannel("ours")
        async with await channel.engine() as engine:
            channel.answers[OURS + "RenewAll"] = renew
            renewed = await engine.renew_all([11, 12, 13, 14, 15])
            assert renewed.terms == {11: 5.0, 12: 5.0, 15: 5.0}
            assert {type(error) for error in renewed.failures.values()} == {TooBusy}
            assert set(renewed.failures) == {13, 14}

    run_virtual(main)


def test_why_a_lease_is_over_is_told() -> None:
    async def main() -> None:
        channel = ScriptedChannel("ours")
        async with await channel.engine() as engine:
            channel.answers[OURS + "Show"] = lambda _: leases_pb2.ShowResponse(
                header=header(), reason=leases_pb2.REVOKED
            )
            with pytest.raises(UnknownLease) as unknown:
                await engine.time_to_live(5)
            assert unknown.value.reason is EndReason.CANCELLED

    run_virtual(main)


def test_all_pages_are_listed_those_first_that_end_first() -> None:
    def page(body: bytes) -> Message:
        token = leases_pb2.ListRequest.FromString(body).page_token
        lease = leases_pb2.ListedLease(id=2 if token else 1, remaining_ms=500 if token else 900)
        following = b"" if token else b"next"
        return leases_pb2.ListResponse(header=header(), leases=[lease], next_page_token=following)

    async def main() -> None:
        channel = ScriptedChannel("ours")
        async with await channel.engine() as engine:
            channel.answers[OURS + "List"] = page
            assert [lease.id for lease in await engine.leases()] == [2, 1]

    run_virtual(main)
