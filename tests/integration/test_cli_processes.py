"""The commands for clients as processes: signals, closed streams, servers that are gone."""

import asyncio
import contextlib
import json
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasehold
from tests.support.client_command import VARIABLE, Command
from tests.support.serve_command import WITHIN_S, command, environment
from tests.support.servers import free_port, leasehold_command, running

FAILURE, USAGE_ERROR, NOT_THERE, NO_SERVER, LOST = 1, 2, 3, 4, 6


@contextlib.contextmanager
def started(on: Command, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Start a command, which is killed if it does not end."""
    with subprocess.Popen(  # noqa: S603  our own command
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({VARIABLE: on.endpoint}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def writes_within(process: "subprocess.Popen[str]", timeout_s: float) -> bool:
    """Wait for the first output of a process; also True if it has ended."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], timeout_s)
    return bool(ready)


def ended(process: "subprocess.Popen[str]", number: int) -> tuple[int, str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=WITHIN_S)
    assert "Traceback" not in err, err
    return process.returncode, out, err


# Keeping.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_lease_that_is_kept_is_ended_with_the_command(
    leasehold: Command, number: signal.Signals
) -> None:
    with started(leasehold, "lease", "grant", "30", "--keep", "--json") as process:
        granted, kept = (json.loads(line_of(process)) for _ in range(2))
        assert granted == {"event": "granted", "id": granted["id"], "ttl": 30}
        assert kept == {"event": "kept", "id": granted["id"], "ttl": 30}
        code, out, _ = ended(process, number)
    assert code == 0
    assert json.loads(out) == {"event": "ended", "id": granted["id"]}
    leasehold.fails(NOT_THERE, "lease", "show", granted["id"])


def test_a_lease_is_left_to_its_term_if_that_is_asked_for(leasehold: Command) -> None:
    lease = leasehold.ok("lease", "grant", "60", "--print-id-only").text.strip()
    with started(leasehold, "lease", "keep", lease, "--no-revoke") as process:
        assert line_of(process) == f"lease {lease} is kept alive with a TTL of 1m\n"
        code, out, _ = ended(process, signal.SIGINT)
    assert (code, out) == (0, f"lease {lease} is no longer renewed and will expire\n")
    leasehold.ok("lease", "show", lease)


def test_a_lease_is_kept_beyond_its_term_and_its_loss_is_told(leasehold: Command) -> None:
    leases = [leasehold.ok("lease", "grant", "2", "--print-id-only").text.strip() for _ in "ab"]
    with started(leasehold, "lease", "keep", *leases) as process:
        while not writes_within(process, 0.2):  # its start may take longer than the term
            leasehold.ok("lease", "renew", *leases)
        for each in leases:
            assert line_of(process) == f"lease {each} is kept alive with a TTL of 2s\n"
        began = time.monotonic()
        while time.monotonic() < began + 3:  # longer than a term
            leasehold.ok("lease", "show", leases[0])
        leasehold.ok("lease", "revoke", leases[0])
        assert line_of(process).startswith(f"lease {leases[0]} is lost: the server ")
        leasehold.ok("lease", "show", leases[1])
        code, out, _ = ended(process, signal.SIGINT)
    assert (code, out) == (LOST, f"lease {leases[1]} revoked\n")


def test_keeping_ends_by_itself_when_nothing_is_left_to_keep(leasehold: Command) -> None:
    with started(leasehold, "lease", "grant", "2", "--keep") as process:
        lease = line_of(process).split()[1]
        leasehold.ok("lease", "revoke", lease)
        out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == LOST
    assert f"lease {lease} is lost: " in out


def test_a_server_that_is_gone_costs_the_lease(tmp_path: Path) -> None:
    with running(leasehold_command, tmp_path) as server:
        on = Command(server.endpoint)
        with started(on, "lease", "grant", "2", "--keep", "--json") as process:
            line_of(process), line_of(process)
            server.process.send_signal(signal.SIGSTOP)
            try:
                events = [json.loads(line_of(process))["event"] for _ in range(2)]
                out, err = process.communicate(timeout=WITHIN_S)
            finally:
                server.process.send_signal(signal.SIGCONT)
    assert events == ["jeopardy", "lost"]
    assert (process.returncode, out) == (LOST, "")
    assert "Traceback" not in err


# Watching.


