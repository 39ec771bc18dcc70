"""Maintenance shows nothing that is not on disk, and keeps nobody waiting."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import NoSpace, Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, LongRead, Pieces
from leasehold.keyspace.operations import Grant, Put
from leasehold.server.etcd import alarms as alarms_module
from leasehold.server.etcd.alarms import Alarms, EtcdAlarm
from leasehold.server.etcd.maintenance import MaintenanceService
from leasehold.server.etcd.service_context import STOPPED, ServiceContext
from leasehold.store.runtime import Runtime
from leasehold.wire import maintenance_pb2 as pb

WITHIN_S = 60.0


class Office:
    """The service on a runtime whose disk can be made to wait."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.store = runtime, runtime.store
        self.context = ServiceContext(runtime, DurabilityGate(), runtime.journal.identity)
        self.alarms = Alarms(self.context)
        self.maintenance = MaintenanceService(self.context, self.alarms)
        self.disk = threading.Event()
        self.disk.set()
        append, note = runtime.journal.append, runtime.journal.note

        def slow_append(first_revision: int, last_revision: int, changes: bytes) -> None:
            self.disk.wait(WITHIN_S)
            append(first_revision, last_revision, changes)

        def slow_note(name: str, value: bytes) -> None:
            self.disk.wait(WITHIN_S)
            note(name, value)

        runtime.journal.append = slow_append  # type: ignore[method-assign]
        runtime.journal.note = slow_note  # type: ignore[method-assign]

    async def put(self, *keys: bytes) -> None:
        for key in keys:
            _, position = self.store.apply(Put(key, b"v"))
        await self.runtime.until_durable(position)

    def status(self) -> pb.StatusResponse:
        body, position = self.maintenance.status(b"")
        assert position == 0
        return pb.StatusResponse.FromString(body)

    async def hash_kv(self, revision: int = 0) -> tuple[pb.HashKVResponse, int]:
        request = pb.HashKVRequest(revision=revision).SerializeToString()
        body, position = _whole(await self.maintenance.hash_kv(request))
        return pb.HashKVResponse.FromString(body), position


def _whole(answer: Answer | Pieces | LongRead) -> Answer:
    assert isinstance(answer, tuple)
    return answer


def in_office(
    work: Callable[[Office], Coroutine[Any, Any, None]],
    directory: Path | None = None,
    quota_bytes: int = 1 << 40,
) -> None:
    async def run() -> None:
        async with asyncio.timeout(WITHIN_S):
            runtime = Runtime(directory, quota_bytes=quota_bytes)
            runtime.start()
            office = Office(runtime)
            try:
                await work(office)
            finally:
                office.disk.set()
                await runtime.stop()
                runtime.journal.close()

    asyncio.run(run())


def test_status_is_of_what_is_on_disk() -> None:
    async def work(office: Office) -> None:
        await office.put(b"a")
        before = office.status()
        office.disk.clear()
        office.store.apply(Put(b"b", b"v"))
        await asyncio.sleep(0)
        assert office.status() == before
        office.disk.set()
        await office.runtime.until_durable(office.store.position)
        after = office.status()
        assert after.header.revision == before.header.revision + 1
        assert after.raftIndex == before.raftIndex + 1

    in_office(work)


def test_a_hash_of_what_is_not_on_disk_waits_for_it() -> None:
    async def work(office: Office) -> None:
        await office.put(b"a")
        first = office.store.revision
        before, position = await office.hash_kv()
        assert position <= office.store.durable
        office.disk.clear()
        office.store.apply(Put(b"b", b"v"))
        answer, position = await office.hash_kv()
        assert answer.header.revision == first + 1
        assert position == office.store.position > office.store.durable
        body, position = _whole(await office.maintenance.hash(b""))
        assert pb.HashResponse.FromString(body).header.revision == first + 1
        assert position == office.store.position
        assert (await office.hash_kv(first))[0].hash == before.hash

    in_office(work)


