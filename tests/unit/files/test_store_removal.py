"""A store is removed when its blocks are in other stores; changes of the stores lead to repairs."""

from collections.abc import Sequence

import pytest

from leasehold.errors import FileDamaged, TooFewReplicas
from leasehold.files import store_changes
from leasehold.files.file_keys import REPAIRS, SCANNED, block_key
from leasehold.files.fsck import FindingKind
from leasehold.files.known_config import CONFIG_S
from leasehold.files.repairer import Repairer
from leasehold.files.state import store_id
from leasehold.files.store_changes import LOOK_S, PAUSE_S
from leasehold.files.writer import FileWriter
from tests.support.upkeep_stage import UpkeepStage

FOUR = ("/a", "/b", "/c", "/d")


def repairer_of(stage: UpkeepStage) -> Repairer:
    """A repairer, as a server has it after its start."""
    return Repairer(stage.files.namespace, stage.files.stores, stage.files.known_config)


def make_rounds(stage: UpkeepStage, one: Repairer, count: int = 3) -> None:
    """Make rounds, each after the time that a change of the stores needs."""
    for _ in range(count):
        while stage.run(one.make_pass):
            pass
        stage.pass_time(PAUSE_S + 1)


def configured(stage: UpkeepStage) -> set[str]:
    """The URLs of all stores in the configuration, also of those that are being removed."""
    stage.pass_time(CONFIG_S + 1)
    return {store.url for store in stage.run(stage.files.config).stores}


def stores_of(stage: UpkeepStage, file_id: str) -> list[set[str]]:
    """The stores of each block of a file."""
    return [{each.store for each in block.replicas} for block in stage.blocks(file_id)]


def flush(stage: UpkeepStage, file: FileWriter, data: bytes) -> None:
    """Write bytes and flush them."""

    async def work() -> None:
        await file.write(data)
        await file.flush()

    stage.run(work)


def ids(urls: Sequence[str]) -> set[str]:
    """The ids of stores."""
    return set(map(store_id, urls))


def test_a_store_is_removed_when_its_blocks_are_in_other_stores() -> None:
    with UpkeepStage(FOUR, replicas=4) as stage:
        file_id = stage.write("file", b"data")
        stage.run(stage.files.configure, remove=["/a"], add=["/e"])
        assert configured(stage) == {*FOUR, "/e"}
        make_rounds(stage, repairer_of(stage))
        assert configured(stage) == {"/b", "/c", "/d", "/e"}
        assert stores_of(stage, file_id) == [ids(("/b", "/c", "/d", "/e"))]
        stage.stores.objects["/a"].clear()
        assert stage.read("file") == b"data"


def test_the_only_replica_is_copied_before_its_store_is_removed() -> None:
    with UpkeepStage(("/a",)) as stage:
        file_id = stage.write("file", b"data")
        stage.run(stage.files.configure, remove=["/a"], add=["/b"])
        assert stage.read("file") == b"data", "it is read until then"
        make_rounds(stage, repairer_of(stage))
        assert configured(stage) == {"/b"}
        assert stores_of(stage, file_id) == [ids(["/b"])]


def test_a_store_stays_while_a_block_has_no_other_replica() -> None:
    with UpkeepStage(("/a",)) as stage:
        stage.write("file", b"data")
        stage.run(stage.files.configure, remove=["/a"], add=["/b"])
        stage.stores.fail("/b")
        make_rounds(stage, repairer_of(stage))
        assert configured(stage) == {"/a", "/b"}
        assert stage.read("file") == b"data"


def test_a_store_that_has_failed_is_removed_if_others_have_its_blocks() -> None:
    with UpkeepStage(FOUR) as stage:
        file_id = stage.write("file", b"data")
        (used,) = stores_of(stage, file_id)
        bad = next(url for url in FOUR if store_id(url) in used)
        stage.stores.fail(bad)
        stage.run(stage.files.configure, remove=[bad])
        make_rounds(stage, repairer_of(stage))
        assert configured(stage) == set(FOUR) - {bad}
        assert stores_of(stage, file_id) == [ids(FOUR) - {store_id(bad)}]


