"""Local stores: appending, what is on disk when a call returns, and listings of directories."""

import errno
import os
import shutil
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from leasehold.files import local_store, threaded_store
from leasehold.files.local_store import TEMPORARY_KEEP_S
from leasehold.files.replica_store import LocalStore
from leasehold.files.threaded_store import OWNER
from tests.support.asynchronous import asynchronous
from tests.support.open_files import open_files_in
from tests.support.replica_store_rules import NAME, open_owned


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "made" / "store"


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[LocalStore]:
    store = await open_owned(str(root))
    assert isinstance(store, LocalStore)
    try:
        yield store
    finally:
        await store.close()
    assert not open_files_in(root)


# Appending.


@asynchronous
async def test_offset_0_creates_an_object_and_others_extend_it(root: Path) -> None:
    async with opened(root) as store:
        await store.append(NAME, 0, b"one")
        await store.append(NAME, 3, b"two", sync=False)
        await store.append(NAME, 6, b"three")
        assert await store.read(NAME, 0, 100) == b"onetwothree"
        assert (root / NAME).read_bytes() == b"onetwothree"


@asynchronous
async def test_an_append_may_repeat_bytes_that_are_there(root: Path) -> None:
    async with opened(root) as store:
        await store.append(NAME, 0, b"one two")
        await store.append(NAME, 4, b"two three")
        assert await store.read(NAME, 0, 100) == b"one two three"


@asynchronous
async def test_an_object_that_exists_is_not_created_again(root: Path) -> None:
    async with opened(root) as store:
        await store.append(NAME, 0, b"first")
        with pytest.raises(FileExistsError):
            await store.append(NAME, 0, b"second")
        assert await store.read(NAME, 0, 100) == b"first"


@asynchronous
async def test_a_new_store_is_created_with_its_owner_by_one_process_only(tmp_path: Path) -> None:
    url = str(tmp_path / "new")
    for owner in ("first", "second"):
        store = LocalStore("s", url, Path(url))
        store.keyspace = owner
        with nullcontext() if owner == "first" else pytest.raises(FileExistsError):
            await store.append(OWNER, 0, owner.encode())
        assert await store.read(OWNER, 0, 10) == b"first"
        await store.close()


@asynchronous
async def test_an_append_behind_the_end_writes_nothing(root: Path) -> None:
    async with opened(root) as store:
        with pytest.raises(FileNotFoundError):
            await store.append(NAME, 3, b"x")
        assert not (root / "3f").exists()
        await store.append(NAME, 0, b"one")
        with pytest.raises(OSError, match="the object has 3 bytes"):
            await store.append(NAME, 4, b"x")
        assert await store.read(NAME, 0, 100) == b"one"


# Durability.


def _path_of(fd: int, root: Path) -> str:
    return os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), root)


