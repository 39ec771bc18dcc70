"""The echo service on our own transport: plain functions, or a coroutine for each call."""

import asyncio
import os
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Final

import uvloop

from benchmarks.common.processes import raise_file_limit
from benchmarks.transport.echo import DOWNLOAD, PIECE, STREAM, UNARY, pieces_wanted
from leasehold.rpc.addresses import TcpAddress
from leasehold.rpc.conversations import Conversation, conversation, one_to_many, one_to_one
from leasehold.rpc.routes import Answer, Exchange, Methods
from leasehold.rpc.serving import Server


def echo(message: bytes) -> Answer:
    """Give a message back, at once."""
    return message, 0


async def echo_later(message: bytes, _call: Conversation) -> bytes:
    """Give a message back from a task."""
    return message


async def echo_all(call: Conversation) -> None:
    """Give back all messages of a stream from a task."""
    async for message in call:
        await call.send(message)


async def download(request: bytes, _call: Conversation) -> AsyncIterator[bytes]:
    """Give as many pieces as are wanted."""
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
    """Serve until nobody holds the other end of the connection; tell port and process first."""
    raise_file_limit()
    run = uvloop.run if on_uvloop else asyncio.run
    run(_serve(connection, PLAIN if plain else COROUTINES))


async def _serve(connection: Connection, methods: Methods) -> None:
    server = Server(methods)
    (address,) = await server.start([TcpAddress("127.0.0.1", 0)])
    assert isinstance(address, TcpAddress)
    connection.send((address.port, os.getpid()))
    await until_closed(connection)
    server.cut_off()


async def until_closed(connection: Connection) -> None:
    """Wait until nobody holds the other end."""
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(connection.fileno(), closed.set)
    await closed.wait()
    loop.remove_reader(connection.fileno())
