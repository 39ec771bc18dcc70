"""`leasehold files cat`, `put` and `append`: bytes to and from standard streams and local files.

A put writes a file with a temporary name in the same directory, and renames it when it is complete:
until then readers see the former file, and after a failure nothing is left.

Reading from a pipe or terminal may take long, so it is done in a daemon thread: a signal ends the
command anyway. Bytes that have waited for a second are flushed, so a program that writes a
line from time to time loses none of them.
"""

import argparse
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar

from leasehold.cli import argument_types
from leasehold.cli.connection import (
    finish,
    finish_with_client,
    print_note,
    showing_warnings,
    until_signal,
    with_client,
)
from leasehold.cli.output import ProgressBar, emit, emit_json, emit_lines, is_terminal, size
from leasehold.cli.parser import DENIED, LOST, NOT_THERE, OK, Commands, epilog
from leasehold.cli.settings.error_texts import escaped

if TYPE_CHECKING:
    import asyncio

    from leasehold.client.client import Client
    from leasehold.files.reader import FileReader
    from leasehold.files.writer import FileWriter

A = TypeVar("A")
T = TypeVar("T")

STDIN: Final = "-"

COPY_BYTES: Final = 1024 * 1024
"""Bytes that are read together."""

FLUSH_S: Final = 1.0
"""How long written bytes wait before they are flushed, whether further ones come or not."""

BAR_AFTER_S: Final = 1.0
"""A copy that takes longer has a progress line."""

FOLLOW_S: Final = 1.0
"""The time between two looks for further bytes of a file."""

CLEAN_UP_S: Final = 5.0
"""How long the end of a put that has failed tries to delete its temporary file."""

_PATH: Final = argument_types.name("path", "logs/a")


# Read.


def add_cat(group: Commands) -> None:
    """Add `files cat`."""
    parser = group.add_parser(
        "cat",
        help="print a file",
        description=(
            "Write the bytes of a file to standard output: all that was flushed until now, also "
            "if a writer has it open. If a part is damaged in all replicas, the bytes before it "
            "are written, and the exit code is 1. With --follow, continue with bytes that are "
            "flushed later, until Ctrl-C or until the file is deleted or replaced."
        ),
        epilog=epilog(
            """
            leasehold files stores --add $PWD/store
            date | leasehold files append - logs/dates
            leasehold files cat logs/dates
            """,
            NOT_THERE,
        ),
    )
    parser.add_argument("path", type=_PATH, metavar="PATH", help="the file")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="continue with bytes that are flushed later; checks every second",
    )
    finish(parser, _cat, has_json=False)


def _cat(arguments: argparse.Namespace) -> int:
    async def work(client: "Client") -> int:
        async with client.files.open(arguments.path) as file:
            with ProgressBar("cat", after_s=BAR_AFTER_S, is_shown=not is_terminal()) as bar:
                while data := await file.read1(COPY_BYTES):
                    emit(data)
                    bar(file.tell(), file.size)
            if arguments.follow:
                await _follow(file)
        return OK

    return with_client(
        arguments, showing_warnings(until_signal(work)) if arguments.follow else work
    )


async def _follow(file: "FileReader") -> None:
    """Print bytes flushed later, until cancelled or the file is deleted or replaced."""
    import asyncio

    from leasehold.errors import LeaseholdError, is_definite

    while True:
        await asyncio.sleep(FOLLOW_S)
        try:
            await file.refresh()
        except (LeaseholdError, OSError) as error:
            if is_definite(error):
                raise
            continue  # the server does not answer now
        while data := await file.read1(COPY_BYTES):
            emit(data)


# Write.


