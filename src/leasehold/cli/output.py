"""Output of the commands: lines, tables, errors and progress for people; JSON for programs.

In JSON, bytes that are UTF-8 are a text under their name, such as `"value": "hello"`. Others are
in base64 under another name, `"value_base64": "/w=="`, so the two cannot be confused.
"""

import argparse
import base64
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self, TextIO

from leasehold.cli.parser import FAILURE, OK
from leasehold.cli.settings.error_texts import escaped, one_line
from leasehold.cli.signals import SIGNALS
from leasehold.errors import LeaseholdError

MAX_SHOWN_CHARS: Final = 200
"""Of a value in a table. JSON and --print-value-only have all of it."""

REDRAW_S: Final = 0.1
BAR_COLUMNS: Final = 24

_BASE64: Final = "_base64"
_GAP: Final = "  "
_CLEAR: Final = "\r\x1b[K"


class OutputFailedError(Exception):
    """Standard output cannot be written to; the text is the reason."""


# Lines and errors.


def print_line(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_error(line: str) -> int:
    """Print an error; return the exit code."""
    if sys.stderr is not None:  # it may be closed
        sys.stderr.write(f"leasehold: {one_line(line)}\n")
    return FAILURE


def print_result(work: Callable[[], str]) -> int:
    """Do the work and print its result or error; return the exit code.

    A signal raises an exception inside the work, so the work can clean up.
    """
    try:
        with SIGNALS.raising():
            print_line(work())
    except LeaseholdError as error:
        return print_error(str(error))
    except OSError as error:
        which = f"{error.filename}: " if error.filename else ""
        return print_error(f"{which}{error.strerror or error}")
    return 0


# Bytes, lines and JSON of the client commands.


def emit(data: bytes) -> None:
    """Write raw bytes. Raises `BrokenPipeError` if the reader is gone."""
    if sys.stdout is None:
        raise OutputFailedError("cannot print: standard output is closed")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OutputFailedError(f"cannot write to standard output: {why}") from None


def emit_lines(lines: Iterable[str]) -> None:
    """Write lines for people.

    Control characters, which may come from other programs, and characters that the terminal cannot
    show are escaped.
    """
    encoding = (sys.stdout and sys.stdout.encoding) or "utf-8"
    emit("".join(f"{escaped(line)}\n" for line in lines).encode(encoding, "backslashreplace"))


def emit_json(*documents: object) -> None:
    """Write each document as a line, in UTF-8."""
    emit("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in documents).encode())


def print_whether(
    arguments: argparse.Namespace, key: str, is_so: bool, yes: str, no: str, code: int
) -> int:
    """Print a result that is true or false; return the exit code, which is `code` for `no`."""
    if arguments.json:
        emit_json({key: is_so})
    elif is_so:
        emit_lines([yes])
    if is_so:
        return OK
    print_error(no)
    return code


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def named(name: str, data: bytes) -> dict[str, str]:
    """Return bytes for JSON, under their name if they are text."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name + _BASE64: base64.b64encode(data).decode()}


def number(value: float) -> float:
    """Return a number for JSON, as an integer if it has no fraction."""
    return int(value) if value == int(value) else value


# Formats for people.


def shown_bytes(data: bytes, most: int = MAX_SHOWN_CHARS) -> str:
    """Format a key or a value for people, in one line, cut if it is long."""
    text = one_line(data[: 4 * most].decode(errors="backslashreplace"))
    return text if len(text) <= most else f"{text[:most]}... ({size(len(data))})"


def raw_or_shown(data: bytes) -> bytes:
    """Return a line with the raw bytes; on a terminal, with control characters escaped."""
    if is_terminal():
        data = one_line(data.decode(errors="backslashreplace")).encode()
    return data + b"\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Format a table; the last column is not padded."""
    cells = [list(heads), *([_cell(each) for each in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads) - 1)]
    return [_row(row, widths) for row in cells]


def fixed_row(cells: Sequence[Any], widths: Sequence[int]) -> str:
    """Format a row of a table that is printed before all rows are known."""
    return _row([_cell(each) for each in cells], widths)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    *others, last = cells
    padded = [f"{cell:<{width}}" for cell, width in zip(others, widths, strict=True)]
    return _GAP.join([*padded, last]).rstrip()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text or "-"


def facts(pairs: Iterable[tuple[str, Any]]) -> list[str]:
    """Format names and values, one pair per line."""
    known = [(name, _cell(value)) for name, value in pairs]
    width = max(len(name) for name, _ in known)
    return [f"{name:<{width}}{_GAP}{value}" for name, value in known]


def size(size_bytes: float) -> str:
    """Format a size for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"


def count(number: int, what: str) -> str:
    """Format a count with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class ProgressBar:
    """A progress line on a terminal; prints nothing elsewhere."""

    def __init__(
        self,
        what: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        after_s: float = 0.0,
        is_shown: bool = True,
    ) -> None:
        """The line appears `after_s` seconds from now, unless the work is done by then."""
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = is_shown and self._stream is not None and self._stream.isatty()
        self._is_drawn = False
        self._clock = clock
        self._redraw_at = clock() + after_s

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        """Show the progress; `total_bytes` is None if it is not known."""
        if not self._is_shown or self._clock() < self._redraw_at:
            return
        self._redraw_at = self._clock() + REDRAW_S
        self._is_drawn = True
        if total_bytes is None:
            self._write(f"{_CLEAR}{self._what}  {size(done_bytes)}")
            return
        part = done_bytes / total_bytes if total_bytes else 0.0
        bar = ("#" * int(part * BAR_COLUMNS)).ljust(BAR_COLUMNS, ".")
        sizes = f"{size(done_bytes)} of {size(total_bytes)}"
        self._write(f"{_CLEAR}{self._what} [{bar}] {part:4.0%}  {sizes}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
