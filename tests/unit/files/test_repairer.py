"""The repairer gives blocks the replicas that they should have, and never loses the last one."""

import re
from dataclasses import replace
from typing import Any

import pytest

from leasehold.errors import FileNotFound, LeaseExpired
from leasehold.files import repairer
from leasehold.files.file_keys import (
    REPAIRS,
    TRASH,
    block_key,
    decode_trash,
    encode_block,
    encode_record,
    record_key,
    repair_key,
)
from leasehold.files.repairer import RATE_BYTES_PER_S, Repairer, RepairReport
from leasehold.files.state import CHUNK_BYTES, Block, FilesConfig, FileState, Replica, store_id
from tests.support.faulty_engine import Fault
from tests.support.upkeep_stage import UpkeepStage

A, B, C = (store_id(url) for url in ("/a", "/b", "/c"))
URL = {store_id(url): url for url in ("/a", "/b", "/c", "mem://a", "mem://b")}


def repairer_of(stage: UpkeepStage) -> Repairer:
    """A repairer of the client."""
    return Repairer(stage.files.namespace, stage.files.stores, stage.files.known_config)


def without(stage: UpkeepStage, file_id: str, *urls: str, number: int = 0) -> Block:
    """Remove the replicas of a block in these stores, and record that it needs repair."""
    block = stage.blocks(file_id)[number]
    left = tuple(each for each in block.replicas if URL[each.store] not in urls)
    for each in block.replicas:
        if each not in left:
            for name in each.objects():
                del stage.stores.objects[URL[each.store]][name]
    short = replace(block, replicas=left)
    stage.put(block_key(file_id, number), encode_block(short))
    stage.put(repair_key(file_id, number), b"")
    return short


def make_round(stage: UpkeepStage, one: Repairer) -> None:
    """Make passes until a round has ended."""
    while stage.run(one.make_pass):
        pass


def replicas_of(stage: UpkeepStage, file_id: str) -> dict[str, bytes]:
    """The bytes of each listed replica of the first block, by URL."""
    (block, *_) = stage.blocks(file_id)
    return {
        URL[each.store]: b"".join(stage.stores.objects[URL[each.store]][n] for n in each.objects())
        for each in block.replicas
    }


def test_a_block_with_too_few_replicas_is_copied_to_stores_that_lack_it() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        short = without(stage, file_id, "/b", "/c")
        one = repairer_of(stage)
        make_round(stage, one)
        assert replicas_of(stage, file_id) == {"/a": b"data", "/b": b"data", "/c": b"data"}
        (block,) = stage.blocks(file_id)
        assert block.replicas[0] == short.replicas[0], "what was there stays"
        assert len({each.name for each in block.replicas}) == 3, "copies have names of their own"
        assert stage.keys(REPAIRS) == stage.keys(TRASH) == {}
        assert one.repaired == 1
        assert stage.all_objects() == stage.named_by(file_id)


def test_what_a_writer_left_short_is_repaired_when_the_store_returns() -> None:
    with UpkeepStage() as stage:
        stage.stores.fail("/b")
        file_id = stage.write("file", b"one", b"two")
        assert len(stage.keys(REPAIRS)) >= 1
        stage.pass_time(60.0)
        one = repairer_of(stage)
        make_round(stage, one)
        assert len(stage.keys(REPAIRS)) >= 1, "there is no other store"
        stage.stores.heal("/b")
        make_round(stage, one)
        assert stage.keys(REPAIRS) == {}
        assert {len(block.replicas) for block in stage.blocks(file_id)} == {3}
        for url in ("/a", "/c"):
            stage.stores.fail(url)
        assert stage.read("file") == b"onetwo"


def test_no_more_replicas_are_wanted_than_there_are_stores() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        without(stage, file_id, "/c")
        stage.run(stage.files.configure, remove=["/c"])
        make_round(stage, repairer_of(stage))
        assert stage.keys(REPAIRS) == {}
        assert replicas_of(stage, file_id) == {"/a": b"data", "/b": b"data"}