def add_put(group: Commands) -> None:
    """Add `files put`."""
    parser = group.add_parser(
        "put",
        help="store a local file",
        description=(
            "Create a file with the bytes of a local file, or of standard input. The file appears "
            "under PATH only when it is complete."
        ),
        epilog=epilog(
            """
            leasehold files stores --add $PWD/store
            date > today.txt
            leasehold files put today.txt dates/today --overwrite
            date | leasehold files put - dates/now --overwrite
            """,
            LOST,
            notes="If the command fails or is interrupted, no file is created or replaced.",
        ),
    )
    _add_copy(parser)
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing file, even if it is open: its writer loses it",
    )
    finish_with_client(parser, _put)


def add_append(group: Commands) -> None:
    """Add `files append`."""
    parser = group.add_parser(
        "append",
        help="append a local file",
        description=(
            "Append the bytes of a local file, or of standard input, to a file, which is created "
            "if it is missing. No other client can write it until the end of the input."
        ),
        epilog=epilog(
            """
            leasehold files stores --add $PWD/store
            date | leasehold files append - logs/dates
            """,
            LOST,
            DENIED,
            notes="Input is flushed within a second. If the command is interrupted, the flushed "
            "bytes stay.",
        ),
    )
    _add_copy(parser)
    finish_with_client(parser, _append)


def _add_copy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "local", type=_local, metavar="FILE", help="the local file; - for standard input"
    )
    parser.add_argument("path", type=_PATH, metavar="PATH", help="the file to write")


def _local(text: str) -> str:
    """Parse the name of a local file, which may have any bytes."""
    if not text:
        raise argparse.ArgumentTypeError("file must not be empty: write one, such as today.txt")
    return text


async def _put(client: "Client", arguments: argparse.Namespace) -> int:
    from leasehold.errors import FileExists, FileNotFound, FilesError, IsADirectory

    files, path, overwrite = client.files, arguments.path, arguments.overwrite
    temporary = _temporary(path)
    with closing(await _in_thread(_opened, arguments.local)) as source:
        with suppress(FileNotFound):  # otherwise it is refused before the input is read
            if (await files.stat(path)).is_directory:
                raise IsADirectory(path, _into(arguments))
            if not overwrite:
                raise FileExists(path)
        try:
            with _lost_if_missing():
                async with files.create(temporary) as file:
                    await _copy(source, file, "put")
                await files.rename(temporary, path, overwrite=overwrite)
        except BaseException as error:
            await _clean_up(client, temporary)
            if isinstance(error, FilesError) and error.path == temporary:
                error.path = path
            raise
    return _report(arguments, client, path, file)


def _temporary(path: str) -> str:
    """Return a path in the same directory that no other file has."""
    from leasehold.files.state import file_parts

    return "/".join((*file_parts(path)[:-1], f".put-{secrets.token_hex(8)}"))


async def _clean_up(client: "Client", temporary: str) -> None:
    """Delete the file of a put that has failed."""
    import asyncio

    from leasehold.errors import FileNotFound, LeaseholdError, NotADirectory

    try:
        async with asyncio.timeout(CLEAN_UP_S):
            await client.files.delete(temporary)
    except (FileNotFound, NotADirectory):
        pass  # it was not created, or others have deleted it
    except (LeaseholdError, OSError):
        print_note(
            f"leasehold: the incomplete file {temporary!r} could not be deleted: use "
            f"`leasehold files rm {shlex.quote(temporary)}`"
        )


async def _append(client: "Client", arguments: argparse.Namespace) -> int:
    import asyncio

    from leasehold.errors import IsADirectory

    file: FileWriter | None = None
    with closing(await _in_thread(_opened, arguments.local)) as source, _lost_if_missing():
        try:
            async with await opened_to_append(client, arguments.path) as file:
                await _copy(source, file, "append")
        except IsADirectory as error:
            raise IsADirectory(error.path, _into(arguments)) from None
        except asyncio.CancelledError:
            if file is not None:
                print_note(f"leasehold: interrupted: {file.path} has {size(file.flushed)}")
            raise
    return _report(arguments, client, file.path, file)