def test_a_replica_is_not_given_up_for_a_damaged_one() -> None:
    with UpkeepStage(("/a", "/b")) as stage:
        file_id = stage.write("file", b"data")
        (name,) = stage.objects("/b")
        stage.stores.objects["/b"][name] = b"dirt"
        stage.run(stage.files.configure, remove=["/a"])
        make_rounds(stage, repairer_of(stage))
        assert configured(stage) == {"/b"}
        (replica,) = stage.blocks(file_id)[0].replicas
        assert stage.stores.objects["/b"][replica.name] == b"data"


def test_a_store_stays_while_a_writer_uses_it_and_is_left_with_the_next_flush() -> None:
    with UpkeepStage(("/a", "/b"), replicas=2) as stage:
        file = stage.open("file")
        stage.run(stage.files.configure, remove=["/a"], add=["/c"])
        one = repairer_of(stage)
        make_rounds(stage, one)
        assert "/a" in configured(stage)

        async def flush() -> None:
            await file.write(b"data")
            await file.flush()

        stage.run(flush)
        stage.run(flush)
        assert stores_of(stage, file.id) == [ids(("/b", "/c"))]
        make_rounds(stage, one)
        assert configured(stage) == {"/b", "/c"}
        stage.run(file.close)
        assert stage.read("file") == b"datadata"


def test_a_removal_survives_a_restart_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_changes, "BLOCKS_PER_PASS", 2)
    with UpkeepStage(FOUR, replicas=4, block_bytes=1) as stage:
        file_id = stage.write("file", b"data")
        stage.run(stage.files.configure, remove=["/a"])
        assert stage.run(repairer_of(stage).make_pass), "two of four blocks were looked at"
        make_rounds(stage, repairer_of(stage))
        assert configured(stage) == {"/b", "/c", "/d"}
        assert stores_of(stage, file_id) == 4 * [ids(("/b", "/c", "/d"))]


def test_adding_a_store_again_ends_its_removal() -> None:
    with UpkeepStage(FOUR, replicas=4) as stage:
        file_id = stage.write("file", b"data")
        stage.run(stage.files.configure, remove=["/a"])
        stage.run(stage.files.configure, add=["/a"])
        make_rounds(stage, repairer_of(stage))
        assert configured(stage) == set(FOUR)
        assert stores_of(stage, file_id) == [ids(FOUR)]


def test_blocks_of_a_store_that_was_dropped_are_repaired() -> None:
    with UpkeepStage(FOUR, replicas=3) as stage:
        file_id = stage.write("file", b"data")
        (used,) = stores_of(stage, file_id)
        gone = next(url for url in FOUR if store_id(url) in used)
        stage.run(stage.files.configure, drop=[gone])
        assert configured(stage) == set(FOUR) - {gone}
        make_rounds(stage, repairer_of(stage))
        assert stores_of(stage, file_id) == [ids(FOUR) - {store_id(gone)}]


def test_a_block_whose_only_store_was_dropped_cannot_be_read() -> None:
    with UpkeepStage(("/a",)) as stage:
        stage.write("file", b"data")
        stage.run(stage.files.configure, drop=["/a"], add=["/b"])
        reader = stage.another("reader")

        async def read() -> None:
            async with reader.open("file") as file:
                await file.read()

        with pytest.raises(FileDamaged):
            stage.run(read)
        stage.run(reader.close)


