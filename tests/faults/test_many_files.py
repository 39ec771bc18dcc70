"""Many files under one holder: one lease for all, and a monitor that closes them in passes.

`LEASEHOLD_MANY_FILES` sets their number.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import leasehold
from leasehold.client.client import Client
from leasehold.engine.interface import prefix_end
from leasehold.files.monitor import FILES_PER_PASS, Monitor
from leasehold.wire import files_pb2 as pb
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.file_judge import CLOSED, FILES, FileJudge
from tests.faults.many_files import content_of, many_files, path_of
from tests.support.servers import leasehold_command, running

COUNT: Final = int(os.environ.get("LEASEHOLD_MANY_FILES", "2000"))
STORES: Final = 2
SOFT_LIMIT_S: Final = 2.0
HARD_LIMIT_S: Final = 6.0
RENEWALS: Final = 3
PUTS_PER_PASS: Final = 10
"""Calls of another client that must be answered during each pass that takes a while."""
LONG_PASS: Final = FILES_PER_PASS // 10
"""A pass that recovers so many files takes a while on any machine; one with a few does not."""
PAGE: Final = 1_000
JUDGED: Final = 50
POLL_S: Final = 0.1


class ObservedMonitor(Monitor):
    """Counts the files that each pass recovers, and the calls of another client meanwhile."""

    passed: list[tuple[int, int]]
    puts = 0

    async def make_pass(self) -> bool:
        """Make a pass, and record it."""
        recovered, puts = self._recoverer.recovered, self.puts
        is_work_left = await super().make_pass()
        self.passed.append((self._recoverer.recovered - recovered, self.puts - puts))
        return is_work_left

    async def put(self, client: Client) -> None:
        """Be the other client."""
        while True:
            await client.kv.put("other/key", "value")
            self.puts += 1


async def _states(client: Client) -> dict[int, int]:
    """Count the files in each state."""
    counts: dict[int, int] = {}
    first, end = FILES + b"record/", prefix_end(FILES + b"record/")
    while True:
        page = await client.kv.range(first, end, limit=PAGE)
        for pair in page.pairs:
            found = pb.FileRecord.FromString(pair.value)
            if not found.is_directory:
                counts[found.state] = counts.get(found.state, 0) + 1
        if not page.more:
            return counts
        first = page.pairs[-1].key + b"\0"


async def _close_all(endpoint: str) -> list[tuple[int, int]]:
    """Run a monitor beside another client until no file is open; return its passes."""
    async with leasehold.connect(endpoint) as client, leasehold.connect(endpoint) as other:
        while (await client.kv.range(FILES + b"holder/", prefix=True, count_only=True)).total:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        monitor = ObservedMonitor(client.files.namespace, client.files.recoverer, interval_s=POLL_S)
        monitor.passed = []
        putting = asyncio.create_task(monitor.put(other))
        monitor.start()
        try:
            while (await client.kv.range(FILES + b"open/", prefix=True, count_only=True)).total:
                assert not putting.done(), putting.exception()
                await asyncio.sleep(POLL_S)
            while sum(count for count, _ in monitor.passed) < COUNT:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        finally:
            putting.cancel()
            await monitor.close()
        assert await _states(client) == {CLOSED: COUNT}
        return monitor.passed


async def _configure(endpoint: str, directory: Path) -> None:
    async with leasehold.connect(endpoint) as client:
        await client.files.configure(
            add=[str(directory / f"store-{number}") for number in range(STORES)],
            soft_limit=SOFT_LIMIT_S,
            hard_limit=HARD_LIMIT_S,
        )


async def _check_holder(endpoint: str) -> None:
    """Check that all files are under one lease."""
    async with leasehold.connect(endpoint) as client:
        [holder] = await client.files.holders()
        assert holder.files == COUNT
        assert len(await client.leases()) == 1


def test_one_lease_keeps_many_files_open_and_a_monitor_closes_them_beside_other_clients(
    tmp_path: Path,
) -> None:
    began_at = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - began_at:.1f} s: {text}")

    with running(leasehold_command, tmp_path) as server:
        asyncio.run(_configure(server.endpoint, tmp_path))
        with many_files(server.endpoint, COUNT) as process:
            assert process.stdout is not None
            leases: list[str] = []
            is_open, renewals = False, 0
            for line in process.stdout:
                word, _, rest = line.strip().partition(" ")
                if word == "open":
                    is_open = True
                    report(f"{rest} files are open, after {len(leases)} renewals")
                else:
                    leases.append(rest)
                    renewals += is_open
                if renewals == RENEWALS:
                    break
            assert len(set(leases)) == 1, "more than one lease was renewed"
            asyncio.run(_check_holder(server.endpoint))
            process.kill()
        passed = asyncio.run(_close_all(server.endpoint))
        report(f"all are closed: {passed}")
        assert all(recovered <= FILES_PER_PASS for recovered, _ in passed)
        assert all(puts >= PUTS_PER_PASS for recovered, puts in passed if recovered >= LONG_PASS)
        with EtcdCalls(server.endpoint) as calls:
            for number in range(0, COUNT, max(1, COUNT // JUDGED)):
                content = FileJudge(calls).content_of(path_of(number), replicas=STORES)
                assert content == content_of(number)
