"""The server under test, and connections to it."""

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest

from tests.http2.peer import Address, Connect, Peer
from tests.support.servers import HOST, leasehold_command, running

TARGET: Final = "LEASEHOLD_HTTP2_TARGET"


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """The address of the server: ours, or another that the environment names."""
    named = os.environ.get(TARGET)
    if named:
        host, _, port = named.rpartition(":")
        yield host, int(port)
        return
    with running(leasehold_command, tmp_path_factory.mktemp("http2")) as server:
        yield HOST, server.port


@pytest.fixture
def connect(target: Address) -> Iterator[Connect]:
    """Make connections on which nothing has been said yet.

    Whatever happened on them, the server must serve another one after the test.
    """
    peers: list[Peer] = []

    def connect_one() -> Peer:
        peers.append(Peer(target))
        return peers[-1]

    yield connect_one
    for peer in peers:
        peer.close()
    if any(peer.has_met_error for peer in peers):
        with closing(Peer(target)) as another:
            another.greet()
            another.send(another.request(1))
            another.expect_answer(1)


@pytest.fixture
def peer(connect: Connect) -> Peer:
    """A connection on which both sides know each other's settings."""
    greeted = connect()
    greeted.greet()
    return greeted


@pytest.fixture
def unaware(connect: Connect) -> Peer:
    """A connection whose server cannot know yet that its settings were heard."""
    greeted = connect()
    greeted.greet(acknowledges=False)
    return greeted


@pytest.fixture
def ours() -> None:
    """Skip a test that needs our gRPC services where the server is another one."""
    if os.environ.get(TARGET):
        pytest.skip("needs the gRPC services of our own server")
