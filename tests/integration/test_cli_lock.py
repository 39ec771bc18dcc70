"""`leasehold lock`: a command runs under a lock, and never without it for long."""

import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.client_command import VARIABLE, Command
from tests.support.serve_command import WITHIN_S, command, environment
from tests.support.servers import leasehold_command, running
from tests.support.terminal import on_terminal

FAILURE, USAGE_ERROR, LOST, DENIED = 1, 2, 6, 7
SHORT_TTL = ("--ttl", "4")  # its third is longer than a busy machine keeps a process waiting
TIMES_AS_LONG = 5  # a command may take this much longer the next time
FAULTS = [signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE]
FAULTS += [signal.SIGSEGV, signal.SIGSYS]
STUBBORN = """
import os, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), below.pid, flush=True)
time.sleep(600)
"""
TELLING = """
import os, signal, sys, time
def tell(number, _):
    print("got", number, flush=True)
for number in (2, 15, 1, 3, 10, 12):
    signal.signal(number, tell)
print(os.getpid(), os.getppid(), flush=True)
while True:  # a signal that comes just before a sleep is handled after it
    time.sleep(0.05)
"""
WITH_A_MEMBER_THAT_IGNORES_STOPS = """
import os, signal, subprocess, sys, time
worker = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"],
    preexec_fn=lambda: [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTSTP, signal.SIGTERM)],
)
print(os.getpid(), worker.pid, flush=True)
time.sleep(600)
"""
SLOW_TO_STOP = """
import os, signal, time
# In one call: the second SIGTERM may come in the middle of a print.
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"stopping\\n"))
signal.signal(signal.SIGUSR2, lambda *_: os._exit(5))  # no shutdown: SIGTERM comes twice
print(os.getpid(), os.getppid(), flush=True)
while True:  # a signal that comes just before a sleep is handled after it
    time.sleep(0.05)
"""


