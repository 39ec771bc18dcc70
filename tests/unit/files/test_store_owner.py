"""Replica stores: each belongs to one keyspace, and only its processes write to it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from leasehold.errors import TooFewReplicas
from leasehold.files.client import CHECK_STORE_S
from leasehold.files.file_keys import CONFIG, TRASH, encode_config
from leasehold.files.fsck import Finding, FindingKind
from leasehold.files.known_config import CONFIG_S
from leasehold.files.repairer import MAX_ERRORS, RepairReport
from leasehold.files.replica_io import ADOPT_S, MAX_NAMED, MAX_REASON_CHARS, Stores
from leasehold.files.replica_store import ReplicaStore, normal_url
from leasehold.files.state import FilesConfig, StoreEntry, object_name, store_id
from leasehold.files.threaded_store import OWNER
from tests.support.upkeep_stage import URLS, UpkeepStage

OTHER = b"another keyspace"
ORPHAN = object_name("ab" + "0" * 30, 0, 1)
AGE_S = 1e6
"""Older than all orphans that are kept."""


def test_no_orphan_is_deleted_in_a_store_of_another_keyspace() -> None:
    with UpkeepStage() as stage:
        stage.stores.objects["/a"][OWNER] = OTHER
        for url in ("/a", "/b"):
            stage.stores.add(url, ORPHAN, b"old", age_s=AGE_S)
        stage.collect()
        assert stage.all_objects() == {("/a", ORPHAN)}
        assert stage.collector.orphans == 1
        assert stage.stores.objects["/a"][OWNER] == OTHER


def test_a_store_belongs_to_the_keyspace_to_which_it_was_added() -> None:
    with UpkeepStage() as stage:
        owners = [stage.stores.objects[url][OWNER].decode().rpartition("-") for url in URLS]
        assert len({keyspace for keyspace, *_ in owners}) == 1
        assert [store for *_, store in owners] == [store_id(url) for url in URLS]
        assert stage.files.failed_stores() == {}


def test_a_store_of_another_keyspace_is_added_with_a_warning_and_not_written_until_claimed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with UpkeepStage([]) as stage:
        stage.stores.objects["/d"][OWNER] = OTHER
        config = stage.run(stage.files.configure, add=["/d"])
        assert [store.url for store in config.stores] == ["/d"]
        advice = "belongs to another keyspace.* run `leasehold files stores --claim /d`"
        assert re.search(f"store /d: it {advice}", caplog.text)
        assert re.search(advice, stage.files.failed_stores()["/d"])
        with pytest.raises(TooFewReplicas, match=f"0 usable; store /d: it {advice}"):
            stage.write("file", b"data")
        assert stage.stores.objects["/d"] == {OWNER: OTHER}
        stage.run(stage.files.claim_store, "/d")
        assert stage.files.failed_stores() == {}
        stage.write("other", b"data")
        assert stage.read("other") == b"data"


@pytest.mark.parametrize("url", ["/d", "mem://d"])
def test_of_two_keyspaces_that_add_a_new_store_together_one_is_refused(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with UpkeepStage([]) as stage:

        def open_slowly(store_id: str, url: str) -> ReplicaStore:
            store = stage.stores.open(store_id, url)
            for name in ("append", "put"):
                setattr(store, name, partial(_later, getattr(store, name)))
            return store

        slow = Stores(open_slowly, stage.engine, stage.host.clock, stage.sim.random)
        slow.configure(FilesConfig((StoreEntry(store_id(url), url),), keyspace="slow"))

        async def add_both() -> tuple[Any, Any]:
            return await asyncio.gather(
                slow.check_owner(store_id(url), adopt=True),  # sees that it has no owner
                stage.files.configure(add=[url]),
                return_exceptions=True,
            )

        refused, _ = stage.run(add_both)
        failed = stage.files.failed_stores()
        assert (refused is None) != (failed == {}), "one of them has it"
        assert "it belongs to another keyspace" in (str(refused) if refused else caplog.text)


@pytest.mark.parametrize("url", ["/d", "mem://d"])
def test_a_new_store_whose_owner_was_created_and_never_written_is_added(url: str) -> None:
    with UpkeepStage([]) as stage:
        stage.stores.objects[url][OWNER] = b""
        stage.run(stage.files.configure, add=[url])
        assert stage.files.failed_stores() == {}
        assert stage.stores.objects[url][OWNER]
        stage.write("file", b"data")
        assert stage.read("file") == b"data"


async def _later(write: Callable[..., Awaitable[None]], *args: Any) -> None:
    await asyncio.sleep(ADOPT_S / 2)
    await write(*args)


def test_a_store_that_cannot_be_written_is_added_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with UpkeepStage(["/a"]) as stage:
        stage.stores.fail("/d")
        config = stage.run(stage.files.configure, add=["/d", "/e"])
        assert [store.url for store in config.stores] == ["/a", "/d", "/e"]
        assert [record.message for record in caplog.records] == ["store /d: size fails"]
        assert stage.files.failed_stores() == {"/d": "size fails"}


def test_a_check_of_the_stores_returns_why_some_cannot_be_used() -> None:
    with UpkeepStage(["/a", "/b", "/c", "/d"]) as stage:
        assert stage.run(stage.files.check_stores) == {}
        stage.stores.fail("/a")
        stage.stores.hang("/b")
        stage.stores.objects["/c"][OWNER] = stage.stores.objects["/d"][OWNER]
        begun = stage.sim.now
        assert stage.run(stage.files.check_stores) == {
            "/a": "size fails",
            "/b": f"no answer within {CHECK_STORE_S:g} s",
            "/c": "it is the same directory as store /d: use another directory",
        }
        assert stage.sim.now - begun <= CHECK_STORE_S
        for url in ("/a", "/b"):
            stage.stores.heal(url)
        assert set(stage.run(stage.files.check_stores)) == {"/c"}


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("/srv/a/", "/srv/a"),
        ("//srv//a/.", "/srv/a"),
        ("file:///srv/a/", "/srv/a"),
        ("s3://bucket/path/", "s3://bucket/path"),
        ("memory://a", "memory://a"),
        ("s3://", "s3://"),
        ("s3:///", "s3:///"),
    ],
)
def test_a_store_has_one_url(url: str, normal: str) -> None:
    assert normal_url(url) == normal
    assert normal_url(normal) == normal


@pytest.mark.parametrize("url", ["/srv/../a", "file:///srv/../a", "/a,/b", "a", ""])
def test_a_url_with_several_meanings_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="store"):
        normal_url(url)


def test_a_directory_with_another_name_is_the_same_store() -> None:
    with UpkeepStage(["/a"]) as stage:
        config = stage.run(stage.files.configure, add=["/a/", "file:///a"])
        assert [store.url for store in config.stores] == ["/a"]
        stage.run(stage.files.configure, add=["/b"])
        config = stage.run(stage.files.configure, drop=["/a//"])
        assert [store.url for store in config.stores] == ["/b"]


def test_a_link_to_the_directory_of_another_store_is_refused() -> None:
    with UpkeepStage(["/a"]) as stage:
        stage.write("file", b"data")
        stage.stores.objects["/link"] = stage.stores.objects["/a"]
        with pytest.raises(ValueError, match="same directory as store /a"):
            stage.run(stage.files.configure, add=["/link"])
        assert [store.url for store in stage.run(stage.files.config).stores] == ["/a"]
        config = stage.run(stage.files.config)  # as if it had been added before
        both = replace(config, stores=(*config.stores, StoreEntry(store_id("/link"), "/link")))
        stage.put(CONFIG, encode_config(both))
        stage.pass_time(CONFIG_S + 1)
        with pytest.raises(OSError, match="same directory as store /a"):
            stage.run(stage.files.claim_store, "/link")
        stage.put(CONFIG, encode_config(config))
        stage.pass_time(CONFIG_S + 1)
        stage.run(stage.files.configure, drop=["/a"], add=["/link"])  # the directory was renamed
        assert "belongs to store" in stage.files.failed_stores()["/link"]
        stage.run(stage.files.claim_store, "/link")
        stage.write("other", b"more")
        assert stage.read("other") == b"more"


@pytest.mark.parametrize("lists", [("add", "remove"), ("add", "drop"), ("remove", "drop")])
def test_a_store_in_two_lists_of_a_change_is_refused(lists: tuple[str, str]) -> None:
    with UpkeepStage(["/a", "/b"]) as stage:
        with pytest.raises(ValueError, match="store /b is in two of add, remove and drop"):
            stage.run(stage.files.configure, **{lists[0]: ["/b"], lists[1]: ["/b/"]})
        assert len(stage.run(stage.files.config).staying) == 2


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"replicas": "3"}, TypeError, "replicas must be an int, not str"),
        ({"min_replicas": 1.0}, TypeError, "min_replicas must be an int, not float"),
        ({"soft_limit": 0.001, "hard_limit": 0.002}, ValueError, "hard_limit must be at least 1 s"),
        ({"add": [3]}, TypeError, "URL of a store must be a str, not int"),
    ],
)
def test_a_bad_change_of_the_configuration_is_refused(
    change: dict[str, Any], error: type[Exception], text: str
) -> None:
    with UpkeepStage(["/a"]) as stage:
        before = stage.run(stage.files.config)
        with pytest.raises(error, match=text):
            stage.run(stage.files.configure, **change)
        assert stage.run(stage.files.config) == before


def test_nothing_is_created_for_a_configuration_that_is_refused() -> None:
    with UpkeepStage(["/a"]) as stage:
        with pytest.raises(ValueError, match="min_replicas"):
            stage.run(stage.files.configure, add=["/d"], min_replicas=9)
        assert stage.stores.objects["/d"] == {}


# A disk that is not mounted.


def test_a_store_that_is_added_again_is_not_created_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As each start of a server with --file-stores does."""
    with UpkeepStage() as stage:
        stage.stores.unmount("/a")
        stage.run(stage.files.configure, add=URLS)
        assert stage.stores.objects["/a"] == {}
        assert "store /a: it belongs to no keyspace" in caplog.text


