"""Bugs of single-writer files to switch on, to see that the simulation finds them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from leasehold.engine.values import TxnResult
from leasehold.errors import LeaseExpired, LeaseholdError
from leasehold.files import holder, reader, recovery, replica_io, writer
from leasehold.files.file_keys import (
    BLOCKS,
    DIRENTS,
    HOLDERS,
    RECORDS,
    WORKERS,
    decode_record,
    encode_record,
)
from leasehold.files.held_file import HeldFile, WriterTxn
from leasehold.files.holder import FileHolder, LiveHolder
from leasehold.files.monitor import Monitor
from leasehold.files.namespace import FoundFile, Namespace
from leasehold.files.opening import Opener, holder_state
from leasehold.files.recovery import Recoverer
from leasehold.files.replica_io import StoreFailed, Stores
from leasehold.files.state import (
    Block,
    Checksums,
    FileRecord,
    FileState,
    Replica,
    object_name,
    piece_name,
)
from leasehold.files.writer import FileWriter
from leasehold.keyspace.operations import Compare, Put, Step
from tests.simulation import files_races as races
from tests.simulation import files_scenarios as scenarios
from tests.simulation.seeded_bugs import Patch, SeededBug


class _Careless:
    """A namespace whose transactions leave conditions on some keys out, or steps."""

    def __init__(
        self,
        namespace: Namespace,
        ignored: Sequence[bytes] = (),
        step: Callable[[Step], Step] = lambda step: step,
    ) -> None:
        self._namespace = namespace
        self._ignored = tuple(ignored)
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._namespace, name)

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Step], failure: Sequence[Step] = ()
    ) -> TxnResult:
        """Execute a transaction."""
        kept = [each for each in compares if not each.key.startswith(self._ignored)]
        return await self._namespace.txn(kept, list(map(self._step, success)), failure)


def without(owner: Any, method: str, *ignored: bytes) -> Patch:
    """Let a method leave conditions on some keys out."""
    original = getattr(owner, method)

    async def careless(self: Any, *args: Any, **named: Any) -> Any:
        before = self._ns
        self._ns = before if isinstance(before, _Careless) else _Careless(before, ignored)
        try:
            return await original(self, *args, **named)
        finally:
            self._ns = before

    return patch.object(owner, method, careless)


# The writer.


def _a_flush_does_not_compare_the_record() -> Patch:
    return without(HeldFile, "commit", RECORDS, BLOCKS)


def _a_flush_does_not_compare_the_entries() -> Patch:
    return without(HeldFile, "commit", DIRENTS)


def _a_flush_does_not_compare_the_holder() -> Patch:
    return without(HeldFile, "commit", HOLDERS)


def _a_renamed_file_is_lost() -> Patch:
    async def look_again(self: HeldFile, _found: Any) -> None:
        raise self._ended_by(LeaseExpired(self.path, "the file was taken over"))

    return patch.object(HeldFile, "_look_again", look_again)


def _an_executed_flush_takes_over_any_record() -> Patch:
    def has_executed(self: HeldFile, found: Any, txn: WriterTxn) -> bool:
        with patch.object(HeldFile, "_is_own", lambda *_: True):
            executed = original(self, found, txn)
        if executed:
            self.record = decode_record(found.record.value)
            self._revision = found.record.mod_revision
        return executed

    original = HeldFile._has_executed
    return patch.object(HeldFile, "_has_executed", has_executed)


def _a_flush_without_an_answer_is_not_recognised() -> Patch:
    return patch.object(HeldFile, "_has_executed", lambda *_: False)


def _a_flush_without_an_answer_is_a_success() -> Patch:
    async def txn(self: Any, steps: Any, txn: WriterTxn, **named: Any) -> Any:
        try:
            return await original(self, steps, txn, **named)
        except (LeaseholdError, OSError):
            txn.applied()
            return None

    original = HeldFile.commit
    return patch.object(HeldFile, "commit", txn)


def _a_store_that_fails_is_not_recorded() -> Patch:
    async def send(self: FileWriter, data: bytes, _failed: set[str]) -> tuple[Replica, ...] | None:
        length = self._block.length
        results = await asyncio.gather(
            *(self._stores.extend(each, length, data) for each in self._replicas),
            return_exceptions=True,
        )
        pairs = list(zip(self._replicas, results, strict=True))
        for _, result in pairs:
            if isinstance(result, BaseException) and not isinstance(result, StoreFailed):
                raise result
        return tuple(
            result if isinstance(result, Replica) else replace(before, pieces=(*before.pieces,))
            for before, result in pairs
        )

    return patch.object(FileWriter, "_send", send)


def _bytes_for_a_store_that_fails_are_dropped() -> Patch:
    async def send(self: FileWriter, data: bytes, failed: set[str]) -> Any:
        replicas = await original(self, data, failed)
        if replicas is None:
            del self._buffer[: len(data)]
        return replicas

    original = FileWriter._send
    return patch.object(FileWriter, "_send", send)


def _objects_are_named_without_the_stamp() -> Patch:
    def named(file_id: str, number: int, _stamp: int, _tag: str = "") -> str:
        return object_name(file_id, number, 0)

    return patch.object(writer, "object_name", named)


def _objects_of_a_failed_flush_are_written_again() -> Patch:
    never = property(lambda _self: False, lambda _self, _value: None)
    return patch.object(FileWriter, "_is_sent", never, create=True)


def _a_flush_is_not_synced() -> Patch:
    async def extend(self: Stores, replica: Replica, length: int, data: bytes) -> Replica:
        async def write(store: Any) -> Replica:
            if store.appends:
                await store.append(replica.name, length, data, sync=False)
                return replica
            await store.put(piece_name(replica.name, len(replica.pieces)), data)
            return Replica(replica.store, replica.name, (*replica.pieces, len(data)))

        return await self.call(replica.store, write)

    return patch.object(Stores, "extend", extend)


def _a_former_holder_always_closes() -> Patch:
    async def is_complete(_self: FileWriter) -> bool:
        return True

    return patch.object(FileWriter, "_is_complete", is_complete)


# The holder.


def _the_checker_does_not_renew() -> Patch:
    return patch.object(holder, "RENEW_AT", 1e9)


def _a_holder_id_is_used_again() -> Patch:
    async def make(self: FileHolder) -> LiveHolder:
        with patch.object(self._ns, "new_id", lambda: "0" * 32):
            return await original(self)

    original = FileHolder._make
    return patch.object(FileHolder, "_make", make)


def _the_lease_ends_with_any_file() -> Patch:
    def forget(self: FileHolder, file_id: str, _file: Any) -> None:
        self.files.pop(file_id, None)
        if self._live is not None:
            live, self._live = self._live, None
            self._revoke(live.lease, 2.0)

    return patch.object(FileHolder, "forget", forget)


# Opening.


def _a_file_is_taken_over_before_the_soft_limit() -> Patch:
    async def is_past(self: Opener, record: FileRecord) -> bool:
        state = await holder_state(self._ns, record.holder, record.holder_revision)
        return state is None or state.elapsed_s > (await self._config()).soft_limit_s / 2

    return patch.object(Opener, "is_past_soft_limit", is_past)


def _a_create_without_an_answer_can_follow_later() -> Patch:
    async def settle(_self: FileHolder, _live: LiveHolder) -> bool:
        return True

    return patch.object(FileHolder, "settle", settle)


def _a_file_is_opened_with_the_stamp_of_its_former_writer() -> Patch:
    def put(key: bytes, value: bytes) -> Put:
        if key.startswith(RECORDS):
            record = decode_record(value)
            if record.state == FileState.OPEN and record.stamp > 1:
                value = encode_record(replace(record, stamp=record.stamp - 1))
        return Put(key, value)

    return patch("leasehold.files.opening.Put", put)


# Recovery.


def _a_recovery_does_not_raise_the_stamp() -> Patch:
    def careless(record: Any, **changes: Any) -> Any:
        if changes.get("state") == FileState.RECOVERING:
            changes.pop("stamp", None)
        return replace(record, **changes)

    return patch.object(recovery, "replace", careless)


def _a_recovery_takes_the_shortest_replica() -> Patch:
    return _a_recovery_takes_all_bytes(min)


def _a_recovery_takes_bytes_that_were_not_flushed() -> Patch:
    return _a_recovery_takes_all_bytes(max)


def _a_recovery_takes_all_bytes(length_of: Callable[[int, int], int]) -> Patch:
    """Let the shortest replica have a say in the length of the recovered block."""

    async def copied(self: Recoverer, begun: FoundFile, before: Block, *args: Any) -> Block:
        with suppress(StoreFailed):
            sizes = [await self._stores.size(each.store, each.name) for each in before.replicas]
            length = length_of(min((size or 0 for size in sizes), default=0), before.length)
            if length != before.length:
                checks = Checksums()
                await self._stores.checksums(before.replicas[0], checks, length)
                before = replace(before, length=length, checksums=checks.value())
        return await original(self, begun, before, *args)

    original = Recoverer._copied
    return patch.object(Recoverer, "_copied", copied)


def _a_recovery_publishes_the_objects_of_the_writer() -> Patch:
    async def copy(
        _self: Recoverer, _begun: Any, block: Block, sources: list[Replica], *_: Any
    ) -> Block:
        return replace(block, replicas=tuple(sources))

    return patch.object(Recoverer, "_copy", copy)


def _a_recovery_drops_the_last_block() -> Patch:
    async def copied(_self: Recoverer, begun: FoundFile, *_: Any, **_named: Any) -> Block:
        return Block(begun.record.stamp)

    return patch.object(Recoverer, "_copied", copied)


def _a_recovery_is_published_without_a_comparison() -> Patch:
    return without(Recoverer, "_commit", RECORDS)


def _a_recovery_begins_without_a_comparison() -> Patch:
    return without(Recoverer, "_begin", RECORDS)


def _the_worker_has_no_lease() -> Patch:
    def put(key: bytes, value: bytes, lease: int = 0) -> Put:
        return Put(key, value, 0 if key.startswith(WORKERS) else lease)

    return patch.object(recovery, "Put", put)


# The monitor.


def _the_monitor_ignores_a_file() -> Patch:
    async def recover(self: Monitor, file_ids: Iterable[str]) -> None:
        await original(self, list(file_ids)[:1])

    async def find_ended(_self: Monitor) -> None:
        return

    original = Monitor._recover
    return both(
        patch.object(Monitor, "_recover", recover),
        patch.object(Monitor, "_find_ended", find_ended),
    )


def _the_monitor_does_not_look_for_holders_that_ended_before() -> Patch:
    async def find_ended(_self: Monitor) -> None:
        return

    return patch.object(Monitor, "_find_ended", find_ended)


def _the_monitor_does_not_try_again() -> Patch:
    async def due(_self: Monitor) -> list[str]:
        return []

    return patch.object(Monitor, "_due_recoveries", due)


def _the_monitor_takes_a_file_from_a_live_holder() -> Patch:
    async def is_abandoned(_self: Monitor, record: FileRecord) -> bool:
        return record.state != FileState.CLOSED

    return patch.object(Monitor, "_is_abandoned", is_abandoned)


# The reader.


def _a_reader_ignores_checksums() -> Patch:
    return patch.object(replica_io, "_difference", lambda *_: "")


def _a_reader_sees_closed_blocks_only() -> Patch:
    async def load(self: reader.FileReader, record: FileRecord, revision: int) -> None:
        await original(self, replace(record, state=FileState.CLOSED), revision)

    original = reader.FileReader.load
    return patch.object(reader.FileReader, "load", load)


class both:  # noqa: N801  it is used like the functions of `contextlib`
    """Two patches, as one."""

    def __init__(self, *patches: Any) -> None:
        self._patches = patches

    def __enter__(self) -> None:
        for each in self._patches:
            each.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        for each in reversed(self._patches):
            each.__exit__(*exc_info)


_FOUND_BY: Sequence[tuple[Callable[[], Patch], Callable[[int], object]]] = (
    (_a_flush_does_not_compare_the_record, races.taken),
    (_a_flush_does_not_compare_the_entries, scenarios.stragglers),
    (_a_flush_does_not_compare_the_holder, races.taken),
    (_a_renamed_file_is_lost, scenarios.peace),
    (_an_executed_flush_takes_over_any_record, races.overtaken),
    (_a_flush_without_an_answer_is_not_recognised, races.unanswered),
    (_a_flush_without_an_answer_is_a_success, races.taken),
    (_a_store_that_fails_is_not_recorded, scenarios.bad_stores),
    (_bytes_for_a_store_that_fails_are_dropped, scenarios.bad_stores),
    (_objects_are_named_without_the_stamp, scenarios.bad_stores),
    (_objects_of_a_failed_flush_are_written_again, scenarios.bad_stores),
    (_a_flush_is_not_synced, scenarios.peace),
    (_a_former_holder_always_closes, races.taken),
    (_the_checker_does_not_renew, scenarios.peace),
    (_a_holder_id_is_used_again, scenarios.peace),
    (_the_lease_ends_with_any_file, scenarios.peace),
    (_a_file_is_taken_over_before_the_soft_limit, scenarios.peace),
    (_a_create_without_an_answer_can_follow_later, races.late_creates),
    (_a_file_is_opened_with_the_stamp_of_its_former_writer, scenarios.peace),
    (_a_recovery_does_not_raise_the_stamp, scenarios.crashes),
    (_a_recovery_takes_the_shortest_replica, races.torn),
    (_a_recovery_takes_bytes_that_were_not_flushed, races.torn),
    (_a_recovery_publishes_the_objects_of_the_writer, scenarios.crashes),
    (_a_recovery_drops_the_last_block, scenarios.crashes),
    (_a_recovery_is_published_without_a_comparison, races.two_recoveries),
    (_a_recovery_begins_without_a_comparison, scenarios.crashes),
    (_the_worker_has_no_lease, races.two_recoveries),
    (_the_monitor_ignores_a_file, scenarios.abandoned),
    (_the_monitor_does_not_look_for_holders_that_ended_before, races.unattended),
    (_the_monitor_does_not_try_again, scenarios.abandoned),
    (_the_monitor_takes_a_file_from_a_live_holder, races.unattended),
    (_a_reader_ignores_checksums, scenarios.damage),
    (_a_reader_sees_closed_blocks_only, scenarios.peace),
)

FILES_BUGS = [SeededBug(make.__name__.strip("_"), make, scenario) for make, scenario in _FOUND_BY]