def python(script: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", script)


@contextlib.contextmanager
def locked(
    on: Command, *arguments: str, stdin: int = subprocess.DEVNULL
) -> "Iterator[subprocess.Popen[str]]":
    """Start `leasehold lock`, which is killed if it does not end."""
    with subprocess.Popen(  # noqa: S603  our own command
        command("lock", *arguments),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({VARIABLE: on.endpoint}),
        process_group=0,  # as a shell starts a job
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def numbers(process: "subprocess.Popen[str]") -> list[int]:
    return [int(word) for word in said(process).split()]


def end_of(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=WITHIN_S)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def is_alive(pid: int) -> bool:
    """Whether a process is there, and has not ended without anybody to take it away."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < give_up_at, "it does not come"
        time.sleep(0.01)


def gone(*pids: int) -> None:
    wait_until(lambda: not any(map(is_alive, pids)))


def session_of(on: Command, name: str) -> str:
    """Find the lease that a lock is held under."""
    (lock,) = on.ok("top", "--once", "--json", "--prefix", f"{name}/").json["locks"]["first"]
    lease: str = lock["lease"]
    return lease


# To the end.


def test_the_exit_code_is_that_of_the_command_and_nothing_is_left(leasehold: Command) -> None:
    script = "import os, sys; print(os.environ['LEASEHOLD_TOKEN']); sys.exit(5)"
    with locked(leasehold, "ends", *python(script)) as process:
        code, out, err = end_of(process)
    assert (code, err) == (5, "")
    revision, count = out.strip().split("-")
    assert (int(revision) > 1, count) == (True, "1")
    told = leasehold.ok("top", "--once", "--json").json
    assert (told["leases"]["total"], told["locks"]["total"]) == (0, 0)


def test_events_of_the_lock_are_printed_with_their_times(on_ours: Command) -> None:
    with locked(on_ours, "logged", "--log", "--", "echo", "done") as process:
        code, out, err = end_of(process)
    assert (code, out) == (0, "done\n")
    lines = [line.split(" ", 2) for line in err.splitlines()]
    assert all(who == "leasehold:" and at.endswith("+00:00") for who, at, _ in lines)
    said = [text for _, _, text in lines]
    assert said[0] == "application asked 'logged'"
    assert any(text.startswith("application granted 'logged' token") for text in said)


def test_a_token_is_higher_each_time(on_ours: Command) -> None:
    tokens = []
    for _ in range(3):
        script = "import os; print(os.environ['FENCE'])"
        with locked(on_ours, "higher", "--token-env", "FENCE", *python(script)) as process:
            tokens.append(int(end_of(process)[1].split("-")[0]))
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
        ("import os; os.abort()", 128 + 6),
        ("raise SystemExit(255)", 255),
    ],
)
def test_a_command_that_is_killed_ends_as_in_a_shell(
    on_ours: Command, script: str, code: int
) -> None:
    with locked(on_ours, "killed", *python(script)) as process:
        assert end_of(process)[::2] == (code, "")


def test_a_command_that_cannot_be_run_ends_as_in_a_shell(on_ours: Command, tmp_path: Path) -> None:
    for name, code in (("no-such-command", 127), (str(tmp_path), 126)):
        with locked(on_ours, "unrunnable", "--", name) as process:
            ended, _, err = end_of(process)
        assert ended == code
        assert err.startswith(f"leasehold: {name!r} cannot be run: ")


def test_a_command_has_what_a_shell_has_opened_for_it(on_ours: Command) -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    script = f"import os, sys; os.write({theirs}, sys.stdin.buffer.read())"
    line = command("lock", "files", *python(script))
    with os.fdopen(ours) as reading:
        subprocess.run(  # noqa: S603  our own command
            line,
            input=b"through and through",
            check=True,
            close_fds=False,
            env=environment({VARIABLE: on_ours.endpoint}),
            timeout=WITHIN_S,
        )
        os.close(theirs)
        assert reading.read() == "through and through"


# Others.


def test_who_only_asks_is_denied_and_told_by_whom(leasehold: Command) -> None:
    with locked(leasehold, "asked", "--holder", "anna", *python(TELLING)) as process:
        pid, _ = numbers(process)
        denied = leasehold("lock", "asked", "--wait", "0", "--", "true")
        assert denied.code == DENIED
        assert denied.complaint == "leasehold: 'asked' is held by anna"
        began_at = time.monotonic()
        quiet = leasehold("lock", "asked", "--wait", "0", "-q", "--denied-code", "0", "--", "true")
        # Connecting is included in a wait, and may take longer the next time.
        wait_s = math.ceil(TIMES_AS_LONG * (time.monotonic() - began_at))
        assert (quiet.code, quiet.err) == (0, "")
        late = leasehold("lock", "asked", "--wait", f"{wait_s}s", "--", "true")
        *_, complaint = late.err.splitlines()  # after 1 s, the holder was printed before
        assert complaint == f"leasehold: 'asked' is still held by anna after {wait_s} s"
        assert late.code == DENIED
        os.kill(pid, signal.SIGKILL)
        assert end_of(process)[0] == 128 + 9
    leasehold.ok("lock", "asked", "--wait", "0", "--", "true")


def test_who_waits_is_next_and_told_for_whom(on_ours: Command) -> None:
    with locked(on_ours, "next", "--holder", "anna", *python(TELLING)) as first:
        pid, _ = numbers(first)
        with locked(on_ours, "next", "--", "echo", "mine") as second:
            assert second.stderr is not None
            assert second.stderr.readline() == (
                "waiting for 'next', held by anna; 0 other clients waiting\n"
            )
            os.kill(pid, signal.SIGKILL)
            assert end_of(second)[:2] == (0, "mine\n")


def test_who_waits_and_is_interrupted_leaves_the_line(on_ours: Command) -> None:
    with locked(on_ours, "line", *python(TELLING)) as first:
        numbers(first)
        with locked(on_ours, "line", "--", "echo", "mine") as second:
            assert second.stderr is not None
            second.stderr.readline()
            second.send_signal(signal.SIGINT)
            assert end_of(second) == (130, "", "")
        told = on_ours.ok("top", "--once", "--json", "--prefix", "line/").json
        assert (told["locks"]["total"], told["locks"]["waiting"]) == (1, 0)


# Signals.


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ],
)
def test_a_signal_is_passed_on_however_often_it_comes(
    on_ours: Command, number: signal.Signals
) -> None:
    with locked(on_ours, f"signal {number.value}", *python(TELLING)) as process:
        pid, _ = numbers(process)
        for _ in range(3):
            process.send_signal(number)
            assert said(process) == f"got {number.value}"
        os.kill(pid, signal.SIGKILL)
        assert end_of(process)[::2] == (128 + 9, "")


def test_a_command_that_a_signal_ends_takes_the_rest_of_its_group_along(on_ours: Command) -> None:
    shell = "sleep 600 & echo $$ $!; wait; sleep 600"
    with locked(on_ours, "group", "--", "sh", "-c", shell) as process:
        pids = numbers(process)
        process.send_signal(signal.SIGTERM)
        assert end_of(process)[0] == 128 + 15
        gone(*pids)


def test_a_command_is_stopped_and_goes_on_with_leasehold(on_ours: Command) -> None:
    with locked(on_ours, "stopped", *python(TELLING)) as process:
        pid, _ = numbers(process)
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: _state(pid) == _state(process.pid) == "T")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: _state(pid) == "S")
        process.send_signal(signal.SIGUSR1)
        assert said(process) == f"got {signal.SIGUSR1.value}"


def test_a_signal_to_every_process_of_a_control_group_ends_only_the_command(
    on_ours: Command,
) -> None:
    """As systemd stops a unit: the command shuts down in its own time, with its own exit code."""
    with locked(on_ours, "unit", *python(SLOW_TO_STOP)) as process:
        pid, supervisor = numbers(process)
        for each in (supervisor, process.pid, pid):
            os.kill(each, signal.SIGTERM)
        assert said(process) == "stopping"
        os.kill(pid, signal.SIGUSR2)
        code, _, err = end_of(process)
    assert (code, err) == (5, "")


def test_signals_to_the_supervisor_alone_change_nothing(on_ours: Command) -> None:
    """`systemctl kill --signal=USR1` sends a signal to every process of a unit, too."""
    fatal = {signal.SIGKILL, signal.SIGSTOP, *FAULTS}
    with locked(on_ours, "deaf", *python(SLOW_TO_STOP)) as process:
        pid, supervisor = numbers(process)
        for number in signal.valid_signals() - fatal:
            os.kill(supervisor, number)
        os.kill(pid, signal.SIGUSR2)
        code, _, err = end_of(process)
    assert (code, err) == (5, "")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# Loss.


def test_a_lock_that_is_lost_ends_the_command(leasehold: Command) -> None:
    with locked(leasehold, "lost", "--", "sh", "-c", "sleep 600 & echo $$ $!; wait") as process:
        pids = numbers(process)
        leasehold.ok("lease", "revoke", session_of(leasehold, "lost"))
        code, _, err = end_of(process)
        gone(*pids)
    assert code == LOST
    (line,) = err.splitlines()
    assert line.startswith("leasehold: 'lost' is lost: ")
    assert line.endswith("; the command was ended")


def test_what_does_not_end_by_itself_is_killed_after_the_grace(on_ours: Command) -> None:
    with locked(on_ours, "grace", "--grace", "500ms", *python(STUBBORN)) as process:
        pids = numbers(process)
        session = session_of(on_ours, "grace")
        began_s = time.monotonic()  # the grace begins while the revocation is answered
        on_ours.ok("lease", "revoke", session)
        assert end_of(process)[0] == LOST
        assert time.monotonic() - began_s >= 0.4
        gone(*pids)


def test_a_command_does_not_outlive_leasehold_that_was_killed(on_ours: Command) -> None:
    with locked(on_ours, "orphan", "--grace", "500ms", *python(STUBBORN)) as process:
        pids = numbers(process)
        process.kill()
        process.wait(WITHIN_S)
        gone(*pids)


def test_a_command_does_not_outlive_a_job_that_was_killed(on_ours: Command) -> None:
    with locked(on_ours, "job", "--grace", "500ms", *python(STUBBORN)) as process:
        pids = numbers(process)
        os.killpg(process.pid, signal.SIGKILL)  # as `kill -9 %1` does
        process.wait(WITHIN_S)
        gone(*pids)


@pytest.mark.parametrize("grace", [(), ("--grace", "300ms")], ids=["default", "explicit"])
def test_a_command_ends_in_time_while_leasehold_is_stopped(
    on_ours: Command, grace: tuple[str, ...]
) -> None:
    """Another client acquires the lock only after the command has ended."""
    with locked(on_ours, "halted", *SHORT_TTL, *grace, *python(STUBBORN)) as process:
        pids = numbers(process)
        process.send_signal(signal.SIGSTOP)
        on_ours.ok("lock", "halted", "--", "true")
        assert not any(map(is_alive, pids))
        assert _state(process.pid) == "T"
        process.send_signal(signal.SIGCONT)
        code, _, err = end_of(process)
    assert code == LOST
    assert "'halted' is " in err


def test_a_stopped_command_is_ended_if_it_goes_on_too_late(on_ours: Command) -> None:
    with locked(on_ours, "late", *SHORT_TTL, "--grace", "300ms", *python(TELLING)) as process:
        pid, _ = numbers(process)
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: _state(pid) == _state(process.pid) == "T")
        on_ours.ok("lock", "late", "--", "true")  # so it is lost
        assert _state(pid) == "T"  # which does no harm
        process.send_signal(signal.SIGCONT)
        code, _, err = end_of(process)
        gone(pid)
    assert code == LOST
    assert "'late' is lost" in err


def test_a_stopped_command_never_runs_after_its_lock_has_ended(on_ours: Command) -> None:
    """A command that is continued too late gets no grace period: it prints nothing on SIGTERM."""
    with locked(on_ours, "frozen", *SHORT_TTL, *python(TELLING)) as process:
        pid, _ = numbers(process)
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: _state(pid) == _state(process.pid) == "T")
        on_ours.ok("lock", "frozen", "--", "true")
        process.send_signal(signal.SIGCONT)
        code, out, _ = end_of(process)
        gone(pid)
    assert (code, out) == (LOST, "")


def test_a_stopped_command_is_killed_if_leasehold_is_killed_too_late(on_ours: Command) -> None:
    with locked(on_ours, "jobs", *SHORT_TTL, *python(TELLING)) as process:
        pid, _ = numbers(process)
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: _state(pid) == _state(process.pid) == "T")
        on_ours.ok("lock", "jobs", "--", "true")
        process.kill()
        gone(pid)
        assert end_of(process)[1] == ""


def test_a_command_ends_before_the_term_if_no_server_answers(tmp_path: Path) -> None:
    with running(leasehold_command, tmp_path) as server:
        on = Command(server.endpoint)
        with locked(on, "away", "--ttl", "10", "--grace", "500ms", *python(STUBBORN)) as process:
            pids = numbers(process)
            server.process.send_signal(signal.SIGSTOP)
            stopped_s = time.monotonic()
            try:
                gone(*pids)
                assert time.monotonic() - stopped_s < 10
            finally:
                server.process.send_signal(signal.SIGCONT)
            code, _, err = end_of(process)
    assert code == LOST
    assert "; the command was ended" in err


def test_a_command_does_not_outlive_its_supervisor(on_ours: Command) -> None:
    with locked(on_ours, "supervisor", "--grace", "500ms", *python(TELLING)) as process:
        pid, supervisor = numbers(process)
        os.kill(supervisor, signal.SIGKILL)
        code, _, err = end_of(process)
        gone(pid)
    assert code == FAILURE
    assert err == (
        "leasehold: the supervisor of the command was killed, so the command was ended\n"
    )


# Without a command.


def test_a_lock_is_held_until_standard_input_ends(leasehold: Command) -> None:
    with locked(leasehold, "input", stdin=subprocess.PIPE) as process:
        key, token = said(process), said(process)
        (pair,) = leasehold.ok("kv", "get", key, "--json").json["pairs"]
        assert f"input/{int(pair['lease'], 16):x}" == key
        assert token == f"{pair['create_revision']}-1"
        assert end_of(process) == (0, "", "")  # which closes it
    assert leasehold("kv", "get", key).code != 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_lock_is_held_until_a_signal_comes(leasehold: Command, number: signal.Signals) -> None:
    with locked(leasehold, "until", "--json") as process:  # whose input has its end already
        told = json.loads(said(process))
        assert told["event"] == "held"
        leasehold.ok("kv", "get", told["key"])
        process.send_signal(number)
        assert end_of(process) == (0, "", "")
    assert leasehold("kv", "get", told["key"]).code != 0


def test_a_lock_that_is_held_and_lost_has_an_exit_code(leasehold: Command) -> None:
    with locked(leasehold, "dropped") as process:
        key = said(process)
        leasehold.ok("kv", "del", key)
        code, _, err = end_of(process)
    assert code == LOST
    assert err.startswith("leasehold: 'dropped' is lost: ")


# On a terminal.


def test_keys_of_a_terminal_are_those_of_the_command(on_ours: Command) -> None:
    line = command("lock", "keys", *python(TELLING))
    with on_terminal(line, environment({VARIABLE: on_ours.endpoint})) as terminal:
        terminal.wait_for(lambda: "\n" in terminal.drawn)
        pid, _ = map(int, terminal.drawn.split())
        terminal.type("\x03")
        terminal.wait_for(lambda: "got 2" in terminal.drawn)
        terminal.type("\x1a")  # Ctrl-Z: both stop, and a shell would have the terminal
        wait_until(lambda: _state(pid) == _state(terminal.process.pid) == "T")
        wait_until(lambda: terminal.foreground == terminal.process.pid)
        terminal.process.send_signal(signal.SIGCONT)
        wait_until(lambda: terminal.foreground == pid)
        terminal.type("\x1c")
        terminal.wait_for(lambda: "got 3" in terminal.drawn)
        os.kill(pid, signal.SIGKILL)
        assert terminal.wait_for_end() == 128 + 9


def test_a_member_that_ignores_ctrl_z_is_stopped_before_the_lock_ends(on_ours: Command) -> None:
    line = command("lock", "member", *SHORT_TTL, "--grace", "300ms")
    line = [*line, *python(WITH_A_MEMBER_THAT_IGNORES_STOPS)]
    with on_terminal(line, environment({VARIABLE: on_ours.endpoint})) as terminal:
        terminal.wait_for(lambda: "\n" in terminal.drawn)
        pid, worker = map(int, terminal.drawn.split())
        terminal.type("\x1a")
        wait_until(lambda: _state(pid) == _state(terminal.process.pid) == "T")
        on_ours.ok("lock", "member", "--", "true")  # so it is lost
        assert _state(worker) == "T"
        terminal.process.send_signal(signal.SIGCONT)
        assert terminal.wait_for_end() == LOST
        gone(pid, worker)


def test_a_member_that_ignores_ctrl_z_goes_on_with_the_command(on_ours: Command) -> None:
    line = [*command("lock", "member"), *python(WITH_A_MEMBER_THAT_IGNORES_STOPS)]
    with on_terminal(line, environment({VARIABLE: on_ours.endpoint})) as terminal:
        terminal.wait_for(lambda: "\n" in terminal.drawn)
        pid, worker = map(int, terminal.drawn.split())
        terminal.type("\x1a")
        wait_until(lambda: _state(pid) == _state(terminal.process.pid) == "T")
        os.kill(worker, signal.SIGSTOP)  # as the supervisor does when the time is up
        terminal.process.send_signal(signal.SIGCONT)
        wait_until(lambda: _state(pid) == _state(worker) == "S")
        os.killpg(pid, signal.SIGKILL)
        assert terminal.wait_for_end() == 128 + 9


def test_a_command_reads_what_is_typed(on_ours: Command) -> None:
    line = command("lock", "typed", *python("print('read', input(), flush=True)"))
    with on_terminal(line, environment({VARIABLE: on_ours.endpoint})) as terminal:
        terminal.type("hello\n")
        terminal.wait_for(lambda: "read hello" in terminal.drawn)
        assert terminal.wait_for_end() == 0


def test_a_job_of_the_background_is_stopped_until_it_has_the_terminal(on_ours: Command) -> None:
    """As with any job of a shell: it stops when it wants to read, and `fg` has it go on."""
    line = command("lock", "background", *python("print('read', input(), flush=True)"))
    shell = f"set -m; {shlex.join(line)} & wait %1; fg %1; echo code $?"
    with on_terminal(["/bin/bash", "-c", shell], environment({VARIABLE: on_ours.endpoint})) as it:
        it.type("hello\n")
        it.wait_for(lambda: "read hello" in it.drawn)
        assert it.wait_for_end() == 0
        assert "code 0" in it.drawn


# The command line.


@pytest.mark.parametrize(
    ("line", "said_then"),
    [
        (["lock"], "the following arguments are required: NAME "),
        (["lock", ""], "argument NAME: name must not be empty: write one, such as cron/backup "),
        (["lock", "a", "ls"], "unexpected argument 'ls': write -- before a command "),
        (["lock", "a", "--"], "COMMAND after -- is missing: write one, or omit -- "),
        (["lock", "--", "ls", "-l"], "the following arguments are required: NAME "),
        (["lock", "a", "-l"], "unknown option -l"),
        (["lock", "a", "--wait", "-1", "--", "ls"], "--wait: '-1' is not a duration: "),
        (
            ["lock", "a", "--ttl", "0", "--", "ls"],
            "argument --ttl: duration must be more than 0 ",
        ),
        (
            ["lock", "a", "--ttl", "3", "--grace", "3", "--", "ls"],
            "--grace 3s is more than a third of --ttl 3s: use --ttl 9s or --grace 1s",
        ),
        (["lock", "a", "--token-env", "a=b"], "'a=b' is not a variable name: write one, such "),
        (
            ["lock", "a", "--denied-code", "256"],
            "'256' is not an exit code: write a number from 0 ",
        ),
        (
            ["lock", "a", "--holder", "\n"],
            "is not a holder name: write 1 to 200 printable characters, ",
        ),
    ],
)
def test_what_is_wrong_is_one_line(on_ours: Command, line: list[str], said_then: str) -> None:
    assert said_then in on_ours.fails(USAGE_ERROR, *line)
