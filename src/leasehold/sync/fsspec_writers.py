"""Files of `LeasedFileSystem` that are open for writing: of bytes, compressed, or of text.

One that is garbage-collected while it is open keeps its flushed bytes only, as all files do. The
finalizers of Python's base classes would call `close` instead, which waits for servers and stores.
"""

import io
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from leasehold.errors import LeaseholdError
from leasehold.sync.generated.writer import FileWriter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WRITE_BYTES: Final = 256 * 1024
"""Bytes that small writes collect before they are passed on."""


class _OpenWriter(io.BufferedIOBase):
    """A file that is open for writing.

    A `with` block that ends with an exception keeps the flushed bytes only. With `fsspec.open` all
    written bytes are kept: it calls `close` in either case.
    """

    def __init__(self, path: str) -> None:
        self.path = self.name = path
        self._is_done = False

    def _finish(self) -> None:
        """Flush, and give the file up."""
        raise NotImplementedError

    def _give_up(self) -> None:
        """Give the file up at its flushed length."""
        raise NotImplementedError

    def writable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Flush, and give the file up. If that fails, the file is closed at its flushed length."""
        if self._is_done:
            return
        self._is_done = True
        try:
            self._finish()
        except BaseException:
            with suppress(LeaseholdError, OSError):
                self._give_up()
            raise
        finally:
            super().close()

    def discard(self) -> None:
        """Close the file without the bytes that are not flushed."""
        if not self._is_done:
            self._is_done = True
            self._give_up()
            super().close()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        """Do not close: the writer below closes the file, and reports that it was forgotten."""


class BufferedFileWriter(_OpenWriter):
    """A file that is open for writing. `flush` makes all written bytes durable and visible."""

    mode: ClassVar[str] = "wb"

    def __init__(self, file: FileWriter) -> None:
        """It closes the file."""
        super().__init__(file.path)
        self._file = file
        self._buffer = bytearray()
        self._is_forgotten = False

    def tell(self) -> int:
        """Return the length of the file, with the bytes that are not flushed."""
        return self._file.tell() + len(self._buffer)

    def write(self, data: "ReadableBuffer") -> int:
        """Append bytes, and return their number."""
        if self._is_done:
            raise ValueError("write to a closed file")
        view = memoryview(data).cast("B")
        if self._is_forgotten:
            return len(view)
        self._buffer += view
        if len(self._buffer) >= WRITE_BYTES:
            self._pass_on()
        return len(view)

    def _pass_on(self) -> None:
        before = self._file.tell()
        try:
            if self._buffer:
                self._file.write(self._buffer)
        finally:  # bytes that the file has taken but cannot flush now are passed on once only
            self._buffer = self._buffer[self._file.tell() - before :]

    def flush(self) -> None:
        """Make all written bytes durable in all replicas, and visible to readers."""
        if not self._is_done:
            self._pass_on()
            self._file.flush()

    def _finish(self) -> None:
        self._pass_on()
        self._file.close()

    def _give_up(self) -> None:
        self._file.abort()

    def forget(self) -> None:
        """Drop further bytes: they are of a compressor that is garbage-collected."""
        self._is_forgotten = True


class CompressedFileWriter(_OpenWriter):
    """A compressed file that is open for writing.

    The classes of the algorithms do not close the file that they write to.
    """

    def __init__(self, file: BufferedFileWriter, compressor: Any) -> None:
        """It closes both."""
        super().__init__(file.path)
        self._file = file
        self._compressor = compressor

    def tell(self) -> int:
        """Return the number of bytes that were written, before compression."""
        return int(self._compressor.tell())

    def write(self, data: "ReadableBuffer") -> int:
        """Append bytes, and return their number."""
        return int(self._compressor.write(data))

    def flush(self) -> None:
        """Make the bytes that are compressed already durable and visible."""
        if not self._is_done:
            self._compressor.flush()
            self._file.flush()

    def _finish(self) -> None:
        self._compressor.close()
        self._file.close()

    def _give_up(self) -> None:
        self._file.discard()
        with suppress(ValueError, OSError):  # it writes its end to a file that is closed
            self._compressor.close()

    def __del__(self) -> None:
        """Keep the compressor from writing its end, which could wait for a flush."""
        self._file.forget()


class TextFileWriter(io.TextIOWrapper):
    """A text file that is open for writing; see `BufferedFileWriter`."""

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            self.close()
        else:
            cast("BufferedFileWriter | CompressedFileWriter", self.buffer).discard()

    def __del__(self) -> None:
        """Do nothing, as `BufferedFileWriter` does."""
