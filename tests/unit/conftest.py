"""Unit tests start neither processes nor servers: those that do are in `tests/integration`."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

PROCESSES = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
RUNNING: list[str] = []
REFUSED: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    # A bound Unix socket is allowed: a data directory has one.
    if RUNNING and (
        event in PROCESSES or (event == "socket.bind" and isinstance(arguments[1], tuple))
    ):
        REFUSED.append(event)


sys.addaudithook(_audit)


@pytest.fixture(autouse=True)
def _neither_process_nor_server(request: pytest.FixtureRequest) -> Iterator[None]:
    RUNNING.append(request.node.nodeid)
    yield
    RUNNING.clear()
    refused, REFUSED[:] = sorted(set(REFUSED)), []
    assert not refused, f"{refused} in a unit test: move it to tests/integration"