def test_without_a_change_of_the_stores_no_block_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with UpkeepStage() as stage:
        file_id = stage.write("file", b"data")
        make_rounds(stage, repairer_of(stage))
        assert len(stage.keys(SCANNED)) == 1
        read: list[bytes] = []
        ranged = stage.faulty.range

        async def recorded(key: bytes, *args: object, **named: object) -> object:
            read.append(key)
            return await ranged(key, *args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(stage.faulty, "range", recorded)
        one = repairer_of(stage)
        make_rounds(stage, one)
        assert read.count(SCANNED) == 1
        assert block_key(file_id, 0)[:22] not in {key[:22] for key in read}


def test_blocks_that_cannot_be_copied_are_not_looked_at_again_and_again() -> None:
    with UpkeepStage(("/a", "/b"), replicas=2) as stage:
        stage.write("file", b"data")
        stage.run(stage.files.configure, remove=["/a"], add=["/c"])
        stage.stores.fail("/c")
        one = repairer_of(stage)
        make_rounds(stage, one)
        assert len(stage.keys(REPAIRS)) == 1
        begun_at = one._changes._look.begun_at
        make_rounds(stage, one)
        assert one._changes._look.begun_at == begun_at
        stage.pass_time(LOOK_S)
        make_rounds(stage, one, 1)
        assert one._changes._look.begun_at > begun_at


def test_fsck_names_blocks_that_have_too_few_replicas_without_a_store_that_is_being_removed() -> (
    None
):
    with UpkeepStage(FOUR, replicas=4) as stage:
        stage.write("file", b"data")
        stage.run(stage.files.configure, remove=["/a"], add=["/e"])

        async def check() -> list[tuple[FindingKind, str]]:
            return [(each.kind, each.detail) async for each in stage.files.fsck()]

        detail = "3 of 4 replicas, and 1 in stores that are being removed"
        assert stage.run(check)[0] == (FindingKind.UNDER_REPLICATED, detail)
        make_rounds(stage, repairer_of(stage))
        assert [kind for kind, _ in stage.run(check)] == [FindingKind.SUMMARY]


def test_stores_that_are_added_later_get_copies_of_all_blocks() -> None:
    with UpkeepStage(("/a",)) as stage:
        file_id = stage.write("file", b"data")
        file = stage.open("open", b"data")
        assert stores_of(stage, file_id) == [ids(("/a",))]
        one = repairer_of(stage)
        make_rounds(stage, one)
        stage.run(stage.files.configure, add=["/b", "/c"])
        make_rounds(stage, one)
        assert stores_of(stage, file_id) == [ids(("/a", "/b", "/c"))]
        stage.run(file.close)
        make_rounds(stage, one)
        assert stores_of(stage, file.id) == [ids(("/a", "/b", "/c"))]


def test_a_change_of_the_number_of_replicas_applies_to_all_blocks() -> None:
    with UpkeepStage(FOUR, replicas=2) as stage:
        file_id = stage.write("file", b"data")
        one = repairer_of(stage)
        make_rounds(stage, one)
        (before,) = stores_of(stage, file_id)
        assert len(before) == 2
        stage.run(stage.files.configure, replicas=4)
        make_rounds(stage, one)
        assert stores_of(stage, file_id) == [ids(FOUR)]
        stage.run(stage.files.configure, replicas=2)
        make_rounds(stage, one)
        assert stores_of(stage, file_id) == [ids(FOUR)]  # those that there are stay


def test_a_block_of_a_writer_that_did_not_know_of_a_new_store_is_copied() -> None:
    with UpkeepStage(("/a",)) as stage:
        operator = stage.another("operator")
        file = stage.open("file", b"data")
        one = repairer_of(stage)
        make_rounds(stage, one)
        stage.pass_time(CONFIG_S + 1)
        stage.run(stage.files.config)
        stage.run(operator.configure, add=["/b", "/c"])
        one = Repairer(operator.namespace, operator.stores, operator.known_config)
        while stage.run(one.make_pass):
            pass
        stage.run(file.close)  # with the configuration that it knows
        assert stores_of(stage, file.id) == [ids(("/a",))]
        make_rounds(stage, one)
        assert stores_of(stage, file.id) == [ids(("/a", "/b", "/c"))]
        stage.run(operator.close)


def test_a_writer_keeps_its_replicas_in_a_store_that_is_being_removed() -> None:
    with UpkeepStage(("/a", "/b")) as stage:
        file = stage.open("file", b"one")
        stage.stores.corrupt("/a", stage.objects("/a")[0])  # the only good one is in the other
        stage.run(stage.files.configure, remove=["/b"])
        stage.pass_time(10)
        flush(stage, file, b"two")
        assert stores_of(stage, file.id)[0] == ids(("/a", "/b"))
        stage.run(file.close)
        make_rounds(stage, repairer_of(stage), 10)
        assert stage.read("file") == b"onetwo"
        assert configured(stage) == {"/a"}
        assert stores_of(stage, file.id) == [ids(("/a",))] * 2


def test_a_store_that_was_kept_and_is_removed_again_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_changes, "BLOCKS_PER_PASS", 1)
    with UpkeepStage(("/a", "/b"), replicas=1) as stage:
        operator = stage.another("operator")
        stage.stores.fail("/b")
        for number in range(6):
            stage.write(f"f{number}", b"data")
        stage.stores.heal("/b")
        stage.pass_time(100)
        changes = repairer_of(stage)._changes
        stage.run(stage.files.configure, remove=["/b"])
        while stage.run(changes.make_pass):
            pass
        stage.pass_time(PAUSE_S + 1)
        for _ in range(5):  # the second look, except for the last block
            assert stage.run(changes.make_pass)
        looked_at = changes._look.after
        stage.run(operator.configure, add=["/b"])
        stage.stores.fail("/a")

        async def write_before_the_place_of_the_look() -> str:
            while True:
                async with operator.create(operator.namespace.new_id()) as file:
                    if block_key(file.id, 0) < looked_at:
                        await file.write(b"precious")
                        return file.path

        path = stage.run(write_before_the_place_of_the_look)
        stage.stores.heal("/a")
        stage.run(operator.configure, remove=["/b"])
        while stage.run(changes.make_pass):
            pass
        assert configured(stage) == {"/a", "/b"}
        make_rounds(stage, repairer_of(stage), 5)
        assert configured(stage) == {"/a"}
        assert stage.read(path) == b"precious"
        stage.run(operator.close)


