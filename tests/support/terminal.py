"""A command on a terminal of its own: what it draws, what is typed, and how large it is."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

WITHIN_S: Final = 60.0
_POLL_S: Final = 0.05
_CONTROLLED: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal the one whose keys are signals, and becomes the command."""

_HOME: Final = "\x1b[H"
_ESCAPES: Final = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")


class Terminal:
    """A terminal, and the process that runs on it."""

    def __init__(self, process: "subprocess.Popen[bytes]", number: int) -> None:
        self.process = process
        self._number = number
        self.drawn = ""
        """All that was written so far, with its escapes."""

    def resize(self, rows: int, columns: int) -> None:
        """Make it another size; the process is told by SIGWINCH."""
        fcntl.ioctl(self._number, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Type something; Ctrl-C is the letter with the number 3."""
        os.write(self._number, text.encode())

    def echoes(self) -> bool:
        """Whether what is typed is shown."""
        return bool(termios.tcgetattr(self._number)[3] & termios.ECHO)

    def is_stopped(self) -> bool:
        """Whether the process has stopped since the last call, as a shell finds out."""
        number, status = os.waitpid(self.process.pid, os.WUNTRACED | os.WNOHANG)
        return number != 0 and os.WIFSTOPPED(status)

    @property
    def foreground(self) -> int:
        """The process group that keys are signals for."""
        return os.tcgetpgrp(self._number)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Read what is drawn until something holds."""
        give_up_at = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < give_up_at, self.drawn[-4000:]
            self._read()

    def _read(self) -> None:
        if select.select([self._number], [], [], _POLL_S)[0]:
            with contextlib.suppress(OSError):  # once the other end is closed
                self.drawn += os.read(self._number, 65536).decode(errors="replace")

    @property
    def screen(self) -> list[str]:
        """The last screen that was drawn, in lines."""
        whole = self.drawn.split(_HOME)[-1]
        return _ESCAPES.sub("", whole).replace("\r", "").split("\n")

    def wait_for_line(self, start: str) -> str:
        """Wait until a line of the screen begins with this; give it."""
        self.wait_for(lambda: any(line.startswith(start) for line in self.screen))
        return next(line for line in self.screen if line.startswith(start))

    def wait_for_end(self) -> int:
        """Wait until the process has ended; give its exit code."""
        self.wait_for(lambda: self.process.poll() is not None)
        self._read()
        assert self.process.returncode is not None
        return self.process.returncode


@contextmanager
def on_terminal(
    command: Sequence[str], variables: Mapping[str, str], rows: int = 24, columns: int = 80
) -> Iterator[Terminal]:
    """Run a command on a terminal of this size, until the block ends."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-c", _CONTROLLED, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=dict(variables),
    )
    terminal = Terminal(process, ours)
    terminal.resize(rows, columns)
    with process:
        try:
            yield terminal
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
