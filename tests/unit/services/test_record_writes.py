"""Writes of leased records whose outcome is unknown, or which are refused."""

import asyncio
from contextlib import suppress

import pytest

from leasehold.errors import (
    CallRefused,
    ConnectionLost,
    LeaseholdError,
    NoSpace,
    NoSuchObject,
    TooManyOperations,
)
from leasehold.keyspace.operations import Compare, Put, Relation, Target
from leasehold.services.record_storage import StoredEnd
from tests.support.faulty_engine import LOSSES, Fault, FaultyEngine, World
from tests.support.record_service import (
    ALL,
    Record,
    ServiceProcess,
    faulty,
    keys_of,
    play_services,
    start_local,
)

losses = pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name)


async def _start(world: World) -> tuple[ServiceProcess, FaultyEngine, Record]:
    server = await start_local(world, FaultyEngine(world.engine))
    return server, faulty(server), await server.create(100.0, a=b"1")


async def _end(server: ServiceProcess, record: Record) -> None:
    await asyncio.sleep(10.0)  # a request that was in some buffer was executed by now
    await server.records.cancel(record.id)
    await server.close()


def _stored(world: World, record: Record) -> dict[bytes, bytes]:
    below = record.key + b"/"
    return {pair.key[len(below) :]: pair.value for pair in world.pairs(below)}


@losses
def test_after_a_write_without_an_answer_the_state_is_what_is_stored(fault: Fault) -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.trouble_with("txn", 1, fault)
        with pytest.raises(ConnectionLost) as caught:
            await server.put(record, b"b", b"2")
        assert not caught.value.not_executed
        stored = _stored(world, record)
        assert record.state == stored
        assert (b"b" in stored) is (fault in (Fault.ANSWER_LOST, Fault.EXHAUSTED))
        assert server.service.of(record.id) == ["started", "unloaded", "started"]
        await asyncio.sleep(10.0)
        assert _stored(world, record) == stored, "it was executed late"
        await server.put(record, b"c", b"3")
        assert record.state == _stored(world, record)
        await _end(server, record)

    play_services(scene)


@losses
def test_the_rewrite_of_the_key_may_have_no_answer_either(fault: Fault) -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        for number in range(1, 6):
            engine.trouble_with("txn", number, fault)
        engine.trouble_with("range", 1, Fault.REQUEST_LOST)
        with pytest.raises(ConnectionLost):
            await server.put(record, b"b", b"2")
        stored = _stored(world, record)
        assert record.state == stored
        await asyncio.sleep(10.0)
        assert _stored(world, record) == stored, "it was executed late"
        await server.records.renew(record.id, 100.0)
        assert world.pairs(record.key)[0].mod_revision == record.epoch
        await _end(server, record)

    play_services(scene)


def test_a_call_that_hangs_is_a_write_without_an_answer() -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.is_cut_off = True
        writing = asyncio.ensure_future(server.put(record, b"b", b"2"))
        await asyncio.sleep(15.0)
        engine.is_cut_off = False
        with pytest.raises(ConnectionLost):
            await writing
        assert record.state == _stored(world, record) == {b"a": b"1"}
        await _end(server, record)

    play_services(scene)


@losses
def test_a_write_whose_caller_is_cancelled_is_never_executed_late(fault: Fault) -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.delay_s = 1.0
        writing = asyncio.ensure_future(server.put(record, b"b", b"2"))
        await asyncio.sleep(0.9 if fault is Fault.ANSWER_LOST else 0.1)
        engine.trouble_with("txn", 1, fault)  # the rewrite that follows
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
        with pytest.raises(ConnectionLost) as caught:
            await server.put(record, b"c", b"3")
        assert caught.value.not_executed
        assert record.state == _stored(world, record)
        assert (b"b" in record.state) is (fault is Fault.ANSWER_LOST)
        await server.put(record, b"c", b"3")
        assert record.state == _stored(world, record)
        engine.delay_s = 0.0
        await _end(server, record)

    play_services(scene)


def test_a_write_without_an_answer_of_a_record_that_ends_meanwhile() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world, FaultyEngine(world.engine))
        record = await server.create(5.0, a=b"1")
        faulty(server).is_cut_off = True
        writing = asyncio.ensure_future(server.put(record, b"b", b"2"))
        await asyncio.sleep(6.0)
        assert server.service.of(record.id) == ["started", "expired"]
        faulty(server).is_cut_off = False
        with pytest.raises((ConnectionLost, NoSuchObject)):
            await writing
        await world.until(lambda: not keys_of(world))
        await server.close()

    play_services(scene)