def test_blocks_that_were_written_between_a_change_and_its_reversal_are_copied() -> None:
    with UpkeepStage() as stage:
        one = repairer_of(stage)
        make_rounds(stage, one)
        stage.run(stage.files.configure, replicas=2)
        while stage.run(one.make_pass):
            pass
        file_id = stage.write("file", b"data")
        assert len(stores_of(stage, file_id)[0]) == 2
        stage.run(stage.files.configure, replicas=3)
        make_rounds(stage, one)
        assert len(stores_of(stage, file_id)[0]) == 3


def test_a_flush_has_as_many_replicas_as_the_present_configuration_needs() -> None:
    with UpkeepStage(("/a",)) as stage:
        file = stage.open("file", b"one")
        stage.run(stage.files.configure, add=["/b", "/c"], min_replicas=3)
        stage.pass_time(CONFIG_S + 1)
        flush(stage, file, b"two")
        assert stores_of(stage, file.id) == [ids(("/a",)), ids(("/a", "/b", "/c"))]
        stage.run(file.close)
        assert stage.read("file") == b"onetwo"


@pytest.mark.parametrize("how", ["remove", "drop"])
def test_the_last_store_stays(how: str) -> None:
    with UpkeepStage(("/a", "/b")) as stage:
        before = stage.run(stage.files.config)
        for urls in (["/a", "/b"], ["/b", "/a"]):
            with pytest.raises(ValueError, match="last store cannot be removed"):
                stage.run(stage.files.configure, **{how: urls})
        stage.run(stage.files.configure, **{how: ["/a"]})
        with pytest.raises(ValueError, match="last store"):
            stage.run(stage.files.configure, **{how: ["/b"]})
        stage.run(stage.files.configure, add=["/a"], replicas=before.replicas)
        assert configured(stage) == {"/a", "/b"}


def test_a_flush_needs_stores_that_stay() -> None:
    with UpkeepStage(("/a",)) as stage:
        file = stage.open("file", b"data")
        stage.run(stage.files.configure, remove=["/a"], add=["/b"])
        stage.stores.fail("/b")

        async def flush() -> None:
            await file.write(b"more")
            await file.flush()

        with pytest.raises(TooFewReplicas):
            stage.run(flush)
        stage.run(file.abort)
        assert stage.read("file") == b"data"