def test_hashes_are_made_in_slices() -> None:
    async def work(office: Office) -> None:
        await office.put(*(b"%d" % number for number in range(20_000)))
        for lease in range(1, 5_000):
            office.store.apply(Grant(lease, 600.0))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        first, _ = await office.hash_kv()
        assert turns >= 3
        turns = 0
        await office.maintenance.hash(b"")
        assert turns >= 3
        counting.cancel()
        assert (await office.hash_kv())[0].hash == first.hash

    in_office(work)


def test_leases_are_part_of_the_hash_of_everything() -> None:
    async def work(office: Office) -> None:
        seen = set()
        for lease in (1, 2, 3):
            seen.add(pb.HashResponse.FromString(_whole(await office.maintenance.hash(b""))[0]).hash)
            office.store.apply(Grant(lease, 600.0))
        assert len(seen) == 3

    in_office(work)


def test_an_alarm_forbids_before_it_is_on_disk_and_is_shown_after_that() -> None:
    async def work(office: Office) -> None:
        alarm = EtcdAlarm(5, pb.NOSPACE)
        office.disk.clear()
        raising = asyncio.create_task(office.alarms.activate(alarm))
        await asyncio.sleep(0)
        with pytest.raises(NoSpace):
            office.store.apply(Put(b"k", b"v"))
        assert office.alarms.raised == []
        assert list(office.status().errors) == []
        office.disk.set()
        assert await raising == office.alarms.raised == [alarm]
        office.disk.clear()
        ending = asyncio.create_task(office.alarms.deactivate(alarm))
        await asyncio.sleep(0)
        with pytest.raises(NoSpace):
            office.store.apply(Put(b"k", b"v"))
        office.disk.set()
        await ending
        office.store.apply(Put(b"k", b"v"))

    in_office(work)


def test_one_alarm_that_ends_leaves_the_others_in_force() -> None:
    async def work(office: Office) -> None:  # in etcd 3.5.1 a put is taken again after this
        await office.alarms.activate(EtcdAlarm(1, pb.NOSPACE))
        await office.alarms.activate(EtcdAlarm(2, pb.CORRUPT))
        await office.alarms.deactivate(EtcdAlarm(2, pb.CORRUPT))
        with pytest.raises(NoSpace):
            office.store.apply(Put(b"k", b"v"))

    in_office(work)


def test_alarms_are_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms_module, "MAX_ALARMS", 2)

    async def work(office: Office) -> None:
        for member in (1, 2, 2):
            await office.alarms.activate(EtcdAlarm(member, pb.CORRUPT))
        with pytest.raises(RpcError, match="deactivate some first") as error:
            await office.alarms.activate(EtcdAlarm(3, pb.CORRUPT))
        assert error.value.status == Status.RESOURCE_EXHAUSTED

    in_office(work)


def test_the_quota_counts_from_the_start_on(tmp_path: Path) -> None:
    async def fill(office: Office) -> None:
        await office.put(*(b"%d" % number for number in range(2_000)))

    async def work(office: Office) -> None:
        with pytest.raises(NoSpace):
            office.store.apply(Put(b"k", b"v"))
        while not office.alarms.raised:  # noqa: ASYNC110  there is no event to await
            await asyncio.sleep(0)
        assert office.alarms.reason() == "ALARM NOSPACE"

    in_office(fill, tmp_path)
    in_office(work, tmp_path, quota_bytes=100_000)


def test_a_server_that_stops_says_so_to_operators_too() -> None:
    async def work(office: Office) -> None:
        await office.runtime.stop()
        for late in (
            office.maintenance.hash(b""),
            office.maintenance.hash_kv(b""),
            office.maintenance.defragment(b""),
            office.alarms.activate(EtcdAlarm(1, pb.NOSPACE)),
        ):
            with pytest.raises(RpcError) as error:
                await late
            assert (error.value.status, error.value.message) == (Status.UNAVAILABLE, STOPPED)

    in_office(work)


def test_those_who_ask_for_the_same_defragmentation_wait_together(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        await office.put(b"a")
        defragment = office.maintenance.defragment
        for answer in await asyncio.gather(defragment(b""), defragment(b"")):
            assert _whole(answer) == (b"", 0)
        assert _whole(await defragment(b"")) == (b"", 0)

    in_office(work, tmp_path)
