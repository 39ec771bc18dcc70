"""The life of leased records: ends, leases of keys, restarts, limits."""

import asyncio
from dataclasses import replace

import pytest

from leasehold import FOREVER
from leasehold.engine.interface import prefix_end
from leasehold.engine.values import Limits
from leasehold.errors import (
    Compacted,
    EndReason,
    NoSuchObject,
    ShardLost,
    TooBusy,
    TooLarge,
    UnknownLease,
)
from leasehold.keyspace.operations import Put
from leasehold.leases.policies import FixedPolicy
from leasehold.services import record_storage
from leasehold.services.record_storage import (
    KEYS_PER_PAGE,
    KEYS_PER_PASS,
    StoredEnd,
    shard_prefix,
    split_key,
    ttl_for,
)
from leasehold.services.shards import COUNT_KEY, SHARD_COUNT, LocalShards
from tests.support.faulty_engine import Fault, FaultyEngine, World
from tests.support.record_service import (
    ALL,
    NAME,
    ServiceProcess,
    keys_of,
    play_services,
    start_local,
    wipe,
)

ETCD = Limits(min_ttl=1.0, ttl_unit=1.0)


# Ends.


def test_a_record_ends_in_lease_time_and_is_stopped_before_its_keys_are_deleted() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(10.0, a=b"1")
        seen: list[list[bytes]] = []
        server.service.on_stopped = lambda _: seen.append(keys_of(world))
        await asyncio.sleep(9.9)
        assert server.records.find(record.id) is record
        assert record.remaining_s == pytest.approx(0.1, abs=0.05)
        await asyncio.sleep(0.2)
        assert record.is_over
        assert seen == [[record.key, record.key + b"/a"]]
        with pytest.raises(NoSuchObject):
            server.records.find(record.id)
        await world.until(lambda: not keys_of(world))
        assert server.service.of(record.id) == ["started", "expired"]
        assert world.leases() == 0
        await server.close()

    play_services(scene)


def test_lease_time_stands_still_while_the_server_is_stalled() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(10.0)
        await asyncio.sleep(8.0)
        world.host.stall(4.0)
        await asyncio.sleep(0.01)
        assert server.records.find(record.id) is record
        await server.records.renew(record.id, 1.0)
        await asyncio.sleep(8.0)
        assert len(server.records) == 0
        await server.close()

    play_services(scene)


def test_a_renewal_moves_the_end_and_the_end_in_the_key() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(10.0)
        await asyncio.sleep(5.0)
        assert await server.records.renew(record.id, 20.0) == 20.0
        [pair] = world.pairs(ALL)
        end = StoredEnd.decode(pair.value)
        assert end.end_wall_s == pytest.approx(world.host.clock.wall() + 20.0, abs=0.1)
        assert end.term_s == 20.0
        await asyncio.sleep(19.5)
        server.records.find(record.id)
        assert await server.records.renew(record.id, 2.0) == 2.0
        await asyncio.sleep(2.1)
        assert server.service.of(record.id) == ["started", "renewed", "renewed", "expired"]
        await server.close()

    play_services(scene)


def test_a_record_that_is_over_cannot_be_renewed_or_cancelled() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(1.0)
        await asyncio.sleep(1.1)
        for call in (server.records.renew(record.id, 5.0), server.records.cancel(record.id)):
            with pytest.raises(UnknownLease) as caught:
                await call
            assert caught.value.reason is EndReason.EXPIRED
        with pytest.raises(UnknownLease):
            await server.records.renew("f" * 32, 5.0)
        with pytest.raises(NoSuchObject):
            server.records.find("no id")
        await server.close()

    play_services(scene)


def test_cancel_returns_when_the_key_is_deleted() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(FOREVER, a=b"1")
        await server.records.cancel(record.id)
        assert record.key not in keys_of(world)
        assert server.service.of(record.id) == ["started", "cancelled"]
        await world.until(lambda: not keys_of(world))
        other = await server.create(10.0)
        assert await server.records.renew(other.id, 0.0) == 0.0
        assert keys_of(world) == []
        await server.close()

    play_services(scene)


