"""The servers that locks are kept on, started fresh: new directories on a disk, default settings.

Leasehold and etcd are those of the other benchmarks. Redis and ZooKeeper are programs of the
machine, which pip cannot install; if one is missing, the error names its package.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple

from benchmarks.etcd import servers as with_etcd
from benchmarks.etcd.servers import (
    ETCD,
    LOOK_S,
    OURS,
    READY_S,
    CannotStart,
    Server,
    free_port,
    has_ended,
    stop,
)

REDIS, ZOOKEEPER = "redis", "zookeeper"
SERVERS: Final = (OURS, ETCD, REDIS, ZOOKEEPER)

_ZOOKEEPER_OF_DEBIAN: Final = Path("/usr/share/zookeeper/bin/zkServer.sh")
_ZOOKEEPER_SETTINGS: Final = """\
tickTime=2000
maxClientCnxns=0
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
"""
_ASK_S: Final = 1.0


class _Kind(NamedTuple):
    """How a server is started, and how its readiness is checked."""

    command: Callable[[Path, int], list[str]]
    ask: bytes
    answer: bytes


@contextmanager
def running(name: str, directory: Path) -> Iterator[Server]:
    """Start a server in a new directory, and stop it. Raises `CannotStart`, with a way out."""
    if name not in _KINDS:
        with with_etcd.running(name, directory) as server:
            yield server
        return
    kind, port = _KINDS[name], free_port()
    data = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))
    log = data / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  our own command
            kind.command(data, port),
            cwd=data,
            env={**os.environ, "JMXDISABLE": "true", "ZOO_LOG_DIR": str(data)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_ready(name, kind, port, process.pid, log)
        yield Server(name, port, process.pid, data)
    finally:
        stop(process)


def _redis(data: Path, port: int) -> list[str]:
    program = shutil.which("redis-server")
    if program is None:
        raise CannotStart("Redis is not there: apt-get install redis-server")
    return [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(data)]


def _zookeeper(data: Path, port: int) -> list[str]:
    found = shutil.which("zkServer.sh")
    script = Path(found) if found else _ZOOKEEPER_OF_DEBIAN
    if not script.exists():
        raise CannotStart("ZooKeeper is not there: apt-get install zookeeper")
    settings = data / "zoo.cfg"
    settings.write_text(_ZOOKEEPER_SETTINGS.format(data=data / "data", port=port), encoding="utf-8")
    return [str(script), "start-foreground", str(settings)]


_KINDS: Final = {
    REDIS: _Kind(_redis, b"PING\r\n", b"+PONG"),
    ZOOKEEPER: _Kind(_zookeeper, b"srvr", b"Zookeeper version"),
}


def _wait_ready(name: str, kind: _Kind, port: int, pid: int, log: Path) -> None:
    deadline = monotonic() + READY_S
    while monotonic() < deadline and not has_ended(pid):
        if _answer(port, kind.ask).startswith(kind.answer):
            return
        sleep(LOOK_S)
    told = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise CannotStart(f"{name} is not ready after {READY_S:g} s, or has ended:\n{told}")


def _answer(port: int, ask: bytes) -> bytes:
    """The server's answer, or nothing while it does not listen."""
    try:
        with socket.create_connection(("127.0.0.1", port), _ASK_S) as connection:
            connection.settimeout(_ASK_S)
            connection.sendall(ask)
            return connection.recv(256)
    except OSError:
        return b""