def test_a_flush_goes_on_without_a_disk_that_was_unmounted() -> None:
    with UpkeepStage() as stage:
        file = stage.open("file", b"one ")
        stage.stores.unmount("/a")

        async def more() -> None:
            await file.write(b"two ")
            await file.flush()

        stage.run(more)
        assert stage.stores.objects["/a"] == {}
        stage.stores.mount("/a")
        stage.run(file.close)
        assert stage.read("file") == b"one two "


def test_too_few_mounted_disks_are_an_error_that_names_them_and_the_writer_goes_on_later() -> None:
    with UpkeepStage() as stage:
        file = stage.open("file", b"one ")
        for url in URLS:
            stage.stores.unmount(url)

        async def more() -> None:
            await file.write(b"two ")
            await file.flush()

        with pytest.raises(TooFewReplicas) as raised:
            stage.run(more)
        for url in URLS:
            assert f"store {url}: it belongs to no keyspace" in str(raised.value)
            assert stage.stores.objects[url] == {}
            stage.stores.mount(url)
        stage.run(file.close)
        assert stage.read("file") == b"one two "


def test_the_message_names_a_few_of_many_stores_and_cuts_long_reasons() -> None:
    urls = [f"/{number}" for number in range(10)]
    with UpkeepStage(urls, replicas=10) as stage:
        for url in urls:
            stage.stores.objects[url][OWNER] = b"x" * 2_000
        with pytest.raises(TooFewReplicas, match=r"; and 7 more$") as raised:
            stage.write("file", b"data")
        assert len(str(raised.value)) < (MAX_NAMED + 1) * (MAX_REASON_CHARS + 100)


