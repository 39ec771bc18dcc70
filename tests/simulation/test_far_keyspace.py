"""The simulated server and its engine themselves: what the simulations of locks stand on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from leasehold.engine.interface import prefix_end
from leasehold.engine.values import Events
from leasehold.errors import ConnectionLost, HistoryLost, LeaseholdError, UnknownLease
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Relation, Target
from leasehold.testing import Faults, Host, Simulation, seeds
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import EtcdLikeServer, KeyspaceServer, Stragglers

QUIET = Faults(delay=(0.001, 0.02))
STORMY = Faults(loss=0.05, delay=(0.001, 0.1), spike=0.05, spike_delay=(0.1, 3.0))
WITHIN_S = 600.0
PREFIX = b"k/"


class Stage:
    """A server, and clients to be started."""

    def __init__(
        self,
        sim: Simulation,
        faults: Faults = QUIET,
        kind: Callable[..., KeyspaceServer] = KeyspaceServer,
    ) -> None:
        self.sim = sim
        self.network = sim.network(faults)
        self.server = kind(sim, self.network, sim.host("server"))
        self.clients = 0

    def host(self) -> Host:
        self.clients += 1
        return self.sim.host(f"client{self.clients}")

    def start(self, scene: Callable[[FarKeyspace], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
        host = self.host()

        async def run() -> Any:
            engine = FarKeyspace(self.server, host)
            await engine.start()
            try:
                return await scene(engine)
            finally:
                await engine.close()

        return host.start(run)

    def play(self, scene: Callable[[FarKeyspace], Coroutine[Any, Any, Any]]) -> Any:
        task = self.start(scene)
        self.sim.run_until(task.done, within=WITHIN_S)
        return task.result()


def is_absent(key: bytes) -> Compare:
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0)


@pytest.mark.parametrize("kind", [KeyspaceServer, EtcdLikeServer])
def test_every_call_goes_over_the_network(kind: Callable[..., KeyspaceServer]) -> None:
    async def scene(engine: FarKeyspace) -> None:
        assert (await engine.grant(10.0, lease=7)).ttl == 10.0
        put = await engine.put(b"k/1", b"one", lease=7)
        done = await engine.txn(
            [is_absent(b"k/2")], [Put(b"k/2", b"two", 7), Range(b"k/1")], [Delete(b"k/1")]
        )
        assert done.succeeded
        assert done.results[1].pairs[0].create_revision == put.revision
        found = await engine.range(b"k/", prefix_end(b"k/"), limit=1)
        assert (found.total, [pair.value for pair in found.pairs]) == (2, [b"one"])
        assert (await engine.delete(b"k/1")).deleted == 1
        assert (await engine.renew_all([7, 8])).terms == {7: 10.0}
        info = await engine.time_to_live(7, keys=True)
        assert info.keys == (b"k/2",)
        assert [each.id for each in await engine.leases()] == [7]
        await engine.revoke(7)
        with pytest.raises(UnknownLease):
            await engine.time_to_live(7)
        assert (await engine.range(b"k/2")).total == 0

    with Simulation(1) as sim:
        stage = Stage(sim, kind=kind)
        stage.play(scene)
        assert not stage.server.pairs()
        assert not stage.server.lease_ids()


def _mishap(stage: Stage, others: list[Host]) -> None:
    random, sim, server = stage.sim.random, stage.sim, stage.server
    match random.randrange(5):
        case 0:
            stage.network.partition({random.choice(others)}, {server.host})
            sim.after(random.uniform(0.1, 20.0), stage.network.heal)
        case 1:
            stage.network.partition({server.host}, {random.choice(others)}, one_way=True)
            sim.after(random.uniform(0.1, 6.0), stage.network.heal)
        case 2 if not server.host.down:
            server.crash()
            sim.after(random.uniform(0.1, 3.0), server.restart)
        case 3 if not server.host.down:
            server.host.stop(random.uniform(0.1, 6.0))
        case _:
            server.stragglers = Stragglers(random.choice((0.0, 0.2)))


@pytest.mark.parametrize("seed", seeds(4))
def test_a_watch_misses_nothing_and_repeats_nothing_and_what_was_answered_stays(seed: int) -> None:
    told: list[Events] = []
    answered: dict[int, bytes] = {}

    async def write(engine: FarKeyspace) -> None:
        for number in range(150):
            try:
                put = await engine.put(b"k/%d" % (number % 7), b"%d" % number)
            except LeaseholdError:
                continue
            answered[put.revision] = b"%d" % number
            await asyncio.sleep(0.2)

    async def watch(engine: FarKeyspace) -> None:
        watch = engine.watch(PREFIX, prefix_end(PREFIX), start=1)
        while True:
            told.append(await anext(aiter(watch)))

    with Simulation(seed) as sim:
        stage = Stage(sim, STORMY)
        watching = stage.start(watch)
        writing = stage.start(write)
        hosts = [host for host in sim._hosts.values() if host is not stage.server.host]
        while not writing.done():
            sim.run_for(sim.random.uniform(0.5, 5.0))
            _mishap(stage, hosts)
        stage.network.heal()
        stage.network.default = QUIET
        sim.run_until(lambda: not stage.server.host.halted, within=60.0)
        sim.run_for(60.0)
        watching.cancel()
        revisions = [events.revision for events in told]
        assert revisions == list(range(2, stage.server.engine._store.revision + 1))
        values = {each.revision: each.events[0].pair for each in told}
        assert answered
        for revision, value in answered.items():
            pair = values[revision]
            assert pair is not None
            assert pair.value == value


def test_a_straggler_is_executed_after_what_came_later() -> None:
    async def scene(engine: FarKeyspace) -> list[bytes]:
        server = engine.server
        server.stragglers = Stragglers(1.0, (2.0, 2.0))
        with pytest.raises(ConnectionLost):
            await engine.put(b"k", b"early")
        server.stragglers = Stragglers()
        await engine.put(b"k", b"late")
        first = (await engine.range(b"k")).pairs[0].value
        await asyncio.sleep(3.0)
        return [first, (await engine.range(b"k")).pairs[0].value]

    with Simulation(1) as sim:
        stage = Stage(sim)
        assert stage.play(scene) == [b"late", b"early"]
        assert stage.server.straggled == 1


def test_requests_may_be_executed_and_their_answers_lost() -> None:
    async def scene(engine: FarKeyspace) -> None:
        network, server = engine.server.network, engine.server
        network.partition({server.host}, {engine.host}, one_way=True)
        with pytest.raises(ConnectionLost):
            await engine.put(b"k", b"v")
        assert b"k" in server.pairs()
        network.heal()
        assert (await engine.range(b"k")).total == 1

    with Simulation(1) as sim:
        Stage(sim).play(scene)


def test_a_restarted_server_has_its_keys_and_gives_leases_their_terms() -> None:
    async def scene(engine: FarKeyspace) -> None:
        await engine.grant(10.0, lease=7)
        await engine.put(b"k", b"v", lease=7)
        await asyncio.sleep(8.0)
        engine.server.restart()
        await asyncio.sleep(8.0)
        assert (await engine.range(b"k")).total == 1
        await asyncio.sleep(2.5)
        assert (await engine.range(b"k")).total == 0

    with Simulation(1) as sim:
        Stage(sim).play(scene)


@pytest.mark.parametrize("by_the_book", [True, False])
def test_a_server_from_a_backup_is_found_out(by_the_book: bool) -> None:
    async def scene(engine: FarKeyspace) -> int:
        server = engine.server
        revision = (await engine.put(b"k", b"1")).revision
        backup = server.backup()
        for number in range(5):
            await engine.put(b"k", b"%d" % number)
        watch = engine.watch(b"k")
        await watch.ready()
        lost: list[HistoryLost] = []
        engine.on_history_lost = lost.append
        server.restore(backup, by_the_book=by_the_book)
        with pytest.raises(HistoryLost):
            await engine.range(b"k")
        with pytest.raises(HistoryLost):
            await anext(aiter(watch))
        assert len(lost) == 1
        other = FarKeyspace(server, engine.host)
        await other.start()
        found = (await other.range(b"k")).pairs[0]
        assert (found.value, found.mod_revision) == (b"1", revision)
        after = (await other.put(b"k", b"2")).revision
        await other.close()
        return after - revision

    with Simulation(1) as sim:
        assert (Stage(sim).play(scene) > 1_000_000) is by_the_book


async def _ticks(every_s: float) -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(every_s)


def test_an_etcd_counts_in_whole_seconds_and_ends_leases_late() -> None:
    late: list[float] = []

    async def scene(engine: FarKeyspace) -> None:
        for lease in range(1, 20):
            granted = await engine.grant(1.2, lease=lease)
            assert granted.ttl == 2.0
            began = engine.server.sim.now
            async for _ in _ticks(0.01):
                if lease not in engine.server.lease_ids():
                    break
            late.append(engine.server.sim.now - began - 2.0)

    with Simulation(1) as sim:
        Stage(sim, kind=EtcdLikeServer).play(scene)
    assert -0.05 < min(late) < 0.15
    assert 0.35 < max(late) < 0.6


def test_a_seed_can_be_replayed() -> None:
    def run() -> str:
        async def scene(engine: FarKeyspace) -> None:
            for number in range(20):
                try:
                    await engine.put(b"k", b"%d" % number)
                except ConnectionLost:
                    continue

        with Simulation(3) as sim:
            Stage(sim, STORMY).play(scene)
        return sim.digest()

    assert run() == run()
