"""What the commands say: lines, sizes, and one line that is redrawn while something takes long."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self, TextIO

from leasehold.cli.exits import FAILURE
from leasehold.cli.settings.shown import one_line
from leasehold.cli.signals import SIGNALS
from leasehold.errors import LeaseholdError

REDRAW_S: Final = 0.1
BAR_COLUMNS: Final = 24
_CLEAR: Final = "\r\x1b[K"


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def complain(line: str) -> int:
    """Print what went wrong; return the exit code."""
    if sys.stderr is not None:  # it may be closed
        sys.stderr.write(f"leasehold: {one_line(line)}\n")
    return FAILURE


def told(work: Callable[[], str]) -> int:
    """Do something and print what has come of it, good or bad; return the exit code.

    A signal ends it from within, so that nothing is left half done.
    """
    try:
        with SIGNALS.raising():
            say(work())
    except LeaseholdError as error:
        return complain(str(error))
    except OSError as error:
        which = f"{error.filename}: " if error.filename else ""
        return complain(f"{which}{error.strerror or error}")
    return 0


def file(text: str) -> Path:
    """Read the name of a file."""
    if not text:
        raise argparse.ArgumentTypeError("the file name is empty: write one, such as ./backup.db")
    return Path(text)


def size(size_bytes: float) -> str:
    """Write a size for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"


def count(number: int, what: str) -> str:
    """Write how many there are of something."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class ProgressBar:
    """One line on a terminal; elsewhere nothing."""

    def __init__(
        self,
        what: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty()
        self._clock = clock
        self._redraw_at = clock()

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Show how far it is."""
        if not self._is_shown or self._clock() < self._redraw_at:
            return
        self._redraw_at = self._clock() + REDRAW_S
        part = done_bytes / total_bytes if total_bytes else 0.0
        bar = ("#" * int(part * BAR_COLUMNS)).ljust(BAR_COLUMNS, ".")
        sizes = f"{size(done_bytes)} of {size(total_bytes)}"
        self._write(f"{_CLEAR}{self._what} [{bar}] {part:4.0%}  {sizes}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