def test_a_watch_ends_well_when_it_is_told_to(leasehold: Command) -> None:
    with started(leasehold, "kv", "watch", "w-", "--prefix") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "watching w-...\n"
        revision = leasehold.ok("kv", "put", "w-1", "x", "--json").json["revision"]
        assert line_of(process) == f"{revision}  put  w-1  x\n"
        code, out, err = ended(process, signal.SIGINT)
    assert (code, out, err) == (0, "", "")


def test_what_happens_to_leases_is_told(on_ours: Command) -> None:
    with started(on_ours, "lease", "watch", "--holder", "anna", "--json") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("watching leases, from revision ")
        on_ours.ok("lease", "grant", "60", "--holder", "bert")
        on_ours.ok("lease", "grant", "60", "--id", "7c01", "--holder", "anna")
        on_ours.ok("kv", "put", "of-anna", "x", "--lease", "7c01")
        on_ours.ok("lease", "revoke", "7c01")
        granted, revoked = (json.loads(line_of(process)) for _ in range(2))
        assert ended(process, signal.SIGTERM) == (0, "", "")
    named = {"id": "0000000000007c01", "holder": "anna", "ttl": 60}
    assert granted == {
        **named,
        "event": "granted",
        "keys": [],
        "key_count": 0,
        "revision": granted["revision"],
    }
    assert revoked == {
        **named,
        "event": "revoked",
        "keys": [{"key": "of-anna"}],
        "key_count": 1,
        "revision": granted["revision"] + 2,
    }


def test_a_watch_of_leases_is_for_people_too_and_ends_after_a_count(on_ours: Command) -> None:
    with started(on_ours, "lease", "watch", "7c02", "--count", "2") as process:
        assert process.stderr is not None
        process.stderr.readline()
        on_ours.ok("lease", "grant", "60", "--id", "7c02")
        on_ours.ok("kv", "put", "of-7c02", "x", "--lease", "7c02")
        on_ours.ok("lease", "revoke", "7c02")
        out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert out.splitlines() == [
        "granted  0000000000007c02  1m",
        "revoked  0000000000007c02  1m  with 1 key: of-7c02",
    ]


def test_a_watch_ends_when_nobody_reads_it_any_more(on_ours: Command) -> None:
    with started(on_ours, "kv", "watch", "unread") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "watching unread\n"
        process.stdout.close()
        on_ours.ok("kv", "put", "unread", "x")
        assert process.wait(WITHIN_S) == FAILURE
        assert process.stderr.read() == ""


def test_a_watch_of_what_was_compacted_is_refused(on_ours: Command) -> None:
    revision = on_ours.ok("kv", "put", "old", "1", "--json").json["revision"]
    on_ours.ok("kv", "put", "old", "2")

    async def compact() -> None:
        async with leasehold.connect(on_ours.endpoint) as client:
            await client.kv.compact(revision + 1)

    asyncio.run(compact())
    said = on_ours("kv", "watch", "old", "--start", str(revision), "--count", "1")
    assert said.code == FAILURE
    assert f"revision {revision} was compacted" in said.err.splitlines()[-1]
    said = on_ours("kv", "get", "old", "--rev", str(revision))
    assert said.code == FAILURE
    assert said.complaint.startswith(f"leasehold: revision {revision} was compacted")


# Streams.


