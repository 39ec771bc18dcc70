"""The control socket: how other processes request a backup from the one that has a data directory.

A Unix domain socket in the directory, accessible to its owner only. A client sends one line and
receives lines until the connection ends, all of them JSON:

    {"do": "backup", "to": "/absolute/path", "force": false}
    {"pages": 512, "of": 2048}              repeatedly, also while nothing happens
    {"done": {"revision": 42, "bytes": 8388640}}    or    {"error": "..."}

If a client disconnects, its backup is aborted.
"""

import asyncio
import contextlib
import json
import logging
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from leasehold.basics.callbacks import ignore
from leasehold.errors import ConnectionLost, LeaseholdError, StorageError
from leasehold.journal.data_dir import FILE_MODE
from leasehold.journal.journal_format import PAGE_BYTES
from leasehold.store.backup import Backup, Backups
from leasehold.store.backup_file import OnProgress, remove_leftover

logger = logging.getLogger(__name__)

CONTROL_NAME: Final = "CONTROL"

MAX_CLIENTS: Final = 8
"""Clients at the same time; further ones are refused."""

MAX_LINE_BYTES: Final = 64 * 1024
"""A path of 4096 characters, each of them escaped, and some more."""

IDLE_S: Final = 10.0
"""How long a client may take to send its request, and to read the answer."""

PROGRESS_S: Final = 0.1
"""How often progress is sent to a client."""

ANSWER_S: Final = 30.0
"""How long a client waits for the next line: the process may be stopped, or starved."""

MAX_ADDRESS_BYTES: Final = 100
"""Addresses of sockets are short: 108 bytes on Linux, 104 elsewhere."""

_ASK: Final = '{"do": "backup", "to": "/absolute/path"}'


class Request(NamedTuple):
    """The request of a client."""

    target: Path
    force: bool


