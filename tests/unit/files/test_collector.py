"""The collector removes what was deleted or replaced, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from leasehold.errors import FileNotFound
from leasehold.files import collector
from leasehold.files.collector import Collector
from leasehold.files.file_keys import (
    BLOCKS,
    DIRENTS,
    OPEN_FILES,
    RECORDS,
    RECOVERIES,
    TRASH,
    WORKERS,
    Trash,
    block_key,
    block_trash_key,
    decode_trash,
    encode_record,
    encode_trash,
    record_key,
    repair_key,
)
from leasehold.files.replica_io import STORE_S
from leasehold.files.state import LATE_S, FileState, Replica, object_name, store_id
from tests.support.upkeep_stage import URLS, UpkeepStage

KEEP_S = 3600.0
OLD_S = 1200.0 + KEEP_S + LATE_S
"""Orphans are older than this."""

GONE = "ab" + "0" * 30
"""The id of a file that does not exist."""


def only_config_is_left(stage: UpkeepStage) -> bool:
    """Whether no key of a file is left."""
    return len(stage.keys(b"leasehold/files/")) == 1


# Unlinked directories.


def test_what_is_below_a_deleted_directory_is_unlinked_without_delay() -> None:
    with UpkeepStage() as stage:
        first = stage.write("a/b/c/file", b"data")
        second = stage.write("a/other", b"data")
        stage.run(stage.files.delete, "a", recursive=True)
        stage.collect()
        assert stage.keys(RECORDS) == {}
        assert stage.keys(DIRENTS) == {}
        trash = stage.keys(TRASH)
        assert trash.keys() > {TRASH + first.encode(), TRASH + second.encode()}
        assert not any(decode_trash(value).is_directory for value in trash.values())
        assert len(stage.all_objects()) == 6, "data stays for readers"


def test_a_deleted_directory_is_unlinked_in_passes_of_limited_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "CHILDREN_PER_PASS", 3)
    with UpkeepStage() as stage:
        for number in range(10):
            stage.write(f"a/{number}", b"data")
        stage.run(stage.files.delete, "a", recursive=True)
        for left in (7, 4, 1):
            assert stage.run(stage.collector.make_pass), "there is more"
            assert len(stage.keys(DIRENTS)) == left
        assert not stage.run(stage.collector.make_pass)
        assert stage.keys(DIRENTS) == stage.keys(RECORDS) == {}
        assert stage.collector.unlinked == 10


def test_a_late_copy_of_a_transaction_does_not_bring_a_collected_directory_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with UpkeepStage(keep=1) as stage:
        requests: list[Any] = []
        txn = stage.faulty.txn

        async def recorded(*args: Any) -> Any:
            requests.append(args)
            return await txn(*args)

        monkeypatch.setattr(stage.faulty, "txn", recorded)
        stage.run(stage.files.make_directory, "a")
        (request,) = requests
        stage.run(stage.files.delete, "a")
        stage.pass_time(2)
        stage.collect()
        assert not stage.run(txn, *request).succeeded
        stage.pass_time(LATE_S)
        stage.collect()
        assert only_config_is_left(stage)


def test_writers_below_a_deleted_directory_lose_their_files() -> None:
    with UpkeepStage() as stage:
        file = stage.open("a/b/file", b"data")
        assert len(stage.keys(OPEN_FILES)) == 1
        stage.run(stage.files.delete, "a", recursive=True)
        stage.collect()
        assert stage.keys(OPEN_FILES) == stage.keys(RECORDS) == {}
        stage.run(file.write, b"more")
        with pytest.raises(FileNotFound):
            stage.run(file.flush)
        stage.run(file.abort)


def test_recoveries_below_a_deleted_directory_end() -> None:
    with UpkeepStage() as stage:
        file = stage.open("a/file", b"data")
        for url in URLS:
            stage.stores.fail(url)
        assert not stage.run(stage.files.recover, "a/file")
        assert len(stage.keys(RECOVERIES)) == 1
        stage.run(stage.files.delete, "a", recursive=True)
        stage.collect()
        assert stage.keys(RECOVERIES) == stage.keys(WORKERS) == stage.keys(RECORDS) == {}
        stage.run(file.abort)


def test_a_record_that_cannot_be_decoded_does_not_keep_its_directory() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("a/file", b"data")
        stage.put(record_key(file_id), b"\xff")
        stage.run(stage.files.delete, "a", recursive=True)
        stage.collect()
        stage.pass_time(KEEP_S + 1)
        stage.collect()
        assert only_config_is_left(stage)
        assert stage.all_objects() == set()


def test_an_open_file_whose_record_cannot_be_decoded_leaves_its_holder() -> None:
    with UpkeepStage() as stage:
        file, other = stage.open("a/file"), stage.open("other")
        stage.put(record_key(file.id), b"\xff")
        stage.run(stage.files.delete, "a", recursive=True)
        stage.collect()
        (key,) = stage.keys(OPEN_FILES)
        assert key.endswith(other.id.encode())
        stage.run(file.abort)
        stage.run(other.close)


# Unlinked files and replaced blocks.


def test_data_of_a_deleted_file_stays_for_keep_and_is_deleted_then() -> None:
    with UpkeepStage() as stage:

        async def read_after_delete() -> bytes:
            async with stage.files.open("file") as reader:
                await stage.files.delete("file")
                await stage.collector.make_pass()
                return await reader.read()

        stage.write("file", b"data")
        assert stage.run(read_after_delete) == b"data"
        stage.pass_time(KEEP_S - 1)
        stage.collect()
        assert len(stage.all_objects()) == 3
        assert stage.run(stage.collector.bytes_waiting) == 12
        stage.pass_time(2)
        stage.collect()
        assert stage.all_objects() == set()
        assert only_config_is_left(stage)
        assert stage.collector.collected == 3
        assert stage.run(stage.collector.bytes_waiting) == 0


def test_all_pieces_of_a_deleted_file_are_deleted() -> None:
    with UpkeepStage(["mem://a", "/b"], replicas=2) as stage:
        stage.write("file", b"one", b"two", b"three")
        assert len(stage.all_objects()) == 4
        stage.run(stage.files.delete, "file")
        stage.pass_time(KEEP_S + 1)
        stage.collect()
        assert stage.all_objects() == set()
        assert only_config_is_left(stage)


def test_a_large_file_is_deleted_in_passes_of_limited_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "BLOCKS_PER_PASS", 2)
    with UpkeepStage(block_bytes=1) as stage:
        file_id = stage.write("file", b"12345")
        stage.put(repair_key(file_id, 3), b"")
        stage.run(stage.files.delete, "file")
        stage.pass_time(KEEP_S + 1)
        for left in (3, 1):
            assert stage.run(stage.collector.make_pass), "there is more"
            assert len(stage.keys(BLOCKS)) == left
            assert len(stage.keys(TRASH)) == 1, "the entry goes last"
        assert not stage.run(stage.collector.make_pass)
        assert only_config_is_left(stage)


def test_the_entry_of_a_deleted_file_stays_while_a_late_transaction_may_make_it_again() -> None:
    with UpkeepStage(keep=0) as stage:
        file_id = stage.write("file", b"data")
        stage.run(stage.files.delete, "file")
        stage.pass_time(1.0)
        stage.collect()
        assert stage.all_objects() == set()
        assert stage.keys(TRASH).keys() == {TRASH + file_id.encode()}
        stage.pass_time(LATE_S)
        stage.collect()
        assert only_config_is_left(stage)


def test_a_store_that_fails_delays_no_other_store_or_file() -> None:
    with UpkeepStage(block_bytes=2) as stage:
        for path in ("a", "b", "c"):
            stage.write(path, b"data")
            stage.run(stage.files.delete, path)
        stage.pass_time(KEEP_S + 1)
        stage.stores.fail("/b", methods=("delete",))
        stage.collect()
        assert {url for url, _ in stage.all_objects()} == {"/b"}
        assert len(stage.keys(TRASH)) == 3, "they are tried again"
        stage.stores.heal("/b")
        stage.collect()
        assert stage.all_objects() == set()
        assert only_config_is_left(stage)


def test_a_store_that_hangs_is_called_once_in_a_pass() -> None:
    with UpkeepStage() as stage:
        for number in range(40):
            stage.write(f"{number}", b"data")
            stage.run(stage.files.delete, f"{number}")
        stage.pass_time(KEEP_S + 1)
        stage.stores.hang("/b")
        begun = stage.sim.now
        assert not stage.run(stage.collector.make_pass)
        assert stage.sim.now - begun < 2 * STORE_S
        assert {url for url, _ in stage.all_objects()} == {"/b"}


def test_a_store_that_hangs_is_left_alone_for_some_passes() -> None:
    with UpkeepStage() as stage:
        stage.write("file", b"data")
        stage.run(stage.files.delete, "file")
        stage.pass_time(KEEP_S + 1)
        stage.stores.hang("/b")
        stage.run(stage.collector.make_pass)
        begun = stage.sim.now
        stage.run(stage.collector.make_pass)
        assert stage.sim.now - begun < STORE_S, "it holds up no other pass"
        stage.stores.heal("/b")
        stage.pass_time(collector.HANGING_S)
        stage.collect()
        assert stage.all_objects() == set()
        assert only_config_is_left(stage)


def test_data_in_a_store_that_was_dropped_does_not_keep_the_entry() -> None:
    with UpkeepStage() as stage:
        stage.write("file", b"data")
        stage.run(stage.files.delete, "file")
        stage.run(stage.files.configure, drop=["/b"])
        stage.pass_time(KEEP_S + 1)
        stage.collect()
        assert {url for url, _ in stage.all_objects()} == {"/b"}
        assert only_config_is_left(stage)


def test_collectors_with_different_stores_complete_each_other() -> None:
    with UpkeepStage(["/a", "/b"], replicas=2) as stage:

        async def collect(url: str) -> None:
            files = stage.another("other", allowed=frozenset([url]))
            one = Collector(files.namespace, files.stores, files.config)
            while await one.make_pass():
                pass
            await files.stores.close()

        stage.write("file", b"data")
        stage.run(stage.files.delete, "file")
        stage.pass_time(KEEP_S + 1)
        stage.run(collect, "/a")
        assert {url for url, _ in stage.all_objects()} == {"/b"}
        assert len(stage.keys(TRASH)) == 1
        stage.run(collect, "/b")
        assert stage.all_objects() == set()
        assert only_config_is_left(stage)


def test_replaced_objects_stay_for_keep_and_the_block_is_left_alone() -> None:
    with UpkeepStage() as stage:
        file = stage.open("file", b"data")
        assert stage.run(stage.files.recover, "file"), "it copies the block"
        stage.run(file.abort)
        assert len(stage.all_objects()) == 6
        assert stage.run(stage.collector.bytes_waiting) == 12
        stage.pass_time(KEEP_S - 1)
        stage.collect()
        assert len(stage.all_objects()) == 6
        stage.pass_time(2)
        stage.collect()
        assert stage.keys(TRASH) == {}
        assert stage.all_objects() == stage.named_by(file.id)
        assert stage.read("file") == b"data"


def test_replaced_objects_stay_while_the_block_has_too_few_replicas() -> None:
    with UpkeepStage() as stage:
        file = stage.open("file", b"data")
        assert stage.run(stage.files.recover, "file"), "it copies the block"
        stage.run(file.abort)
        stage.put(repair_key(file.id, 0), b"")
        stage.pass_time(KEEP_S + 1)
        stage.collect()
        assert len(stage.all_objects()) == 6, "the old ones may be needed"
        stage.run(stage.engine.delete, repair_key(file.id, 0))
        stage.collect()
        assert stage.all_objects() == stage.named_by(file.id)


def test_an_object_that_a_block_names_is_never_deleted_as_replaced() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        (block,) = stage.blocks(file_id)
        trash = Trash(1, replicas=block.replicas, length=4)
        stage.put(block_trash_key(file_id, 0, "0a"), encode_trash(trash))
        stage.collect()
        assert stage.keys(TRASH) == {}
        assert stage.read("file") == b"data"
        assert len(stage.all_objects()) == 3


def test_an_entry_that_cannot_be_decoded_delays_no_other() -> None:
    with UpkeepStage() as stage:
        stage.put(TRASH + b"0" * 32, b"\xff")
        stage.put(TRASH + b"0" * 32 + b"/x", encode_trash(Trash(0)))
        stage.write("file", b"data")
        stage.run(stage.files.delete, "file")
        stage.pass_time(KEEP_S + 1)
        stage.collect()
        assert stage.all_objects() == set()
        assert len(stage.keys(TRASH)) == 2, "they are left alone"


# Orphans.


def test_old_objects_of_unknown_files_are_deleted() -> None:
    with UpkeepStage() as stage:
        stage.stores.add("/a", object_name(GONE, 0, 1), b"old", age_s=OLD_S + 1)
        stage.stores.add("/a", object_name(GONE, 1, 7, "0f") + ".3", b"old", age_s=OLD_S + 1)
        stage.stores.add("/b", object_name(GONE, 0, 1), b"young", age_s=OLD_S - 1)
        stage.collect()
        assert stage.all_objects() == {("/b", object_name(GONE, 0, 1))}
        assert stage.collector.orphans == 2


def test_foreign_objects_are_never_deleted() -> None:
    with UpkeepStage() as stage:
        for name in ("ab/other", "aa/" + GONE + "-0-1", "readme.txt", "ab/" + GONE + "-0-1-x"):
            stage.stores.add("/a", name, b"", age_s=1e9)
        stage.collect()
        assert len(stage.all_objects()) == 4


def test_objects_that_a_block_names_are_never_orphans() -> None:
    with UpkeepStage(["/a", "mem://b"], replicas=2) as stage:
        file_id = stage.write("file", b"one", b"two")
        stage.pass_time(OLD_S + 1)
        stage.collect()
        assert stage.all_objects() == stage.named_by(file_id)
        assert stage.read("file") == b"onetwo"


def test_pieces_that_were_never_flushed_are_orphans_of_a_closed_file() -> None:
    with UpkeepStage(["mem://b"]) as stage:
        file_id = stage.write("file", b"one")
        extra = object_name(file_id, 0, 1) + ".1"
        stage.stores.add("mem://b", extra, b"late", age_s=OLD_S + 1)
        stage.collect()
        assert stage.all_objects() == stage.named_by(file_id)


def test_objects_in_a_trash_entry_are_not_orphans() -> None:
    with UpkeepStage(keep=1e7) as stage:
        file_id = stage.write("file", b"data")
        name = object_name(file_id, 0, 1, "0f")
        trash = Trash(stage.files.namespace.now_ms, replicas=(Replica(store_id("/a"), name),))
        stage.put(block_trash_key(file_id, 0, "0a"), encode_trash(trash))
        stage.stores.add("/a", name, b"data", age_s=1e8)
        stage.collect()
        assert name in stage.objects("/a")


def test_objects_of_a_deleted_file_wait_for_its_trash_entry() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        unflushed = object_name(file_id, 1, 1)
        stage.stores.add("/a", unflushed, b"late", age_s=OLD_S + 1)
        stage.run(stage.files.delete, "file")
        stage.collect()
        assert unflushed in stage.objects("/a")
        stage.pass_time(KEEP_S + 1)
        stage.collect()
        assert stage.all_objects() == set()


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (FileState.CLOSED, {8}),
        (FileState.OPEN, {7, 8}),
        (FileState.RECOVERING, {7, 8}),
    ],
)
def test_objects_that_may_still_be_named_are_not_orphans(state: FileState, kept: set[int]) -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file")
        record = replace(stage.record(file_id), state=state, stamp=7)
        stage.put(record_key(file_id), encode_record(record))
        for stamp in (4, 5, 6, 7, 8):
            stage.stores.add("/a", object_name(file_id, 0, stamp), b"", age_s=OLD_S + 1)
        stage.collect()
        assert set(stage.objects("/a")) == {object_name(file_id, 0, stamp) for stamp in kept}


@pytest.mark.parametrize("is_record", [True, False])
def test_objects_of_a_file_whose_keys_cannot_be_decoded_are_left_alone(is_record: bool) -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        stage.put(record_key(file_id) if is_record else block_key(file_id, 0), b"\xff")
        name = object_name(file_id, 0, 0)
        stage.stores.add("/a", name, b"", age_s=OLD_S + 1)
        stage.collect()
        assert name in stage.objects("/a")


def test_stores_are_listed_in_pages_over_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "LISTED_PER_PASS", 4)
    with UpkeepStage(["/a", "/b"]) as stage:
        for number in range(10):
            stage.stores.add("/a", object_name(GONE, number, 1), b"", age_s=OLD_S + 1)
        for left in (6, 2):
            assert stage.run(stage.collector.make_pass), "there is more"
            assert len(stage.objects("/a")) == left
        assert not stage.run(stage.collector.make_pass)
        assert stage.objects("/a") == []
        assert stage.stores.calls["/a", "list"] == 3
        assert stage.stores.calls["/b", "list"] == 1, "its round has ended"


def test_a_round_over_a_store_goes_on_where_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "LISTED_PER_PASS", 2)
    with UpkeepStage(["/a", "/b"]) as stage:
        for url in ("/a", "/b"):
            for number in range(4):
                stage.stores.add(url, object_name(GONE, number, 1), b"", age_s=OLD_S + 1)
        stage.run(stage.collector.make_pass)
        stage.stores.fail("/a")
        stage.collect()
        assert (len(stage.objects("/a")), stage.objects("/b")) == (2, [])
        stage.stores.heal("/a")
        stage.collect()
        assert stage.all_objects() == set()


def test_a_store_is_looked_through_again_after_a_while() -> None:
    with UpkeepStage(["/a"]) as stage:
        stage.collect()
        stage.stores.add("/a", object_name(GONE, 0, 1), b"", age_s=OLD_S + 1)
        stage.collect()
        assert stage.stores.calls["/a", "list"] == 1
        stage.pass_time(collector.ROUND_S + 1)
        stage.collect()
        assert stage.all_objects() == set()


def test_objects_that_a_writer_has_begun_survive_while_the_file_is_open() -> None:
    with UpkeepStage(["mem://a"], hard_limit=100.0, soft_limit=60.0, keep=1.0) as stage:
        file = stage.open("file", b"one")
        stage.stores.add("mem://a", object_name(file.id, 0, 1) + ".1", b"two", age_s=1e6)
        stage.pass_time(1_000.0)
        stage.collect()
        assert len(stage.objects("mem://a")) == 2
        stage.run(file.close)