def run(
    on: Command, *arguments: str, streams: str = "", stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command, with streams as a shell has them."""
    return subprocess.run(  # noqa: S603  our own command
        ["bash", "-c", f'"$@" {streams}', "bash", *command(*arguments)],  # noqa: S607
        input=stdin,
        capture_output=True,
        timeout=WITHIN_S,
        check=False,
        env=environment({VARIABLE: on.endpoint}),
    )


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">/dev/full", FAILURE, "cannot write to standard output: No space left on device"),
        (">&-", FAILURE, "cannot print: standard output is closed"),
        ("| true; exit ${PIPESTATUS[0]}", FAILURE, ""),
        ("2>&-", 0, ""),
    ],
)
def test_what_cannot_be_printed_is_a_line_at_most(
    on_ours: Command, streams: str, code: int, said: str
) -> None:
    on_ours.ok("kv", "put", "long", "x" * 100_000)
    done = run(on_ours, "kv", "get", "long", "--json", streams=streams)
    assert done.returncode == code
    assert done.stderr.decode() == (f"leasehold: {said}\n" if said else "")


@pytest.mark.parametrize("arguments", [("--version",), ("kv", "put", "--help"), ("serve", "-h")])
@pytest.mark.parametrize(
    ("streams", "said"),
    [
        (">/dev/full", "cannot write to standard output: No space left on device"),
        (">&-", "cannot print: standard output is closed"),
    ],
)
def test_help_that_cannot_be_printed_is_an_error(
    on_ours: Command, arguments: tuple[str, ...], streams: str, said: str
) -> None:
    done = run(on_ours, *arguments, streams=streams)
    assert done.returncode == FAILURE
    assert done.stderr.decode() == f"leasehold: {said}\n"


def test_standard_input_that_is_closed_is_told(on_ours: Command) -> None:
    done = run(on_ours, "kv", "put", "a", "-", streams="<&-")
    assert done.returncode == USAGE_ERROR
    assert done.stderr == (b"leasehold: cannot read the value from standard input: it is closed\n")


def test_names_are_printed_whatever_the_terminal_can_show(on_ours: Command) -> None:
    on_ours.ok("kv", "put", "grüße", "ö")
    variables = {VARIABLE: on_ours.endpoint, "PYTHONIOENCODING": "ascii"}

    def printed(*more: str) -> bytes:
        return subprocess.run(  # noqa: S603  our own command
            command("kv", "get", "gr", "--prefix", *more),
            capture_output=True,
            timeout=WITHIN_S,
            check=True,
            env=environment(variables),
        ).stdout

    assert rb"gr\xfc\xdfe" in printed()
    assert "grüße".encode() in printed("--json")


# Servers.


@pytest.mark.parametrize("arguments", [("kv", "get", "a"), ("lease", "list"), ("status",)])
def test_a_server_that_is_not_there_has_an_exit_code_of_its_own(arguments: tuple[str, ...]) -> None:
    said = Command(f"127.0.0.1:{free_port()}")(*arguments)
    assert said.code == NO_SERVER
    assert "Connection refused" in said.complaint


def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with running(leasehold_command, tmp_path) as server:
        server.process.send_signal(signal.SIGSTOP)
        try:
            said = Command(server.endpoint)("kv", "get", "a", "--timeout", "300ms")
        finally:
            server.process.send_signal(signal.SIGCONT)
    assert (said.code, said.out) == (NO_SERVER, b"")
    assert said.complaint.startswith("leasehold: no answer within 0.3 s")


def test_the_next_of_several_servers_is_taken(on_ours: Command) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for endpoints in (f"{nobody},{on_ours.endpoint}", f"{nobody}, {on_ours.endpoint}"):
        on_ours.ok("kv", "put", "a", "1", "--endpoint", endpoints)
    on_ours.ok("kv", "put", "a", "1", "--endpoint", nobody, "--endpoint", on_ours.endpoint)
    elsewhere = Command(endpoints)
    elsewhere.ok("kv", "get", "a")


def test_the_flag_counts_before_the_variable(on_ours: Command) -> None:
    wrong = Command("no address")
    wrong.ok("kv", "put", "a", "1", "--endpoint", on_ours.endpoint)
    said = wrong.fails(USAGE_ERROR, "kv", "get", "a")
    assert said.startswith(f"leasehold: {VARIABLE}: 'no address' ")


def test_an_interrupted_command_ends_as_a_shell_expects(tmp_path: Path) -> None:
    with running(leasehold_command, tmp_path) as server:
        server.process.send_signal(signal.SIGSTOP)
        try:
            with started(Command(server.endpoint), "kv", "get", "a") as process:
                _connects_to(process, server.port)
                assert ended(process, signal.SIGINT) == (130, "", "")
        finally:
            server.process.send_signal(signal.SIGCONT)


def _connects_to(process: "subprocess.Popen[str]", port: int) -> None:
    """Wait until the process has a connection, so that it does not end while it starts."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ours = {f"socket:[{line[9]}]" for line in lines if line[2] == f"0100007F:{port:04X}"}
        with contextlib.suppress(OSError):
            files = Path(f"/proc/{process.pid}/fd")
            if any(str(each.readlink()) in ours for each in files.iterdir()):
                return
        time.sleep(0.01)
    raise AssertionError("no connection")