def test_replicas_on_a_disk_that_is_not_mounted_are_unreachable_and_not_replaced() -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        before = stage.blocks(file_id)
        stage.stores.unmount("/a")

        async def findings() -> list[Finding]:
            return [finding async for finding in stage.files.fsck()]

        found, _ = stage.run(findings)
        assert found.kind == FindingKind.UNREACHABLE_STORE
        assert "store /a: it belongs to no keyspace" in found.detail
        report = stage.run(stage.files.repair)
        assert (report.copied, report.dropped) == (0, 0)
        assert stage.blocks(file_id) == before


def test_deleted_files_stay_recorded_while_the_disk_of_a_replica_is_not_mounted() -> None:
    with UpkeepStage() as stage:
        stage.write("file", b"data")
        stage.run(stage.files.delete, "file")
        stage.stores.unmount("/a")
        stage.pass_time(1e5)
        stage.collect()
        assert stage.keys(TRASH)
        stage.stores.mount("/a")
        stage.collect()
        assert stage.all_objects() == set()
        assert stage.keys(TRASH) == {}


# Claiming.


def test_a_store_that_is_claimed_belongs_to_this_keyspace() -> None:
    with UpkeepStage() as stage:
        stage.stores.objects["/a"][OWNER] = OTHER
        stage.stores.add("/a", ORPHAN, b"old", age_s=AGE_S)
        stage.run(stage.files.claim_store, "/a")
        assert stage.stores.objects["/a"][OWNER] not in (b"", OTHER)
        stage.collect()
        assert stage.objects("/a") == []
        stage.run(stage.files.configure, remove=["/a"])
        stage.run(stage.files.configure, add=["/a"])