def test_replicas_in_a_removed_store_do_not_count_and_are_replaced() -> None:
    with UpkeepStage(["/a", "/b"]) as stage:
        file_id = stage.write("file", b"data")
        stage.run(stage.files.configure, add=["/c"], remove=["/b"])
        report = stage.run(stage.files.repair)
        assert (report.copied, report.incomplete) == (1, 0)
        assert replicas_of(stage, file_id) == {"/a": b"data", "/c": b"data"}


def test_replicas_with_many_pieces_are_merged_and_the_old_ones_stay_for_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repairer, "MAX_PIECES", 4)
    monkeypatch.setattr("leasehold.files.writer.MAX_PIECES", 4)
    with UpkeepStage(["mem://a", "/b"], replicas=2) as stage:
        file_id = stage.write("file", b"1", b"2", b"3", b"4", b"5")
        assert stage.keys(REPAIRS).keys() == {repair_key(file_id, 0)}
        before = stage.named_by(file_id)
        make_round(stage, repairer_of(stage))
        first, second = stage.blocks(file_id)
        assert sorted(len(each.pieces) for each in first.replicas) == [0, 1]
        assert sorted(len(each.pieces) for each in second.replicas) == [0, 1]
        (value,) = stage.keys(TRASH).values()
        assert [len(each.pieces) for each in decode_trash(value).replicas] == [4]
        assert stage.keys(REPAIRS) == {}
        assert before <= stage.all_objects(), "readers may need them"
        assert stage.read("file") == b"12345"
        stage.pass_time(3601)
        stage.collect()
        assert stage.all_objects() == stage.named_by(file_id)
        assert stage.read("file") == b"12345"


def test_a_block_that_cannot_have_fewer_pieces_is_not_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repairer, "MAX_PIECES", 1)
    with UpkeepStage(["mem://a"]) as stage:
        file_id = stage.write("file", b"data")
        stage.put(repair_key(file_id, 0), b"")
        one = repairer_of(stage)
        make_round(stage, one)
        assert stage.keys(REPAIRS) == stage.keys(TRASH) == {}
        assert one.repaired == 0


def test_a_block_that_was_changed_meanwhile_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        short = without(stage, file_id, "/b")
        changed = replace(short, op="another")

        copy = stage.files.stores.copy

        async def copy_then_change(*args: Any) -> Replica:
            made = await copy(*args)
            await stage.faulty.put(block_key(file_id, 0), encode_block(changed))
            return made

        monkeypatch.setattr(stage.files.stores, "copy", copy_then_change)
        assert stage.run(repairer_of(stage).repair, file_id).copied == 0
        assert stage.blocks(file_id) == [changed]
        assert len(stage.keys(REPAIRS)) == 1, "it is tried again"
        stage.pass_time(FilesConfig().orphan_s + 1)
        stage.collect()
        assert stage.all_objects() == stage.named_by(file_id), "the copy was an orphan"


def test_a_deleted_file_is_not_repaired() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        without(stage, file_id, "/b")
        stage.run(stage.files.delete, "file")
        make_round(stage, repairer_of(stage))
        assert stage.keys(REPAIRS) == {}
        assert stage.objects("/b") == []


def test_the_current_block_of_a_writer_is_not_touched() -> None:
    with UpkeepStage() as stage:
        file = stage.open("file", b"data")
        (block,) = stage.blocks(file.id)
        short = replace(block, replicas=block.replicas[:1])
        stage.put(block_key(file.id, 0), encode_block(short))
        stage.run(stage.files.repair)
        assert stage.blocks(file.id) == [short]


def test_sealed_blocks_of_an_open_file_are_repaired_and_its_writer_goes_on() -> None:
    with UpkeepStage(block_bytes=4) as stage:
        file = stage.open("file", b"data", b"more")
        without(stage, file.id, "/c", number=0)
        report = stage.run(stage.files.repair)
        assert report.copied == 1
        stage.run(file.write, b"end")
        stage.run(file.close)
        assert stage.read("file") == b"datamoreend"


def test_a_repair_whose_answer_was_lost_counts_once() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        without(stage, file_id, "/c")
        stage.faulty.trouble_with("txn", 2, Fault.ANSWER_LOST)
        report = stage.run(stage.files.repair)
        assert (report.copied, report.incomplete) == (1, 0)
        assert stage.keys(REPAIRS) == {}
        assert stage.all_objects() == stage.named_by(file_id)


