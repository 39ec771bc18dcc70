"""`leasehold elect`: who leads is told, and a command runs while one does."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.client_command import VARIABLE, Command
from tests.support.serve_command import WITHIN_S, command, environment

USAGE_ERROR, LOST, DENIED = 2, 6, 7


@contextlib.contextmanager
def electing(
    on: Command, *arguments: str, stdin: int = subprocess.DEVNULL
) -> "Iterator[subprocess.Popen[str]]":
    """Start `leasehold elect`, which is killed if it does not end."""
    with subprocess.Popen(  # noqa: S603  our own command
        command("elect", *arguments),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({VARIABLE: on.endpoint}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def end_of(process: "subprocess.Popen[str]", number: int | None = None) -> tuple[int, str, str]:
    if number is not None:
        process.send_signal(number)
    out, err = process.communicate(timeout=WITHIN_S)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def test_leaders_follow_each_other_and_are_told(leasehold: Command) -> None:
    with (
        electing(leasehold, "follow", "--listen") as listening,
        electing(leasehold, "follow", "first") as first,
    ):
        key, value = said(first), said(first)
        assert value == "first"
        assert [said(listening), said(listening)] == [key, "first"]
        (pair,) = leasehold.ok("kv", "get", key, "--json").json["pairs"]
        assert (pair["value"], key) == ("first", f"follow/{int(pair['lease'], 16):x}")
        with electing(leasehold, "follow", "second", "--json") as second:
            assert second.stderr is not None
            assert second.stderr.readline() == "waiting for 'follow', led by first\n"
            assert end_of(first, signal.SIGTERM) == (0, "", "")
            told = json.loads(said(second))
            assert (told["event"], told["value"]) == ("leads", "second")
            assert [said(listening), said(listening)] == [told["key"], "second"]
            assert end_of(second, signal.SIGINT)[0] == 0
        assert end_of(listening, signal.SIGINT) == (0, "", "")
    until = time.monotonic() + WITHIN_S  # an unanswered revocation is left to the TTL
    while leasehold.ok("top", "--once", "--json", "--prefix", "follow/").json["locks"]["total"]:
        assert time.monotonic() < until


def test_who_only_asks_is_denied_and_told_who_leads(leasehold: Command) -> None:
    with electing(leasehold, "asked", "first") as first:
        key, _ = said(first), said(first)
        lease = int(key.rpartition("/")[2], 16)
        assert leasehold.fails(DENIED, "elect", "asked", "second", "--wait", "0") == (
            f"leasehold: 'asked' is led by 'first' (lease {lease:016x})"
        )
        quiet = ("--wait", "0", "-q", "--denied-code", "9")  # a wait would include connecting
        denied = leasehold("elect", "asked", "second", *quiet)
        assert (denied.code, denied.out, denied.err) == (9, b"", "")


def test_a_command_runs_while_one_leads(leasehold: Command) -> None:
    script = "import os, sys; print(os.environ['LEASEHOLD_TOKEN']); sys.exit(5)"
    with electing(leasehold, "runs", "me", "--", sys.executable, "-c", script) as process:
        code, out, err = end_of(process)
    assert (code, err) == (5, "")
    assert int(out.split("-")[0]) > 1
    assert leasehold("kv", "get", "runs/", "--prefix").code != 0


def test_a_lead_that_is_lost_ends_the_command(leasehold: Command) -> None:
    shell = "echo begun; sleep 600"
    with electing(leasehold, "lost", "me", "--", "sh", "-c", shell) as process:
        assert said(process) == "begun"
        leasehold.ok("kv", "del", "lost/", "--prefix")
        code, _, err = end_of(process)
    assert code == LOST
    assert err.startswith("leasehold: 'lost' is lost: ")
    assert err.endswith("; the command was ended\n")


def test_one_leads_until_standard_input_ends(on_ours: Command) -> None:
    with electing(on_ours, "input", "me", stdin=subprocess.PIPE) as process:
        said(process)
        assert said(process) == "me"
        assert end_of(process) == (0, "", "")  # which closes it


def test_listening_ends_after_so_many(on_ours: Command) -> None:
    listen = command("elect", "many", "--listen", "--count", "1", "--json")
    with electing(on_ours, "many", "me", "--", *listen) as process:
        code, out, _ = end_of(process)
    told = json.loads(out)
    assert (code, told["value"], len(told["lease"])) == (0, "me", 16)


@pytest.mark.parametrize(
    ("line", "said_then"),
    [
        (["elect"], "the following arguments are required: NAME"),
        (["elect", ""], "argument NAME: name must not be empty: "),
        (["elect", "a"], "VALUE is missing: give the leader's value, such as host-1, or --listen"),
        (["elect", "a", "b", "c"], "unexpected argument 'c': write -- before a command "),
        (["elect", "a", "b", "--listen"], "--listen cannot be used with VALUE or a command"),
        (["elect", "a", "--listen", "--", "ls"], "--listen cannot be used with VALUE or a command"),
        (
            ["elect", "a", "b", "--ttl", "3", "--grace", "3", "--", "ls"],
            "--grace 3s is more than a third of --ttl 3s: use --ttl 9s or --grace 1s",
        ),
        (["elect", "a", "b", "--count", "1"], "--count requires --listen: give both or neither"),
    ],
)
def test_what_is_wrong_is_one_line(on_ours: Command, line: list[str], said_then: str) -> None:
    assert said_then in on_ours.fails(USAGE_ERROR, *line)
