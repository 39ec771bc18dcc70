"""The echo service on grpcio, with coroutines and with threads; bytes go in and out as they are."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc
import grpc.aio

from benchmarks.common.processes import raise_file_limit
from benchmarks.transport.echo import (
    DOWNLOAD,
    PIECE,
    SERVICE,
    STREAM,
    UNARY,
    name_of,
    pieces_wanted,
)
from benchmarks.transport.our_server import until_closed

THREADS: Final = 16
"""For handlers of the server with threads: a stream has one as long as it is open."""

LOOPBACK: Final = "127.0.0.1:0"


_aio: Any = grpc.aio  # its stubs are incomplete


async def _echo(request: bytes, _context: Any) -> bytes:
    return request


async def _echo_all(_requests: Any, context: Any) -> None:
    while (request := await context.read()) is not _aio.EOF:
        await context.write(request)


async def _download(request: bytes, context: Any) -> None:
    for _ in range(pieces_wanted(request)):
        await context.write(PIECE)


def _echo_now(request: bytes, _context: Any) -> bytes:
    return request


def _echo_all_now(requests: Iterator[bytes], _context: Any) -> Iterator[bytes]:
    yield from requests


def _download_now(request: bytes, _context: Any) -> Iterator[bytes]:
    for _ in range(pieces_wanted(request)):
        yield PIECE


def serve_grpcio_aio(connection: Connection) -> None:
    """Send port and process id, and serve until the other end of the connection is closed."""
    raise_file_limit()
    asyncio.run(_serve(connection))


async def _serve(connection: Connection) -> None:
    server = grpc.aio.server()
    methods = {
        name_of(UNARY): grpc.unary_unary_rpc_method_handler(_echo),
        name_of(STREAM): grpc.stream_stream_rpc_method_handler(_echo_all),
        name_of(DOWNLOAD): grpc.unary_stream_rpc_method_handler(_download),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port(LOOPBACK)
    await server.start()
    connection.send((port, os.getpid()))
    await until_closed(connection)
    await server.stop(None)


def serve_grpcio_threads(connection: Connection) -> None:
    """Send port and process id, and serve until the other end of the connection is closed."""
    raise_file_limit()
    server = grpc.server(ThreadPoolExecutor(THREADS))
    methods = {
        name_of(UNARY): grpc.unary_unary_rpc_method_handler(_echo_now),
        name_of(STREAM): grpc.stream_stream_rpc_method_handler(_echo_all_now),
        name_of(DOWNLOAD): grpc.unary_stream_rpc_method_handler(_download_now),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port(LOOPBACK)
    server.start()
    connection.send((port, os.getpid()))
    connection.poll(None)
    server.stop(None).wait()
