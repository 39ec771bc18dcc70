"""The echo service on our own transport: plain functions, or a coroutine for each call."""

import asyncio
import os
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Final

import uvloop

from benchmarks.common.processes import raise_file_limit
from benchmarks.transport.echo import DOWNLOAD, PIECE, STREAM, UNARY, pieces_wanted
from leasehold.basics.addresses import TcpAddress
from leasehold.grpc.coroutine_handlers import Conversation, conversation, one_to_many, one_to_one
from leasehold.grpc.routes import Answer, Exchange, Methods
from leasehold.serving.grpc_server import GrpcServer


def echo(message: bytes) -> Answer:
    """Return the message."""
    return message, 0


async def echo_later(message: bytes, _call: Conversation) -> bytes:
    """Return a message from a task."""
    return message


async def echo_all(call: Conversation) -> None:
    """Return all messages of a stream from a task."""
    async for message in call:
        await call.send(message)


async def download(request: bytes, _call: Conversation) -> AsyncIterator[bytes]:
    """Send the requested number of pieces."""
    for _ in range(pieces_wanted(request)):
        yield PIECE


PLAIN: Final[Methods] = {
    UNARY: Exchange(echo),
    STREAM: Exchange(echo, is_unary=False),
    DOWNLOAD: one_to_many(download),
}
COROUTINES: Final[Methods] = {
    UNARY: one_to_one(echo_later),
    STREAM: conversation(echo_all),
    DOWNLOAD: one_to_many(download),
}


def serve_ours(connection: Connection, *, plain: bool = True, on_uvloop: bool = True) -> None:
    """Send port and process id, and serve until the other end of the connection is closed."""
    raise_file_limit()
    run = uvloop.run if on_uvloop else asyncio.run
    run(_serve(connection, PLAIN if plain else COROUTINES))


async def _serve(connection: Connection, methods: Methods) -> None:
    server = GrpcServer(methods)
    (address,) = await server.start([TcpAddress("127.0.0.1", 0)])
    assert isinstance(address, TcpAddress)
    connection.send((address.port, os.getpid()))
    await until_closed(connection)
    server.cut_off()


async def until_closed(connection: Connection) -> None:
    """Wait until the other end is closed."""
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(connection.fileno(), closed.set)
    await closed.wait()
    loop.remove_reader(connection.fileno())