def test_the_end_of_the_engines_lease_is_not_the_end_of_the_record() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(3.0)
        for _ in range(4):  # another client renews the lease of the key
            await world.engine.renew(record.lease)
            await asyncio.sleep(1.0)
        assert server.service.of(record.id) == ["started", "expired"]
        await server.close()

    play_services(scene)


# The wall time in the key.


def test_after_a_restart_the_wall_time_decides() -> None:
    async def scene(world: World) -> None:
        before = await start_local(world)
        short, long = await before.create(10.0, a=b"1"), await before.create(20.0, b=b"2")
        await asyncio.sleep(4.0)
        await before.close()
        assert before.service.of(short.id) == ["started", "unloaded"]
        await world.engine.renew(short.lease)
        await asyncio.sleep(8.0)
        after = await start_local(world)
        with pytest.raises(NoSuchObject):
            after.records.find(short.id)
        found = after.records.find(long.id)
        assert found.state == {b"b": b"2"}
        assert found.remaining_s == pytest.approx(8.0, abs=0.1)
        assert after.service.of(short.id) == []
        await world.until(lambda: keys_of(world) == [long.key, long.key + b"/b"])
        await asyncio.sleep(8.1)
        assert after.service.of(long.id) == ["started", "expired"]
        await after.close()

    play_services(scene)


def test_a_record_without_end_is_loaded_without_end() -> None:
    async def scene(world: World) -> None:
        before = await start_local(world)
        before.records.table.policy = FixedPolicy(FOREVER)
        record = await before.create(FOREVER)
        assert record.end is FOREVER
        await before.close()
        await asyncio.sleep(50_000.0)
        after = await start_local(world)
        assert after.records.find(record.id).remaining is FOREVER
        await after.records.cancel(record.id)
        await after.close()

    play_services(scene)


def test_a_record_that_cannot_be_decoded_has_ended() -> None:
    async def scene(world: World) -> None:
        key = shard_prefix(NAME, 0) + b"%032x" % 1
        await world.engine.put(key, b"\xff\xff", lease=(await world.engine.grant(60.0)).id)
        server = await start_local(world)
        await world.until(lambda: not keys_of(world))
        await server.close()

    play_services(scene)


# The lease of the key.


@pytest.mark.parametrize(
    ("term_s", "limits", "ttl_s"),
    [
        (0.5, ETCD, 6.0),
        (1.0, ETCD, 6.0),
        (1.2, ETCD, 7.0),
        (0.5, Limits(), 5.5),
        (60.0, Limits(), 65.0),
        (float("inf"), ETCD, ETCD.max_ttl),
        (ETCD.max_ttl - 1.0, ETCD, ETCD.max_ttl),
        (0.5, Limits(min_ttl=30.0, ttl_unit=1.0), 35.0),
    ],
)
def test_the_lease_of_a_key_lasts_five_seconds_longer_in_the_unit_of_the_engine(
    term_s: float, limits: Limits, ttl_s: float
) -> None:
    assert ttl_for(term_s, limits) == ttl_s


def test_half_a_second_is_granted_on_an_engine_with_whole_seconds() -> None:
    async def scene(world: World) -> None:
        engine = FaultyEngine(world.engine)
        engine.limits = replace(engine.limits, min_ttl=1.0, ttl_unit=1.0)
        server = await start_local(world, engine)
        record, granted = await server.records.create(0.5)
        assert granted == 0.5
        assert (await world.engine.time_to_live(record.lease)).ttl == 6.0
        await asyncio.sleep(0.4)
        assert await server.records.renew(record.id, 0.5) == 0.5
        await asyncio.sleep(0.4)
        server.records.find(record.id)
        await asyncio.sleep(0.2)
        with pytest.raises(NoSuchObject):
            server.records.find(record.id)
        await server.close()

    play_services(scene)


