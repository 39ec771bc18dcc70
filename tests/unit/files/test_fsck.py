"""`fsck` reports what is wrong with files, and changes nothing."""

from dataclasses import replace

import pytest

from leasehold.errors import FileNotFound
from leasehold.files.file_keys import (
    FILES,
    block_key,
    dirent_key,
    encode_block,
    encode_record,
    record_key,
    recovery_key,
)
from leasehold.files.fsck import Finding, FindingKind, FsckSummary
from leasehold.files.state import FileState, store_id
from tests.support.upkeep_stage import UpkeepStage


def check(stage: UpkeepStage, under: str = "", *, deep: bool = False) -> list[Finding]:
    """Return all findings; the keys must be as before."""

    async def check() -> list[Finding]:
        return [finding async for finding in stage.files.fsck(under, deep=deep)]

    stage.pass_time(1.0)  # leases of former holders end in the background
    before, objects = stage.keys(FILES), stage.all_objects()
    found = stage.run(check)
    assert stage.keys(FILES) == before
    assert stage.all_objects() == objects
    assert found[-1].kind is FindingKind.SUMMARY
    return found


def kinds(stage: UpkeepStage, under: str = "", *, deep: bool = False) -> list[str]:
    """Return the kinds of all findings before the summary."""
    return [finding.kind.value for finding in check(stage, under, deep=deep)[:-1]]


def summary_of(findings: list[Finding]) -> FsckSummary:
    """Return the summary."""
    summary = findings[-1].summary
    assert summary is not None
    return summary


def test_a_healthy_tree_has_a_summary_only() -> None:
    with UpkeepStage(block_bytes=4) as stage:
        stage.write("a/b/one", b"123456")
        stage.write("a/two", b"1")
        stage.write("empty")
        (finding,) = check(stage, deep=True)
        assert finding.summary == FsckSummary(files=3, directories=2, blocks=3, bytes=7)


def test_the_reason_of_a_store_that_cannot_be_used_is_given_once() -> None:
    with UpkeepStage() as stage:
        for name in ("one", "two"):
            stage.write(name, b"data")
        stage.stores.fail("/a")
        findings = check(stage)[:-1]
        assert [each.kind for each in findings] == [FindingKind.UNREACHABLE_STORE] * 2
        assert [each.detail for each in findings] == ["store /a: size fails", ""]


def test_many_entries_are_read_in_pages() -> None:
    with UpkeepStage(["/a"]) as stage:
        for number in range(130):
            stage.write(f"dir/{number}", b"1")
        assert summary_of(check(stage)).files == 130


def test_an_open_file_is_reported_with_its_holder() -> None:
    with UpkeepStage() as stage:
        file = stage.open("file", b"data")
        stage.pass_time(10.0)
        found = check(stage)
        assert found[0].kind is FindingKind.OPEN
        assert found[0].path == "file"
        assert found[0].holder == stage.record(file.id).holder
        assert found[0].elapsed_s is not None
        assert 0.0 <= found[0].elapsed_s <= 31.0
        assert not found[0].is_problem
        summary = summary_of(found)
        assert (summary.blocks, summary.bytes, summary.problems) == (1, 4, 0)
        stage.run(file.abort)


def test_a_file_whose_replicas_are_all_lost_is_locked() -> None:
    with UpkeepStage() as stage:
        file = stage.open("file", b"data")
        for url in ("/a", "/b", "/c"):
            stage.stores.shorten(url, stage.objects(url)[0], 2)
        assert not stage.run(stage.files.recover, "file")
        found = check(stage)
        assert found[0].kind is FindingKind.LOCKED
        assert found[0].attempts == 1
        assert found[0].is_problem
        assert "no replica has the flushed data" in found[0].detail
        stage.run(file.abort)


def test_a_recovery_is_reported_with_its_attempts_and_last_error() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file")
        record = replace(stage.record(file_id), state=FileState.RECOVERING)
        stage.put(record_key(file_id), encode_record(record))
        assert kinds(stage) == ["recovering"]
        stage.put(recovery_key(file_id), b"\xff")
        (finding, _) = check(stage)
        assert finding.kind is FindingKind.RECOVERING
        assert "cannot be decoded" in finding.detail


def test_a_block_with_too_few_replicas_is_reported() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        (block,) = stage.blocks(file_id)
        short = replace(block, replicas=block.replicas[:2])
        stage.put(block_key(file_id, 0), encode_block(short))
        (finding, _) = check(stage)
        assert finding.kind is FindingKind.UNDER_REPLICATED
        assert (finding.block, finding.detail) == (0, "2 of 3 replicas")


def test_replicas_in_a_removed_store_do_not_count() -> None:
    with UpkeepStage() as stage:
        stage.write("file", b"data")
        stage.run(stage.files.configure, remove=["/c"], add=["/d"])
        assert kinds(stage) == ["under-replicated"]


