"""Unix sockets as files, which outlive a process that was killed.

One that nobody answers at is replaced; one that somebody answers at is in use; anything else is not
ours to remove. Whoever binds one has a lock on its directory meanwhile, so that of two servers that
start together neither takes the other's for a dead one's.
"""

import asyncio
import errno
import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

LOCK_S: Final = 2.0
"""How long others may take to bind a socket in the same directory."""

_LOCK_POLL_S: Final = 0.01


async def bind_file(path: str, mode: int, backlog: int) -> socket.socket:
    """Make a socket that listens at a path; `OSError` if that cannot be had."""
    directory = await _lock(os.path.dirname(path) or ".")  # noqa: PTH120  as it was written
    try:
        return _bind(path, mode, backlog)
    finally:
        os.close(directory)


async def _lock(directory: str) -> int:
    """Have no other server make room in a directory, until what is returned is closed."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        async with asyncio.timeout(LOCK_S):
            while not _try_lock(fd):  # noqa: ASYNC110  nobody tells us
                await asyncio.sleep(_LOCK_POLL_S)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, TimeoutError):
            why = f"another process has locked {directory} for more than {LOCK_S:g} s"
            raise BlockingIOError(errno.EWOULDBLOCK, why) from None
        raise
    return fd


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bind(path: str, mode: int, backlog: int) -> socket.socket:
    _make_room(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(path)
        Path(path).chmod(mode)  # nobody can connect before the next line
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def _make_room(path: str) -> None:
    """Remove a socket that nobody answers at."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(
            errno.EEXIST, "something is there that is no socket: remove it, or take another path"
        )
    if _is_answered(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    Path(path).unlink()


def _is_answered(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # so many wait there that there is no room for another
            return True
    return True