def test_a_longer_term_moves_the_key_to_another_lease() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(10.0)
        former = record.lease
        await server.records.renew(record.id, 60.0)
        [pair] = world.pairs(ALL)
        assert pair.lease == record.lease != former
        assert (await world.engine.time_to_live(record.lease)).ttl == 65.0
        await world.until(lambda: world.leases() == 1)
        await server.records.cancel(record.id)
        await server.close()

    play_services(scene)


def test_a_much_shorter_term_moves_the_key_too() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(3600.0)
        await server.records.renew(record.id, 60.0)
        assert (await world.engine.time_to_live(record.lease)).ttl == 65.0
        await server.records.cancel(record.id)
        await server.close()

    play_services(scene)


def test_a_renewal_of_the_same_length_renews_the_same_lease() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(10.0)
        lease = record.lease
        for _ in range(5):
            await asyncio.sleep(8.0)
            await server.records.renew(record.id, 10.0)
        assert record.lease == lease
        assert (await world.engine.time_to_live(lease)).remaining == pytest.approx(15.0, abs=0.1)
        await server.records.cancel(record.id)
        await server.close()

    play_services(scene)


# Deletes by others.


def test_a_record_whose_key_is_deleted_by_another_client_is_over() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(10.0, a=b"1")
        await world.engine.delete(record.key)
        await world.until(lambda: server.service.of(record.id) == ["started", "cancelled"])
        await world.until(lambda: not keys_of(world))
        assert world.leases() == 0
        await server.close()

    play_services(scene)


def test_a_write_that_finds_the_key_deleted_ends_the_record() -> None:
    async def scene(world: World) -> None:
        engine = FaultyEngine(world.engine)
        server = await start_local(world, engine)
        record = await server.create(10.0, a=b"1")
        engine.is_deaf = True
        await world.engine.delete(record.key)
        with pytest.raises(NoSuchObject):
            await server.put(record, b"b", b"2")
        assert server.service.of(record.id) == ["started", "cancelled"]
        await world.until(lambda: not keys_of(world))
        await server.close()

    play_services(scene)


def test_a_renewal_that_finds_the_key_deleted_ends_the_record() -> None:
    async def scene(world: World) -> None:
        engine = FaultyEngine(world.engine)
        server = await start_local(world, engine)
        record = await server.create(10.0)
        engine.is_deaf = True
        await world.engine.revoke(record.lease)
        with pytest.raises(UnknownLease):
            await server.records.renew(record.id, 10.0)
        assert server.service.of(record.id) == ["started", "cancelled"]
        await server.close()

    play_services(scene)


def test_deletes_that_a_lost_watch_has_missed_are_found_by_the_next_one() -> None:
    async def scene(world: World) -> None:
        engine = FaultyEngine(world.engine)
        server = await start_local(world, engine)
        records = [await server.create(1000.0, a=b"1") for _ in range(200)]
        engine.is_deaf = True
        await world.engine.delete(records[150].key)
        await asyncio.sleep(0.1)
        engine.is_deaf = False
        engine.break_watches(Compacted(1, 2))
        await world.until(lambda: len(server.records) == 199)
        assert records[150].is_ended
        for record in server.records:
            await server.records.cancel(record.id)
        await server.close()

    play_services(scene)


# Plain keys.


def test_orphaned_plain_keys_are_collected_in_bounded_passes() -> None:
    async def scene(world: World) -> None:
        before = await start_local(world)
        record = await before.create(1.0)
        count = 2 * KEYS_PER_PASS + 50
        for number in range(count):
            await world.engine.put(record.key + b"/%04d" % number, b"x")
        await before.close()
        await world.engine.revoke(record.lease)
        engine = FaultyEngine(world.engine)
        deleted: list[int] = []
        after = await start_local(world, engine)
        while keys := keys_of(world):
            deleted.append(len(keys))
            await world.until(lambda: len(keys_of(world)) < deleted[-1])
        sizes = [first - second for first, second in zip(deleted, [*deleted[1:], 0], strict=True)]
        assert sizes == [KEYS_PER_PASS, KEYS_PER_PASS, 50]
        await after.close()

    play_services(scene)


