"""The helper that starts servers never returns a server that it did not start."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support import servers


class Healthy(BaseHTTPRequestHandler):
    """Says that all is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


SERVE = """
import sys
from http.server import HTTPServer
from tests.support.test_servers import Healthy
HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
"""


@pytest.fixture
def stranger() -> Iterator[int]:
    """The port of a healthy server that the helper did not start."""
    with HTTPServer((servers.HOST, 0), Healthy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


PRINT_PORTS = """
from tests.support.servers import free_port
print(*(free_port() for _ in range(20)), flush=True)
input()
"""


def test_a_chosen_port_stays_free_for_a_server_that_is_started_again() -> None:
    """Neither the system nor another test process chooses it."""
    ports = {servers.free_port() for _ in range(20)}
    assert len(ports) == 20
    with subprocess.Popen(  # noqa: S603  a constant
        [sys.executable, "-c", PRINT_PORTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert ports.isdisjoint(map(int, other.stdout.readline().split()))
        other.communicate(b"\n")
    lowest, highest = map(int, servers.CHOSEN_BY_SYSTEM.read_text().split())
    assert ports.isdisjoint(range(lowest, highest + 1))


def test_a_healthy_server_is_found_and_ended(tmp_path: Path) -> None:
    with servers.running(
        lambda _, port: [sys.executable, "-c", SERVE, str(port)], tmp_path
    ) as server:
        assert server.process.poll() is None
    assert server.process.poll() is not None


@pytest.mark.parametrize("code", ["import time; time.sleep(60)", "raise SystemExit(1)"])
def test_a_stranger_on_the_port_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: int, code: str
) -> None:
    monkeypatch.setattr(servers, "free_port", lambda: stranger)
    monkeypatch.setattr(servers, "READY_S", 0.5)
    with (
        pytest.raises(RuntimeError, match="did not start"),
        servers.running(lambda _directory, _port: [sys.executable, "-c", code], tmp_path),
    ):
        pass
    assert servers.is_healthy(f"{servers.HOST}:{stranger}")


def test_a_server_that_ends_during_a_test_is_noticed(tmp_path: Path) -> None:
    block = servers.running(lambda _, port: [sys.executable, "-c", SERVE, str(port)], tmp_path)
    server = block.__enter__()
    server.process.kill()
    server.process.wait(servers.STOP_S)
    with pytest.raises(AssertionError, match="has ended"):
        block.__exit__(None, None, None)
