"""Logs on standard error: text lines for people, or one JSON object per line for machines.

The reader may be slow or gone. The server must neither wait for it nor fail because of it: a thread
writes the lines, lines that do not fit into the buffer are dropped and counted, and write errors
are ignored.
"""

import contextlib
import json
import logging
import queue
import sys
import threading
import time
from typing import Any, Final, TextIO

MAX_WAITING: Final = 10_000
"""Lines that are buffered for the reader."""

LAST_LINES_S: Final = 1.0
"""How long `close` waits for the last lines to be written."""

FIELDS: Final = "fields"
"""The attribute of a record with fields for machines: `extra={FIELDS: {...}}`."""


class ConsoleFormatter(logging.Formatter):
    """`2025-03-01 12:00:00 warning: the message`, in local time."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(lowered)s: %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a line, followed by a traceback if there is one."""
        record.lowered = record.levelname.lower()
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """A JSON object with time (RFC 3339, UTC), level, logger, message, and exception if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)


FORMATTERS: Final = {"console": ConsoleFormatter, "json": JsonFormatter}


class BackgroundHandler(logging.Handler):
    """Writes lines in its own thread."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event | None] = queue.Queue(MAX_WAITING)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record for writing, if there is room."""
        try:
            line = self.format(record)
        except Exception as error:  # noqa: BLE001  logging must not raise in the caller
            line = f"a record from {record.name} could not be written: {error!r}"
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            dropped, self._dropped = self._dropped, 0
            if dropped:
                record = logging.makeLogRecord(
                    {"name": __name__, "levelname": "WARNING", "msg": f"{dropped} lines were lost"}
                )
                line = f"{line}\n{self.format(record)}"
            with contextlib.suppress(OSError, ValueError):  # the reader is gone, or it is closed
                self._stream.write(line + "\n")
                self._stream.flush()

    def flush(self) -> None:
        """Wait up to `LAST_LINES_S` until the lines before this call are written."""
        written = threading.Event()
        with contextlib.suppress(queue.Full):
            if self._thread.is_alive():
                self._lines.put_nowait(written)
                written.wait(LAST_LINES_S)

    def close(self) -> None:
        """Wait up to `LAST_LINES_S` for the last lines."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
            self._thread.join(LAST_LINES_S)
        super().close()


def set_up_logs(level: str, format_name: str) -> logging.Handler:
    """Set up logging; the caller must `close` the returned handler."""
    handler: logging.Handler = (
        logging.NullHandler()  # standard error was closed; its number may now be another file
        if sys.stderr is None
        else BackgroundHandler(sys.stderr)
    )
    handler.setFormatter(FORMATTERS[format_name]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    return handler