def test_plain_keys_of_a_record_that_exists_are_not_collected() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        record = await server.create(10.0, a=b"1")
        await server.records._storage.collect(record.key)
        assert keys_of(world) == [record.key, record.key + b"/a"]
        await server.records.cancel(record.id)
        await server.close()

    play_services(scene)


def test_plain_keys_are_collected_although_the_engine_fails_for_a_while() -> None:
    async def scene(world: World) -> None:
        engine = FaultyEngine(world.engine)
        server = await start_local(world, engine)
        record = await server.create(1.0, a=b"1")
        await asyncio.sleep(0.9)
        engine.trouble_with("revoke", 1, Fault.REQUEST_LOST)
        for number in range(1, 6):
            engine.trouble_with("txn", number, Fault.REQUEST_LOST)
        await asyncio.sleep(0.2)
        assert record.is_ended
        await world.until(lambda: not keys_of(world))
        await server.close()

    play_services(scene)


def test_a_shard_of_many_keys_is_loaded_in_pages() -> None:
    async def scene(world: World) -> None:
        before = await start_local(world)
        record = await before.create(1000.0)
        count = 2 * KEYS_PER_PAGE + 10
        for first in range(0, count, 100):
            puts = [
                Put(record.key + b"/%05d" % number, b"%d" % number)
                for number in range(first, min(count, first + 100))
            ]
            async with record.lock:
                await before.records.write(record, puts)
        await before.close()
        engine = FaultyEngine(world.engine)
        after = await start_local(world, engine)
        assert len(after.records.find(record.id).state) == count
        assert engine.calls.count("range") == 1 + 16 + 3
        await after.records.cancel(record.id)
        await world.until(lambda: not keys_of(world))
        await after.close()

    play_services(scene)


def test_a_page_that_is_too_large_for_one_answer_is_read_in_smaller_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_storage, "KEYS_PER_PAGE", 8)

    async def scene(world: World) -> None:
        before = await start_local(world)
        record = await before.create(1000.0, **{f"k{number}": b"x" for number in range(20)})
        await before.close()
        engine = FaultyEngine(world.engine)
        for number in range(3, 5):
            engine.trouble_with("range", number, TooLarge("larger than max"))
        after = await start_local(world, engine)
        assert len(after.records.find(record.id).state) == 20
        await after.records.cancel(record.id)
        await world.until(lambda: not keys_of(world))
        await after.close()

    play_services(scene)


def test_keys_of_others_below_the_prefix_are_left_alone() -> None:
    async def scene(world: World) -> None:
        foreign = [ALL + b"00/something", ALL + b"00/" + b"A" * 32, ALL + b"zz"]
        for key in foreign:
            await world.engine.put(key, b"")
        server = await start_local(world)
        await asyncio.sleep(1.0)
        assert keys_of(world) == sorted(foreign)
        await server.close()
        await wipe(world)

    play_services(scene)


def test_the_names_of_keys() -> None:
    record_id = "0123456789abcdef" * 2
    key = shard_prefix(NAME, 10) + record_id.encode()
    assert key == b"leasehold/notes/0a/0123456789abcdef0123456789abcdef"
    assert split_key(key, NAME) == (record_id, None)
    assert split_key(key + b"/e/1", NAME) == (record_id, b"e/1")
    assert split_key(b"leasehold/notes/0a/other", NAME) is None
    assert prefix_end(b"leasehold/notes/") == b"leasehold/notes0"


# Limits.