# Refusals.


def test_a_refused_write_changes_nothing_and_reads_nothing_again() -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.trouble_with("txn", 1, NoSpace(2, 1))
        with pytest.raises(NoSpace):
            await server.put(record, b"b", b"2")
        puts = [Put(record.key + b"/%d" % number, b"") for number in range(129)]
        async with record.lock:
            with pytest.raises(TooManyOperations):
                await server.records.write(record, puts)
        with pytest.raises(ValueError, match="request must have at most"):
            await server.put(record, b"b", bytes(2_000_000))
        assert server.service.of(record.id) == ["started"]
        await _end(server, record)

    play_services(scene)


def test_a_transaction_may_have_128_steps() -> None:
    async def scene(world: World) -> None:
        server, _, record = await _start(world)
        async with record.lock:
            puts = [Put(record.key + b"/%d" % number, b"") for number in range(128)]
            assert (await server.records.write(record, puts)).succeeded
        await _end(server, record)

    play_services(scene)


def test_conditions_of_the_caller_that_do_not_hold() -> None:
    async def scene(world: World) -> None:
        server, _, record = await _start(world)
        async with record.lock:
            is_two = Compare(record.key + b"/a", Target.VALUE, Relation.EQUAL, b"2")
            done = await server.records.write(record, [Put(record.key + b"/a", b"3")], [is_two])
            assert not done.succeeded
        assert _stored(world, record) == {b"a": b"1"}
        await _end(server, record)

    play_services(scene)


def test_a_write_during_a_renewal_is_repeated_in_the_new_epoch() -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.delay_s = 0.2
        epoch = record.epoch
        for _ in range(5):
            await asyncio.gather(
                server.records.renew(record.id, 100.0), server.put(record, b"b", b"2")
            )
        assert record.epoch > epoch
        assert record.state == _stored(world, record) == {b"a": b"1", b"b": b"2"}
        assert "unloaded" not in server.service.of(record.id)
        engine.delay_s = 0.0
        await _end(server, record)

    play_services(scene)


# Renewals.


@losses
def test_a_renewal_is_repeated_until_it_is_answered(fault: Fault) -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        await asyncio.sleep(50.0)
        engine.trouble_with("txn", 1, fault)
        assert await server.records.renew(record.id, 100.0) == 100.0
        assert record.remaining_s == pytest.approx(100.0, abs=1.0)
        assert server.service.of(record.id) == ["started", "renewed"]
        await asyncio.sleep(10.0)
        assert world.pairs(record.key)[0].mod_revision == record.epoch
        await _end(server, record)

    play_services(scene)


@pytest.mark.parametrize("error", [NoSpace(2, 1), CallRefused("permission denied")])
def test_a_renewal_that_cannot_be_stored_does_not_move_the_end(error: Exception) -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        await asyncio.sleep(50.0)
        engine.trouble_with("txn", 1, error)
        with pytest.raises(type(error)):
            await server.records.renew(record.id, 100.0)
        assert record.remaining_s == pytest.approx(50.0, abs=1.0)
        assert server.service.of(record.id) == ["started", "renewed"]
        await asyncio.sleep(51.0)
        assert server.service.of(record.id) == ["started", "renewed", "expired"]
        await server.close()

    play_services(scene)


def test_a_renewal_without_an_answer_for_too_long_does_not_move_the_end() -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        await asyncio.sleep(50.0)
        engine.is_cut_off = True
        with pytest.raises(ConnectionLost):
            await server.records.renew(record.id, 100.0)
        assert record.remaining_s == pytest.approx(40.0, abs=1.0)
        engine.is_cut_off = False
        await asyncio.sleep(12.0)
        assert world.pairs(record.key)[0].mod_revision == record.epoch
        await asyncio.sleep(40.0)
        assert server.service.of(record.id) == ["started", "renewed", "expired"]
        await server.close()

    play_services(scene)


def test_the_end_of_a_renewal_whose_caller_is_cancelled_is_taken_out_of_the_key() -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.delay_s = 1.0
        renewal = asyncio.ensure_future(server.records.renew(record.id, 1000.0))
        await asyncio.sleep(1.9)  # it is executed, and not answered yet
        renewal.cancel()
        await asyncio.wait([renewal])
        engine.delay_s = 0.0
        await asyncio.sleep(2.0)
        [pair] = world.pairs(record.key)[:1]
        end_s = StoredEnd.decode(pair.value).end_wall_s
        assert end_s == pytest.approx(world.host.clock.wall() + record.remaining_s, abs=1.0)
        assert record.remaining_s < 100.0
        assert "unloaded" not in server.service.of(record.id)
        await _end(server, record)

    play_services(scene)


