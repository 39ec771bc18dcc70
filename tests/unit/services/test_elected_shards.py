"""Shards of a cluster that several servers share."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest

from leasehold.errors import Compacted, NoSuchObject, ShardLost
from leasehold.services.elected_shards import (
    REBALANCE_S,
    SERVERS,
    SHARDS,
    ElectedShards,
    ShardOwner,
    shard_key,
    shards_to_give_up,
    shards_to_take,
    share_of,
)
from leasehold.services.shards import COUNT_KEY, SHARD_COUNT, LocalShards
from tests.support.faulty_engine import LOSSES, Fault, SleepyClock, World
from tests.support.record_service import (
    ServiceProcess,
    faulty,
    keys_of,
    play_services,
    start_elected,
    start_local,
)

ALL_SHARDS = set(range(SHARD_COUNT))


def _owned(servers: Iterable[ServiceProcess]) -> list[int]:
    return sorted(len(server.shard_numbers) for server in servers)


def _check_disjoint(servers: Iterable[ServiceProcess]) -> None:
    for one, other in combinations(servers, 2):
        assert not one.shard_numbers & other.shard_numbers, "a shard has two owners"


async def _until_owned(world: World, servers: Sequence[ServiceProcess], counts: list[int]) -> None:
    def is_so() -> bool:
        _check_disjoint(servers)
        return _owned(servers) == counts

    await world.until(is_so)


async def _watch_over(servers: list[ServiceProcess]) -> None:
    while True:
        _check_disjoint(servers)
        await asyncio.sleep(0.003)


# Decisions.


@pytest.mark.parametrize(
    ("count", "servers", "share"), [(16, 1, 16), (16, 2, 8), (16, 3, 6), (16, 20, 1), (16, 0, 16)]
)
def test_the_share_of_a_server(count: int, servers: int, share: int) -> None:
    assert share_of(count, servers) == share


def test_a_server_takes_free_shards_up_to_its_share() -> None:
    owner = ShardOwner("other", "", 1, 1)
    owners = dict.fromkeys(range(10), owner)
    assert set(shards_to_take("me", 16, 2, owners, 0)) == {10, 11, 12, 13, 14, 15}
    assert len(shards_to_take("me", 16, 3, owners, 0)) == 6
    assert len(shards_to_take("me", 16, 3, owners, 5)) == 1
    assert shards_to_take("me", 16, 3, owners, 6) == []
    assert shards_to_take("me", 16, 3, owners, 9) == []


def test_servers_try_free_shards_in_different_orders() -> None:
    assert shards_to_take("a", 16, 1, {}, 0) != shards_to_take("b", 16, 1, {}, 0)


def test_a_server_gives_up_only_what_it_has_beyond_its_share() -> None:
    assert shards_to_give_up(16, 2, range(16)) == [8, 9, 10, 11, 12, 13, 14, 15]
    assert shards_to_give_up(16, 3, range(6)) == []
    assert shards_to_give_up(16, 3, [1]) == []


# Sharing.


def test_the_number_of_shards_is_written_once() -> None:
    async def scene(world: World) -> None:
        await world.engine.put(COUNT_KEY, b"4")
        server = await start_local(world)
        assert server.shards.count == 4
        assert server.shard_numbers == {0, 1, 2, 3}
        await server.close()
        assert server.shard_numbers == set()

    play_services(scene)


@pytest.mark.parametrize("text", [b"", b"0", b"257", b"many"])
def test_a_number_of_shards_that_another_program_has_written_is_ignored(
    text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        await world.engine.put(COUNT_KEY, text)
        server = await start_local(world)
        assert server.shards.count == SHARD_COUNT
        assert "must have a number from 1 to 256" in caplog.text
        await server.close()

    play_services(scene)


def test_a_single_server_owns_all_shards() -> None:
    async def scene(world: World) -> None:
        server = await start_elected(world, "a")
        await _until_owned(world, [server], [16])
        assert all(server.shards.address_of(number) == "a:1" for number in ALL_SHARDS)
        record = await server.create(10.0)
        assert server.records.find(record.id) is record
        await server.records.cancel(record.id)
        await server.close()

    play_services(scene)


@pytest.mark.parametrize("seed", range(5))
def test_servers_that_start_together_share_the_shards_and_no_shard_has_two_owners(
    seed: int,
) -> None:
    async def scene(world: World) -> None:
        servers: list[ServiceProcess] = []
        watching = asyncio.ensure_future(_watch_over(servers))
        servers += await asyncio.gather(*(start_elected(world, name) for name in "abc"))
        for server in servers:
            faulty(server).delay_s = 0.01
        await world.until(lambda: sum(_owned(servers)) == 16 and max(_owned(servers)) <= 6)
        await world.until(
            lambda: all(each.shards.address_of(n) for each in servers for n in ALL_SHARDS)
        )
        for server in servers:
            await server.close()
        assert not watching.done()
        watching.cancel()

    play_services(scene, seed)


def test_a_server_that_joins_gets_its_share_and_then_nothing_moves_any_more() -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        b = await start_elected(world, "b")
        await asyncio.sleep(REBALANCE_S / 2)
        assert _owned([a, b]) == [0, 16]
        await _until_owned(world, [a, b], [8, 8])
        c = await start_elected(world, "c")
        await _until_owned(world, [a, b, c], [4, 6, 6])
        revision = world.engine._store.revision
        await asyncio.sleep(100.0)
        assert world.engine._store.revision == revision
        for server in (a, b, c):
            await server.close()

    play_services(scene)


def test_a_server_that_only_starts_and_fails_moves_nothing() -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        owned = set(a.shards.all_owned)
        for _ in range(5):
            b = await start_elected(world, "b")
            await asyncio.sleep(REBALANCE_S / 2)
            await b.close()
            await asyncio.sleep(0.5)
        assert set(a.shards.all_owned) == owned
        await a.close()

    play_services(scene)


def test_an_orderly_close_frees_the_shards_immediately() -> None:
    async def scene(world: World) -> None:
        a, b = await start_elected(world, "a"), await start_elected(world, "b")
        await _until_owned(world, [a, b], [8, 8])
        record = await a.create(100.0, x=b"1")
        await a.close()
        assert a.service.of(record.id) == ["started", "unloaded"]
        async with asyncio.timeout(1.0):
            await _until_owned(world, [b], [16])
        assert b.records.find(record.id).state == {b"x": b"1"}
        assert b.service.of(record.id) == ["started"]
        await b.records.cancel(record.id)
        await b.close()

    play_services(scene)


def test_the_shards_of_a_server_that_is_cut_off_are_taken_over_after_its_lease() -> None:
    async def scene(world: World) -> None:
        a, b = await start_elected(world, "a"), await start_elected(world, "b")
        await _until_owned(world, [a, b], [8, 8])
        record = await a.create(1000.0)
        watching = asyncio.ensure_future(_watch_over([a, b]))
        faulty(a).is_cut_off = faulty(a).is_deaf = True
        await asyncio.sleep(5.0)
        assert b.service.of(record.id) == []
        await _until_owned(world, [a, b], [0, 16])
        assert a.service.of(record.id) == ["started", "unloaded"]
        b.records.find(record.id)
        with pytest.raises(ShardLost):
            a.records.find(record.id)
        faulty(a).is_cut_off = faulty(a).is_deaf = False
        await _until_owned(world, [a, b], [8, 8])
        assert not watching.done()
        watching.cancel()
        for server in (a, b):
            if server.service.running:
                await server.records.cancel(record.id)
        await a.close()
        await b.close()

    play_services(scene)


def test_a_shard_is_owned_only_while_the_session_is_held_by_the_clock() -> None:
    async def scene(world: World) -> None:
        clock = SleepyClock(world)
        a = await start_elected(world, "a", clock=clock)
        await _until_owned(world, [a], [16])
        record = await a.create(1000.0)
        ownership = record.ownership
        clock.slept_s = 60.0  # nothing has run since
        assert a.shards.owned(record.shard) is None
        assert not ownership.is_valid
        assert record.is_over
        with pytest.raises(ShardLost):
            ownership.check()
        with pytest.raises(ShardLost):
            await a.put(record, b"x", b"1")
        await world.until(lambda: a.shards.owned(record.shard) is not None)
        assert not ownership.is_valid
        await world.until(lambda: record.id in a.service.running)
        await a.records.cancel(record.id)
        await a.close()

    play_services(scene)


def test_the_fence_refuses_the_writes_of_a_former_owner() -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        record = await a.create(1000.0, x=b"1")
        faulty(a).is_deaf = True  # it is not told that another server has taken the shard
        key = shard_key(record.shard)
        await world.engine.delete(key)
        other = await world.engine.grant(1000.0)
        await world.engine.put(key, b"", lease=other.id)
        assert a.shards.owned(record.shard) is record.ownership
        with pytest.raises(ShardLost, match="taken it over"):
            await a.put(record, b"x", b"2")
        assert not record.ownership.is_valid
        assert a.service.of(record.id) == ["started", "unloaded"]
        assert [pair.value for pair in world.pairs(record.key + b"/x")] == [b"1"]
        faulty(a).is_deaf = False
        await world.engine.revoke(record.lease)
        await a.close()
        await world.engine.revoke(other.id)
        await world.engine.delete(record.key + b"/x")

    play_services(scene)


@pytest.mark.parametrize("what", ["renew", "create"])
def test_the_fence_refuses_renewals_and_creations_too(what: str) -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        record = await a.create(1000.0)
        faulty(a).is_deaf = True
        for number in ALL_SHARDS:
            await world.engine.delete(shard_key(number))
        with pytest.raises(ShardLost):
            await (a.records.renew(record.id, 500.0) if what == "renew" else a.create(5.0))
        await asyncio.sleep(5.0)
        assert keys_of(world) == [record.key]
        faulty(a).is_deaf = False
        await a.close()
        for info in await world.engine.leases():
            await world.engine.revoke(info.id)

    play_services(scene)


# Losses.


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name)
@pytest.mark.parametrize("number", [1, 2, 3, 8])
def test_a_put_without_an_answer_is_recognized_by_server_and_lease(
    fault: Fault, number: int
) -> None:
    async def scene(world: World) -> None:
        a, b = await start_elected(world, "a"), await start_elected(world, "b")
        servers = [a, b]
        watching = asyncio.ensure_future(_watch_over(servers))
        await _until_owned(world, servers, [8, 8])
        await a.close()
        await _until_owned(world, [b], [16])
        c = await start_elected(world, "c")
        servers[0] = c
        for each in (b, c):
            faulty(each).straggle_s = 5.0
            faulty(each).trouble_with("txn", number, fault)
        await _until_owned(world, [b, c], [8, 8])
        await asyncio.sleep(10.0)
        assert _owned([b, c]) == [8, 8]
        assert b.shard_numbers | c.shard_numbers == ALL_SHARDS
        assert not watching.done()
        watching.cancel()
        await b.close()
        await c.close()

    play_services(scene)


def test_a_shard_that_is_being_given_up_is_not_used_again() -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        b = await start_elected(world, "b")
        await asyncio.sleep(REBALANCE_S - 0.1)
        for number in range(1, 9):
            faulty(a).trouble_with("txn", number, Fault.REQUEST_LOST)
        await world.until(lambda: len(a.shard_numbers) < 16)
        [given_up] = ALL_SHARDS - a.shard_numbers
        revision = world.pairs(shard_key(given_up))[0].create_revision
        while revision in [pair.create_revision for pair in world.pairs(shard_key(given_up))]:
            faulty(a).break_watches(Compacted(1, 2))  # the key is read, and still there
            await asyncio.sleep(0.02)
            assert given_up not in a.shard_numbers
        await _until_owned(world, [a, b], [8, 8])
        await a.close()
        await b.close()

    play_services(scene)


def test_a_watch_that_is_behind_an_answer_does_not_bring_a_deleted_key_back() -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        shards = a.shards
        assert isinstance(shards, ElectedShards)
        assert shards._lease is not None
        [pair] = world.pairs(shard_key(3))
        shards._see(pair.key, None, pair.mod_revision + 1, shards._lease)
        assert shards.owned(3) is None
        shards._see(pair.key, pair, pair.mod_revision, shards._lease)
        assert shards.owned(3) is None
        await a.close()

    play_services(scene)


def test_a_session_without_an_answer_to_its_grant_is_begun_again() -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        faulty(a).trouble_with("grant", 1, Fault.ANSWER_LOST)
        faulty(a).trouble_with("range", 1, Fault.ANSWER_LOST)
        lease = next(iter(world.pairs(SERVERS))).lease
        await world.engine.revoke(lease)  # by an operator
        await world.until(lambda: not a.shard_numbers)
        await _until_owned(world, [a], [16])
        assert next(iter(world.pairs(SERVERS))).lease != lease
        await a.close()

    play_services(scene)


def test_all_keys_are_read_again_after_the_watch_was_compacted() -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        owned = set(a.shards.all_owned)
        faulty(a).is_deaf = True
        b = await start_elected(world, "b")
        await asyncio.sleep(10.0)
        assert _owned([a, b]) == [0, 16]
        faulty(a).is_deaf = False
        faulty(a).break_watches(Compacted(1, 2))
        await _until_owned(world, [a, b], [8, 8])
        assert set(a.shards.all_owned) < owned
        await a.close()
        await b.close()

    play_services(scene)


def test_a_key_that_was_deleted_by_an_operator_is_put_again() -> None:
    async def scene(world: World) -> None:
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [16])
        record = await a.create(1000.0)
        before = record.ownership
        await world.engine.delete(shard_key(record.shard))
        await world.engine.delete(SERVERS + b"a")
        await world.until(lambda: record.id in a.service.running and not before.is_valid)
        await _until_owned(world, [a], [16])
        assert a.records.find(record.id).ownership is not before
        await world.until(lambda: len(world.pairs(SERVERS)) == 1)
        await a.records.cancel(record.id)
        await a.close()

    play_services(scene)


def test_keys_of_other_programs_are_not_shards() -> None:
    async def scene(world: World) -> None:
        foreign = [SHARDS + b"ff", SHARDS + b"0", SHARDS + b"zz", SHARDS + b"0/1"]
        for key in [*foreign, shard_key(3)]:
            await world.engine.put(key, b"\xff\xff\xff")
        a = await start_elected(world, "a")
        await _until_owned(world, [a], [15])
        assert a.shards.owned(3) is None
        await a.close()
        for key in [*foreign, shard_key(3)]:
            await world.engine.delete(key)

    play_services(scene)


def test_a_shard_is_unknown_before_the_start() -> None:
    async def scene(world: World) -> None:
        shards = LocalShards(world.engine)
        with pytest.raises(ShardLost):
            shards.shard_of("0" * 32)
        server = await start_local(world)
        with pytest.raises(NoSuchObject):
            server.records.find("0" * 32)
        await server.close()

    play_services(scene)
