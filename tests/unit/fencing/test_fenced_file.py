"""A fenced file: which writes it takes, from threads and from real processes."""

import contextlib
import json
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.errors import StaleToken, StorageError
from leasehold.fencing import FencedFile
from leasehold.fencing.token import Token
from tests.support.open_files import open_files_in
from tests.support.stopping import go_on, stop

DEADLINE_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "inventory.json"


def test_what_is_written_is_the_whole_content_and_plain(path: Path) -> None:
    file = FencedFile(path)
    file.write(b"a long text, to be replaced", Token(4, 1))
    file.write("größer", Token(4, 1))
    assert path.read_bytes() == file.read() == "größer".encode()
    file.write(b"", Token(4, 1))
    assert file.read() == b""


def test_a_lower_token_is_refused_and_the_content_stays(path: Path) -> None:
    FencedFile(path).write(b"new", Token(58, 1))
    for old in (Token(57, 9), Token(58, 0), 58):
        with pytest.raises(StaleToken) as refused:
            FencedFile(path).write(b"old", old)
        assert refused.value.seen == Token(58, 1)
        assert refused.value.resource == str(path)
    assert path.read_bytes() == b"new"
    assert FencedFile(path).seen == Token(58, 1)


def test_a_directory_and_an_empty_path_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, f"{folder}/", tmp_path / "link", Path()):
        with pytest.raises(IsADirectoryError, match="path must name a file, not a directory"):
            FencedFile(path)
    with pytest.raises(ValueError, match="path must name a file"):
        FencedFile("")
    assert {each.name for each in tmp_path.iterdir()} == {"folder", "link"}


def test_a_directory_that_was_made_since_is_refused_and_nothing_is_left(path: Path) -> None:
    file = FencedFile(path)
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        file.write(b"new", 4)
    with pytest.raises(IsADirectoryError):
        file.admit(4)
    assert list(path.parent.iterdir()) == [path]


def test_equal_and_higher_tokens_pass(path: Path) -> None:
    file = FencedFile(path)
    for token in (Token(4, 1), Token(4, 1), Token(4, 2), Token(5, 1), 6):
        file.write(str(token), token)
    assert file.seen == Token(6, 0)
    assert file.read() == b"6"


def test_admit_shuts_out_the_holders_of_before_and_writes_nothing(path: Path) -> None:
    file = FencedFile(path)
    file.write(b"10 left", Token(4, 1))
    file.admit(Token(5, 1))
    assert file.read() == b"10 left"
    with pytest.raises(StaleToken):
        file.write(b"9 left", Token(4, 1))
    with pytest.raises(StaleToken):
        file.admit(Token(4, 1))
    assert file.read() == b"10 left"


def test_a_file_that_is_not_there_has_seen_nothing(path: Path) -> None:
    file = FencedFile(path)
    assert file.seen == Token(0, 0)
    with pytest.raises(FileNotFoundError):
        file.read()


def test_the_token_is_beside_the_file_as_text(path: Path) -> None:
    FencedFile(path).write(b"new", Token(58, 1))
    assert Path(f"{path}.fence").read_text() == "58-1\n"
    names = {each.name for each in path.parent.iterdir()}
    assert names == {path.name, f"{path.name}.fence", f"{path.name}.fence-lock"}


def test_a_fence_that_an_earlier_version_wrote_with_a_point_still_refuses(path: Path) -> None:
    Path(f"{path}.fence").write_bytes(b"58.10\n")
    file = FencedFile(path)
    assert file.seen == Token(58, 10)
    with pytest.raises(StaleToken):
        file.write(b"old", Token(58, 9))
    file.write(b"new", Token(58, 11))
    assert Path(f"{path}.fence").read_text() == "58-11\n"


@pytest.mark.parametrize("found", [b"", b"\n", b"58.\n", b"x", b"\xff", b"58.1\n58.1\n", b"1" * 99])
def test_what_is_no_token_takes_no_fence_down(found: bytes, path: Path) -> None:
    path.write_bytes(b"content")
    Path(f"{path}.fence").write_bytes(found)
    with pytest.raises(StorageError, match=r"must contain a fencing token such as '123-4', got b'"):
        FencedFile(path).write(b"more", Token(99, 1))
    assert path.read_bytes() == b"content"


def test_one_file_has_one_fence_whatever_it_is_called(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    FencedFile(link).write(b"new", Token(58, 1))
    assert link.is_symlink()
    with pytest.raises(StaleToken):
        FencedFile(path).write(b"old", Token(41, 1))
    assert link.read_bytes() == b"new"


def test_the_file_keeps_its_mode(path: Path) -> None:
    path.write_bytes(b"old")
    path.chmod(0o640)
    FencedFile(path).write(b"new", 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("content", [None, 5, ["a"]])
def test_content_that_is_neither_bytes_nor_text_moves_no_fence(content: object, path: Path) -> None:
    with pytest.raises(TypeError, match="content must be bytes or str"):
        FencedFile(path).write(content, Token(4, 1))  # type: ignore[arg-type]
    assert FencedFile(path).seen == Token(0, 0)


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf")])
def test_a_timeout_is_a_positive_number_of_seconds(timeout: float, path: Path) -> None:
    with pytest.raises(ValueError, match="timeout must"):
        FencedFile(path, timeout=timeout)


def test_no_descriptor_is_left_open(path: Path) -> None:
    FencedFile(path).write(b"new", Token(5, 1))
    with pytest.raises(StaleToken):
        FencedFile(path).write(b"old", Token(4, 1))
    assert open_files_in(path.parent) == []


few = st.integers(min_value=0, max_value=4)


@settings(max_examples=30)
@given(st.lists(st.builds(Token, few, few), max_size=8))
def test_of_any_order_of_tokens_the_content_never_goes_back(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[Token]
) -> None:
    file = FencedFile(tmp_path_factory.mktemp("any") / "file")
    highest = Token(0, 0)
    for token in tokens:
        if token < highest:
            with pytest.raises(StaleToken):
                file.write(str(token), token)
        else:
            file.write(str(token), token)
            highest = token
        assert Token.parse(file.read().decode()) == file.seen == highest


def test_threads_take_turns_and_the_content_never_goes_back(path: Path) -> None:
    read: list[Token] = []

    def holder(number: int) -> None:
        file = FencedFile(path)
        for revision in range(15):
            token = Token(revision, number)
            with contextlib.suppress(StaleToken):
                file.write(str(token), token)

    threads = [threading.Thread(target=holder, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            read.append(Token.parse(path.read_text()))
    assert read == sorted(read)
    assert path.read_text() == "14-3"


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


def test_a_fenced_file_says_where_it_is(path: Path) -> None:
    assert repr(FencedFile(path)) == f"<FencedFile '{path}'>"
