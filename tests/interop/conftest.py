"""The pairs: each client with each server. That of grpcio and grpcio judges the tests."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.interop.callers import Caller
from tests.interop.grpcio_callers import AioCaller, GrpcioCaller
from tests.interop.grpcio_demo import GrpcioServer
from tests.interop.our_caller import OurCaller
from tests.interop.our_demo import OurServer

Server = OurServer | GrpcioServer

SERVERS: Final[dict[str, Callable[[], Server]]] = {
    "our-server": OurServer,
    "grpcio-server": GrpcioServer,
}
CALLERS: Final[dict[str, Callable[[str], Caller]]] = {
    "grpcio": GrpcioCaller,
    "aio": AioCaller,
    "ours": OurCaller,
}


@pytest.fixture(scope="package", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The demo service, on each server."""
    running = SERVERS[request.param]()
    yield running
    running.close()


@pytest.fixture(scope="package", params=CALLERS)
def caller(request: pytest.FixtureRequest, server: Server) -> Iterator[Caller]:
    """Each client, with one connection for all tests that do not need their own."""
    client = CALLERS[request.param](server.target)
    yield client
    client.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a call, by which the server's notes know it."""
    return str(request.node.name)


@pytest.fixture(scope="package")
def our_server() -> Iterator[OurServer]:
    """Our server, for clients that there is only one of."""
    running = OurServer()
    yield running
    running.close()
