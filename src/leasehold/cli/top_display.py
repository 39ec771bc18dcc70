"""The refreshed display of `leasehold top`: read, show, wait, repeat.

On a terminal it takes the whole screen, which is restored afterwards; otherwise it prints lines or
JSON. It uses escape sequences that every terminal since the VT100 supports, and xterm's alternate
screen where there is one. Typed characters are not echoed; `q` quits. While the process is stopped
(Ctrl-Z) the terminal belongs to the shell.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import ssl
import sys
import termios
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from leasehold.basics.tls import HTTP1, client_tls
from leasehold.cli.connection import ConnectOptions, error_text
from leasehold.cli.output import emit, emit_json, emit_lines, is_terminal, print_error
from leasehold.cli.parser import NO_SERVER, OK
from leasehold.cli.signals import SIGNALS
from leasehold.cli.top_reading import ServerSnapshot, TopReader
from leasehold.cli.top_view import ScreenLine, document, fitted, lines
from leasehold.errors import CallRefused, HistoryLost, LeaseholdError
from leasehold.grpc.channel import Channel

T = TypeVar("T")

PATIENCE_S: Final = 2.0
"""How long a read may take, after the first one, before the screen reports no answer."""

_ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
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


async def refresh(arguments: argparse.Namespace, server: ConnectOptions) -> int:
    """Read and show until a signal or the end; return the exit code."""
    async with Channel(server.endpoints, tls=server.tls) as channel:
        await _within(server.timeout_s, channel.ready(), channel)
        reader = TopReader(channel, arguments.prefix, lambda: _page_tls(channel, arguments))
        display = _Display(reader, channel, server, arguments)
        try:
            return await display.go_on()
        except asyncio.CancelledError:
            if SIGNALS.received is None:
                raise
            return OK


def _page_tls(channel: Channel, arguments: argparse.Namespace) -> ssl.SSLContext | None:
    """Make the TLS context for `/metrics`: as for the calls, with another protocol."""
    named = (arguments.cacert, arguments.cert, arguments.key)
    is_tls = channel.address is not None and channel.address.is_tls
    if is_tls is False or (is_tls is None and named == (None, None, None)):
        return None
    context = client_tls(*named)
    context.set_alpn_protocols([HTTP1])
    return context


async def _within(seconds: float, call: Coroutine[Any, Any, T], channel: Channel) -> T:
    """Wait for a call. Raises `TimeoutError` with the reason for the missing answer, if known."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call
    except TimeoutError as error:
        if not limit.expired():
            raise
        why = f": {channel.trouble}" if channel.trouble else ""
        raise TimeoutError(f"no answer within {seconds:g} s{why}") from error


class _Display:
    """Reads repeatedly, and shows the result or the error."""

    def __init__(
        self,
        reader: TopReader,
        channel: Channel,
        server: ConnectOptions,
        arguments: argparse.Namespace,
    ) -> None:
        self._reader = reader
        self._channel = channel
        self._timeout_s = server.timeout_s
        self._every_s: float = arguments.every
        self._count: int | None = arguments.count
        self._is_json: bool = arguments.json
        self._snapshot: ServerSnapshot | None = None
        self._trouble = ""
        self._has_quit = asyncio.Event()
        self._screen = Screen(self._redraw, self._has_quit.set)

    async def go_on(self) -> int:
        """Refresh until the end; return the exit code."""
        if self._is_json or not is_terminal() or self._count == 1:
            return await self._refresh(self._print)
        await self._read(self._timeout_s)  # before drawing: an unreachable server leaves no trace
        with self._screen.ours():
            return await self._refresh(self._redraw)

    async def _refresh(self, show: Callable[[], None]) -> int:
        loop = asyncio.get_running_loop()
        for reads in itertools.count(1):
            began_s = loop.time()
            if reads > 1 or self._snapshot is None:
                await self._read(self._timeout_s if self._snapshot is None else self._patience_s)
            show()
            if reads == self._count:
                break
            await self._rest(began_s + self._every_s - loop.time())
            if self._has_quit.is_set():
                return OK
        return NO_SERVER if self._trouble else OK

    @property
    def _patience_s(self) -> float:
        return min(self._timeout_s, max(PATIENCE_S, self._every_s))

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._has_quit.wait()
        except TimeoutError:
            return

    async def _read(self, patience_s: float) -> None:
        """Read once. The first read must succeed; later errors are shown, and may pass."""
        try:
            self._snapshot = await _within(patience_s, self._reader.read(), self._channel)
        except (LeaseholdError, OSError) as error:  # which includes TimeoutError
            if self._snapshot is None or isinstance(error, CallRefused):
                raise
            if isinstance(error, HistoryLost):
                self._reader.forget()
            self._trouble = error_text(error)
        else:
            self._trouble = ""

    def _redraw(self) -> None:
        if self._snapshot is not None:
            height = self._screen.size.lines
            self._screen.draw(lines(self._snapshot, trouble=self._trouble, height=height))

    def _print(self) -> None:
        assert self._snapshot is not None, "the first look has worked"
        if self._trouble:
            print_error(self._trouble)
        elif self._is_json:
            emit_json(document(self._snapshot))
        else:
            emit_lines([*(line.text for line in lines(self._snapshot)), ""])


class Screen:
    """The terminal of a live display. `on_resize` and `on_quit` are called on the loop."""

    def __init__(self, on_resize: Callable[[], None], on_quit: Callable[[], None]) -> None:
        self._on_resize = on_resize
        self._on_quit = on_quit

    @property
    def size(self) -> os.terminal_size:
        """Its current size."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except (OSError, ValueError):
            return _DEFAULT_SIZE
        return size if size.columns and size.lines else _DEFAULT_SIZE

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Take the terminal and read its input until the block ends."""
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

    def draw(self, lines: Sequence[ScreenLine]) -> None:
        """Show lines, cut to the size of the terminal."""
        columns, rows = self.size
        encoding = sys.stdout.encoding or "utf-8"
        shown = [self._drawn(line, columns) for line in lines[:rows]]
        emit((_HOME + "\r\n".join(shown) + _REST_OF_SCREEN).encode(encoding, "backslashreplace"))

    @staticmethod
    def _drawn(line: ScreenLine, columns: int) -> str:
        text = fitted(line.text, columns)
        return (f"{_HEAD}{text}{_PLAIN}" if line.is_head else text) + _REST_OF_LINE

    # Input.

    def _quieten(self) -> list[Any] | None:
        """Switch echo off; return the previous attributes, None if there is no terminal input."""
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
        with contextlib.suppress(Exception):  # the terminal may be gone
            emit(_LEAVE.encode())
        if self._before is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._before)

    def _stop(self) -> None:
        """Restore the terminal, stop, and take the terminal again when continued."""
        self._restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._before = self._quieten()
        emit(_ENTER.encode())
        self._on_resize()
