"""SIGINT and SIGTERM in a command, from its first moment to its last: never a traceback.

What a signal does depends on what there is to lose:

    nothing yet         the process ends, there and then
    work to be undone   `Ended` is raised, wherever the work is, and undoes it on its way out
    a server            is told, and stops in good order
    a command, started  it is passed on to it, and nothing else

A second signal ends the process at once, whatever it does, unless signals are passed on. The exit
code is that of a shell for a process that the signal has killed: 130 for SIGINT, 143 for SIGTERM. A
server that was ready, and has stopped as it was told to, ends with 0.

Little is imported here, because this comes first.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)

_KILLED: Final = 128


class Ended(BaseException):
    """The process was told to end while it did something."""


def exit_code(number: int) -> int:
    """Say what a process ends with that a signal has stopped before it was done."""
    return _KILLED + number


class Signals:
    """What was heard so far, and what is to be done about the next one."""

    def __init__(self) -> None:
        self.heard: int | None = None
        """The first signal that came; None if none did."""
        self._react: Callable[[int], None] = _leave

    def listen(self) -> None:
        """Have signals come here; one that is ignored stays so, as `nohup` and shells want it."""
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Have `Ended` raised by a signal, while this lasts."""
        with self.telling(_raise_ended):
            yield

    @contextmanager
    def telling(self, react: Callable[[int], None]) -> Iterator[None]:
        """Have this called by a signal, between any two steps of the main thread."""
        before, self._react = self._react, react
        try:
            yield
        finally:
            self._react = before

    @contextmanager
    def passing(self, reactions: Mapping[int, Callable[[int], None]]) -> Iterator[None]:
        """Have each of these signals passed on, however many come, while this lasts.

        None of them ends the process, and none counts as heard. One that is ignored stays so.
        """
        before = {
            number: signal.signal(number, lambda heard, _: reactions[heard](heard))
            for number in reactions
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.heard is not None:
            _leave(number)
        self.heard = number
        self._react(number)


def _leave(number: int) -> NoReturn:
    os._exit(exit_code(number))


def _raise_ended(number: int) -> NoReturn:
    raise Ended(number)


SIGNALS: Final = Signals()
"""Those of this process."""