def test_missing_and_short_replicas_are_reported_with_their_stores() -> None:
    with UpkeepStage() as stage:
        stage.write("file", b"data")
        (name,) = stage.objects("/a")
        del stage.stores.objects["/a"][name]
        stage.stores.shorten("/b", name, 3)
        found = check(stage)[:-1]
        assert {(each.kind, each.store) for each in found} == {
            (FindingKind.MISSING_REPLICA, store_id("/a")),
            (FindingKind.SHORT_REPLICA, store_id("/b")),
        }


def test_missing_pieces_are_reported() -> None:
    with UpkeepStage(["mem://a"]) as stage:
        stage.write("file", b"one", b"two")
        del stage.stores.objects["mem://a"][stage.objects("mem://a")[1]]
        assert kinds(stage) == ["lost", "missing replica"]


def test_a_block_without_a_good_replica_is_lost_unless_a_store_may_return() -> None:
    with UpkeepStage() as stage:
        stage.write("file", b"data")
        for url in ("/a", "/b"):
            stage.stores.corrupt(url, stage.objects(url)[0])
        assert kinds(stage, deep=True) == ["damaged", "damaged"]
        stage.stores.fail("/c")
        assert sorted(kinds(stage, deep=True)) == ["damaged", "damaged", "unreachable store"]
        stage.stores.heal("/c")
        stage.run(stage.files.configure, drop=["/c"])
        assert "lost" in kinds(stage, deep=True)


def test_damaged_replicas_are_found_by_a_deep_check_only() -> None:
    with UpkeepStage() as stage:
        stage.write("file", b"data")
        stage.stores.corrupt("/b", stage.objects("/b")[0])
        assert kinds(stage) == []
        assert kinds(stage, deep=True) == ["damaged"]


def test_a_store_that_does_not_answer_is_not_called_damaged() -> None:
    with UpkeepStage() as stage:
        stage.write("file", b"data")
        stage.stores.fail("/b")
        assert kinds(stage, deep=True) == ["unreachable store"]


def test_keys_that_cannot_be_decoded_are_reported_and_the_rest_is_checked() -> None:
    with UpkeepStage() as stage:
        first, second = stage.write("a", b"data"), stage.write("b", b"data")
        stage.write("c", b"data")
        stage.put(record_key(first), b"\xff")
        stage.put(block_key(second, 0), b"\xff")
        found = check(stage)
        assert [(each.kind.value, each.path) for each in found[:-1]] == [
            ("undecodable", "a"),
            ("undecodable", "b"),
        ]
        assert summary_of(found).problems == 2
        assert kinds(stage, "a") == ["undecodable"]


def test_an_entry_without_a_record_and_a_block_without_a_key_are_reported() -> None:
    with UpkeepStage(block_bytes=2) as stage:
        first, second = stage.write("a", b"data"), stage.write("b", b"data")
        stage.run(stage.faulty.delete, record_key(first))
        stage.run(stage.faulty.delete, block_key(second, 1))
        assert kinds(stage) == ["undecodable", "damaged"]


def test_a_block_that_is_deleted_during_the_check_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        for url in ("/a", "/b", "/c"):
            for name in stage.objects(url):
                del stage.stores.objects[url][name]

        original = stage.files.stores.size

        async def size(store: str, name: str) -> int | None:
            await stage.faulty.delete(block_key(file_id, 0))
            return await original(store, name)

        async def check_while_deleted() -> list[Finding]:
            return [finding async for finding in stage.files.fsck()]

        monkeypatch.setattr(stage.files.stores, "size", size)
        assert [each.kind for each in stage.run(check_while_deleted)] == [FindingKind.SUMMARY]


def test_the_summary_has_the_bytes_that_wait_for_the_collector() -> None:
    with UpkeepStage() as stage:
        stage.write("kept", b"12345")
        stage.write("deleted", b"data")
        stage.run(stage.files.delete, "deleted")
        summary = summary_of(check(stage))
        assert (summary.bytes, summary.bytes_waiting) == (5, 12)
        stage.pass_time(3601)
        report = stage.run(stage.files.collect)
        assert (report.objects, report.bytes_waiting) == (3, 0)
        assert summary_of(check(stage)).bytes_waiting == 0


def test_a_path_limits_the_check_and_must_exist() -> None:
    with UpkeepStage() as stage:
        stage.write("a/b/file", b"data")
        stage.write("other", b"data")
        assert summary_of(check(stage, "a")).files == 1
        assert summary_of(check(stage, "a/b/file")).files == 1
        with pytest.raises(FileNotFound):
            check(stage, "missing")


def test_a_cycle_of_directories_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.files.replica_check.MAX_CHAIN", 10)
    with UpkeepStage() as stage:
        stage.write("a/file", b"data")
        directory = stage.run(stage.files.stat, "a").id
        stage.put(dirent_key(directory, "loop"), b"d" + directory.encode())
        assert summary_of(check(stage)).files == 10