class Syncs:
    """The paths that were synced, in order, and the renames between them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.seen: list[str] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._recorder(name, getattr(os, name)))
        replace = os.replace

        def recorded(source: str, target: str, **options: Any) -> None:
            replace(source, target, **options)
            self.seen.append(f"rename to {target}")

        monkeypatch.setattr(os, "replace", recorded)

    def _recorder(self, name: str, sync: Any) -> Any:
        def recorded(fd: int) -> None:
            self.seen.append(f"{name} {_path_of(fd, self.root)}")
            sync(fd)

        return recorded

    def take(self) -> list[str]:
        seen, self.seen = self.seen, []
        return seen


LEAF = NAME.partition("/")[2]


@asynchronous
async def test_a_new_object_is_durable_with_all_directories_up_to_the_first_that_existed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(root, monkeypatch)
    async with opened(root) as store:
        *before, draft, renamed, after = syncs.take()
        assert before == [
            "fsync ../..",  # which has got `made`
            "fsync ..",  # `store`
            "fsync .",  # `00`
        ]
        assert draft.startswith("fsync 00/.tmp-")
        assert [renamed, after] == ["rename to owner", "fsync 00"]
        await store.append(NAME, 0, b"data")
        assert syncs.take() == [
            "fsync .",  # `3f`
            f"fdatasync {NAME}",
            "fsync 3f",  # the object
        ]
        await store.append(NAME, 4, b"data")
        assert syncs.take() == [f"fdatasync {NAME}"]
        await store.append(f"{NAME}-1", 0, b"data")
        assert syncs.take() == [f"fdatasync {NAME}-1", "fsync 3f"]
        await store.append("4f/other", 0, b"data")
        assert syncs.take() == ["fsync .", "fdatasync 4f/other", "fsync 4f"]


@asynchronous
async def test_an_append_without_sync_makes_the_name_durable_only(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(root) as store:
        await store.put("3f/other", b"")
        syncs = Syncs(root, monkeypatch)
        await store.append(NAME, 0, b"data", sync=False)
        assert syncs.take() == ["fsync 3f"]
        await store.append(NAME, 4, b"data", sync=False)
        assert syncs.take() == []


@asynchronous
async def test_put_syncs_the_data_before_the_rename_and_the_directory_after_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(root) as store:
        await store.put("3f/other", b"")
        syncs = Syncs(root, monkeypatch)
        await store.put(NAME, b"data")
        data, *rest = syncs.take()
        assert data.startswith("fsync 3f/.tmp-")
        assert rest == [f"rename to {LEAF}", "fsync 3f"]


@asynchronous
async def test_a_process_syncs_directories_that_another_may_have_made_just_now(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "3f").mkdir(parents=True)
    syncs = Syncs(root, monkeypatch)
    async with opened(root) as store:
        assert syncs.take()[:2] == ["fsync ..", "fsync ."]
        await store.append(NAME, 0, b"data")
        assert syncs.take() == ["fsync .", f"fdatasync {NAME}", "fsync 3f"]


@asynchronous
async def test_a_removed_directory_is_made_and_synced_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(root) as store:
        await store.append(NAME, 0, b"data")
        await store.delete(NAME)
        (root / "3f").rmdir()
        syncs = Syncs(root, monkeypatch)
        await store.append(NAME, 0, b"data")
        assert syncs.take() == ["fsync .", f"fdatasync {NAME}", "fsync 3f"]


# A disk that is not mounted.


def move(source: Path, target: Path) -> None:
    source.rename(target)


@pytest.mark.parametrize("is_empty_directory", [False, True])
@asynchronous
async def test_nothing_is_written_to_the_directory_of_a_disk_that_is_not_mounted(
    root: Path, tmp_path: Path, *, is_empty_directory: bool
) -> None:
    async with opened(root) as store:
        await store.append(NAME, 0, b"data")
        move(root, tmp_path / "disk")
        if is_empty_directory:
            root.mkdir()  # noqa: ASYNC240
        for call in (
            store.append(NAME, 4, b"more"),
            store.append(f"{NAME}.1", 0, b"data"),
            store.put(f"{NAME}.1", b"data"),
            store.read(NAME, 0, 10),
            store.size(NAME),
            store.list("", 10),
            store.delete(NAME),
        ):
            with pytest.raises(OSError, match=r"its disk mounted|belongs to no keysp") as raised:
                await call
            assert not isinstance(raised.value, FileNotFoundError)
        assert [path.name for path in root.parent.rglob("*")] == ["store"][:is_empty_directory]
        move(tmp_path / "disk", root)
        await store.append(NAME, 4, b" and more")
        assert await store.read(NAME, 0, 100) == b"data and more"


@asynchronous
async def test_directories_of_another_disk_are_synced_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(root) as store:
        await store.append(NAME, 0, b"data")
        shutil.copytree(root, tmp_path / "copy")
        move(root, tmp_path / "disk")
        move(tmp_path / "copy", root)
        syncs = Syncs(root, monkeypatch)
        await store.append(f"{NAME}.1", 0, b"data")
        assert syncs.take() == ["fsync .", f"fdatasync {NAME}.1", "fsync 3f"]


@asynchronous
async def test_directories_and_objects_are_for_their_owner_only(root: Path) -> None:
    async with opened(root) as store:
        await store.append(NAME, 0, b"data")
        await store.put("3f/other", b"data")
        await store.list("", 1)
    for path in root.parent.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("failing", ["write_all", "sync_file", "_sync_data"])
@asynchronous
async def test_a_failed_write_leaves_nothing_and_can_be_repeated(
    failing: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with opened(root) as store:
        await store.put("3f/other", b"")
        with monkeypatch.context() as full:
            full.setattr(local_store, failing, fail)
            with pytest.raises(OSError, match="No space left"):
                await store.append(NAME, 0, b"data")
            if failing != "_sync_data":
                with pytest.raises(OSError, match="No space left"):
                    await store.put(f"{NAME}.1", b"data")
        assert [path.name for path in (root / "3f").iterdir()] == ["other"]
        await store.append(NAME, 0, b"data")
        assert await store.size(NAME) == 4


@asynchronous
async def test_a_failed_rename_leaves_the_old_object_and_no_temporary_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with opened(root) as store:
        await store.put(NAME, b"old")
        with monkeypatch.context() as broken:
            broken.setattr(os, "replace", fail)
            with pytest.raises(OSError, match="Input/output error"):
                await store.put(NAME, b"new")
        assert await store.read(NAME, 0, 10) == b"old"
        assert [path.name for path in (root / "3f").iterdir()] == [LEAF]


# Other files in the directory.


@asynchronous
async def test_symbolic_links_below_the_root_are_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / LEAF
    secret.write_bytes(b"secret")
    async with opened(root) as store:
        await store.put("3f/other", b"")
        (root / NAME).symlink_to(secret)
        (root / "4f").symlink_to(outside)
        for name in (NAME, f"4f/{LEAF}"):
            for call in (
                store.read(name, 0, 10),
                store.size(name),
                store.append(name, 0, b"x"),
                store.append(name, 6, b"x"),
            ):
                with pytest.raises(OSError, match=r"Too many levels|Not a directory|exists"):
                    await call
        with pytest.raises(NotADirectoryError):
            await store.put(f"4f/{LEAF}", b"x")
        with pytest.raises(NotADirectoryError):
            await store.delete(f"4f/{LEAF}")
        assert [each.name for each in await store.list("", 10)] == ["3f/other"]
        await store.put(NAME, b"in place of the link")
        await store.delete(NAME)
    assert secret.read_bytes() == b"secret"
    assert [path.name for path in outside.iterdir()] == [LEAF]


@asynchronous
async def test_the_root_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    async with opened(tmp_path / "link") as store:
        await store.put(NAME, b"data")
    assert (tmp_path / "real" / NAME).read_bytes() == b"data"


@asynchronous
async def test_a_named_pipe_is_refused_without_waiting_for_its_other_end(root: Path) -> None:
    (root / "3f").mkdir(parents=True)
    os.mkfifo(root / NAME)
    async with opened(root) as store:
        with pytest.raises(OSError, match="not a regular file"):
            await store.read(NAME, 0, 1)
        with pytest.raises(OSError, match="No such device"):
            await store.append(NAME, 1, b"x")
        assert await store.list("", 10) == []


@asynchronous
async def test_files_with_other_names_are_not_listed(root: Path) -> None:
    (root / "3f" / "deeper").mkdir(parents=True)
    for name in ("top", "3f/README", "3f/.hidden", "3f/a..b", "3f/deeper/a", "3f/.tmp-0"):
        (root / name).write_bytes(b"")
    async with opened(root) as store:
        await store.put(NAME, b"")
        assert [each.name for each in await store.list("", 10)] == [NAME]
        assert (root / "3f/.tmp-0").exists()


@asynchronous
async def test_a_temporary_file_that_was_left_behind_is_removed_a_day_later(root: Path) -> None:
    (root / "3f").mkdir(parents=True)
    old, recent = root / "3f" / ".tmp-old", root / "3f" / ".tmp-recent"
    for path, age_s in ((old, TEMPORARY_KEEP_S + 60), (recent, TEMPORARY_KEEP_S - 3_600)):
        path.write_bytes(b"partial")
        os.utime(path, (time.time() - age_s,) * 2)
    async with opened(root) as store:
        assert await store.list("", 10) == []
    assert not old.exists()
    assert recent.exists()


# Listing.


@asynchronous
async def test_a_listing_reads_only_the_directories_that_it_needs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    scandir = os.scandir

    def recorded(path: Any) -> Any:
        read.append(_path_of(path, root) if isinstance(path, int) else os.path.relpath(path, root))
        return scandir(path)

    async with opened(root) as store:
        for number in range(10):
            await store.put(f"{number}0/a", b"")
            await store.put(f"{number}0/b", b"")
        (root / "3lost+found").mkdir()
        monkeypatch.setattr(os, "scandir", recorded)
        assert len(await store.list("30/a", 3)) == 3
        assert read == [".", "30", "40"]
        read.clear()
        assert await store.list("90/b", 3) == []
        assert read == [".", "90"]


@asynchronous
async def test_an_object_that_is_deleted_during_a_listing_does_not_shorten_the_page(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(root) as store:
        for leaf in "abcd":
            await store.put(f"30/{leaf}", b"")
        scandir = os.scandir

        def deleting(path: Any) -> Any:
            entries = list(scandir(path))
            if isinstance(path, int):
                (root / "30/a").unlink(missing_ok=True)
            return nullcontext(entries)

        monkeypatch.setattr(os, "scandir", deleting)
        assert [each.name for each in await store.list("", 2)] == ["30/b", "30/c"]


@asynchronous
async def test_ages_are_those_of_the_last_modification_and_never_negative(root: Path) -> None:
    async with opened(root) as store:
        for name, age_s in (("30/new", 0.0), ("30/old", 5_000.0), ("30/future", -5_000.0)):
            await store.put(name, b"")
            os.utime(root / name, (time.time() - age_s,) * 2)
        ages_s = {each.name: each.age_s for each in await store.list("", 10)}
        assert 0.0 <= ages_s["30/new"] < 1_000.0
        assert 4_000.0 < ages_s["30/old"] < 6_000.0
        assert ages_s["30/future"] == 0.0


@asynchronous
async def test_ages_do_not_depend_on_the_clock_of_this_process(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(root) as store:
        await store.put(NAME, b"")
        real_time = time.time
        monkeypatch.setattr(time, "time", lambda: real_time() + 1e6)
        (found,) = await store.list("", 10)
        assert found.age_s < 1_000.0


@asynchronous
async def test_a_store_that_cannot_be_probed_is_listed_by_the_clock_of_this_process(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> float:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    async with opened(root) as store:
        await store.put(NAME, b"")
        monkeypatch.setattr(LocalStore, "_probe_clock", refuse)
        real_time = time.time
        monkeypatch.setattr(time, "time", lambda: real_time() + 5_000.0)
        (found,) = await store.list("", 10)
        assert 4_000.0 < found.age_s < 6_000.0


@asynchronous
async def test_an_earlier_reading_of_the_clock_is_used_while_the_store_cannot_be_probed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> float:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with opened(root) as store:
        await store.put(NAME, b"")
        await store.list("", 10)
        monkeypatch.setattr(LocalStore, "_probe_clock", refuse)
        real_time = time.time
        with monkeypatch.context() as later:
            later.setattr(threaded_store, "CLOCK_CHECK_S", -1.0)
            later.setattr(time, "time", lambda: real_time() + 1e6)
            (found,) = await store.list("", 10)
        assert found.age_s < 1_000.0
