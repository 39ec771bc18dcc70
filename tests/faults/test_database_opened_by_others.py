"""Another program opens the database of a running server, which is then killed."""

import asyncio
import sqlite3
from pathlib import Path

import leasehold
from leasehold.journal.data_dir import FILE_NAME
from tests.faults.server_process import ServerProcess

KEYS_BEFORE = 1
KEYS_AFTER = 50


async def _put(endpoint: str, first: int, last: int) -> None:
    async with leasehold.connect(endpoint) as client:
        for number in range(first, last):
            await client.kv.put(f"key/{number:03}", b"value")


async def _count(endpoint: str) -> int:
    async with leasehold.connect(endpoint) as client:
        return len((await client.kv.range("key/", prefix=True)).pairs)


def _look(database: Path) -> str:
    """Do what `sqlite3 leasehold.db` does."""
    connection = sqlite3.connect(database, timeout=0)
    try:
        return str(connection.execute("SELECT count(*) FROM batch").fetchall())
    except sqlite3.OperationalError as error:
        return str(error)
    finally:
        connection.close()


def test_nothing_acknowledged_is_lost_when_another_program_opens_the_database(
    tmp_path: Path,
) -> None:
    database = tmp_path / "data" / FILE_NAME
    with ServerProcess(tmp_path) as server:
        server.wait_until_ready()
        asyncio.run(_put(server.endpoint, 0, KEYS_BEFORE))
        assert _look(database) == "database is locked"
        asyncio.run(_put(server.endpoint, KEYS_BEFORE, KEYS_BEFORE + KEYS_AFTER))
        server.kill()
    with ServerProcess(tmp_path) as server:
        server.wait_until_ready()
        assert asyncio.run(_count(server.endpoint)) == KEYS_BEFORE + KEYS_AFTER
