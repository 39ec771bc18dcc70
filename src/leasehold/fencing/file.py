"""A file that is replaced as a whole, and only by those whose token is not too old.

Theory of operation. Three files are beside each other: the content under its own name, the highest
token (`.fence`), and an empty one (`.fence-lock`), locked with `flock` by whoever writes. Who has
that lock

1. reads the token, and refuses what is lower;
2. if what is shown is higher, puts it on disk as a file of its own, then renames that to `.fence`,
   and puts the name on disk as well;
3. only then puts the content on disk in the same way, and gives it the name.

The invariant: *the token on disk is never lower than that of a content that could be seen under the
name.* It holds after each of the steps, so the writer may be killed, and the power cut, at any
point: either content is there as a whole, and who was refused before is refused after. What such an
end can leave is a token without its content. That is the safe side: it shuts out older holders
only, and its own holder, or a later one, goes on.

The lock goes with its process, however that ends. A writer that is *stopped* in the middle keeps
it: others wait, up to their time limit, and nothing is broken when it goes on.
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

from leasehold.client.texts import Octets, octets_of
from leasehold.core.duration import check_seconds
from leasehold.engine.data_dir import sync_directory, sync_file, write_all
from leasehold.errors import StaleToken, StorageError
from leasehold.fencing.fence import NOTHING_SEEN, check_token
from leasehold.recipes.token import Token

TIMEOUT_S: Final = 10.0
"""How long to wait for another writer, unless told otherwise."""

POLL_S: Final = 0.01
"""How often is looked whether another writer is done."""

MAX_TOKEN_BYTES: Final = 64
"""More than a token has; what is longer is none."""

_MODE: Final = 0o666  # the umask takes from it, as from any file


class FencedFile:
    """A file with a fence. Its content is plain, and anybody may read it by its name.

    Writers go through here, all of them, on one machine and on a local file system. The token is in
    a file beside it, with `.fence` behind the name: to delete that one is to take the fence down.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, timeout: float | timedelta = TIMEOUT_S
    ) -> None:
        """Name the file, which need not be there; `timeout` is how long to wait for writers.

        `ValueError` for an empty path, `IsADirectoryError` for that of a directory.
        """
        if not os.fspath(path):
            raise ValueError("path must name a file, such as 'inventory.json', not be empty")
        real = Path(path).resolve()  # one file has one fence, whatever it is called
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
        """Give the content. To base a write on it, `admit` the token of that write before."""
        return self.path.read_bytes()

    def admit(self, token: Token | int) -> None:
        """Shut out the holders of before, without writing; `StaleToken` if this is one of them."""
        with self._admitted(token):
            pass

    def write(self, content: Octets, token: Token | int) -> None:
        """Replace the whole content, durably; `StaleToken` if a higher token was seen.

        If it fails otherwise (`OSError`, `TimeoutError`) the old content is there, or the new one.
        """
        octets = octets_of(content, "content")
        with self._admitted(token):
            self._replace(self.path, octets)

    @contextlib.contextmanager
    def _admitted(self, token: Token | int) -> Iterator[None]:
        shown = check_token(token)
        _refuse_directory(self.path)  # it may have been made since
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
                fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has `fd` too
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
                    f"another writer has had it locked for {self._timeout_s:g} s; is one stopped?",
                    str(self.path),
                )
            time.sleep(POLL_S)

    def _replace(self, path: Path, content: bytes) -> None:
        """Put a file on disk as a whole, then its name."""
        draft = path.with_name(f"{path.name}.fence-draft")  # the lock is ours, so is the name
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
    """Refuse what can never be replaced by a file, before anything is made beside it."""
    if path.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "only a file can be fenced, and this is a directory", str(path)
        )
