"""The rules of the tree: names, parents, listings, renames, deletes, and the leases below them."""

import asyncio
from contextlib import suppress
from functools import partial

import pytest

from leasehold.errors import (
    DirectoryNotEmpty,
    FileAlreadyOpen,
    FileExists,
    FileNotFound,
    LeaseExpired,
    NotADirectory,
    TooBusy,
)
from leasehold.files.file_keys import OPEN_FILES
from tests.support.files_stage import FilesStage, Machine, play


async def names(machine: Machine, path: str = "") -> list[str]:
    """The paths in a directory."""
    return [info.path async for info in machine.files.list(path)]


# Names.


@pytest.mark.parametrize(
    "path",
    [
        "a//b",
        ".",
        "..",
        "a/./b",
        "a/../b",
        "a\0b",
        "é" * 128,
        "n" * 256,
        "\ud800",
        "/".join("d" * 1001),
    ],
)
def test_bad_paths_are_refused_before_anything_changes(path: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        before = stage.engine._store.revision
        with pytest.raises(ValueError, match="path"):
            a.files.create(path)
        with pytest.raises(ValueError, match="path"):
            a.files.open(path, "ab")
        with pytest.raises(ValueError, match="path"):
            await a.files.rename("x", path)
        with pytest.raises(ValueError, match="path"):
            await a.files.make_directory(path)
        for call in (a.files.stat, a.files.delete, a.files.recover, a.files.is_closed):
            with pytest.raises(ValueError, match="path"):
                await call(path)
        with pytest.raises(ValueError, match="path"):
            await names(a, path)
        with pytest.raises(ValueError, match="path"):
            await a.files.open(path)
        assert stage.engine._store.revision == before

    play(scene)


def test_nothing_is_created_deeper_than_the_limit() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        path = "/".join("d" * 101)
        before = stage.engine._store.revision
        for call in (a.files.create, a.files.make_directory, partial(a.files.rename, "x")):
            with pytest.raises(ValueError, match="path must have at most 100 names, got 101"):
                await call(path)
        assert stage.engine._store.revision == before

    play(scene)


@pytest.mark.parametrize(
    "path", ["n" * 255, "é" * 127, "with space", "...", "-", "a\nb", "日本語", "/".join("d" * 100)]
)
def test_all_other_names_can_be_used(path: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put(path)
        async with a.files.append(path) as file:
            await file.write(b"!")
        assert await a.read(path) == b"data!"
        assert (await a.files.stat(path)).path == path

    play(scene)


def test_the_deepest_path_can_be_renamed_and_deleted() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        path = "/".join("d" * 100)
        file = await a.files.create(path)
        await a.files.rename(path, "x")
        await a.files.rename("x", path)
        await file.write(b"data")
        await file.close()
        assert await a.read(path) == b"data"
        await a.files.delete(path)
        await a.files.delete("d", recursive=True)
        assert await names(a) == []

    play(scene)


def test_a_file_stays_usable_when_a_rename_makes_its_path_too_deep() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        below = "/".join("d" * 60)
        file = await a.files.create(f"{below}/x")
        await a.files.make_directory("/".join("e" * 60))
        await a.files.rename("d", "/".join("e" * 60) + "/d")
        await file.write(b"data")
        await file.close()
        await a.files.rename("e", "f")
        await a.files.delete("f", recursive=True)

    play(scene)


# Parents.


def test_create_makes_missing_parents() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("p/q/r/x")
        assert await names(a, "p/q/r") == ["p/q/r/x"]
        assert (await a.files.stat("p/q")).is_directory

    play(scene)


def test_several_clients_make_the_same_parents_together() -> None:
    async def scene(stage: FilesStage) -> None:
        machines = [stage.machine(f"m{number}") for number in range(8)]
        await asyncio.gather(*(each.put(f"p/q/{each.name}") for each in machines))
        assert await names(machines[0], "p/q") == [f"p/q/m{number}" for number in range(8)]

    play(scene)


def test_a_file_is_not_created_in_a_directory_that_is_deleted_meanwhile() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.files.make_directory("d")
        a.engine.delay_s = 1.0
        creating = asyncio.ensure_future(a.put("d/x"))
        for _ in range(40):
            await asyncio.sleep(0.45)
            if stage.keys(OPEN_FILES):
                break
            try:
                await b.files.delete("d")
            except (FileNotFound, DirectoryNotEmpty):
                continue
        a.engine.delay_s = 0.0
        await creating
        assert await b.read("d/x") == b"data"

    play(scene)


@pytest.mark.parametrize("how", ["delete", "rename"])
def test_a_directory_that_gets_an_entry_while_it_is_removed_or_replaced_stays(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        for number in range(1, 30):
            directory, filled = f"d{number}", False
            await a.files.make_directory(directory)
            await a.files.make_directory("source")
            fill_at = len(a.steps) + number

            async def fill(_step: str, path: str = f"{directory}/x", at: int = fill_at) -> None:
                nonlocal filled
                if not filled and len(a.steps) + 1 >= at:
                    filled = True
                    await b.put(path)

            a.on_step = fill
            with suppress(DirectoryNotEmpty):
                if how == "delete":
                    await a.files.delete(directory)
                else:
                    await a.files.rename("source", directory, overwrite=True)
            a.on_step = None
            if not filled:
                assert number > 3, "each call of it was tried"
                return
            assert await b.read(f"{directory}/x") == b"data"

    play(scene)


# Listing.


def test_a_listing_is_sorted_and_paged_at_one_revision() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        for number in range(0, 2_500, 2):
            await a.files.make_directory(f"d/{number:05d}")
        expected = [f"d/{number:05d}" for number in range(0, 2_500, 2)]
        found: list[str] = []
        async for info in a.files.list("d"):
            found.append(info.path)
            if len(found) == 1:
                await b.files.make_directory("d/00001")
                await b.files.make_directory("d/02001")
                await b.files.delete("d/02002")
                await b.files.rename("d/02004", "d/zzz")
        assert found == expected
        again = await names(a, "d")
        assert len(again) == len(expected) + 1
        assert again == sorted(again)

    play(scene)


def test_a_listing_that_a_compaction_interrupts_goes_on_as_of_later() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        for number in range(1_100):
            await a.files.make_directory(f"d/{number:05d}")
        found: list[str] = []
        async for info in a.files.list("d"):
            found.append(info.path)
            if len(found) == 1:
                await a.files.make_directory("d/00000x")  # before what was listed: it is missed
                await a.files.make_directory("d/zzz")
                await a.files.delete("d/01050")
                await stage.engine.compact(stage.engine._store.revision)
        expected = [f"d/{number:05d}" for number in range(1_100) if number != 1_050]
        assert found == [*expected, "d/zzz"], "in order, each once"

    play(scene)


@pytest.mark.parametrize("path", ["d", "x"])
def test_a_listing_goes_on_after_a_compaction_before_any_of_its_calls(path: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await b.files.create("d/open")
        await b.put("x")
        compactions = 0

        async def compact(_name: str) -> None:
            nonlocal compactions
            if compactions < 20:
                compactions += 1
                await b.files.make_directory(f"m{compactions}")
                await stage.engine.compact(stage.engine._store.revision)

        a.on_step = compact
        assert await names(a, path) == ["d/open" if path == "d" else "x"]
        await file.close()

    play(scene)


def test_a_listing_whose_directory_is_deleted_after_a_compaction_ends_with_an_error() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        for number in range(1_001):
            await a.files.make_directory(f"d/{number:05d}")
        found: list[str] = []

        async def look() -> None:
            async for info in a.files.list("d"):
                found.append(info.path)
                if len(found) == 1:
                    await a.files.delete("d", recursive=True)
                    await stage.engine.compact(stage.engine._store.revision)

        with pytest.raises(FileNotFound):
            await look()
        assert len(found) == 1_000

    play(scene)


def test_a_listing_that_is_compacted_again_and_again_is_given_up() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await b.files.create("d/open")
        compactions = 0

        async def compact(name: str) -> None:
            nonlocal compactions
            if name == "range":
                compactions += 1
                await b.files.make_directory(f"m{compactions}")
                await stage.engine.compact(stage.engine._store.revision)

        a.on_step = compact
        with pytest.raises(TooBusy, match="compacted"):
            await names(a, "d")
        a.on_step = None
        await file.close()

    play(scene)


@pytest.mark.parametrize("number", range(14))
def test_a_compaction_disturbs_no_other_call(number: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("d/e/x")
        await file.write(b"one")
        await file.flush()
        left = number

        async def compact(_name: str) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                await b.files.make_directory(f"m{stage.engine._store.revision}")
                await stage.engine.compact(stage.engine._store.revision)

        a.on_step = compact
        assert await a.read("d/e/x") == b"one"
        left = number
        assert (await a.files.stat("d/e/x")).size_bytes == 3
        left = number
        assert [info.path async for info in a.files.open_files()] == ["d/e/x"]
        await b.files.rename("d", "f")
        left = number
        await file.write(b" two")
        await file.flush()
        left = number
        await file.close()
        left = number
        async with a.files.append("f/e/x") as file:
            await file.write(b" three")
        left = number
        await a.files.rename("f/e/x", "x")
        assert await b.read("x") == b"one two three"
        left = number
        await a.files.delete("x")

    play(scene)


def test_a_listing_shows_size_state_and_holder() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("d/closed", b"12345")
        file = await a.files.create("d/open")
        await file.write(b"123")
        await file.flush()
        await file.write(b"45")
        closed, opened = [info async for info in a.files.list("d")]
        assert (closed.size_bytes, closed.is_open, closed.holder) == (5, False, "")
        assert (opened.size_bytes, opened.is_open, opened.holder) == (3, True, a.files.holder.id)
        assert [info async for info in a.files.list("d/closed")] == [closed]
        await file.close()

    play(scene)


def test_a_listing_of_a_missing_directory_fails() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        assert await names(a) == []
        with pytest.raises(FileNotFound):
            await names(a, "missing")

    play(scene)


# Renaming.


def test_rename_onto_something_that_exists_is_refused() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x", b"x")
        await a.put("y", b"y")
        await a.files.make_directory("d")
        for source, target in [("x", "y"), ("x", "d"), ("d", "x")]:
            with pytest.raises(FileExists):
                await a.files.rename(source, target)
        assert await a.read("x") == b"x"
        assert await a.read("y") == b"y"

    play(scene)


def test_rename_with_overwrite_replaces_a_file_and_ends_its_lease() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x", b"new")
        file = await b.files.create("y")
        await file.write(b"late")
        await a.files.rename("x", "y", overwrite=True)
        assert not stage.keys(OPEN_FILES)
        with pytest.raises(FileNotFound):
            await file.flush()
        assert await a.read("y") == b"new"
        assert await names(a) == ["y"]
        await file.abort()

    play(scene)


def test_rename_with_overwrite_replaces_an_empty_directory_only() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("d/x")
        await a.files.make_directory("empty")
        await a.put("full/x")
        with pytest.raises(DirectoryNotEmpty):
            await a.files.rename("d", "full", overwrite=True)
        await a.files.rename("d", "empty", overwrite=True)
        assert await a.read("empty/x") == b"data"
        assert await names(a) == ["empty", "full"]

    play(scene)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("target", ["d/x", "d/e/x", "d/e/f/x"])
def test_rename_into_its_own_subtree_is_refused(target: str, overwrite: bool) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.files.make_directory("d/e/f")
        with pytest.raises(ValueError, match="into itself"):
            await a.files.rename("d", target, overwrite=overwrite)
        assert await names(a, "d/e") == ["d/e/f"]

    play(scene)


def test_two_renames_never_make_a_cycle() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        for number in range(20):
            await a.files.make_directory(f"{number}/p")
            await a.files.make_directory(f"{number}/q")
            results = await asyncio.gather(
                a.files.rename(f"{number}/p", f"{number}/q/p"),
                b.files.rename(f"{number}/q", f"{number}/p/q"),
                return_exceptions=True,
            )
            assert len([each for each in results if each is None]) == 1, results
            assert len(await names(a, str(number))) == 1

    play(scene)


def test_rename_of_a_missing_path_fails() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        with pytest.raises(FileNotFound):
            await a.files.rename("missing", "x")
        await a.put("x")
        with pytest.raises(FileNotFound):
            await a.files.rename("x", "missing/x")
        with pytest.raises(NotADirectory):
            await a.files.rename("x", "x/y")
        await a.files.rename("x", "x")
        assert await a.read("x") == b"data"

    play(scene)


@pytest.mark.parametrize("target", ["", "/"])
def test_the_root_is_neither_renamed_nor_deleted(target: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        with pytest.raises(ValueError, match="path"):
            await a.files.rename("x", target)
        with pytest.raises(ValueError, match="path"):
            await a.files.rename(target, "y")
        with pytest.raises(ValueError, match="path"):
            await a.files.delete(target, recursive=True)
        with pytest.raises(ValueError, match="path"):
            await a.files.create(target)

    play(scene)


# Leases follow identity.


@pytest.mark.parametrize(("source", "target"), [("d/x", "y"), ("d", "e"), ("d/x", "d/y")])
def test_a_lease_follows_a_rename_and_the_old_path_is_free(source: str, target: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("d/x")
        await file.write(b"one")
        await file.flush()
        await b.files.rename(source, target)
        now_at = "e/x" if target == "e" else target
        await b.put("d/x", b"another")
        with pytest.raises(FileAlreadyOpen):
            await b.files.append(now_at)
        await file.write(b" two")
        await file.flush()
        assert file.path == now_at
        assert [info.path async for info in b.files.open_files()] == [now_at]
        await file.write(b" three")
        await file.close()
        assert await b.read(now_at) == b"one two three"
        assert await b.read("d/x") == b"another"

    play(scene)


def test_a_file_is_renamed_while_it_is_recovered() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        file = await a.files.create("d/x")
        await file.write(b"flushed")
        await file.flush()
        a.stop()
        stage.stores.delay_s = 1.0
        recovery = asyncio.ensure_future(b.files.recover("d/x"))
        await asyncio.sleep(0.5)
        await c.files.rename("d/x", "d/y")
        await c.files.rename("d", "e")
        assert await recovery
        assert await c.files.is_closed("e/y")
        assert await c.read("e/y") == b"flushed"

    play(scene)


# Deleting.


def test_holders_do_not_count_files_of_a_tree_that_was_just_deleted() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        kept, lost = await a.files.create("kept"), await a.files.create("d/lost")
        await b.files.delete("d", recursive=True)
        assert [(each.holder[:1], each.files) for each in await b.files.holders()] == [("a", 1)]
        await kept.close()
        assert await b.files.holders() == []
        await lost.abort()
        await b.files.collect()

    play(scene)


def test_delete_of_a_directory_with_entries_needs_recursive() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("d/x")
        with pytest.raises(DirectoryNotEmpty):
            await a.files.delete("d")
        await a.files.delete("d", recursive=True)
        with pytest.raises(FileNotFound):
            await a.files.stat("d")
        await a.files.make_directory("d")
        assert await names(a, "d") == []
        await a.files.delete("d")

    play(scene)


def test_deleting_a_tree_ends_the_leases_under_it() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        files = [await a.files.create(f"d/{number}/x") for number in range(5)]
        other = await a.files.create("e/x")
        await b.files.delete("d", recursive=True)
        assert [info.path async for info in b.files.open_files()] == ["e/x"]
        for file in files:
            await file.write(b"late")
            with pytest.raises((FileNotFound, LeaseExpired)):
                await file.flush()
        await other.write(b"in time")
        await other.close()
        assert await b.read("e/x") == b"in time"
        await b.put("d/0/x", b"new")
        for file in files:
            await file.abort()
        assert await b.read("d/0/x") == b"new"

    play(scene, leaves=(OPEN_FILES,))


def test_a_reader_of_a_replaced_or_deleted_file_can_finish() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x", b"old")
        await a.put("y", b"old")
        async with b.files.open("x") as first, b.files.open("y") as second:
            async with a.files.create("x", overwrite=True) as file:
                await file.write(b"new")
            await a.files.delete("y")
            assert await first.read() == b"old"
            assert await second.read() == b"old"
            with pytest.raises(FileNotFound):
                await second.refresh()

    play(scene)
