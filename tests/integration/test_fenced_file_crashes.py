"""A fenced file whose writer fails, or ends, at each call to the system that it makes.

The invariant: the token on disk is never lower than that of a content that could be seen.
"""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import StaleToken
from leasehold.fencing import FencedFile
from leasehold.fencing.token import Token

CALLS = [
    (os, "open"),
    (os, "write"),
    (os, "fsync"),
    (os, "fchmod"),
    (os, "replace"),
    (os, "close"),
    (fcntl, "flock"),
]
"""What a write asks of the system; reading is not among them."""

BEFORE, LATER = Token(41, 1), Token(58, 1)
OutOfSpace = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

Calls = list[tuple[str, tuple[Any, ...]]]


@contextmanager
def watched(before: Callable[[str], None]) -> Iterator[Calls]:
    """Call `before` with the name of each call to the system, before it is made (close: after)."""
    made: Calls = []

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            made.append((name, args))
            if name == "close":  # also one that fails has closed
                real(*args)
                return before(name)
            before(name)
            return real(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module, name in CALLS:
            patch.setattr(module, name, wrap(name, getattr(module, name)))
        yield made


def _prepared(directory: Path) -> FencedFile:
    file = FencedFile(directory / "file")
    file.write(f"content of {BEFORE}", BEFORE)
    return file


def _calls_of_a_write(directory: Path) -> Calls:
    file = _prepared(directory)
    with watched(lambda _: None) as made:
        file.write(f"content of {LATER}", LATER)
    return made


def _check_what_is_left(file: FencedFile) -> None:
    """The old content or the new one, and a token that is not lower than it."""
    content = file.read().decode()
    assert content in {f"content of {BEFORE}", f"content of {LATER}"}
    assert file.seen in {BEFORE, LATER}
    assert file.seen >= Token.parse(content.removeprefix("content of "))
    # Nobody is shut out for good, and who was too old before is too old now.
    with pytest.raises(StaleToken):
        file.write("of an old holder", Token(40, 1))
    if file.seen == LATER:
        with pytest.raises(StaleToken):
            file.write("of the holder before", BEFORE)
    file.write("again", LATER)
    assert (file.read(), file.seen) == (b"again", LATER)


def test_the_token_is_on_disk_before_the_content_has_its_name(tmp_path: Path) -> None:
    """What a power cut leaves is what was synced, in this order, and names that were synced."""
    made = _calls_of_a_write(tmp_path)
    steps = [
        f"{name} {args[1].name}" if name == "replace" else name
        for name, args in made
        if name in {"write", "fsync", "replace"}
    ]
    whole_file_then_its_name = ["write", "fsync", "replace file{}", "fsync"]
    assert steps == [
        *(step.format(".fence") for step in whole_file_then_its_name),
        *(step.format("") for step in whole_file_then_its_name),
    ]


def test_an_error_at_any_call_leaves_a_file_that_goes_on(tmp_path: Path) -> None:
    count = len(_calls_of_a_write(tmp_path / _made(tmp_path, "count")))
    assert count > 15
    for fails_at in range(count):
        file = _prepared(tmp_path / _made(tmp_path, str(fails_at)))
        calls = iter(range(count))

        def fail(_: str, calls: Iterator[int] = calls, fails_at: int = fails_at) -> None:
            if next(calls, None) == fails_at:
                raise OutOfSpace

        with pytest.raises(OSError, match="No space left"), watched(fail):
            file.write(f"content of {LATER}", LATER)
        left = {each.name for each in file.path.parent.iterdir()}
        assert left <= {"file", "file.fence", "file.fence-lock"}
        _check_what_is_left(file)


def _made(directory: Path, name: str) -> str:
    (directory / name).mkdir()
    return name


ENDING = """
import os, sys
from pathlib import Path
from tests.integration.test_fenced_file_crashes import LATER, watched
from leasehold.fencing import FencedFile

for ends_at in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        calls = iter(range(1000))
        def end(name):
            if next(calls) == ends_at:
                os._exit(9)
        with watched(end):
            FencedFile(Path(sys.argv[1], str(ends_at), "file")).write(f"content of {LATER}", LATER)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, ends_at
"""


def test_a_process_that_ends_before_any_call_leaves_a_file_that_goes_on(tmp_path: Path) -> None:
    count = len(_calls_of_a_write(tmp_path / _made(tmp_path, "count")))
    files = [_prepared(tmp_path / _made(tmp_path, str(number))) for number in range(count)]
    subprocess.run(  # noqa: S603  our own script
        [sys.executable, "-c", ENDING, tmp_path, str(count)],
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=True,
    )
    contents = {file.read() for file in files}
    assert len(contents) == 2, "the ends were all before, or all after, the new content"
    assert [file.seen for file in files] == sorted(file.seen for file in files)
    for file in files:
        _check_what_is_left(file)
