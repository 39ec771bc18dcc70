"""SIGINT, SIGTERM and SIGHUP in a command, from start to exit: never a traceback.

The effect of a signal depends on the state:

    nothing to undo     the process exits immediately
    work to be undone   `StoppedBySignal` is raised inside the work, which cleans up
    a server            is notified, and stops cleanly
    a child command     the signal is only forwarded to it

A second signal ends the process immediately, unless signals are forwarded. The exit code is the one
that a shell reports for a process killed by the signal: 130 for SIGINT, 143 for SIGTERM, 129 for
SIGHUP. A server that was ready and has stopped cleanly after a signal exits with 0.

This module imports little, because it is imported first.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    import asyncio

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals by which people and service managers end a command."""

_HANDLED: Final = (*STOPPING, signal.SIGHUP)
"""Also the signal of a terminal that was closed: the command then undoes its work."""

_KILLED: Final = 128


class StoppedBySignal(BaseException):
    """A signal has ended work that was in progress."""


def wake_on_signals(loop: "asyncio.AbstractEventLoop") -> None:
    """Let every signal wake up an event loop.

    Otherwise one that arrives just before the loop waits is handled after that, which may be long.
    """
    import threading

    if threading.current_thread() is threading.main_thread():  # no other one handles signals
        loop.add_signal_handler(signal.SIGWINCH, lambda: None)  # its default is to be ignored


def exit_code(number: int) -> int:
    """Return the exit code of a process that a signal ended before it was done."""
    return _KILLED + number


class Signals:
    """The first signal received, and the reaction to the next one."""

    def __init__(self) -> None:
        self.received: int | None = None
        """The first signal received; None if there was none."""
        self._react: Callable[[int], None] = _leave

    def install(self) -> None:
        """Install the handlers. Ignored signals stay ignored, as `nohup` and shells expect."""
        for number in _HANDLED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Within the context, a signal raises `StoppedBySignal`."""
        with self.calling(_raise_stopped):
            yield

    @contextmanager
    def calling(self, react: Callable[[int], None]) -> Iterator[None]:
        """Within the context, a signal calls `react` in the main thread."""
        before, self._react = self._react, react
        try:
            yield
        finally:
            self._react = before

    @contextmanager
    def forwarding(self, reactions: Mapping[int, Callable[[int], None]]) -> Iterator[None]:
        """Within the context, forward each of these signals, any number of times.

        They do not end the process and do not set `received`. Ignored signals stay ignored.
        """
        before = {
            number: signal.signal(number, lambda number, _: reactions[number](number))
            for number in reactions
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:
            _leave(number)
        self.received = number
        self._react(number)


def _leave(number: int) -> NoReturn:
    os._exit(exit_code(number))


def _raise_stopped(number: int) -> NoReturn:
    raise StoppedBySignal(number)


SIGNALS: Final = Signals()
"""The instance of this process."""