def test_the_number_of_records_is_limited() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world, max_records=2)
        first, _ = [await server.create(10.0) for _ in range(2)]
        with pytest.raises(TooBusy, match="has 2 objects, the maximum"):
            await server.create(10.0)
        await server.records.cancel(first.id)
        await server.create(10.0)
        await asyncio.sleep(11.0)
        await server.close()

    play_services(scene)


@pytest.mark.parametrize("term", [0.0, -1.0, float("nan")])
def test_a_term_must_be_more_than_zero(term: float) -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        with pytest.raises(ValueError, match="duration must"):
            await server.create(term)
        await server.close()

    play_services(scene)


# Starting and closing.


def test_a_record_of_a_shard_that_is_being_loaded_is_unavailable() -> None:
    async def scene(world: World) -> None:
        before = await start_local(world)
        record = await before.create(1000.0)
        await before.close()
        engine = FaultyEngine(world.engine)
        engine.delay_s = 2.0
        starting = asyncio.ensure_future(start_local(world, engine))
        server = ServiceProcess(engine, before.shards, world.host.clock)
        with pytest.raises(ShardLost):
            server.records.find(record.id)
        after = await starting
        after.records.find(record.id)
        loading = ServiceProcess(engine, after.shards, world.host.clock)
        with pytest.raises(ShardLost, match="still being loaded") as caught:
            loading.records.find(record.id)
        assert caught.value.not_executed
        with pytest.raises(ShardLost, match="no shard"):
            await loading.create(10.0)
        engine.delay_s = 0.0
        await after.records.cancel(record.id)
        await after.close()

    play_services(scene)


def test_loading_is_repeated_while_the_engine_fails() -> None:
    async def scene(world: World) -> None:
        before = await start_local(world)
        record = await before.create(1000.0)
        await before.close()
        engine = FaultyEngine(world.engine)
        for number in range(1, 30):
            engine.trouble_with("range", number, Fault.REQUEST_LOST)
        after = await start_local(world, engine)
        assert after.service.of(record.id) == ["started"]
        await after.records.cancel(record.id)
        await after.close()

    play_services(scene)


def test_the_grantor_is_the_cluster_and_the_service() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        assert server.records.grantor == f"{world.engine.cluster_id:016x}/notes"
        await server.close()

    play_services(scene)


def test_ids_have_128_random_bits() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world)
        ids = {(await server.create(1.0)).id for _ in range(50)}
        assert len(ids) == 50
        assert all(len(each) == 32 for each in ids)
        assert {server.records.find(each).shard for each in ids} != {0}
        await asyncio.sleep(1.1)
        await server.close()

    play_services(scene)


def test_a_server_without_records_writes_no_keys() -> None:
    async def scene(world: World) -> None:
        shards = LocalShards(world.engine, random=world.random)
        server = ServiceProcess(world.engine, shards, world.host.clock, random=world.random)
        await shards.start([server.records])
        assert (await world.engine.range(b"\0", b"\0")).revision == 1
        record = await server.create(1000.0)
        assert (await world.engine.range(COUNT_KEY)).pairs[0].value == b"%d" % SHARD_COUNT
        await server.records.cancel(record.id)
        await world.until(lambda: not keys_of(world))
        await server.close()

    play_services(scene)


def test_a_copy_of_a_record_in_another_shard_is_ignored() -> None:
    async def scene(world: World) -> None:
        before = await start_local(world)
        record = await before.create(1000.0, a=b"1")
        await before.close()
        (pair,) = (await world.engine.range(record.key)).pairs
        for shard in range(SHARD_COUNT):
            if shard != record.shard:
                copy = shard_prefix(NAME, shard) + record.id.encode()
                await world.engine.put(copy, pair.value)
        after = await start_local(world)
        found = after.records.find(record.id)
        assert (found.key, found.state) == (record.key, {b"a": b"1"})
        assert len(after.records) == 1
        await after.close()
        await wipe(world)

    play_services(scene)
