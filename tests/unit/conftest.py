"""Unit tests start neither processes nor servers: those that do are in `tests/integration`."""

import functools
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PROCESSES = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")
RUNNING: list[str] = []
REFUSED: list[str] = []


def _watch(owner: Any, name: str, counts: Callable[..., bool] = lambda *_: True) -> None:
    """Record calls of a function in unit tests.

    Not by an audit hook: with one, CPython 3.11 may switch threads while a new thread installs the
    trace function of coverage, and then a thread that starts meanwhile ends with an error.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if RUNNING and counts(*args):
            REFUSED.append(f"{owner.__name__}.{name}")
        return original(*args, **kwargs)

    setattr(owner, name, watched)


for function in PROCESSES:
    _watch(os, function)
_watch(subprocess.Popen, "__init__")
# A bound Unix socket is allowed: a data directory has one.
_watch(socket.socket, "bind", lambda _, address: isinstance(address, tuple))


@pytest.fixture(autouse=True)
def _neither_process_nor_server(request: pytest.FixtureRequest) -> Iterator[None]:
    RUNNING.append(request.node.nodeid)
    yield
    RUNNING.clear()
    refused, REFUSED[:] = sorted(set(REFUSED)), []
    assert not refused, f"{refused} in a unit test: move it to tests/integration"
