"""Real writers of single-writer files, killed and stopped at random moments, and failing stores.

Whatever happens, every record whose flush has returned is in the file once and in order, in all
replicas, and nothing that a writer wrote after it had lost the file is visible. See `file_judge`.

`LEASEHOLD_FILE_ROUNDS` plays more rounds, `LEASEHOLD_SEED` others. Rounds that went wrong are
printed with their plan.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import leasehold
from tests.faults.file_rounds import STORES, StoreDirectory, play_together
from tests.support.asynchronous import asynchronous
from tests.support.servers import leasehold_command, running

ROUNDS: Final = int(os.environ.get("LEASEHOLD_FILE_ROUNDS", "20"))
SEED: Final = int(os.environ.get("LEASEHOLD_SEED", "3"))
AT_THE_SAME_TIME: Final = 5
STORE_FAULT_EACH: Final = 3
"""In each so many of these groups, a store fails."""
SOFT_LIMIT_S: Final = 1.0
HARD_LIMIT_S: Final = 4.0
BLOCK_BYTES: Final = 3 * 512 * 1024
"""Some files have several blocks, and some blocks several checksums."""


@asynchronous
async def _configure(endpoint: str, stores: list[StoreDirectory]) -> None:
    async with leasehold.connect(endpoint) as client:
        await client.files.configure(
            add=[str(store.path) for store in stores],
            soft_limit=SOFT_LIMIT_S,
            hard_limit=HARD_LIMIT_S,
            block_bytes=BLOCK_BYTES,
        )


class World:
    """A server, and the stores of its files."""

    def __init__(self, directory: Path, endpoint: str) -> None:
        self._endpoint = endpoint
        self._stores = [StoreDirectory(directory / "stores", number) for number in range(STORES)]
        self._logs = directory / "logs"
        self._logs.mkdir()
        _configure(endpoint, self._stores)

    def play(self, first: int, count: int) -> list[str]:
        """Play rounds at the same time; return a text for each one that went wrong."""
        return play_together(
            self._endpoint,
            self._stores,
            self._logs,
            f"{SEED}-{first}",
            count,
            has_store_fault=first // AT_THE_SAME_TIME % STORE_FAULT_EACH == 0,
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("files")
    with running(leasehold_command, directory) as server:
        yield World(directory, server.endpoint)


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")
@pytest.mark.parametrize("first", range(0, ROUNDS, AT_THE_SAME_TIME))
def test_acknowledged_records_survive_killed_and_stopped_writers_and_failing_stores(
    world: World, first: int
) -> None:
    count = min(AT_THE_SAME_TIME, ROUNDS - first)
    wrong = world.play(first, count)
    print(f"rounds {first} to {first + count - 1} of seed {SEED}: {len(wrong)} wrong")
    assert not wrong, "\n\n".join(wrong)