class Control:
    """The socket, in the process that has the directory; there is none if the directory is None."""

    def __init__(self, directory: Path | None, backups: Backups) -> None:
        self._directory = directory
        self._backups = backups
        self._socket: socket.socket | None = None
        self._listening: asyncio.Task[None] | None = None
        self._clients: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to listen, on the running event loop. A failure does not affect anything else."""
        if self._directory is None:
            return
        try:
            self._socket = _listen(self._directory)
        except OSError as error:
            logger.warning(
                "backups cannot be requested from this process: cannot create %s: %s",
                self._directory / CONTROL_NAME,
                error,
            )
            return
        self._listening = asyncio.get_running_loop().create_task(self._listen(self._socket))

    async def close(self) -> None:
        """Abort the backups under way, and remove the socket."""
        if self._socket is None or self._listening is None or self._directory is None:
            return
        with contextlib.suppress(OSError):
            (self._directory / CONTROL_NAME).unlink()
        tasks = [self._listening, *self._clients]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()
        self._socket = None

    def abandon(self) -> None:
        """Close it, in a child of the process that has it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _listen(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:  # for example too many open files: that may pass
                logger.warning("a client could not be accepted: %s", error)
                await asyncio.sleep(PROGRESS_S)
                continue
            if len(self._clients) >= MAX_CLIENTS:
                _refuse(client)
                continue
            task = loop.create_task(self._serve(client))
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

    async def _serve(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=client, limit=MAX_LINE_BYTES)
        try:
            answer = await self._answer(reader, writer)
            writer.write(_line(answer))
            async with asyncio.timeout(IDLE_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):  # it disconnected, or does not read
            logger.debug("a client of %s has disconnected", CONTROL_NAME)
        finally:
            writer.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(IDLE_S):
                request = _parse(await _read_line(reader))
            made = await self._back_up(request, reader, writer)
        except TimeoutError:
            return {"error": f"no request within {IDLE_S:g} s"}
        except (LeaseholdError, ValueError) as error:
            return {"error": str(error)}
        return {"done": {"revision": made.revision, "bytes": made.size_bytes}}

    async def _back_up(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Backup:
        progress = {"pages": 0, "of": 0}

        def note(done_bytes: int, total_bytes: int) -> None:
            progress.update(pages=done_bytes // PAGE_BYTES, of=total_bytes // PAGE_BYTES)

        loop = asyncio.get_running_loop()
        job = loop.create_task(self._backups.make(request.target, note, force=request.force))
        gone = loop.create_task(reader.read(1))
        try:
            while not job.done() and not gone.done():
                await asyncio.wait(
                    [job, gone], timeout=PROGRESS_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not writer.transport.get_write_buffer_size():  # else it does not read
                    writer.write(_line(progress))
            if not job.done():
                raise ConnectionLost("the client has disconnected, or has sent more than one line")
            return await job
        finally:
            gone.cancel()
            job.cancel()
            await asyncio.gather(job, gone, return_exceptions=True)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        raise ValueError(f"request line is longer than {MAX_LINE_BYTES} bytes") from None


def _parse(line: bytes) -> Request:
    """Parse a request; raise `ValueError` if it is invalid."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"request is not a line of JSON; send {_ASK}") from None
    if not isinstance(request, dict) or request.get("do") != "backup":
        raise ValueError(f"the only request is a backup; send {_ASK}")
    target, force = request.get("to"), request.get("force", False)
    if not isinstance(target, str) or not Path(target).is_absolute():
        raise ValueError(f"`to` must be an absolute path, got {target!r}; send {_ASK}")
    if not isinstance(force, bool):
        raise ValueError(f"`force` must be true or false, got {force!r}")
    return Request(Path(target), force)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _refuse(client: socket.socket) -> None:
    with client, contextlib.suppress(OSError):
        client.send(_line({"error": f"{MAX_CLIENTS} clients are being served; try again later"}))


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """Yield a path of the socket that is short enough for an address."""
    path = str(directory.absolute() / CONTROL_NAME)
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{CONTROL_NAME}"
    finally:
        os.close(fd)


def _listen(directory: Path) -> socket.socket:
    path = directory / CONTROL_NAME
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} exists and is not a socket")
        path.unlink()  # only we have the directory: its last process is gone
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(directory) as address:
            listener.bind(address)
        path.chmod(FILE_MODE)  # before any client can connect
        listener.setblocking(False)
        listener.listen(MAX_CLIENTS)
    except BaseException:
        listener.close()
        raise
    return listener


# The client.


def ask_for_backup(
    directory: Path, target: Path, on_progress: OnProgress | None = None, *, force: bool = False
) -> Backup:
    """Have the process that has a directory open make a backup of it."""
    target = target.absolute()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        try:
            with _address(directory) as address:
                connection.connect(address)
        except OSError as error:
            raise StorageError(
                f"{directory} is in use by a process that does not accept backup requests "
                f"({CONTROL_NAME}: {error.strerror or error}): it may be starting or stopping; "
                "try again in a moment"
            ) from error
        try:
            request = {"do": "backup", "to": str(target), "force": force}
            connection.sendall(_line(request))
            done = _await_done(connection, on_progress or ignore)
        except (OSError, ValueError, KeyError) as error:
            raise _lost(directory, target, str(error)) from error
    if done is None:
        raise _lost(directory, target, "the process has ended")
    return Backup(target, done["revision"], done["bytes"])


def _await_done(connection: socket.socket, on_progress: OnProgress) -> dict[str, int] | None:
    with connection.makefile("rb") as lines:
        while line := lines.readline(MAX_LINE_BYTES):
            response = json.loads(line)
            if "error" in response:
                raise StorageError(response["error"])
            if "done" in response:
                done: dict[str, int] = response["done"]
                return done
            on_progress(response["pages"] * PAGE_BYTES, response["of"] * PAGE_BYTES)
    return None


def _lost(directory: Path, target: Path, why: str) -> StorageError:
    remove_leftover(target)
    return StorageError(
        f"the process that uses {directory} did not confirm the backup ({why}): try again"
    )
