"""`leasehold discovery`: a server finds registrars for a client, and events wait in a mailbox."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leasehold.sync
from leasehold.testing.local_server import LocalServer
from tests.integration.test_cli_renewal import (
    NOT_CREATED,
    UNKNOWN,
    end_of,
    event_of,
    line_of,
    new_set,
    started,
    wait_until,
)
from tests.support.client_command import Command
from tests.support.serve_command import serving

FAILURE, USAGE_ERROR, NOT_THERE, LOST = 1, 2, 3, 6
NOWHERE = "leasehold://127.0.0.1:1"
SAVES = """
import json, pathlib, sys
event = json.load(sys.stdin)
seen = pathlib.Path("seen")
seen.write_text((seen.read_text() if seen.exists() else "") + json.dumps(event) + "\\n")
"""


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    """The locator of another server."""
    with LocalServer() as server:
        yield f"leasehold://127.0.0.1:{server.port}"


def register(on: Command, *words: str) -> str:
    return on.ok("discovery", "register", *words, "--print-id-only").text.strip()


def registrars_of(on: Command, registration: str) -> list[dict[str, Any]]:
    listed = on.ok("discovery", "list", registration, "--json").json
    found: list[dict[str, Any]] = listed["registrars"]
    return found


def found_by(on: Command, registration: str) -> dict[str, Any]:
    """Wait until one registrar is found."""
    wait_until(lambda: len(registrars_of(on, registration)) == 1)
    (found,) = registrars_of(on, registration)
    return found


# Registrations.


def test_a_registrar_is_found_by_the_server_listed_and_discarded(
    on_ours: Command, other: str
) -> None:
    (line,) = on_ours.ok("discovery", "register", "--locator", other, "--duration", "30m").lines
    _, _, registration, *_, mailbox = line.split()
    assert line == (
        f"discovery registration {registration} created for 30m, with mailbox {mailbox}"
    )
    registrar = found_by(on_ours, registration)
    assert registrar["endpoints"] == [other.replace("leasehold", "http")]
    *facts, heads, row = on_ours.ok("discovery", "list", registration).lines
    assert facts[0].split() == ["registration", registration]
    assert facts[2].split() == ["registrars", "1"]
    assert facts[4].split() == ["locators", other]
    assert facts[5].split() == ["events", "to", "mailbox", mailbox]
    assert heads.split() == ["REGISTRAR", "GROUPS", "ENDPOINTS"]
    assert row.split()[:2] == [registrar["id"], "-"]
    said = on_ours.ok("discovery", "discard", registration, registrar["id"])
    assert said.text == f"registrar {registrar['id']} is discarded\n"
    assert registrars_of(on_ours, registration) == []
    complaint = on_ours.fails(NOT_THERE, "discovery", "discard", registration, registrar["id"])
    assert complaint == (
        f"leasehold: registrar {registrar['id']} is not found by discovery registration "
        f"{registration}"
    )
    said = on_ours("discovery", "discard", registration, registrar["id"], "--json")
    assert (said.code, said.json) == (NOT_THERE, {"discarded": False})


def test_a_registration_is_listed_renewed_and_ended(on_ours: Command) -> None:
    registration = register(on_ours, "--locator", NOWHERE, "--duration", "10m")
    said = on_ours.ok("discovery", "renew", registration, "--duration", "20m")
    assert said.text == f"discovery registration {registration} renewed for 20m\n"
    rows = on_ours.ok("discovery", "list").lines
    assert any(row.startswith(registration) and NOWHERE in row for row in rows)
    said = on_ours.ok("discovery", "destroy", registration)
    assert said.text == f"discovery registration {registration} has ended\n"
    assert registration not in on_ours.ok("discovery", "list").text
    for words in (
        *(("renew",), ("list",), ("groups",), ("locators",), ("watch",), ("destroy",)),
        ("discard", "r1"),
    ):
        complaint = on_ours.fails(NOT_THERE, "discovery", words[0], registration, *words[1:])
        assert complaint == f"leasehold: discovery registration {registration} {NOT_CREATED}"


def test_json_of_registrations(on_ours: Command) -> None:
    words = ("discovery", "register", "--all-groups", "--locator", NOWHERE, "--handback", "laptop")
    created = on_ours.ok(*words, "--duration", "600", "--json").json
    assert set(created) == {"id", "ttl", "grantor", "mailbox"}
    assert created["ttl"] == 600
    assert created["grantor"].endswith("/discovery")
    listed = on_ours.ok("discovery", "list", "--json").json["registrations"]
    (mine,) = [each for each in listed if each["id"] == created["id"]]
    assert 0 < mine.pop("remaining") <= 600
    assert mine == {
        "id": created["id"],
        "registrars": 0,
        "groups": None,
        "locators": [NOWHERE],
        "number": 0,
        "endpoint": None,
        "listener": created["mailbox"],
        "undelivered": 0,
        "last_error": None,
    }
    shown = on_ours.ok("discovery", "list", created["id"], "--json").json
    assert shown["registrars"] == []
    renewed = on_ours.ok("discovery", "renew", created["id"], "--duration", "1h", "--json").json
    assert (renewed["id"], renewed["ttl"]) == (created["id"], 3600)
    said = on_ours("discovery", "destroy", created["id"], UNKNOWN, "--json")
    assert said.code == NOT_THERE
    ended, unknown = said.json["ended"]
    assert ended == {"id": created["id"]}
    assert unknown["error"] == f"discovery registration {UNKNOWN} {NOT_CREATED}"


def test_the_wanted_groups_are_changed(on_ours: Command) -> None:
    registration = register(on_ours, "--group", "b", "--group", "a", "--group", "")

    def groups(*words: str) -> list[str]:
        return on_ours.ok("discovery", "groups", registration, *words).lines

    assert groups() == ['""', "a", "b"]
    assert groups("--add", "c", "--add", "a") == ['""', "a", "b", "c"]
    assert groups("--remove", "", "--remove", "unknown") == ["a", "b", "c"]
    assert groups("--set", "x", "--set", "y") == ["x", "y"]
    assert groups("--none") == []
    assert groups("--all") == ["(all)"]
    shown = on_ours.ok("discovery", "groups", registration, "--json").json
    assert shown == {"id": registration, "groups": None}
    for change in ("--add", "--remove"):
        complaint = on_ours.fails(FAILURE, "discovery", "groups", registration, change, "a")
        assert complaint == (
            f"leasehold: discovery registration {registration} has all groups: replace them with "
            "--set or --none"
        )
    assert groups("--set", "a") == ["a"]
    complaint = on_ours.fails(USAGE_ERROR, "discovery", "groups", registration, "--add", "a" * 257)
    assert "name of a group must have at most 256 characters, got 257" in complaint


def test_the_wanted_locators_are_changed(on_ours: Command, other: str) -> None:
    registration = register(on_ours, "--group", "a")

    def locators(*words: str) -> list[str]:
        return on_ours.ok("discovery", "locators", registration, *words).lines

    assert locators() == []
    assert locators("--add", other, "--add", NOWHERE) == [other, NOWHERE]
    found_by(on_ours, registration)
    assert locators("--remove", other) == [NOWHERE]
    assert registrars_of(on_ours, registration) == []
    assert locators("--set", other) == [other]
    found_by(on_ours, registration)
    assert locators("--none") == []
    shown = on_ours.ok("discovery", "locators", registration, "--json").json
    assert shown == {"id": registration, "locators": []}


def test_a_locator_that_the_operator_has_not_listed_is_refused_and_leaves_no_mailbox() -> None:
    with serving("--data-dir", "memory:", "--discover-at", "127.0.0.2:2379") as server:
        on = Command(f"127.0.0.1:{server.port}")
        complaint = on.fails(FAILURE, "discovery", "register", "--locator", NOWHERE)
        assert f"locator {NOWHERE} is not allowed" in complaint
        assert on.ok("events", "list", "--json").json == {"mailboxes": []}
        server.end(signal.SIGTERM)


def test_an_etcd_has_no_discovery_service(on_etcd: Command) -> None:
    for words in (("register", "--group", "a"), ("list",), ("list", UNKNOWN)):
        complaint = on_etcd.fails(FAILURE, "discovery", *words)
        assert complaint.startswith(
            "leasehold: the discovery service requires a Leasehold server, but this is "
        )


def test_a_mailbox_that_does_not_exist_is_refused(on_ours: Command) -> None:
    words = ("discovery", "register", "--group", "a", "--mailbox", UNKNOWN)
    assert on_ours.fails(NOT_THERE, *words) == f"leasehold: mailbox {UNKNOWN} {NOT_CREATED}"


# Events.


def test_a_watch_prints_each_event_that_has_come_while_it_did_not_run(
    on_ours: Command, other: str
) -> None:
    registration = register(on_ours, "--locator", other)
    registrar = found_by(on_ours, registration)["id"]
    on_ours.ok("discovery", "discard", registration, registrar)
    with started(on_ours, "discovery", "watch", registration) as process:
        start = f"of discovery registration {registration}:"
        assert line_of(process) == f"event 1 {start} discovered {registrar}"
        assert line_of(process) == f"event 2 {start} discarded {registrar}"
        code, out, _ = end_of(process, signal.SIGTERM)
    assert (code, out) == (0, "")


def test_a_command_is_started_with_each_event_in_the_same_form_by_both_watches(
    on_ours: Command, other: str, tmp_path: Path
) -> None:
    mailbox = on_ours.ok("events", "create", "--print-id-only").text.strip()
    words = ("--locator", other, "--handback", "laptop", "--mailbox", mailbox)
    registration = register(on_ours, *words)
    registrar = found_by(on_ours, registration)
    runs = ("--count", "1", "--", sys.executable, "-c", SAVES)
    with started(on_ours, "discovery", "watch", registration, *runs, cwd=tmp_path) as process:
        assert end_of(process)[0] == 0
    on_ours.ok("discovery", "discard", registration, registrar["id"])
    with started(on_ours, "events", "watch", mailbox, *runs, cwd=tmp_path) as process:
        assert end_of(process)[0] == 0
    found, discarded = map(json.loads, (tmp_path / "seen").read_text().splitlines())
    assert (found["source"], found["number"], found["handback"]) == (registration, 1, "bGFwdG9w")
    assert found["payload"] == {"event": "discovered", "registrars": [registrar]}
    assert discarded["number"] == 2
    assert discarded["payload"] == {"event": "discarded", "registrars": [registrar]}


def test_a_watch_keeps_the_registration_alive_and_ends_with_it(on_ours: Command) -> None:
    term_s = 12.0
    words = ("--locator", NOWHERE, "--duration", f"{term_s:g}s")
    made = on_ours.ok("discovery", "register", *words, "--json").json
    registration = made["id"]

    def remaining_s() -> tuple[float, float]:
        listed = on_ours.ok("discovery", "list", "--json").json["registrations"]
        (mine,) = [each for each in listed if each["id"] == registration]
        mailbox = on_ours.ok("events", "show", made["mailbox"], "--json").json
        return mine["remaining"], mailbox["remaining"]

    with leasehold.sync.connect(on_ours.endpoint) as client:
        leases = [
            client.mailbox(id=made["mailbox"]).lease,
            client.discovery_service.registration(registration).lease,
        ]

        def renew() -> None:  # the start of the watch may take longer than the term
            for lease in leases:
                lease.renew(term_s)

        watch = ("discovery", "watch", registration)
        with started(on_ours, *watch, meanwhile=renew) as process:
            wait_until(lambda: min(remaining_s()) > term_s)  # only the watch asks for that much
            on_ours.ok("discovery", "destroy", registration)
            code, _, err = end_of(process)
    assert code == LOST
    assert err == f"leasehold: discovery registration {registration} {NOT_CREATED}\n"


def test_a_renewal_set_keeps_a_registration_and_its_mailbox(on_ours: Command, other: str) -> None:
    created = on_ours.ok("discovery", "register", "--locator", NOWHERE, "--json").json
    renewals = new_set(on_ours)
    for words in (("--discovery", created["id"]), ("--mailbox", created["mailbox"])):
        on_ours.ok("renewal", "add", renewals, *words, "--for", "forever")
    members = on_ours.ok("renewal", "list", renewals, "--json").json["members"]
    assert {(each["grantor"].partition("/")[2], each["cookie"]) for each in members} == {
        ("discovery", created["id"]),
        ("mailboxes", created["mailbox"]),
    }
    complaint = on_ours.fails(
        NOT_THERE, "renewal", "add", renewals, "--discovery", UNKNOWN, "--for", "1h"
    )
    assert complaint == f"leasehold: discovery registration {UNKNOWN} {NOT_CREATED}"
    on_ours.ok("renewal", "remove", renewals, "--discovery", created["id"])


def test_json_of_a_watch(on_ours: Command, other: str) -> None:
    registration = register(on_ours, "--locator", other)
    with started(on_ours, "discovery", "watch", registration, "--json") as process:
        event = event_of(process)
        assert (event["position"], event["number"]) == (1, 1)
        assert event["payload"]["event"] == "discovered"
        assert end_of(process, signal.SIGINT)[0] == 0
