"""A server with replica stores looks after files: closes, collects and repairs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from leasehold.engine.interface import Engine
from leasehold.errors import ConnectionLost
from leasehold.files.file_keys import (
    BLOCKS,
    OPEN_FILES,
    RECOVERIES,
    REPAIRS,
    TRASH,
    block_key,
    encode_block,
    repair_key,
)
from leasehold.files.service import COLLECT_S, COUNT_S, REPAIR_S, FilesService
from leasehold.files.state import FileState, store_id
from leasehold.server.engine_services import ServiceHost
from leasehold.server.file_upkeep import FileUpkeep
from leasehold.server.pages import Exposition
from leasehold.server.settings import Settings
from leasehold.sessions.lease_keeper import Keeper
from tests.support.faulty_engine import FaultyEngine
from tests.support.kept_writers import FilesKeepingWriters
from tests.support.upkeep_stage import URLS, UpkeepStage

HARD_S = 1200.0


class ServiceStage(UpkeepStage):
    """Files, and the service of a server, with an engine of its own that can be disturbed."""

    def __init__(self, urls: Sequence[str] = URLS, of_server: Sequence[str] = URLS) -> None:
        self.of_server = of_server
        super().__init__(urls)

    def _make(self) -> None:
        super()._make()
        self.engine_of_server = FaultyEngine(self.engine)
        self.engine_of_dead = FaultyEngine(self.engine)
        self.service = FilesService(
            self.engine_of_server,
            self.of_server,
            2.0,
            self.host.clock,
            self.sim.random,
            open_store=self.stores.open,
        )

    def start(self) -> None:
        """Start the service."""
        self.host.call(self.service.start)
        self.pass_time(1.0)

    def write_and_die(self, path: str, data: bytes) -> str:
        """Leave a file open by a client that is gone then; return the id of the file."""

        async def write() -> str:
            keeper = Keeper(self.engine_of_dead, self.host.clock, self.sim.random)
            files = FilesKeepingWriters(
                self.engine_of_dead,
                keeper,
                "dead",
                clock=self.host.clock,
                random=self.sim.random,
                open_store=self.stores.open,
            )
            file = await files.create(path)
            await file.write(data)
            await file.flush()
            self.engine_of_dead.is_cut_off = True
            return file.id

        return self.run(write)

    def close_service(self) -> None:
        """Close the service."""
        self.run(self.service.close)


def test_its_stores_are_added_to_the_configuration() -> None:
    with ServiceStage(["/a"], of_server=["/b", "/c", "/b"]) as stage:
        stage.start()
        stage.pass_time(10.0)
        config = stage.run(stage.files.config)
        assert [store.url for store in config.stores] == ["/a", "/b", "/c"]
        stage.close_service()


def test_only_its_own_stores_are_used(caplog: pytest.LogCaptureFixture) -> None:
    with ServiceStage(["/z"], of_server=["/a"]) as stage:
        stage.write("file", b"data")
        stage.run(stage.files.delete, "file")
        stage.stores.calls.clear()
        stage.start()
        stage.pass_time(2 * 3600.0)
        assert stage.stores.calls["/a", "list"] > 1
        assert not [method for url, method in stage.stores.calls if url == "/z"]
        (warning,) = caplog.records  # once
        assert warning.getMessage().startswith("store /z is not in --file-stores of this server")
        assert len(stage.keys(TRASH)) == 1, "a process that may use the store deletes the data"
        stage.collect()
        assert stage.keys(TRASH) == {}
        stage.close_service()


def test_a_file_is_closed_when_the_lease_of_its_holder_ends() -> None:
    with ServiceStage() as stage:
        stage.start()
        file_id = stage.write_and_die("file", b"data")
        stage.pass_time(HARD_S - 60.0)
        assert stage.record(file_id).state is FileState.OPEN
        stage.pass_time(120.0)
        assert stage.record(file_id).state is FileState.CLOSED
        assert stage.keys(OPEN_FILES) == {}
        assert (stage.service.recovered, stage.service.failed) == (1, 0)
        assert stage.read("file") == b"data"
        stage.close_service()


def test_a_file_whose_holder_ended_before_the_start_is_closed() -> None:
    with ServiceStage() as stage:
        file_id = stage.write_and_die("file", b"data")
        stage.pass_time(HARD_S + 60.0)
        assert stage.record(file_id).state is FileState.OPEN, "there is no monitor"
        stage.start()
        stage.pass_time(10.0)
        assert stage.record(file_id).state is FileState.CLOSED
        stage.close_service()


def test_recoveries_and_locked_files_are_counted() -> None:
    with ServiceStage() as stage:
        stage.start()
        stage.write_and_die("file", b"data")
        for url in URLS:
            for name in stage.objects(url):
                stage.stores.corrupt(url, name)
        stage.pass_time(HARD_S + 60.0)
        assert len(stage.keys(RECOVERIES)) == 1
        stage.pass_time(COUNT_S + 1)
        assert (stage.service.recoveries, stage.service.locked) == (1, 1)
        assert stage.service.failed >= 1
        stage.run(stage.files.recover, "file", accept_loss=True)
        stage.pass_time(600.0 + COUNT_S)
        assert (stage.service.recoveries, stage.service.locked) == (0, 0)
        stage.close_service()


def test_deleted_data_is_collected() -> None:
    with ServiceStage() as stage:
        stage.start()
        for number in range(5):
            stage.write(f"a/b/{number}", b"data")
        stage.run(stage.files.delete, "a", recursive=True)
        stage.pass_time(2 * COLLECT_S)
        assert len(stage.keys(TRASH)) == 7, "what is below was unlinked"
        stage.pass_time(3600.0 + COLLECT_S)
        assert stage.keys(TRASH) == stage.keys(BLOCKS) == {}
        assert stage.all_objects() == set()
        assert stage.service.collected == 15
        stage.close_service()


def test_blocks_are_repaired() -> None:
    with ServiceStage() as stage:
        stage.start()
        file_id = stage.write("file", b"data")
        (block,) = stage.blocks(file_id)
        short = replace(block, replicas=block.replicas[:1])
        stage.put(block_key(file_id, 0), encode_block(short))
        stage.put(repair_key(file_id, 0), b"")
        stage.pass_time(2 * REPAIR_S)
        assert stage.keys(REPAIRS) == {}
        assert len(stage.blocks(file_id)[0].replicas) == 3
        assert stage.service.repaired == 1
        stage.close_service()


def test_the_start_is_tried_again_until_the_engine_answers() -> None:
    with ServiceStage([], of_server=["/a"]) as stage:
        for number in range(1, 200):
            stage.engine_of_server.trouble_with("txn", number, ConnectionLost("no engine"))
            stage.engine_of_server.trouble_with("range", number, ConnectionLost("no engine"))
        stage.start()
        assert stage.run(stage.files.config).stores == ()
        stage.pass_time(60.0)
        stage.engine_of_server.no_more_trouble()
        stage.pass_time(60.0)
        assert [each.id for each in stage.run(stage.files.config).stores] == [store_id("/a")]
        stage.close_service()


@pytest.mark.parametrize("is_defect", [False, True])
def test_work_goes_on_after_a_pass_that_has_failed(is_defect: bool) -> None:
    with ServiceStage() as stage:
        stage.start()
        if is_defect:
            for number in range(1, 200):
                stage.engine_of_server.trouble_with("range", number, ZeroDivisionError())
        stage.engine_of_server.is_cut_off = not is_defect
        stage.pass_time(300.0)
        stage.engine_of_server.is_cut_off = False
        stage.engine_of_server.no_more_trouble()
        stage.write("file", b"data")
        stage.run(stage.files.delete, "file")
        stage.pass_time(3600.0 + 120.0)
        assert stage.all_objects() == set()
        stage.close_service()


def test_closing_leaves_no_lease() -> None:
    with ServiceStage() as stage:
        stage.start()
        stage.write_and_die("file", b"data")
        stage.pass_time(HARD_S + 60.0)
        stage.close_service()
        stage.run(stage.files.close)
        assert len(stage.engine._store.leases.table) == 0


# In a server.


def metrics_of(upkeep: FileUpkeep) -> str:
    """Return the metrics as text."""
    out = Exposition()
    upkeep.metrics(out)
    return out.encode().decode()


def test_a_server_without_stores_does_not_start_it() -> None:
    class NoEngine:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"the engine is used: {name}")

    async def run() -> str:
        engine: Engine = NoEngine()  # type: ignore[assignment]
        upkeep = FileUpkeep(ServiceHost(engine, Settings(directory=None)))
        await upkeep.start()
        shown = metrics_of(upkeep)
        await upkeep.close()
        return shown

    assert "leasehold_files_locked 0" in asyncio.run(run())
