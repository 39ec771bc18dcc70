"""TLS between all pairs: ALPN, names and authorities as gRPC's own peers have them."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import pytest
import trustme

from leasehold.basics.tls import client_tls, server_tls
from leasehold.errors import Status
from tests.interop import demo
from tests.interop.callers import Caller
from tests.interop.conftest import Server
from tests.interop.demo import Kind
from tests.interop.grpcio_callers import GrpcioCaller
from tests.interop.grpcio_demo import GrpcioServer
from tests.interop.our_caller import OurCaller
from tests.interop.our_demo import OurServer


@dataclass(frozen=True)
class Pems:
    """Files: a certificate, its key, and who has signed it."""

    cert: Path
    key: Path
    authority: Path


def _issue(place: Path, *names: str) -> Pems:
    pems, authority = Pems(place / "cert", place / "key", place / "authority"), trustme.CA()
    made = authority.issue_cert(*names)
    made.private_key_pem.write_to_path(pems.key)
    for part in made.cert_chain_pems:
        part.write_to_path(pems.cert, append=True)
    authority.cert_pem.write_to_path(pems.authority)
    return pems


def _our_server(pems: Pems) -> Server:
    return OurServer(tls=server_tls(pems.cert, pems.key))


def _grpcio_server(pems: Pems) -> Server:
    pair = (pems.key.read_bytes(), pems.cert.read_bytes())
    return GrpcioServer(tls=grpc.ssl_server_credentials([pair]))


def _our_caller(target: str, authority: Path) -> Caller:
    return OurCaller(f"https://{target}", tls=client_tls(authority))


def _grpcio_caller(target: str, authority: Path) -> Caller:
    return GrpcioCaller(target, tls=grpc.ssl_channel_credentials(authority.read_bytes()))


SERVERS: Final = {"our-server": _our_server, "grpcio-server": _grpcio_server}
CALLERS: Final = {"grpcio": _grpcio_caller, "ours": _our_caller}

Connect = Callable[[str, Path], Caller]


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Pems:
    return _issue(tmp_path_factory.mktemp("pems"), "localhost", "127.0.0.1")


@pytest.fixture(scope="module", params=SERVERS)
def secure(request: pytest.FixtureRequest, pems: Pems) -> Iterator[Server]:
    """Each server, with TLS."""
    with closing(SERVERS[request.param](pems)) as server:
        yield server


@pytest.fixture(params=CALLERS)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Make a client, of each kind, with TLS."""
    return CALLERS[request.param]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_calls_with_tls(secure: Server, connect: Connect, pems: Pems, host: str) -> None:
    long = bytes(1024 * 1024)
    with closing(connect(f"{host}:{secure.port}", pems.authority)) as client:
        assert client.ask(demo.ECHO, long).answer == long
        answers = client.call(Kind.ONE_TO_MANY, demo.COUNT, b"100 10000").answers
        assert answers == tuple(demo.counted(index, 10_000) for index in range(100))
        chatted = client.call(Kind.MANY_TO_MANY, demo.CHAT, long, b"", long)
        assert chatted.answers == (long, b"", long)


def test_a_server_of_a_stranger_is_not_spoken_to(
    secure: Server, connect: Connect, tmp_path: Path
) -> None:
    other = _issue(tmp_path, "localhost")
    with closing(connect(secure.target, other.authority)) as client:
        assert client.ask(demo.ECHO, b"?").status == Status.UNAVAILABLE


def test_a_client_without_tls_is_not_answered(secure: Server) -> None:
    for client in (GrpcioCaller(secure.target), OurCaller(secure.target)):
        with closing(client):
            assert client.ask(demo.ECHO, b"?").status == Status.UNAVAILABLE