async def opened_to_append(client: "Client", path: str) -> "FileWriter":
    """Open a file at its end; wait while this command itself recovers it, however long."""
    from leasehold.errors import RecoveryInProgress

    is_noted = False
    while True:
        try:
            return await client.files.open(path, "ab")
        except RecoveryInProgress as error:
            if not error.is_own:
                raise
            if not is_noted:
                print_note(escaped(f"leasehold: waiting until {path!r} is recovered"))
                is_noted = True


def _into(arguments: argparse.Namespace) -> str:
    """Return advice for a path that is a directory."""
    name = Path(arguments.local).name if arguments.local != STDIN else "NAME"
    return f"is a directory: write the path of a file, such as {arguments.path.rstrip('/')}/{name}"


@contextmanager
def _lost_if_missing() -> Iterator[None]:
    """Raise `LeaseExpired` if a file is deleted while it is written: it is lost, not missing."""
    from leasehold.errors import FileNotFound, LeaseExpired

    try:
        yield
    except FileNotFound as error:
        raise LeaseExpired(error.path, error.why or "the file was deleted") from error


def _opened(local: str) -> IO[bytes]:
    """Open the local file without a buffer: a read returns the available bytes."""
    if local != STDIN:
        return Path(local).open("rb", buffering=0)
    if sys.stdin is None:
        raise ValueError("standard input is closed: write the name of a file")
    try:
        number = sys.stdin.fileno()
    except (OSError, ValueError):
        return sys.stdin.buffer  # a program has replaced it
    # Python would wait at exit for a thread that reads from its own object.
    return os.fdopen(os.dup(number), "rb", buffering=0)


def _total_bytes(source: IO[bytes]) -> int:
    """Return the size of a local file; 0 if it has none."""
    try:
        return os.fstat(source.fileno()).st_size
    except (OSError, ValueError):
        return 0


def _report(arguments: argparse.Namespace, client: "Client", path: str, file: "FileWriter") -> int:
    for url, why in client.files.failed_stores().items():
        print_note(escaped(f"warning: store {url} has failed, and may have no replica: {why}"))
    if arguments.json:
        emit_json({"path": path, "size_bytes": file.flushed})
    else:
        emit_lines([f"{path} has {size(file.flushed)}"])
    return OK


async def _copy(source: IO[bytes], file: "FileWriter", what: str) -> None:
    """Append all bytes of a local file. None waits longer than `FLUSH_S` to be flushed."""
    import asyncio

    now = asyncio.get_running_loop().time
    total_bytes = _total_bytes(source)
    done_bytes = 0
    flush_at: float | None = None
    with ProgressBar(what, after_s=BAR_AFTER_S) as bar:
        while True:
            reading = _in_thread(source.read, COPY_BYTES)
            if flush_at is not None and not await _ends_by(reading, flush_at - now()):
                await file.flush()
                flush_at = None
            data = await _bytes_of(reading, source)
            if not data:
                return
            await file.write(data)
            flush_at = flush_at or now() + FLUSH_S
            done_bytes += len(data)
            bar(done_bytes, max(total_bytes, done_bytes) if total_bytes else None)


async def _ends_by(reading: "asyncio.Future[bytes]", wait_s: float) -> bool:
    import asyncio

    done, _ = await asyncio.wait([reading], timeout=max(0.0, wait_s))
    return bool(done)


async def _bytes_of(reading: "asyncio.Future[bytes]", source: IO[bytes]) -> bytes:
    """Wait for the bytes that are read; an error names the local file."""
    try:
        return await reading
    except OSError as error:
        name = source.name if isinstance(source.name, str) else "standard input"
        raise OSError(error.errno, error.strerror, name) from error


def _in_thread(work: Callable[[A], T], argument: A) -> "asyncio.Future[T]":
    """Call a function that may wait for another process, in a daemon thread."""
    import asyncio

    from leasehold.basics.workers import WorkerExecutor

    executor = WorkerExecutor("leasehold input", 1)
    return asyncio.get_running_loop().run_in_executor(executor, work, argument)