def test_a_renewal_in_doubt_is_repeated_although_it_is_refused_then() -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.trouble_with("txn", 1, Fault.STRAGGLES)
        engine.trouble_with("txn", 2, NoSpace(2, 1))
        assert await server.records.renew(record.id, 150.0) == 150.0
        await asyncio.sleep(5.0)
        assert world.pairs(record.key)[0].mod_revision == record.epoch
        await _end(server, record)

    play_services(scene)


@losses
@pytest.mark.parametrize("call", ["grant", "txn"])
def test_a_move_to_another_lease_is_repeated_or_undone(fault: Fault, call: str) -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.straggle_s = 0.5
        engine.trouble_with(call, 1, fault)
        if call == "grant":
            with pytest.raises(Exception):  # noqa: B017, PT011  by the kind of loss
                await server.records.renew(record.id, 1000.0)
        else:
            await server.records.renew(record.id, 1000.0)
        await asyncio.sleep(10.0)
        [pair] = world.pairs(record.key)[:1]
        assert pair.lease == record.lease
        assert world.leases() == 1
        await _end(server, record)

    play_services(scene)


@pytest.mark.parametrize("after_s", [0.3, 0.7, 0.9])
def test_a_renewal_while_the_record_is_cancelled_leaves_nothing(after_s: float) -> None:
    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.delay_s = 0.5
        renewal = asyncio.ensure_future(server.records.renew(record.id, 1000.0))
        await asyncio.sleep(after_s)
        await server.records.cancel(record.id)
        with suppress(LeaseholdError):
            await renewal
        engine.delay_s = 0.0
        await world.until(lambda: not keys_of(world))
        await world.until(lambda: world.leases() == 0)
        await server.close()

    play_services(scene)


# Creation.


@losses
@pytest.mark.parametrize("call", ["grant", "txn"])
def test_a_creation_without_an_answer_leaves_nothing(fault: Fault, call: str) -> None:
    async def scene(world: World) -> None:
        server = await start_local(world, FaultyEngine(world.engine))
        faulty(server).straggle_s = 0.5
        faulty(server).trouble_with(call, 1, fault)
        with pytest.raises(Exception):  # noqa: B017, PT011  by the kind of loss
            await server.create(1000.0, a=b"1")
        await asyncio.sleep(10.0)
        assert keys_of(world) == []
        assert world.leases() == 0
        assert server.service.notes == []
        assert len(server.records.table) == 0
        await server.close()

    play_services(scene)


def test_a_creation_whose_caller_is_cancelled_leaves_nothing() -> None:
    async def scene(world: World) -> None:
        server = await start_local(world, FaultyEngine(world.engine))
        faulty(server).delay_s = 1.0
        for after_s in (0.1, 0.9, 1.1, 1.9):
            creating = asyncio.ensure_future(server.create(1000.0, a=b"1"))
            await asyncio.sleep(after_s)
            creating.cancel()
            await asyncio.wait([creating])
            assert creating.cancelled()
        faulty(server).delay_s = 0.0
        await asyncio.sleep(10.0)
        assert world.pairs(ALL) == []
        assert world.leases() == 0
        await server.close()

    play_services(scene)


def test_a_write_beside_a_renewal_is_executed() -> None:
    async def scene(world: World) -> None:
        server, _, record = await _start(world)
        for number in range(20):
            renewing = asyncio.ensure_future(server.records.renew(record.id, 100.0))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            await server.put(record, b"%d" % number, b"x")
            await renewing  # it begins another epoch
            assert record.state == _stored(world, record)
        await _end(server, record)

    play_services(scene)


@pytest.mark.parametrize("call", ["write", "renew"])
def test_a_server_whose_key_is_older_is_not_called_without_pause(call: str) -> None:
    """A cluster of etcd 3.5.0 to 3.5.2 may have a member that has skipped a transaction."""

    async def scene(world: World) -> None:
        server, engine, record = await _start(world)
        engine.delay_s = 0.001
        record.epoch += 1  # a member that has executed one more transaction has answered this
        calls = len(engine.calls)
        work = server.put(record, b"b", b"2") if call == "write" else _renew(server, record)
        task = asyncio.ensure_future(work)
        await asyncio.sleep(3.0)
        assert len(engine.calls) - calls < 50
        record.epoch -= 1  # the member with the newer key answers again
        await task
        await _end(server, record)

    play_services(scene)


async def _renew(server: ServiceProcess, record: Record) -> None:
    await server.records.renew(record.id, 100.0)
