"""A fenced file that several processes write: stopped, killed, and in a race."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.fencing.token import Token
from tests.support.stopping import go_on, stop, wait_until_stopped

DEADLINE_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "inventory.json"


WRITER = """
import json, sys
from leasehold.errors import StaleToken
from leasehold.fencing import FencedFile
from leasehold.fencing.token import Token
file = FencedFile(sys.argv[1], timeout=float(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("stop within"):
        # Stop where it hurts: the token is good, the content is not in place.
        import os, pathlib, signal
        def replace(self, target, replace=pathlib.Path.replace):
            if not str(target).endswith(".fence"):
                print("within", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)
            return replace(self, target)
        pathlib.Path.replace = replace
        continue
    token = Token.parse(line.strip())
    try:
        file.write(f"{token} of {sys.argv[3]}", token)
        print("taken", flush=True)
    except StaleToken as error:
        print("refused", error.seen, flush=True)
    except TimeoutError as error:
        print("timeout", error.strerror, flush=True)
"""


class Writer:
    """Another process that writes when it is told to."""

    def __init__(self, path: Path, name: str, timeout_s: float = DEADLINE_S) -> None:
        self.process = subprocess.Popen(  # noqa: S603  our own script
            [sys.executable, "-c", WRITER, path, str(timeout_s), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == "ready"

    def say(self, line: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write(self, token: Token) -> str:
        self.say(token)
        return self.hear()


@contextlib.contextmanager
def _writers(path: Path, *names: str, timeout_s: float = DEADLINE_S) -> Iterator[list[Writer]]:
    with contextlib.ExitStack() as stack:
        writers = []
        for name in names:
            writer = Writer(path, name, timeout_s)
            stack.enter_context(writer.process)
            stack.callback(writer.process.kill)
            writers.append(writer)
        yield writers


def test_a_process_that_was_stopped_over_its_lease_is_refused(path: Path) -> None:
    with _writers(path, "anna", "bert") as (anna, bert):
        assert anna.write(Token(41, 1)) == "taken"
        stop(anna.process.pid)
        anna.say(Token(41, 1))  # it has decided to write, and does not get to it
        assert bert.write(Token(58, 1)) == "taken"
        go_on(anna.process.pid)
        assert anna.hear() == "refused 58-1"
        assert path.read_text() == "58-1 of bert"


def test_a_process_that_is_stopped_within_its_write_holds_others_up_and_breaks_nothing(
    path: Path,
) -> None:
    with _writers(path, "anna", "bert", timeout_s=0.2) as (anna, bert):
        anna.say("stop within")
        anna.say(Token(41, 1))
        assert anna.hear() == "within"
        wait_until_stopped(anna.process.pid)  # else it could be told to go on before it stops
        assert bert.write(Token(58, 1)) == (
            "timeout still locked by another writer after 0.2 s; check for a stopped process"
        )
        go_on(anna.process.pid)
        assert anna.hear() == "taken"
        assert bert.write(Token(58, 1)) == "taken"
        assert anna.write(Token(41, 1)) == "refused 58-1"
        assert path.read_text() == "58-1 of bert"


def test_a_process_that_is_killed_within_its_write_holds_nobody_up(path: Path) -> None:
    with _writers(path, "anna", "bert") as (anna, bert):
        anna.say("stop within")
        anna.say(Token(41, 1))
        assert anna.hear() == "within"
        anna.process.kill()
        anna.process.wait()
        assert not path.exists()
        assert bert.write(Token(40, 9)) == "refused 41-1"
        assert bert.write(Token(42, 1)) == "taken"
        assert path.read_text() == "42-1 of bert"


RACER = """
import json, sys
from leasehold.errors import StaleToken
from leasehold.fencing import FencedFile
from leasehold.fencing.token import Token
file, number = FencedFile(sys.argv[1]), int(sys.argv[2])
taken = []
print("ready", flush=True)
sys.stdin.readline()
for revision in range(1, 41):
    token = Token(revision, number)
    try:
        file.write(str(token), token)
        taken.append(str(token))
    except StaleToken:
        pass
print(json.dumps(taken), flush=True)
"""


def test_of_two_processes_at_once_the_content_never_goes_back(path: Path) -> None:
    read: list[Token] = []
    with contextlib.ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(  # noqa: S603  our own script
                    [sys.executable, "-c", RACER, path, str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in (1, 2)
        ]
        for racer in racers:
            stack.callback(racer.kill)
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        while any(racer.poll() is None for racer in racers):
            if path.exists():
                read.append(Token.parse(path.read_text()))
        taken = [
            Token.parse(text)
            for racer in racers
            for text in json.loads(racer.stdout.read() if racer.stdout else "")
        ]
    assert read == sorted(read)
    assert set(read) <= set(taken)
    assert path.read_text() == str(max(taken)) == "40-2"