# Bad replicas.


@pytest.mark.parametrize("what", ["missing", "short", "damaged"])
def test_a_bad_replica_is_replaced_by_a_repair_that_verifies(what: str) -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        (name,) = stage.objects("/b")
        match what:
            case "missing":
                del stage.stores.objects["/b"][name]
            case "short":
                stage.stores.shorten("/b", name, 3)
            case "damaged":
                stage.stores.corrupt("/b", name)
        report = stage.run(stage.files.repair, verify=True)
        assert (report.copied, report.dropped, report.incomplete) == (1, 1, 0)
        assert set(replicas_of(stage, file_id).values()) == {b"data"}
        assert len(replicas_of(stage, file_id)) == 3
        (value,) = stage.keys(TRASH).values()
        assert [each.name for each in decode_trash(value).replicas] == [name]


def test_without_verify_no_bytes_are_compared() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        (before,) = stage.blocks(file_id)
        stage.stores.corrupt("/b", stage.objects("/b")[0])
        stage.stores.calls.clear()
        stage.run(stage.files.repair)
        assert stage.blocks(file_id) == [before]
        assert sum(stage.stores.calls[url, "read"] for url in ("/a", "/b", "/c")) == 0


def test_a_damaged_replica_is_never_copied() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        without(stage, file_id, "/c")
        stage.stores.corrupt("/a", stage.objects("/a")[0])
        make_round(stage, repairer_of(stage))
        assert replicas_of(stage, file_id)["/c"] == b"data"


def test_a_block_without_a_valid_replica_keeps_all_that_it_has() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        (before,) = stage.blocks(file_id)
        for url in ("/a", "/b", "/c"):
            stage.stores.corrupt(url, stage.objects(url)[0])
        report = stage.run(stage.files.repair, verify=True)
        assert (report.incomplete, report.dropped) == (1, 0)
        (error,) = report.errors
        assert "block 0 of 'file'" in error
        for url in ("/a", "/b", "/c"):
            assert re.search(f"store {url}: [^;]* does not match its checksum", error)
        assert stage.blocks(file_id) == [before]
        assert stage.keys(TRASH) == {}


def test_replicas_that_have_all_bytes_together_are_repaired() -> None:
    with UpkeepStage(["/a", "/b"]) as stage:
        data = bytes(2 * CHUNK_BYTES + 10)
        stage.write("file", data)
        stage.stores.corrupt("/a", stage.objects("/a")[0], 5)
        stage.stores.corrupt("/b", stage.objects("/b")[0], CHUNK_BYTES + 5)

        async def kinds() -> list[str]:
            return [each.kind.value async for each in stage.files.fsck(deep=True)][:-1]

        assert stage.run(kinds) == ["damaged", "damaged"]  # and not lost: readers have it all
        report = stage.run(stage.files.repair, verify=True)
        assert (report.copied, report.dropped, report.incomplete) == (2, 2, 0)
        assert stage.run(kinds) == []
        assert stage.read("file") == data


def test_a_file_that_is_locked_is_an_error_of_the_report() -> None:
    with UpkeepStage() as stage:
        file = stage.open("d/file", b"data")
        for url in ("/a", "/b", "/c"):
            stage.stores.corrupt(url, stage.objects(url)[0])
        assert not stage.run(stage.files.recover, "d/file")
        report = stage.run(stage.files.repair)
        (error,) = report.errors
        assert error.startswith("'d/file' is locked: no replica has the flushed data: store /")
        stage.run(stage.files.recover, "d/file", accept_loss=True)
        assert stage.run(stage.files.repair).errors == []
        with pytest.raises(LeaseExpired):
            stage.run(file.close)


def test_the_reason_of_an_error_is_listed_once() -> None:
    report = RepairReport()
    for number in range(3):
        report.add_error(f"block {number}", "store /a: no space left")
    report.add_error("block 3", "store /b: no space left")
    same = "for the same reason"
    expected = [
        "block 0: store /a: no space left",
        f"block 1, {same}",
        f"block 2, {same}",
        "block 3: store /b: no space left",
    ]
    assert report.errors == expected


