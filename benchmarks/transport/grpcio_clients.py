"""The clients of grpcio, with coroutines and with threads, made to do the same."""

import asyncio
from collections.abc import Awaitable, Iterator
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any

import grpc
import grpc.aio

from benchmarks.transport import driving
from benchmarks.transport.driving import Meter, check
from benchmarks.transport.echo import BODY, DOWNLOAD, STREAM, UNARY, wanted
from benchmarks.transport.samples import Figures

_aio: Any = grpc.aio  # the stubs do not allow bytes without a serializer
_grpc: Any = grpc


def aio_unary(port: int, in_flight: int, seconds: float, *, changing: bool) -> Figures:
    """Keep calls in flight."""

    async def main() -> Figures:
        async with _aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            echo: Any = channel.unary_unary(UNARY)

            def call(timeout_s: float) -> Awaitable[bytes]:
                made: Awaitable[bytes] = echo(BODY, timeout=timeout_s)
                return made

            return await driving.drive(call, in_flight, seconds, changing=changing)

    return asyncio.run(main())


def aio_stream(port: int, seconds: float) -> Figures:
    """Have messages go round on a stream."""

    async def main() -> Figures:
        async with _aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.stream_stream(STREAM)(timeout=driving.STREAM_TIMEOUT_S)
            figures = await driving.converse(call.write, call.read, seconds)
            await call.done_writing()
            return figures

    return asyncio.run(main())


def aio_download(port: int, seconds: float) -> Figures:
    """Have large messages come."""

    async def main() -> Figures:
        async with _aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            wish: Any = channel.unary_stream(DOWNLOAD)

            async def pieces() -> int:
                count = 0
                call = wish(wanted(driving.PIECES), timeout=driving.STREAM_TIMEOUT_S)
                while await call.read() is not _aio.EOF:
                    count += 1
                return count

            return await driving.download(pieces, seconds)

    return asyncio.run(main())


def threads_unary(port: int, in_flight: int, seconds: float, *, changing: bool) -> Figures:
    """Keep calls in flight, each from a thread that makes one after the other."""
    with _grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        echo: Any = channel.unary_unary(UNARY)
        chosen = driving.timeouts_s(changing=changing)
        meter = Meter()

        def caller(deadline: float) -> None:
            began = perf_counter()
            while began < deadline or not meter.latencies_s:
                check(echo(BODY, timeout=next(chosen)))
                now = perf_counter()
                meter.latencies_s.append(now - began)
                began = now

        for for_s in (driving.WARM_UP_S, seconds):
            meter.restart()
            deadline = perf_counter() + for_s
            threads = [Thread(target=caller, args=(deadline,)) for _ in range(in_flight)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return meter.figures()


def threads_stream(port: int, seconds: float) -> Figures:
    """Have messages go round on a stream."""
    with _grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        to_send: SimpleQueue[bytes | None] = SimpleQueue()
        requests: Iterator[Any] = iter(to_send.get, None)
        call: Any = channel.stream_stream(STREAM)(requests, timeout=driving.STREAM_TIMEOUT_S)
        for _ in range(driving.STREAM_IN_FLIGHT):
            to_send.put(BODY)
        meter = Meter()
        for for_s in (driving.WARM_UP_S, seconds):
            meter.restart()
            deadline = perf_counter() + for_s
            while perf_counter() < deadline or not meter.count:
                check(next(call))
                meter.count += 1
                to_send.put(BODY)
        figures = meter.figures()
        to_send.put(None)
        for rest in call:
            check(rest)
        return figures


def threads_download(port: int, seconds: float) -> Figures:
    """Have large messages come."""
    with _grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        wish: Any = channel.unary_stream(DOWNLOAD)
        meter = Meter()
        for for_s in (driving.WARM_UP_S, seconds):
            meter.restart()
            deadline = perf_counter() + for_s
            while perf_counter() < deadline or not meter.count:
                call = wish(wanted(driving.PIECES), timeout=driving.STREAM_TIMEOUT_S)
                meter.count += sum(1 for _ in call)
        return meter.figures()
