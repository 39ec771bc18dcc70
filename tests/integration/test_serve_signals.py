"""Signals at any moment of a command's life: one clean end, and never a traceback."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leasehold.cli import COMMANDS
from leasehold.journal.data_dir import LOCK_NAME
from tests.support.serve_command import WITHIN_S, command, environment, run, serving
from tests.support.servers import free_port

SIGNALS = [signal.SIGINT, signal.SIGTERM]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
MEMORY = ("--data-dir", "memory:", "--listen", "127.0.0.1:0")

AT = """\
import importlib, os, signal, sys
from leasehold.cli import main

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), int(sys.argv[2]))

sys.meta_path.insert(0, AtImport())
sys.exit(main(sys.argv[3:]))
"""
"""A signal that comes when a module is imported, which is a moment that can be named."""

IN = """\
import importlib, os, signal, sys
from leasehold.cli import main

module, name = sys.argv[1].split(":")
owner = importlib.import_module(module)
*path, last = name.split(".")
for each in path:
    owner = getattr(owner, each)
before = getattr(owner, last)

def struck(*args, **kwargs):
    os.kill(os.getpid(), int(sys.argv[2]))
    return before(*args, **kwargs)

setattr(owner, last, struck)
sys.exit(main(sys.argv[3:]))
"""
"""A signal that comes when a function is called."""


def struck(
    script: str, moment: str, number: int, *arguments: str | Path
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603
        [*command()[:-2], "-c", script, moment, str(int(number)), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env=environment(),
    )


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "moment", ["leasehold.cli.serve", "leasehold.store.store", "leasehold.server.app", "uvloop"]
)
def test_a_signal_while_modules_are_imported_ends_it_without_a_word(
    moment: str, number: signal.Signals
) -> None:
    ended = struck(AT, moment, number, "serve", *MEMORY)
    assert (ended.returncode, ended.stdout, ended.stderr) == (CODES[number], "", "")


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "serve"])
def test_a_signal_ends_each_command_without_a_word(name: str, number: signal.Signals) -> None:
    ended = struck(AT, f"leasehold.cli.{COMMANDS[name].partition(':')[0]}", number, name)
    assert (ended.returncode, ended.stdout, ended.stderr) == (CODES[number], "", "")


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "moment",
    [
        "leasehold.journal.journal_files:make_file",  # nothing is there yet
        "leasehold.journal.journal:replay_journal",  # the journal is being read
        "leasehold.store.runtime:Control.__init__",  # it was read
        "leasehold.server.app:LeaseholdServer.start_on",  # nobody is served
        "leasehold.server.app:tune_interpreter",  # all would be served, and nobody knows
    ],
)
def test_a_signal_while_a_server_starts_ends_it_before_it_says_that_it_serves(
    moment: str, number: signal.Signals, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    arguments = ("serve", "--data-dir", data, "--listen", "127.0.0.1:0")
    ended = struck(IN, moment, number, *arguments)
    assert (ended.returncode, ended.stdout, ended.stderr) == (CODES[number], "", "")
    with serving("--data-dir", data) as server:  # and the next one has what there is
        assert "serves" in server.greeting
        server.end(signal.SIGTERM)
    assert {file.name for file in data.iterdir()} == {LOCK_NAME, "leasehold.db"}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_server_binds_leaves_a_clean_journal(
    number: signal.Signals, tmp_path: Path
) -> None:
    moment = "leasehold.server.app:LeaseholdServer.start_on"
    arguments = ("serve", "--data-dir", tmp_path, "--listen", "127.0.0.1:0")
    assert struck(IN, moment, number, *arguments).returncode == CODES[number]
    assert {file.name for file in tmp_path.iterdir()} == {LOCK_NAME, "leasehold.db"}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_server_looks_for_its_cluster_ends_it_without_a_word(
    number: signal.Signals,
) -> None:
    moment = "leasehold.server.cluster_server:ClusterServer._connect"
    arguments = ("serve", "--engine", f"etcd://127.0.0.1:{free_port()}", "--listen", "127.0.0.1:0")
    ended = struck(IN, moment, number, *arguments)
    assert (ended.returncode, ended.stdout, ended.stderr) == (CODES[number], "", "")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_backup_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path / "data") as server:
        server.end(signal.SIGTERM)
    moment = "leasehold.store.backup:Copy.go_on"
    ended = struck(IN, moment, number, "backup", "--data-dir", tmp_path / "data", tmp_path / "b")
    assert (ended.returncode, ended.stdout, ended.stderr) == (CODES[number], "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_restore_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path / "data") as server:
        server.end(signal.SIGTERM)
    assert run("backup", "--data-dir", tmp_path / "data", tmp_path / "b").returncode == 0
    moment, target = "leasehold.store.restoring:_move_ahead", tmp_path / "new"
    ended = struck(IN, moment, number, "restore", tmp_path / "b", "--data-dir", target)
    assert (ended.returncode, ended.stdout, ended.stderr) == (CODES[number], "", "")
    assert {file.name for file in target.iterdir()} <= {LOCK_NAME}
    assert run("restore", tmp_path / "b", "--data-dir", target).returncode == 0


def test_a_signal_that_is_ignored_stays_so() -> None:
    shell = "trap '' INT; exec \"$@\""
    ended = subprocess.run(  # noqa: S603
        ["sh", "-c", shell, "sh", sys.executable, "-c", AT, "leasehold.cli.serve", "2", "config"],  # noqa: S607
        capture_output=True,
        timeout=WITHIN_S,
        check=False,
        env=environment(),
    )
    assert ended.returncode == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    script = IN.replace("before(*args, **kwargs)", "__import__('time').sleep(600)")
    moment = "leasehold.cli.serve:ServerOutput.stopped"  # it stops, and that takes long
    process = subprocess.Popen(  # noqa: S603
        [*command()[:-2], "-c", script, moment, str(int(number)), "serve", *MEMORY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        try:
            assert process.stdout is not None
            assert "serves" in process.stdout.readline()
            process.send_signal(number)  # the second one comes from within
            _, errors = process.communicate(timeout=WITHIN_S)
        finally:
            process.kill()
    assert (process.returncode, errors) == (CODES[number], "")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_any_moment_leaves_no_traceback(number: signal.Signals, tmp_path: Path) -> None:
    """Moments that nobody has thought of: after the interpreter itself has come up."""
    for step in range(6):
        data = tmp_path / str(step)
        process = subprocess.Popen(  # noqa: S603
            [*command()[:-2], "-c", STEPPING, "serve", "--data-dir", str(data), *MEMORY[2:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        with process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "here\n"
                time.sleep(step * 0.08)  # not for a condition: the moment is what is tried
                process.send_signal(number)
                said, errors = process.communicate(timeout=WITHIN_S)
            finally:
                process.kill()
        assert errors == ""
        assert (process.returncode == 0) == ("serves" in said) == ("has stopped" in said)
        assert process.returncode in (0, CODES[number])


STEPPING = """\
import sys
from leasehold.cli import main
from leasehold.cli.signals import SIGNALS
SIGNALS.install()
print("here", flush=True)
sys.exit(main())
"""
