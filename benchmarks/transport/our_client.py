"""Our channel, made to do what clients are measured by."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from benchmarks.transport import driving
from benchmarks.transport.echo import BODY, DOWNLOAD, STREAM, UNARY, wanted
from benchmarks.transport.samples import Figures
from leasehold.grpc.channel import Channel


def _run(made: Awaitable[Figures], *, on_uvloop: bool) -> Figures:
    run: Callable[[Any], Figures] = uvloop.run if on_uvloop else asyncio.run
    return run(made)


def unary(port: int, in_flight: int, seconds: float, *, changing: bool, on_uvloop: bool) -> Figures:
    """Keep calls in flight."""

    async def main() -> Figures:
        async with Channel(f"127.0.0.1:{port}") as channel:

            def call(timeout_s: float) -> Awaitable[bytes]:
                return channel.unary(UNARY, BODY, timeout=timeout_s)

            return await driving.drive(call, in_flight, seconds, changing=changing)

    return _run(main(), on_uvloop=on_uvloop)


def stream(port: int, seconds: float, *, on_uvloop: bool) -> Figures:
    """Have messages go round on a stream."""

    async def main() -> Figures:
        async with (
            Channel(f"127.0.0.1:{port}") as channel,
            channel.stream(STREAM, timeout=driving.STREAM_TIMEOUT_S) as call,
        ):
            figures = await driving.converse(call.send, call.receive, seconds)
            call.end()
            return figures

    return _run(main(), on_uvloop=on_uvloop)


def download(port: int, seconds: float, *, on_uvloop: bool) -> Figures:
    """Have large messages come."""

    async def main() -> Figures:
        async with Channel(f"127.0.0.1:{port}") as channel:

            async def pieces() -> int:
                count = 0
                timeout_s = driving.STREAM_TIMEOUT_S
                async with channel.stream(DOWNLOAD, timeout=timeout_s) as call:
                    await call.send(wanted(driving.PIECES))
                    call.end()
                    async for _ in call:
                        count += 1
                return count

            return await driving.download(pieces, seconds)

    return _run(main(), on_uvloop=on_uvloop)
