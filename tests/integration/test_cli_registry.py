"""`leasehold registry`, against a server of ours and an etcd: output, exit codes, and commands."""

import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import leasehold.sync
from leasehold import attribute_set, service_item, service_template
from leasehold.registry.state import ALL_TRANSITIONS
from leasehold.testing import LocalServer
from tests.support.client_command import VARIABLE, Command
from tests.support.serve_command import WITHIN_S, command, environment

FAILURE, USAGE_ERROR, NOT_THERE = 1, 2, 3
_numbers = itertools.count()


@pytest.fixture
def web() -> str:
    """Have the name of a service that no other test uses."""
    return f"web-{next(_numbers)}"


@contextmanager
def started(on: Command, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Start a command, which is killed if it does not end."""
    with subprocess.Popen(  # noqa: S603  our own command
        command("registry", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({VARIABLE: on.endpoint}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_services_are_looked_up(leasehold: Command, web: str) -> None:
    with (
        leasehold_client(leasehold) as client,
        client.register(web, "a:1", tags=["x"], metadata={"zone": 3}) as service,
    ):
        heads, row = leasehold.ok("registry", "lookup", web).lines
        assert heads.split() == ["ID", "HEALTH", "ENDPOINT", "TYPES", "ATTRIBUTES"]
        assert row.split()[:4] == [service.id, "passing", "a:1", web]
        assert 'leasehold.Tag(tag="x")' in row
        assert "leasehold.Metadata(zone=3)" in row
        found = leasehold.ok("registry", "lookup", web, "--tag", "x", "--json").json
        assert found["total"] == 1
        (item,) = found["items"]
        assert {each["kind"]: each["fields"] for each in item.pop("attributes")} == {
            "leasehold.Tag": {"tag": "x"},
            "leasehold.Metadata": {"zone": 3},
        }
        assert item == {
            "id": service.id,
            "health": "passing",
            "endpoint": "a:1",
            "types": [web],
            "descriptor": "leasehold.Service",
        }
        by_value = ("registry", "lookup", "--attribute", "leasehold.Metadata:zone=3")
        assert service.id in leasehold.ok(*by_value).text
        said = leasehold.ok("registry", "lookup", web, "--passing", "--print-endpoint-only")
        assert said.text == "a:1\n"
        assert leasehold.ok("registry", "lookup", "--id", service.id, "--max", "1").lines[1:]
        service.maintain()
        until(lambda: "maintenance" in leasehold.ok("registry", "lookup", web).text)
        assert leasehold("registry", "lookup", web, "--passing").code == NOT_THERE
    assert leasehold("registry", "lookup", web).code == NOT_THERE


def leasehold_client(on: Command) -> "leasehold.sync.Client":
    return leasehold.sync.connect(on.endpoint)


def test_items_are_browsed(leasehold: Command, web: str) -> None:
    with leasehold_client(leasehold) as client:
        sets = [attribute_set("k", {"f": 1}), attribute_set("k", {"f": "x"})]
        item = service_item(types=[web, f"{web}.special"], attributes=sets)
        made = client.registry.register(item, 30)
        browse = ("registry", "browse", web)
        assert leasehold.ok(*browse).lines == [f"{web}.special"]
        assert leasehold.ok(*browse, "--prefix", "other").lines == []
        assert leasehold.ok(*browse, "--kinds").lines == ["k"]
        assert sorted(leasehold.ok(*browse, "--values", "k:f").lines) == ["1", "x"]
        found = leasehold.ok(*browse, "--values", "k:f", "--json").json["found"]
        assert sorted(found, key=str) == [1, "x"]
        complaint = leasehold.fails(FAILURE, *browse, "--values", "k:g")
        assert complaint == "leasehold: no attribute set of kind 'k' has a field 'g'"
        made.cancel()


def test_control_characters_of_other_programs_are_escaped(leasehold: Command, web: str) -> None:
    name, endpoint = f"{web}\x1b[31m", f"a:1\nb:2\x1b[2J{'x' * 1500}"
    with leasehold_client(leasehold) as client:
        sets = [attribute_set("k\x1b", {"f": "v\n\x1b[2J"})]
        item = service_item(types=[web, name], attributes=sets, endpoint=endpoint)
        made = client.registry.register(item, 30)
        shown = endpoint.replace("\n", "\\n").replace("\x1b", "\\x1b")
        said = leasehold.ok("registry", "lookup", web, "--print-endpoint-only")
        assert said.lines == [shown]
        browse = ("registry", "browse", web)
        assert leasehold.ok(*browse).lines == [f"{web}\\x1b[31m"]
        assert leasehold.ok(*browse, "--kinds").lines == ["k\\x1b"]
        assert leasehold.ok(*browse, "--values", "k\x1b:f").lines == ["v\\n\\x1b[2J"]
        assert "\x1b" not in leasehold.ok("registry", "lookup", web).text
        made.cancel()
    with started(leasehold, "register", name, "a:1") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"service {web}\\x1b[31m is registered")
        process.communicate()


@pytest.mark.parametrize(
    "arguments",
    [
        ("lookup", "--id", "x"),
        ("lookup", "--max", "0"),
        ("lookup", "--attribute", ":f=1"),
        ("lookup", "--attribute", "k:f"),
        ("browse", "--values", "k"),
        ("register", "web"),
        ("register", "", "a:1"),
        ("register", "web", "a:1", "--check", "ping"),
        ("register", "web", "a:1", "--metadata", "x"),
        ("register", "web", "a:1", "--check-interval", "0"),
        ("register", "web", "a:1", "--"),
    ],
)
def test_wrong_arguments_are_refused(on_ours: Command, arguments: tuple[str, ...]) -> None:
    assert on_ours.fails(USAGE_ERROR, "registry", *arguments).startswith("leasehold")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("lookup", "--id", "foo"),
            (
                "argument --id: 'foo' is not the id of an item: write it as it is printed, such as "
                "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
            ),
        ),
        (
            ("lookup", "--attribute", "a:b"),
            (
                "argument --attribute: 'a:b' is not an attribute: write KIND or KIND:FIELD=VALUE, "
                "such as leasehold.Metadata:zone=3"
            ),
        ),
        (
            ("register", "web", "a:1", "--check", "exec:"),
            (
                "argument --check: check must have a command after exec:, such as exec:pg_isready, "
                "got 'exec:'"
            ),
        ),
        (
            ("register", "web", "a:1", "--check", "exec:echo 'x"),
            (
                "argument --check: check must have a command after exec:, such as exec:pg_isready, "
                'got "exec:echo \'x": No closing quotation'
            ),
        ),
        (
            ("register", "web", "a:1", "--check", "ping"),
            (
                "argument --check: check must begin with http://, https://, tcp://, grpc://, "
                "grpcs:// or exec:, got 'ping'"
            ),
        ),
    ],
)
def test_an_error_names_the_option(on_ours: Command, arguments: tuple[str, ...], text: str) -> None:
    assert f": {text} (see " in on_ours.fails(USAGE_ERROR, "registry", *arguments)


def test_a_service_is_registered_while_its_command_runs(leasehold: Command, web: str) -> None:
    program = "import sys; sys.stdin.readline(); sys.exit(7)"
    arguments = ("register", web, "a:1", "--tag", "x", "--metadata", "zone=3")
    with started(leasehold, *arguments, "--", sys.executable, "-c", program) as process:
        lookup = ("registry", "lookup", web, "--tag", "x", "--json")
        until(lambda: leasehold(*lookup).code == 0)
        _, err = process.communicate("\n", timeout=WITHIN_S)
        assert (process.returncode, err) == (7, "")
    assert leasehold("registry", "lookup", web).code == NOT_THERE


def test_a_service_without_a_command_stays_until_a_signal_or_the_end_of_input(
    on_ours: Command, web: str
) -> None:
    with started(on_ours, "register", web, "a:1", "--json") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["event"] == "registered"
        assert on_ours.ok("registry", "lookup", web, "--json").json["items"][0]["id"] == said["id"]
        process.communicate("", timeout=WITHIN_S)
        assert process.returncode == 0
    assert on_ours("registry", "lookup", web).code == NOT_THERE
    with started(on_ours, "register", web, "a:1") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"service {web} is registered as item ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WITHIN_S) == 0
    assert on_ours("registry", "lookup", web).code == NOT_THERE


def test_a_service_with_a_command_is_found_from_the_second_good_check_on(
    on_ours: Command, web: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        checked = ("--check", f"tcp://{address}", "--check-interval", "100ms")
        with started(on_ours, "register", web, address, *checked, "--", "sleep", "60"):
            passing = ("registry", "lookup", web, "--passing")
            until(lambda: on_ours(*passing).code == 0)
            listener.close()
            until(lambda: on_ours(*passing).code == NOT_THERE)
            assert on_ours.ok("registry", "lookup", web).lines[1].split()[1] == "failing"


def test_a_command_that_cannot_be_run_is_reported(on_ours: Command, web: str) -> None:
    said = on_ours("registry", "register", web, "a:1", "--", "/does/not/exist")
    assert said.code == 127
    assert "cannot be run" in said.complaint


def test_a_registration_prints_failed_checks_and_a_lost_registration(
    on_ours: Command, web: str, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    checked = ("--check", f"exec:test -e {missing}", "--check-interval", "20ms", "--ttl", "10s")
    with started(on_ours, "register", web, "a:1", *checked, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        item_id = json.loads(process.stdout.readline())["id"]
        failing = f"leasehold: service {web} at a:1 is failing: exit code 1\n"
        assert process.stderr.readline() == failing
        with leasehold_client(on_ours) as client:
            client.kv.delete(f"leasehold/items/{item_id}")
        assert process.stderr.readline() == f"leasehold: service {web} at a:1 is registered again\n"
        process.communicate("", timeout=WITHIN_S)


@pytest.mark.parametrize(
    "arguments", [("registry", "watch"), ("kv", "watch", "x"), ("lease", "watch")]
)
def test_a_watch_prints_that_the_connection_was_lost(arguments: tuple[str, ...]) -> None:
    with (
        LocalServer() as server,
        subprocess.Popen(  # noqa: S603  our own command
            command(*arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment({VARIABLE: server.endpoint}),
        ) as process,
    ):
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("watching ")
            server.stop()
            said = process.stderr.readline()
            assert said.startswith(f"leasehold: the connection to {server.endpoint} was lost: ")
        finally:
            process.kill()


def test_changes_are_printed(leasehold: Command, web: str) -> None:
    with (
        leasehold_client(leasehold) as client,
        client.register(web, "a:1") as service,
        started(leasehold, "watch", web, "--count", "3") as process,
    ):
        item_id = service.id
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words == ["joined", item_id, "passing", "a:1", web, "-"]
        service.maintain()
        assert process.stdout.readline().split()[:3] == ["changed", item_id, "maintenance"]
        service.close()
        assert process.stdout.readline().split()[:2] == ["left", item_id]
        assert process.wait(timeout=WITHIN_S) == 0


def test_changes_are_printed_as_json(on_ours: Command, web: str) -> None:
    with leasehold_client(on_ours) as client, client.register(web, "a:1") as service:
        said = on_ours.ok("registry", "watch", web, "--passing", "--json", "--count", "1")
        assert (said.json["change"], said.json["id"]) == ("joined", service.id)


def test_events_of_the_registry_are_printed(on_ours: Command, web: str) -> None:
    with leasehold_client(on_ours) as client:
        mailbox = client.mailbox(60)
        client.registry.notify(service_template(types=[web]), ALL_TRANSITIONS, mailbox)
        with client.register(web, "a:1") as service:
            item_id = service.id
        said = on_ours.ok("events", "watch", mailbox.id, "--json", "--count", "2")
        joined, left = (json.loads(line)["payload"] for line in said.lines)
        assert (joined["event"], joined["transition"], joined["id"]) == (
            *("item", "NOMATCH_MATCH", item_id),
        )
        assert joined["item"]["endpoint"] == "a:1"
        assert (left["transition"], left["item"]) == ("MATCH_NOMATCH", None)
        with client.register(web, "a:1"):
            said = on_ours.ok("events", "watch", mailbox.id, "--count", "1")
        assert said.text == f"event 3 of the registry: NOMATCH_MATCH of item {item_id}\n"