def test_errors_in_the_background_have_the_whole_path(caplog: pytest.LogCaptureFixture) -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("a/b/file", b"data")
        without(stage, file_id, "/c")
        stage.stores.fail("/c")
        make_round(stage, repairer_of(stage))
        assert "block 0 of 'a/b/file'" in caplog.text


def test_a_bad_replica_is_kept_while_no_other_one_was_compared() -> None:
    with UpkeepStage(["/a", "/b"]) as stage:
        file_id = stage.write("file", b"data")
        (before,) = stage.blocks(file_id)
        stage.stores.shorten("/b", stage.objects("/b")[0], 3)
        stage.stores.corrupt("/a", stage.objects("/a")[0])
        report = stage.run(stage.files.repair)
        assert (report.dropped, report.incomplete) == (0, 1)
        assert stage.blocks(file_id) == [before]


def test_a_replica_in_a_store_that_does_not_answer_is_kept() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        (before,) = stage.blocks(file_id)
        stage.stores.hang("/b")
        report = stage.run(stage.files.repair, verify=True)
        assert (report.copied, report.dropped) == (0, 0)
        assert stage.blocks(file_id) == [before]


# Passes and paths.


def test_a_pass_is_limited_and_a_round_reaches_every_block() -> None:
    with UpkeepStage(block_bytes=1) as stage:
        file_id = stage.write("file", b"0123456789")
        for number in range(10):
            without(stage, file_id, "/c", number=number)
        one = repairer_of(stage)
        stage.run(one.make_pass, 3)
        assert len(stage.keys(REPAIRS)) >= 7
        while stage.run(one.make_pass, 3):
            pass
        assert stage.keys(REPAIRS) == {}
        assert one.repaired == 10


def test_a_background_pass_is_limited_in_its_rate_and_an_explicit_repair_is_not() -> None:
    with UpkeepStage(block_bytes=1024 * 1024) as stage:
        data = bytes(4 * 1024 * 1024)
        for path in ("one", "two"):
            file_id = stage.write(path, data)
            for number in range(4):
                without(stage, file_id, "/c", number=number)
            begun = stage.sim.now
            if path == "one":
                make_round(stage, repairer_of(stage))
                assert stage.sim.now - begun >= len(data) / RATE_BYTES_PER_S
            else:
                stage.run(stage.files.repair, path)
                assert stage.sim.now - begun < len(data) / RATE_BYTES_PER_S
        assert stage.keys(REPAIRS) == {}


def test_only_files_below_the_path_are_repaired() -> None:
    with UpkeepStage() as stage:
        inside, outside = stage.write("a/b/file", b"data"), stage.write("other", b"data")
        without(stage, inside, "/c")
        without(stage, outside, "/c")
        report = stage.run(stage.files.repair, "a")
        assert (report.files, report.blocks, report.copied) == (1, 1, 1)
        assert stage.keys(REPAIRS).keys() == {repair_key(outside, 0)}
        with pytest.raises(FileNotFound):
            stage.run(stage.files.repair, "missing")


def test_a_block_that_cannot_be_decoded_delays_no_other() -> None:
    with UpkeepStage() as stage:
        bad, good = stage.write("bad", b"data"), stage.write("good", b"data")
        without(stage, bad, "/c")
        without(stage, good, "/c")
        stage.put(block_key(bad, 0), b"\xff")
        make_round(stage, repairer_of(stage))
        assert stage.keys(REPAIRS).keys() == {repair_key(bad, 0)}


def test_a_file_that_is_being_recovered_keeps_its_last_block() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        record = replace(stage.record(file_id), state=FileState.RECOVERING, blocks=0, length=0)
        stage.put(record_key(file_id), encode_record(record))
        short = without(stage, file_id, "/c")
        make_round(stage, repairer_of(stage))
        assert stage.blocks(file_id) == [short]


def test_errors_name_the_path_of_the_file() -> None:
    with UpkeepStage() as stage:
        stage.write("logs/today/file", b"data")
        for url in ("/a", "/b", "/c"):
            (name,) = stage.objects(url)
            stage.stores.corrupt(url, name)
        report = stage.run(stage.files.repair, verify=True)
        assert report.errors[0].startswith("block 0 of 'logs/today/file' (")
