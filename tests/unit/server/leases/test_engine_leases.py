"""`leasehold.v1.Leases` on an engine: its limits, its silence, and failures of single leases."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.values import LeaseInfo, Limits, Renewed
from leasehold.errors import ConnectionLost, Status
from leasehold.leases.policies import DEFAULT_POLICIES, Policies, TermPolicy
from leasehold.server.leases import engine_leases
from leasehold.server.leases.engine_leases import CONCURRENT_REVOKES, EngineLeasesService
from leasehold.wire import leases_pb2 as pb
from leasehold.wire.codec import ResponseHeaderEncoder
from tests.support.asynchronous import asynchronous
from tests.support.v1 import answer_of, refusal

ETCD = Limits(min_ttl=2.0, ttl_unit=1.0)


class Flaky(EmbeddedEngine):
    """An engine that does not answer for lease 13, and loses the connection for lease 14."""

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        if lease == 13:
            await asyncio.get_running_loop().create_future()
        return await super().grant(ttl, lease=lease)

    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        wanted = list(leases)
        if 13 in wanted:
            await asyncio.get_running_loop().create_future()
        terms, failures = await super().renew_all(each for each in wanted if each != 14)
        lost = {14: ConnectionLost("gone")} if 14 in wanted else {}
        return Renewed(terms, {**failures, **lost})

    async def revoke(self, lease: int) -> int:
        if lease == 13:
            await asyncio.get_running_loop().create_future()
        if lease == 14:
            raise ConnectionLost("gone")
        return await super().revoke(lease)


class Desk:
    """The service, with its messages."""

    def __init__(self, engine: Flaky, policies: Policies) -> None:
        headers = ResponseHeaderEncoder(engine.cluster_id, 7, 0)
        self.service = EngineLeasesService(
            engine, policies, {}, headers.encode, "the etcd cluster at a:1"
        )

    async def grant(self, **request: Any) -> pb.GrantResponse:
        message = pb.GrantRequest(**request).SerializeToString()
        return pb.GrantResponse.FromString((await answer_of(self.service.grant(message)))[0])

    async def renew_all(self, *ids: int) -> pb.RenewAllResponse:
        message = pb.RenewAllRequest(ids=ids).SerializeToString()
        return pb.RenewAllResponse.FromString((await answer_of(self.service.renew_all(message)))[0])

    async def revoke_all(self, *ids: int) -> pb.RevokeAllResponse:
        message = pb.RevokeAllRequest(ids=ids).SerializeToString()
        answer, _ = await answer_of(self.service.revoke_all(message))
        return pb.RevokeAllResponse.FromString(answer)


async def a_desk(policies: Policies = DEFAULT_POLICIES) -> tuple[Flaky, Desk]:
    engine = Flaky(None, limits=ETCD)
    engine.start()
    return engine, Desk(engine, policies)


@asynchronous
async def test_terms_are_those_of_the_policy_within_the_limits_of_the_engine() -> None:
    policies = {"short": TermPolicy(minimum_ms=100, maximum_ms=1_500, default_ms=1_000)}
    engine, desk = await a_desk(policies)
    async with engine:
        assert (await desk.grant(ttl_ms=1)).ttl_ms == 2_000
        assert (await desk.grant(ttl_ms=2_001)).ttl_ms == 3_000
        assert (await desk.grant(ttl_ms=-1)).ttl_ms == 60_000
        assert (await desk.grant(ttl_ms=-2)).ttl_ms == 9_000_000_000_000
        assert (await desk.grant(ttl_ms=60_000, policy="short")).ttl_ms == 2_000
        error = await refusal(desk.grant(ttl_ms=1_000, resource="x"))
        assert error.status is Status.INVALID_ARGUMENT


@asynchronous
async def test_a_cluster_that_does_not_answer_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_leases, "ANSWER_S", 0.01)
    engine, desk = await a_desk()
    async with engine:
        for call in (desk.grant(ttl_ms=5_000, id=13), desk.renew_all(13)):
            error = await refusal(call)
            assert error.status is Status.UNAVAILABLE
            assert error.message == "the etcd cluster at a:1 has not answered in time"
        (failure,) = (await desk.revoke_all(13)).failures
        assert failure.message == "the etcd cluster at a:1 has not answered in time"


@asynchronous
async def test_each_lease_of_a_batch_succeeds_or_fails_independently() -> None:
    engine, desk = await a_desk()
    async with engine:
        first = (await desk.grant(ttl_ms=5_000)).id
        second = (await desk.grant(ttl_ms=9_000)).id
        renewed = await desk.renew_all(first, 14, 99, second, first)
        assert renewed.ttl_ms == 5_000
        assert dict(zip(renewed.others, renewed.others_ttl_ms, strict=True)) == {3: 9_000}
        assert list(renewed.unknown) == [2]
        (failure,) = renewed.failures
        assert (failure.place, failure.status) == (1, Status.UNAVAILABLE)
        revoked = await desk.revoke_all(14, first, 99, second)
        assert list(revoked.unknown) == [2]
        assert [each.place for each in revoked.failures] == [0]
        assert not await engine.leases()
        assert (desk.service.granted, desk.service.renewed, desk.service.revoked) == (2, 2, 2)


@asynchronous
async def test_a_long_batch_of_revocations_is_divided() -> None:
    engine, desk = await a_desk()
    async with engine:
        leases = [(await desk.grant(ttl_ms=5_000)).id for _ in range(2 * CONCURRENT_REVOKES + 1)]
        assert list((await desk.revoke_all(*leases, 99)).unknown) == [len(leases)]
        assert not await engine.leases()


@asynchronous
async def test_an_empty_renewal_is_answered_without_the_engine() -> None:
    engine, desk = await a_desk()
    await engine.close()
    answer = await desk.renew_all()
    assert answer.header.cluster_id == engine.cluster_id
    assert answer.header.member_id == 7
