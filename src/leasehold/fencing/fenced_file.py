"""A file that is replaced as a whole, and only with a token that is not too old.

Theory of operation. There are three files: the content under its own name, the highest token
(`.fence`), and an empty one (`.fence-lock`), which the writer locks with `flock`. The writer that
has that lock

1. reads the token, and refuses a lower one;
2. if the given token is higher, writes it durably to a separate file, renames that to `.fence`, and
   makes the name durable as well;
3. only then writes the content durably in the same way, and renames it to its name.

The invariant: *the token on disk is never lower than that of any content that was visible under the
name.* It holds after each of the steps, so the writer may be killed, and the power cut, at any
point: one of the two contents is there as a whole, and a writer that was refused before is refused
after. Such an end can leave a token without its content. That is the safe side: it shuts out older
holders only, and its own holder, or a later one, can continue.

The lock is released with its process, however that ends. A writer that is *stopped* in the middle
keeps it: others wait, up to their time limit, and nothing is broken when it continues.
"""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from leasehold.basics.durations import check_seconds
from leasehold.engine.key import BytesOrText, to_bytes
from leasehold.errors import StaleToken, StorageError
from leasehold.fencing.token import NOTHING_SEEN, Token, check_token
from leasehold.journal.data_dir import sync_directory, sync_file, write_all

TIMEOUT_S: Final = 10.0
"""How long to wait for another writer, by default."""

POLL_S: Final = 0.01
"""How often to check whether another writer is done."""

MAX_TOKEN_BYTES: Final = 64
"""More than the length of any token; longer files contain no token."""

_MODE: Final = 0o666  # reduced by the umask, as for any file


class FencedFile:
    """A file with a fence. Its content is plain, and can be read directly by its name.

    All writers must use this class, on one machine and on a local file system. The token is in a
    file beside it, with the suffix `.fence`: deleting that file removes the fence.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, timeout: float | timedelta = TIMEOUT_S
    ) -> None:
        """Set the file, which need not exist; `timeout` is how long to wait for writers.

        Raises `ValueError` for an empty path, `IsADirectoryError` for that of a directory.
        """
        if not os.fspath(path):
            raise ValueError("path must name a file, such as 'inventory.json', not be empty")
        real = Path(path).resolve()  # one file has one fence, whatever its path
        _refuse_directory(real)
        self.path: Final = real
        self._timeout_s = check_seconds(timeout, "timeout")
        self._token_path = real.with_name(f"{real.name}.fence")
        self._lock_path = real.with_name(f"{real.name}.fence-lock")

    @property
    def seen(self) -> Token:
        """The highest token that was admitted."""
        try:
            with self._token_path.open("rb") as file:
                found = file.read(MAX_TOKEN_BYTES)
        except FileNotFoundError:
            return NOTHING_SEEN
        try:
            return Token.parse(found.decode("ascii").removesuffix("\n"))
        except ValueError as error:
            raise StorageError(
                f"{self._token_path} must contain a fencing token such as '123-4', got {found!r}; "
                f"writes to {self.path.name} are refused until it does"
            ) from error

    def read(self) -> bytes:
        """Return the content. To base a write on it, `admit` the token of that write before."""
        return self.path.read_bytes()

    def admit(self, token: Token | int) -> None:
        """Shut out earlier holders, without writing; `StaleToken` if this is one of them."""
        with self._admitted(token):
            pass

    def write(self, content: BytesOrText, token: Token | int) -> None:
        """Replace the whole content, durably; raise `StaleToken` if a higher token was seen.

        After another error (`OSError`, `TimeoutError`) the file has the old content or the new one.
        """
        data = to_bytes(content, "content")
        with self._admitted(token):
            self._replace(self.path, data)

    @contextlib.contextmanager
    def _admitted(self, token: Token | int) -> Iterator[None]:
        shown = check_token(token)
        _refuse_directory(self.path)  # it may have been created since
        with self._locked():
            seen = self.seen
            if shown < seen:
                raise StaleToken(shown, seen, str(self.path))
            if shown > seen:
                self._replace(self._token_path, f"{shown}\n".encode())
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            self._wait_for_lock(fd)
            try:
                yield
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)  # a child forked in the meantime has `fd` too
        finally:
            os.close(fd)

    def _wait_for_lock(self, fd: int) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            with contextlib.suppress(BlockingIOError):
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    f"still locked by another writer after {self._timeout_s:g} s; check for a "
                    "stopped process",
                    str(self.path),
                )
            time.sleep(POLL_S)

    def _replace(self, path: Path, content: bytes) -> None:
        """Write a file durably as a whole, then rename it durably."""
        draft = path.with_name(f"{path.name}.fence-draft")  # we hold the lock, so the name is ours
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(fd, path.stat().st_mode & 0o777)
                write_all(fd, content)
                sync_file(fd)
            finally:
                os.close(fd)
            draft.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        sync_directory(path.parent)

    def __repr__(self) -> str:
        return f"<FencedFile {str(self.path)!r}>"


def _refuse_directory(path: Path) -> None:
    """Refuse a directory, which a file can never replace, before anything is created beside it."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "path must name a file, not a directory", str(path))
