"""The parts of `FileReader` and `FileWriter` for blocking code that are not generated.

A writer belongs to one thread at a time, and so does a reader, because it has a position.
"""

from collections.abc import Iterator
from io import BytesIO
from types import TracebackType
from typing import Final, Self, TypeVar
from weakref import finalize

from leasehold.basics.forgotten import warn_forgotten
from leasehold.basics.pending import Pending
from leasehold.files.reader import FileReader as AsyncReader
from leasehold.files.writer import FileWriter as AsyncWriter
from leasehold.sync.block_exit import begin, block_exit
from leasehold.sync.blocking_call import BlockingCall
from leasehold.sync.loop_thread import LoopThread

LINES_BYTES: Final = 256 * 1024
"""Bytes of lines that an iteration reads together."""

_NOWHERE: Final = (-1, 0)

R = TypeVar("R", bound="FileReaderBase")
W = TypeVar("W", bound="FileWriterBase")


def open_reader(kind: type[R], thread: LoopThread, pending: Pending[AsyncReader]) -> R:
    """Wait for a file to be read."""

    async def make() -> R:
        return kind(thread, await pending)

    return thread.run(make)


def open_writer(kind: type[W], thread: LoopThread, pending: Pending[AsyncWriter]) -> W:
    """Wait for a file to be written. If the caller is interrupted, the file is closed again.

    The blocking object is made on the loop: from then on its finalizer closes the file.
    """

    async def make() -> W:
        return kind(thread, await pending)

    async def undo(file: W) -> None:
        file.abandon()

    return thread.run(make, undo=undo)


class FileWriterBase:
    """A writer on the loop."""

    __slots__ = ("__weakref__", "_on_loop", "_thread")

    def __init__(self, thread: LoopThread, twin: AsyncWriter) -> None:
        self._thread = thread
        self._on_loop = twin
        # Not `__del__`: if this object is part of a cycle, its twin would be finalized with it, and
        # give the file up before it can be aborted.
        finalize(self, thread.post, _report_forgotten, thread, twin).atexit = False

    def close(self) -> None:
        """Flush, and give the file up. Raises the errors of `flush`.

        A file that was recovered meanwhile counts as closed if it has all written bytes. Does
        nothing in a forked child.
        """
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._on_loop.close)

    def abort(self) -> None:
        """Close the file without the bytes that are not flushed. Does nothing in a forked child."""
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._on_loop.abort)

    def __enter__(self) -> Self:
        self._thread.check_process()
        begin(self, self)
        return self

    def abandon(self) -> None:
        """Have the loop abort it, unless it was closed: its block was interrupted."""
        self._thread.post(BlockingCall(self._on_loop.abort).start)

    @block_exit
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc is None:
                self.close()
            else:
                self.abort()
        except BaseException:
            self.abandon()
            raise


def _report_forgotten(thread: LoopThread, file: AsyncWriter) -> None:
    """Close a file whose writer was garbage-collected, and report it."""
    if not file.closed and not thread.is_ending:
        BlockingCall(file.abort).start()
        text = f"the writer of {file.path!r} was garbage-collected without being closed"
        warn_forgotten(text, "the file is closed at its flushed length")


class FileReaderBase:
    """A reader on the loop."""

    __slots__ = ("_line_at", "_lines", "_on_loop", "_thread")

    def __init__(self, thread: LoopThread, twin: AsyncReader) -> None:
        self._thread = thread
        self._on_loop = twin
        self._lines: Iterator[bytes] = iter(())
        """Lines that were read ahead: the position of the twin is before them."""
        self._line_at = _NOWHERE
        """Position and size of the file when these were its next lines; else they are dropped."""

    def close(self) -> None:
        """Close it. Does nothing in a forked child."""
        self._lines = iter(())
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._on_loop.close)

    def __iter__(self) -> Self:
        """Iterate over the lines."""
        return self

    def __next__(self) -> bytes:
        reader = self._on_loop
        position, size = reader.tell(), reader.size
        are_next = self._line_at == (position, size)
        self._line_at = _NOWHERE  # if this call is interrupted, the lines are read again
        line = next(self._lines, b"") if are_next else b""
        if not line:
            self._lines = iter(self._thread.run(lambda: _lines_at(reader, position)))
            line = next(self._lines)
        self._line_at = reader.seek(position + len(line)), size
        return line

    def __enter__(self) -> Self:
        self._thread.check_process()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _lines_at(reader: AsyncReader, position: int) -> list[bytes]:
    """Return lines that can be read together, at least one before the end. The position stays."""
    data = await reader.read1(LINES_BYTES)
    reader.seek(position)
    if end := data.rfind(b"\n") + 1:
        return BytesIO(data[:end]).readlines()
    line = await reader.readline()
    reader.seek(position)
    return [line] if line else []
