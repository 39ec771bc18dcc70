"""S3 for tests: a server of moto on a loopback address, and the settings of an operator."""

import itertools
import socket
from collections.abc import Iterator
from typing import Any, Final

import fsspec
import pytest

from tests.support.servers import HOST, free_port

BUCKET: Final = "replicas"
NUMBERS: Final = itertools.count()


class S3Server:
    """The server, which can be stopped and started again. Its objects stay in this process."""

    def __init__(self) -> None:
        self._server: Any = None
        self._port = free_port()

    def start(self) -> None:
        """Serve, always on the same port."""
        from moto.server import ThreadedMotoServer  # noqa: PLC0415  it takes a second

        self._server = ThreadedMotoServer(HOST, self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{HOST}:{self._port}"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def s3_settings(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings as an operator has them; no name is resolved, and no proxy is used."""
    options = {"endpoint_url": s3.endpoint, "key": "key", "secret": "secret"}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    monkeypatch.setenv("NO_PROXY", HOST)
    resolve = socket.getaddrinfo

    def resolve_addresses_only(host: Any, *args: Any, **options: Any) -> Any:
        assert host == HOST, f"{host} was resolved"
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_addresses_only)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
def s3_url(s3: S3Server, s3_settings: None) -> str:
    """The URL of a store that no other test uses."""
    fs = fsspec.filesystem("s3", endpoint_url=s3.endpoint, key="key", secret="secret")  # noqa: S106
    if not fs.exists(BUCKET):
        fs.mkdir(BUCKET)
    return f"s3://{BUCKET}/{next(NUMBERS)}/store"
