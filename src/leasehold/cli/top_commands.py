"""What `leasehold top` does: look, show, wait, and look again."""

import argparse
import asyncio
import itertools
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from leasehold.cli.connection import Place, said, with_place
from leasehold.cli.exits import NO_SERVER, OK
from leasehold.cli.printing import emit_json, emit_lines, is_terminal
from leasehold.cli.reporting import complain
from leasehold.cli.signals import SIGNALS
from leasehold.cli.top_reading import Reader, Sight
from leasehold.cli.top_screen import Screen
from leasehold.cli.top_view import document, lines
from leasehold.errors import CallRefused, HistoryLost, LeaseholdError
from leasehold.rpc.channel import Channel
from leasehold.rpc.tls import HTTP1, client_tls

T = TypeVar("T")

PATIENCE_S: Final = 2.0
"""How long a look may take, once there was one, before a screen says that nobody answers."""


def run(arguments: argparse.Namespace) -> int:
    """Look until told to end; return the exit code."""

    async def main(place: Place) -> int:
        async with Channel(place.endpoints, tls=place.tls) as channel:
            await _within(place.timeout_s, channel.ready(), channel)
            reader = Reader(channel, arguments.prefix, lambda: _page_tls(channel, arguments))
            showing = _Showing(reader, channel, place, arguments)
            try:
                return await showing.go_on()
            except asyncio.CancelledError:
                if SIGNALS.heard is None:
                    raise
                return OK

    return with_place(arguments, main)


def _page_tls(channel: Channel, arguments: argparse.Namespace) -> ssl.SSLContext | None:
    """Make what `/metrics` is asked for with: as the calls are, and another protocol."""
    named = (arguments.cacert, arguments.cert, arguments.key)
    is_tls = channel.address is not None and channel.address.is_tls
    if is_tls is False or (is_tls is None and named == (None, None, None)):
        return None
    context = client_tls(*named)
    context.set_alpn_protocols([HTTP1])
    return context


async def _within(seconds: float, call: Coroutine[Any, Any, T], channel: Channel) -> T:
    """Wait for a call; `TimeoutError` says why there was no answer, if that is known."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call
    except TimeoutError as error:
        if not limit.expired():
            raise
        why = f": {channel.trouble}" if channel.trouble else ""
        raise TimeoutError(f"no answer within {seconds:g} s{why}") from error


class _Showing:
    """Looks again and again, and shows what it sees, or why it sees nothing."""

    def __init__(
        self, reader: Reader, channel: Channel, place: Place, arguments: argparse.Namespace
    ) -> None:
        self._reader = reader
        self._channel = channel
        self._timeout_s = place.timeout_s
        self._every_s: float = arguments.every
        self._count: int | None = arguments.count
        self._is_json: bool = arguments.json
        self._sight: Sight | None = None
        self._trouble = ""
        self._has_quit = asyncio.Event()
        self._screen = Screen(self._redraw, self._has_quit.set)

    async def go_on(self) -> int:
        """Look until told to end."""
        if self._is_json or not is_terminal() or self._count == 1:
            return await self._look_often(self._print)
        await self._look(self._timeout_s)  # so that a server that is not there leaves no trace
        with self._screen.ours():
            return await self._look_often(self._redraw)

    async def _look_often(self, show: Callable[[], None]) -> int:
        loop = asyncio.get_running_loop()
        for looks in itertools.count(1):
            began_s = loop.time()
            if looks > 1 or self._sight is None:
                await self._look(self._timeout_s if self._sight is None else self._patience_s)
            show()
            if looks == self._count:
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

    async def _look(self, patience_s: float) -> None:
        """Look once. The first look must work; afterwards trouble is shown, and may pass."""
        try:
            self._sight = await _within(patience_s, self._reader.look(), self._channel)
        except (LeaseholdError, OSError) as error:  # of which TimeoutError is one
            if self._sight is None or isinstance(error, CallRefused):
                raise
            if isinstance(error, HistoryLost):
                self._reader.forget()
            self._trouble = said(error)
        else:
            self._trouble = ""

    def _redraw(self) -> None:
        if self._sight is not None:
            height = self._screen.size.lines
            self._screen.draw(lines(self._sight, trouble=self._trouble, height=height))

    def _print(self) -> None:
        assert self._sight is not None, "the first look has worked"
        if self._trouble:
            complain(self._trouble)
        elif self._is_json:
            emit_json(document(self._sight))
        else:
            emit_lines([*(line.text for line in lines(self._sight)), ""])
