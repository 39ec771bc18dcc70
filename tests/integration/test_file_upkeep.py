"""A server with replica stores closes the files of holders that are gone, and shows it."""

import asyncio
import urllib.request
from pathlib import Path

from leasehold.engine.interface import prefix_end
from leasehold.files.client import Files
from leasehold.files.file_keys import HOLDERS
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import ServiceSettings, Settings
from leasehold.sessions.lease_keeper import Keeper

WITHIN_S = 60.0
COUNTED = "\nleasehold_files_recovered_total 1\n"


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  our own server
        text: str = answer.read().decode()
    return text


def test_a_server_with_stores_closes_files_of_holders_that_are_gone(tmp_path: Path) -> None:
    urls = tuple(str(tmp_path / name) for name in "abc")
    services = ServiceSettings(file_stores=urls, files_interval_s=0.1)

    async def run() -> bytes:
        settings = Settings(directory=None, services=services)
        async with asyncio.timeout(WITHIN_S), LeaseholdServer(settings) as server:
            port = await server.start("127.0.0.1", 0)
            keeper = Keeper(server.engine)
            files = Files(server.engine, keeper, "client")
            await files.configure(add=urls)
            file = await files.create("file")
            await file.write(b"data")
            await file.flush()
            (holder,) = (await server.engine.range(HOLDERS, prefix_end(HOLDERS))).pairs
            await server.engine.revoke(holder.lease)
            while not await files.is_closed("file"):  # noqa: ASYNC110  there is no event
                await asyncio.sleep(0.05)
            async with files.open("file") as reader:
                found = await reader.read()
            page = f"http://127.0.0.1:{port}/metrics"
            while COUNTED not in await asyncio.to_thread(_get, page):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await files.close()
            await keeper.close()
            return found

    assert asyncio.run(run()) == b"data"
