"""`leasehold top`: lines and documents, a terminal, and servers that are busy or gone."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from leasehold.cli import top_reading
from tests.support.client_command import VARIABLE, Command
from tests.support.serve_command import command, environment, run, serving
from tests.support.servers import free_port, leasehold_command, running
from tests.support.terminal import Terminal, on_terminal

NO_SERVER = 4


@pytest.fixture
def lease(leasehold: Command) -> Iterator[str]:
    """A lease with what a lock, a waiter and a session of ours have."""
    mine, other = "a7a11", "a7a12"
    leasehold.ok("lease", "grant", "60", "--id", mine)
    leasehold.ok("lease", "grant", "600", "--id", other)
    leasehold.ok("kv", "put", f"top/cron/{mine}", '{"who":"anna@host 7"}', "--lease", mine)
    leasehold.ok("kv", "put", f"top/cron/{other}", '{"who":"bert@host 9"}', "--lease", other)
    leasehold.ok("kv", "put", f"top/foreign/{other}", "", "--lease", other)
    leasehold.ok("kv", "put", f"leasehold/sessions/{mine}", "anna@host 7", "--lease", mine)
    yield f"{0xA7A11:016x}"
    for each in (mine, other):
        leasehold("lease", "revoke", each)


def rows(said: list[str], heads: str) -> list[list[str]]:
    """Find the rows of a table, in words."""
    start = next(at for at, line in enumerate(said) if line.startswith(heads))
    return [line.split() for line in said[start + 1 : said.index("", start)]]


def test_locks_leases_and_sessions_are_shown(leasehold: Command, lease: str) -> None:
    said = leasehold.ok("top", "--once").lines
    assert said[0].endswith(f" at {leasehold.endpoint}")
    assert said[1].startswith("revision ")
    other = f"{0xA7A12:016x}"
    assert rows(said, "LOCK ") == [
        ["top/cron", "anna@host", "7", lease, "0s+", "1"],
        ["top/foreign", "lease", other, other, "0s+", "0"],
    ]
    first, second = rows(said, "LEASE ")
    assert first[0] == lease
    assert first[1].endswith("s")
    assert first[2:] == ["1m", "-", "leasehold/sessions/a7a11,", "top/cron/a7a11"]
    assert (second[0], second[2]) == (other, "10m")
    (session,) = rows(said, "SESSION ")
    assert (session[0], session[2:]) == (lease, ["anna@host", "7"])


def test_a_document_has_the_same(leasehold: Command, lease: str) -> None:
    told = leasehold.ok("top", "--once", "--json").json
    assert told["endpoint"] == leasehold.endpoint
    assert told["server"] in ("leasehold", "etcd")
    assert told["leases"]["total"] == told["leases"]["read"] == 2
    assert told["leases"]["next"][0]["id"] == lease
    cron, foreign = told["locks"]["first"]
    assert (cron["name"], cron["holder"], cron["waiting"]) == ("top/cron", "anna@host 7", 1)
    assert (foreign["name"], foreign["holder"]) == ("top/foreign", None)
    assert told["sessions"]["first"][0]["who"] == "anna@host 7"


def test_rates_need_two_looks(leasehold: Command) -> None:
    said = leasehold.ok("top", "--count", "3", "--every", "200ms", "--json")
    before, *after = (json.loads(line)["rates"] for line in said.lines)
    assert set(before.values()) == {None}
    for rates in after:
        assert rates["revisions"] == 0
        assert rates["puts"] == 0
        assert rates["renewals"] == 0
    # Its own requests. The counters are read beside the other requests of a look, so the last
    # look is sure to count those of the one before it, but not its own.
    assert sum(rates["requests"] for rates in after) > 0


def test_a_prefix_says_where_to_look(leasehold: Command, lease: str) -> None:
    told = leasehold.ok("top", "--once", "--json", "--prefix", "top/f").json
    assert [each["name"] for each in told["locks"]["first"]] == ["top/foreign"]
    assert told["keys"] == {"total": 1, "read": 1}
    assert told["sessions"]["total"] == 1, lease


def test_what_is_read_has_a_limit(leasehold: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in range(1, 31):
        leasehold.ok("lease", "grant", f"{2000 + name}", "--id", f"{name:x}")
        leasehold.ok("kv", "put", f"many/{name:02}/{name:x}", "", "--lease", f"{name:x}")
    leasehold.ok("lease", "grant", "1000", "--id", "ff")  # the last one by its id, the next to end
    monkeypatch.setattr(top_reading, "MAX_KEYS", 20)
    monkeypatch.setattr(top_reading, "MAX_LEASES", 35)
    monkeypatch.setattr(top_reading, "MAX_LOOKUPS", 5)
    arguments = ("top", "--prefix", "many/", "--every", "100ms")
    said = [json.loads(line) for line in leasehold.ok(*arguments, "--count", "8", "--json").lines]
    assert said[-1]["keys"] == {"total": 30, "read": 20}
    assert said[-1]["locks"]["total"] == 20
    assert said[-1]["leases"]["total"] == 31
    assert said[-1]["leases"]["next"][0]["id"] == f"{0xFF:016x}"
    if said[-1]["server"] == "etcd":  # which is asked for one after the other
        assert [each["leases"]["read"] for each in said] == [5, 10, 15, 20, 25, 30, 31, 31]
    lines = leasehold.ok(*arguments, "--once").lines
    assert lines[3].startswith("locks were searched in 20 of 30 keys; ")
    assert "and 10 more" in lines
    monkeypatch.setattr(top_reading, "MAX_LEASES", 10)
    told = leasehold.ok("top", "--once", "--json").json["leases"]
    assert told["total"] == 31
    assert told["read"] <= 10
    for name in (*range(1, 31), 0xFF):
        leasehold("lease", "revoke", f"{name:x}")


def test_nobody_there_is_told_before_anything_is_drawn() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    said = Command(endpoint)("top")
    assert said.code == NO_SERVER
    assert "Connection refused" in said.complaint
    with on_terminal(command("top"), environment({VARIABLE: endpoint})) as terminal:
        assert terminal.wait_for_end() == NO_SERVER
    assert "\x1b" not in terminal.drawn


# On a terminal.


def top(endpoint: str, *arguments: str) -> list[str]:
    return command("top", "--endpoint", endpoint, "--every", "100ms", *arguments)


@pytest.mark.parametrize(("typed", "code"), [("\x03", 0), ("q", 0)])
def test_a_terminal_is_given_back_as_it_was(on_ours: Command, typed: str, code: int) -> None:
    with on_terminal(top(on_ours.endpoint), environment()) as terminal:
        terminal.wait_for_line("SESSION")
        assert not terminal.echoes()
        assert terminal.drawn.startswith("\x1b[?1049h\x1b[?25l")
        terminal.type(typed)
        assert terminal.wait_for_end() == code
        assert terminal.echoes()
        assert terminal.drawn.endswith("\x1b[?25h\x1b[?1049l")
        assert "Traceback" not in terminal.drawn


def test_a_terminal_that_changes_its_size_is_filled(on_ours: Command) -> None:
    with on_terminal(top(on_ours.endpoint), environment(), rows=40, columns=120) as terminal:
        terminal.wait_for_line("no sessions")
        terminal.resize(5, 20)
        terminal.wait_for(lambda: len(terminal.screen) == 5)
        assert all(len(line) <= 20 for line in terminal.screen)
        _end(terminal)


def test_a_shell_has_the_terminal_while_it_is_stopped(on_ours: Command) -> None:
    with on_terminal(top(on_ours.endpoint), environment()) as terminal:
        terminal.wait_for_line("SESSION")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.wait_for(lambda: terminal.drawn.endswith("\x1b[?1049l"))
        terminal.wait_for(terminal.echoes)
        terminal.wait_for(terminal.is_stopped)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for(lambda: terminal.drawn.count("\x1b[?1049h") == 2)
        terminal.wait_for_line("SESSION")
        _end(terminal)


def test_a_server_that_is_gone_for_a_while_is_told(tmp_path: Path) -> None:
    with running(leasehold_command, tmp_path) as server:
        Command(server.endpoint).ok("kv", "put", "a", "1")
        with on_terminal(top(server.endpoint), environment()) as terminal:
            assert "revision 2 " in terminal.wait_for_line("revision")
            server.process.send_signal(signal.SIGSTOP)
            terminal.wait_for_line("no answer within 2 s")
            server.process.send_signal(signal.SIGCONT)
            terminal.wait_for(
                lambda: not any(line.startswith("no answer") for line in terminal.screen)
            )
            _end(terminal)


def _end(terminal: Terminal) -> None:
    terminal.type("\x03")
    assert terminal.wait_for_end() == 0


# TLS.


def test_counts_are_had_with_tls_as_well(tmp_path: Path) -> None:
    ca = trustme.CA()
    made = ca.issue_cert("127.0.0.1")
    authority, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    ca.cert_pem.write_to_path(authority)
    made.cert_chain_pems[0].write_to_path(cert)
    made.private_key_pem.write_to_path(key)
    flags = ("--data-dir", "memory:", "--cert", cert, "--key", key, "--client-ca", authority)
    with serving(*flags) as server:
        place = f"127.0.0.1:{server.port}"
        mine = ("--cacert", authority, "--cert", cert, "--key", key)
        done = run("top", "--once", "--json", *mine, "--endpoint", place)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["connections"] >= 1
