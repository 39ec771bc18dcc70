"""The screen of `leasehold top`: all of a terminal, which is given back as it was.

Plain escapes that every terminal since the VT100 knows, and xterm's second screen where there is
one. What is typed is not shown; `q` ends it. While the process is stopped (Ctrl-Z) the terminal is
that of the shell.
"""

import asyncio
import contextlib
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from leasehold.cli.printing import emit
from leasehold.cli.top_view import Line, fitted

_ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the second screen, without a cursor
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"
_HEAD: Final = "\x1b[7m"
_PLAIN: Final = "\x1b[0m"
_LFLAG: Final = 3
_STDIN: Final = 0
_DEFAULT_SIZE: Final = os.terminal_size((80, 24))
MAX_TYPED_BYTES: Final = 100


class Screen:
    """A terminal, while it is ours. `on_resize` and `on_quit` are called on the loop."""

    def __init__(self, on_resize: Callable[[], None], on_quit: Callable[[], None]) -> None:
        self._on_resize = on_resize
        self._on_quit = on_quit

    @property
    def size(self) -> os.terminal_size:
        """How large it is now."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except (OSError, ValueError):
            return _DEFAULT_SIZE
        return size if size.columns and size.lines else _DEFAULT_SIZE

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Have the terminal until the block ends, and listen to it."""
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as undoing:
            for number, react in (
                (signal.SIGWINCH, self._on_resize),
                (signal.SIGTSTP, self._stop),
            ):
                loop.add_signal_handler(number, react)
                undoing.callback(loop.remove_signal_handler, number)
            self._before = self._quieten()
            undoing.callback(self._restore)
            if self._before is not None:
                loop.add_reader(_STDIN, self._read)
                undoing.callback(loop.remove_reader, _STDIN)
            emit(_ENTER.encode())
            yield

    def draw(self, lines: Sequence[Line]) -> None:
        """Show lines, as many and as much of each as there is room for."""
        columns, rows = self.size
        encoding = sys.stdout.encoding or "utf-8"
        shown = [self._drawn(line, columns) for line in lines[:rows]]
        emit((_HOME + "\r\n".join(shown) + _REST_OF_SCREEN).encode(encoding, "backslashreplace"))

    @staticmethod
    def _drawn(line: Line, columns: int) -> str:
        text = fitted(line.text, columns)
        return (f"{_HEAD}{text}{_PLAIN}" if line.is_head else text) + _REST_OF_LINE

    # What is typed.

    def _quieten(self) -> list[Any] | None:
        """Have nothing shown of what is typed; give how it was, None if nobody can type."""
        try:
            before = termios.tcgetattr(_STDIN)
            quiet = termios.tcgetattr(_STDIN)
            quiet[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(_STDIN, termios.TCSADRAIN, quiet)
        except (termios.error, OSError):
            return None
        return before

    def _read(self) -> None:
        try:
            typed = os.read(_STDIN, MAX_TYPED_BYTES)
        except OSError:
            typed = b""
        if not typed or b"q" in typed.lower():
            self._on_quit()

    def _restore(self) -> None:
        with contextlib.suppress(Exception):  # nobody may be there any more
            emit(_LEAVE.encode())
        if self._before is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._before)

    def _stop(self) -> None:
        """Give the terminal to the shell, stop, and have it back when told to go on."""
        self._restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._before = self._quieten()
        emit(_ENTER.encode())
        self._on_resize()
