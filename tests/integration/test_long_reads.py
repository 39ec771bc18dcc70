"""Many long reads by a client that takes nothing: few of them begin, and others are served."""

import asyncio
from pathlib import Path
from unittest.mock import patch

from leasehold.grpc.channel import Channel
from leasehold.grpc.read_slots import MAX_READS
from leasehold.http2 import frames
from leasehold.http2.frames import Setting
from leasehold.http2.header_encoder import literals
from leasehold.keyspace.operations import Put
from leasehold.keyspace.ranges import LONG
from leasehold.server.app import LeaseholdServer
from leasehold.server.etcd.kv import KVService
from leasehold.wire import rpc_pb2 as pb

WITHIN_S = 30.0
READS = 200
PATH = "/etcdserverpb.KV/Range"
EVERYTHING = pb.RangeRequest(key=b"\0", range_end=b"\0").SerializeToString()


def _requests() -> bytes:
    """Ask for everything on many streams, with a window of 0."""
    block = literals(
        (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", PATH.encode()),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    message = b"\0" + len(EVERYTHING).to_bytes(4, "big") + EVERYTHING
    calls = [
        frames.frame(frames.HEADERS, frames.END_HEADERS, number, block)
        + frames.frame(frames.DATA, frames.END_STREAM, number, message)
        for number in range(1, 2 * READS, 2)
    ]
    greeting = frames.PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: 0})
    return greeting + b"".join(calls)


async def _crowd(directory: Path) -> None:
    begun = 0
    read = KVService._long

    async def counted(*args: object, **more: object) -> object:
        nonlocal begun
        begun += 1
        return await read(*args, **more)  # type: ignore[arg-type]

    async with LeaseholdServer(directory) as server:
        port = await server.start("127.0.0.1", 0)
        for number in range(LONG + 1):
            server.store.apply(Put(b"k%06d" % number, b"v" * 100))
        with patch.object(KVService, "_long", counted):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_requests())
            await writer.drain()
            while begun < MAX_READS - 1:  # noqa: ASYNC110  within the deadline of the test
                await asyncio.sleep(0.01)
            async with Channel(f"127.0.0.1:{port}") as channel:
                for _ in range(3):  # the slot that is left serves others, one after the other
                    answer = pb.RangeResponse.FromString(await channel.unary(PATH, EVERYTHING))
                    assert answer.count == LONG + 1
            assert begun == MAX_READS - 1 + 3
            writer.close()


def test_two_hundred_long_reads_that_are_not_taken_keep_no_other_from_reading(
    tmp_path: Path,
) -> None:
    asyncio.run(asyncio.wait_for(_crowd(tmp_path), WITHIN_S))
