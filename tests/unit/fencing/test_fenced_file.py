"""A fenced file: which writes it takes, from threads and from real processes."""

import contextlib
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.errors import StaleToken, StorageError
from leasehold.fencing import FencedFile
from leasehold.fencing.token import Token
from tests.support.open_files import open_files_in

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


def test_a_fenced_file_says_where_it_is(path: Path) -> None:
    assert repr(FencedFile(path)) == f"<FencedFile '{path}'>"
