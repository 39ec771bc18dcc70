"""The advice to start a server: only if the default address refused the connection."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leasehold.cli import connection, main
from tests.support.servers import free_port

NO_SERVER = 4


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASEHOLD_ENDPOINTS", raising=False)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that finds no server; return its one line."""
    assert main(arguments) == NO_SERVER
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot connect to 127.0.0.1:" in line
    return line


@contextmanager
def closing_server() -> Iterator[str]:
    """Accept connections and close them immediately, as a server without room for more does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close_all() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                peer.close()

        thread = threading.Thread(target=close_all)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_the_default_address_without_a_server_has_the_advice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "DEFAULT", f"127.0.0.1:{free_port()}")
    line = said(capsys, "kv", "get", "a")
    assert "Connection refused; start a server with `leasehold serve`" in line
    assert "--endpoint" in line


def test_another_address_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    line = said(capsys, "kv", "get", "a", "--endpoint", f"127.0.0.1:{free_port()}")
    assert line.endswith("Connection refused")


@pytest.mark.parametrize(
    "command", [("kv", "get", "a"), ("lock", "a", "--wait", "1", "--", "true")]
)
def test_a_server_that_closes_connections_has_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    with closing_server() as address:
        monkeypatch.setattr(connection, "DEFAULT", address)
        assert "leasehold serve" not in said(capsys, *command)
