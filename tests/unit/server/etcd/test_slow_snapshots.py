"""Snapshots and their readers: who takes nothing, or next to nothing, is told so and not kept."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, cast

import pytest

from leasehold.errors import Status
from leasehold.grpc.coroutine_handlers import Conversation
from leasehold.grpc.protocol import RpcError
from leasehold.keyspace.operations import Put
from leasehold.server.etcd import maintenance
from leasehold.server.etcd.maintenance import (
    MIN_BYTES_PER_S,
    PATIENCE_S,
    Allowance,
    send_snapshot,
)
from leasehold.store.backup import MAX_SNAPSHOTS
from leasehold.store.runtime import Runtime
from leasehold.wire.maintenance_pb2 import SnapshotResponse
from tests.support.open_files import open_files_in

WITHIN_S: Final = 60.0
DIGEST_BYTES: Final = 32


class Reader:
    """A client; `take` waits for as long as it likes."""

    def __init__(self, take: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.taken: list[SnapshotResponse] = []
        self._take = take

    async def send(self, message: bytes) -> None:
        await self._take()
        self.taken.append(SnapshotResponse.FromString(message))

    async def read(self, runtime: Runtime) -> None:
        await send_snapshot(runtime.backups, cast("Conversation", self))


def never() -> Coroutine[Any, Any, Any]:
    return asyncio.Event().wait()


def at_once() -> Coroutine[Any, Any, Any]:
    return asyncio.sleep(0)


def with_runtime(directory: Path, work: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(WITHIN_S):
            runtime = Runtime(directory)
            runtime.start()
            try:
                for number in range(50):
                    _, position = runtime.store.apply(Put(b"%d" % number, bytes(20_000)))
                await runtime.until_durable(position)
                await work(runtime)
            finally:
                await runtime.stop()
                runtime.journal.close()

    asyncio.run(run())


def open_copies(directory: Path) -> list[str]:
    return [name for name in open_files_in(directory) if "snapshot-" in name]


def test_who_takes_nothing_is_told_so_and_the_copy_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE_S", 0.05)

    async def work(runtime: Runtime) -> None:
        reader = Reader(never)
        with pytest.raises(RpcError, match="snapshot aborted") as caught:
            await reader.read(runtime)
        assert caught.value.status is Status.DEADLINE_EXCEEDED
        assert "`leasehold backup`" in caught.value.message
        assert reader.taken == []
        assert open_copies(tmp_path) == []

    with_runtime(tmp_path, work)


def test_who_takes_next_to_nothing_is_told_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience_s, taken_at_most = 0.5, 5
    monkeypatch.setattr(maintenance, "PATIENCE_S", patience_s)
    monkeypatch.setattr(maintenance, "MIN_BYTES_PER_S", 1 << 40)

    async def work(runtime: Runtime) -> None:
        reader = Reader(lambda: asyncio.sleep(patience_s / taken_at_most))
        with pytest.raises(RpcError, match="snapshot aborted"):
            await reader.read(runtime)
        assert 0 < len(reader.taken) <= taken_at_most
        assert open_copies(tmp_path) == []

    with_runtime(tmp_path, work)


def test_others_have_their_snapshots_when_the_slow_ones_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE_S", 0.5)

    async def work(runtime: Runtime) -> None:
        slow = [Reader(never).read(runtime) for _ in range(MAX_SNAPSHOTS)]
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert [type(each) for each in ended] == [RpcError] * MAX_SNAPSHOTS
        reader = Reader(at_once)
        await reader.read(runtime)
        assert len(reader.taken[-1].blob) == DIGEST_BYTES

    with_runtime(tmp_path, work)


def test_the_slowest_that_may_be_is_never_ended() -> None:
    allowance = Allowance()
    for _ in range(10_000):
        allowance.took(MIN_BYTES_PER_S, 1.0)
    assert allowance.left_s == PATIENCE_S
    allowance.took(0, PATIENCE_S - 1.0)
    for _ in range(10_000):
        allowance.took(MIN_BYTES_PER_S, 1.0)
    assert allowance.left_s == pytest.approx(1.0)


def test_who_is_slower_by_half_is_ended_after_twice_the_patience() -> None:
    allowance, elapsed_s = Allowance(), 0
    while allowance.left_s > 0:
        allowance.took(MIN_BYTES_PER_S // 2, 1.0)
        elapsed_s += 1
    assert elapsed_s == pytest.approx(2 * PATIENCE_S, abs=1)


def test_who_was_fast_may_not_stop_for_longer() -> None:
    allowance = Allowance()
    allowance.took(1 << 40, 1.0)
    assert allowance.left_s == PATIENCE_S