def test_only_configured_stores_can_be_claimed() -> None:
    with UpkeepStage() as stage:
        stage.stores.objects["/d"][OWNER] = OTHER
        with pytest.raises(ValueError, match="not configured"):
            stage.run(stage.files.claim_store, "/d")
        assert stage.stores.objects["/d"][OWNER] == OTHER


def test_a_single_url_is_not_taken_for_a_list() -> None:
    with UpkeepStage() as stage:
        with pytest.raises(TypeError, match="add must be a list of URLs"):
            stage.run(stage.files.configure, add="/x")
        with pytest.raises(TypeError, match="remove must be a list of URLs"):
            stage.run(stage.files.configure, remove="/x")


def test_a_store_that_is_not_configured_cannot_be_removed() -> None:
    with UpkeepStage() as stage, pytest.raises(ValueError, match="/nowhere is not configured"):
        stage.run(stage.files.configure, remove=["/nowhere"])


def test_a_block_whose_stores_were_all_removed_is_a_problem() -> None:
    with UpkeepStage(["/a"]) as stage:
        stage.write("file", b"data")
        stage.run(stage.files.configure, add=["/b"], drop=["/a"])

        async def kinds() -> list[FindingKind]:
            return [finding.kind async for finding in stage.files.fsck()]

        assert stage.run(kinds)[0] == FindingKind.UNDER_REPLICATED


@pytest.mark.parametrize("keep", [0, 0.0, timedelta()])
def test_data_need_not_be_kept(keep: float | timedelta) -> None:
    with UpkeepStage() as stage:
        assert stage.run(stage.files.configure, keep=keep).keep_s == 0.0
        assert stage.run(stage.files.configure, replicas=2).keep_s == 0.0
        with pytest.raises(ValueError, match="keep must"):
            stage.run(stage.files.configure, keep=-1)


def test_a_flush_needs_min_replicas_even_if_there_are_fewer_stores() -> None:
    with UpkeepStage(["/a"]) as stage:
        stage.run(stage.files.configure, replicas=2, min_replicas=2)
        with pytest.raises(TooFewReplicas, match="2 needed, 1 usable"):
            stage.write("file", b"data")
        stage.run(stage.files.configure, add=["/b"])
        stage.write("file", b"data")
        assert stage.read("file") == b"data"


def test_a_report_counts_the_errors_that_it_does_not_list() -> None:
    report = RepairReport()
    for number in range(MAX_ERRORS + 3):
        report.add_error(f"block {number}", "it cannot be read")
    assert len(report.errors) == MAX_ERRORS
    assert report.more_errors == 3
