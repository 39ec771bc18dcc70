"""A command that runs under something that can be lost, such as a lock: our side of the warden.

Theory of operation. `warden` starts the command and ends it in time, even if this process cannot.
Here it is told until when the lock may be relied on, over and over, and what signals to pass on;
what it says becomes an exit code.

Invariant: the command ends before the lock's lease does, whatever TTL the server has granted. The
warden sends SIGTERM one grace period before the end of the lease, and SIGKILL by that end.

At a terminal the command is in the foreground, as if a shell had started it: keys such as Ctrl-C
are its own. If it is stopped there (Ctrl-Z) we stop as well, and have it go on only if the lock is
still there when we do.
"""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from leasehold.cli.signals import SIGNALS, exit_code
from leasehold.client.signal import Signal
from leasehold.clock import SYSTEM_CLOCK
from leasehold.core.duration import Duration, seconds_of

WARDEN: Final = Path(__file__).with_name("warden.py")

TELL: Final = 0.05
TELL_MAX_S: Final = 1.0
"""How often the warden is told: a part of the term."""

MAX_GRACE: Final = 1 / 2
"""The longest grace period, as a part of the time that remains when the command is started: the
command needs time to run before it is ended."""

ENDING_POLL_S: Final = 0.02
REAP_S: Final = 5.0

CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
"""What shells say of a command that cannot be run, and of one that is not there."""

TO_ALL: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Passed on to everything that the command has started, as a terminal would."""

TO_ONE: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""Passed on to the command alone, which gives them a meaning."""

OF_BACKGROUND: Final = (signal.SIGTTIN, signal.SIGTTOU)
"""What stops a command that wants the terminal, and does not have it."""

_STDIN: Final = 0
_STDOUT: Final = 1


class Guarded(Protocol):
    """What a command runs under."""

    @property
    def remaining(self) -> Duration:
        """How long it may be relied on; 0 once it is lost."""

    @property
    def lost(self) -> Signal:
        """Set once it is lost."""


class End(Enum):
    """How it has come to an end."""

    BY_ITSELF = "by itself"
    LOST = "lost"
    FAILED = "failed"
    """There is no such command, or it cannot be run."""
    UNGUARDED = "unguarded"
    """The warden is gone, and so the command was ended."""


class Outcome(NamedTuple):
    """What has become of a command."""

    end: End
    code: int
    """What it has ended with, as a shell would say."""
    why: str = ""


class Supervised:
    """One command, from its start to its end."""

    def __init__(
        self, guard: Guarded, command: Sequence[str], *, grace_s: float, term_s: float
    ) -> None:
        self._guard = guard
        self._command = list(command)
        self._grace_s = min(grace_s, MAX_GRACE * seconds_of(guard.remaining))
        self._tell_s = min(TELL_MAX_S, TELL * term_s)
        self._control = -1
        self._pid: int | None = None
        self._is_foreground = False
        self._why_ended = ""
        self._end = End.BY_ITSELF

    async def run(self, variables: Mapping[str, str]) -> Outcome:
        """Run it to its end, with these in its environment."""
        self._is_foreground = _has_terminal()
        control, self._control = os.pipe()
        report, their_report = os.pipe()
        os.set_blocking(self._control, False)
        with SIGNALS.passing(self._reactions()):
            try:
                await asyncio.sleep(
                    0
                )  # a signal that has come before this ends us before it begins
                process = self._start(control, their_report, variables)
                return await self._watch(process, report)
            finally:
                os.close(self._control)  # which ends what is not over
                self._take_terminal()

    def _start(
        self, control: int, report: int, variables: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start the warden, in a group of its own: keys of the terminal are not for it.

        It inherits blocked signals, so that none ends it before it ignores them.
        """
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for number in (control, report):
            os.set_inheritable(number, True)
        settings = [control, report, self._until_s(), self._grace_s, int(self._is_foreground)]
        try:
            return subprocess.Popen(  # noqa: S603  our own program, and what was asked for
                [sys.executable, "-I", "-S", WARDEN, *map(str, settings), *self._command],
                env={**os.environ, **variables},
                close_fds=False,  # what a shell has opened for the command is for the command
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(control)
            os.close(report)

    def _until_s(self) -> float:
        return SYSTEM_CLOCK.boottime() + seconds_of(self._guard.remaining) - self._grace_s

    # While it runs.

    async def _watch(self, process: "subprocess.Popen[bytes]", report: int) -> Outcome:
        said = asyncio.StreamReader()
        with open(report, "rb", buffering=0) as pipe:  # noqa: ASYNC230  it is open
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(said), pipe
            )
            keeping = asyncio.create_task(self._keep_telling())
            try:
                outcome = await self._listen(said)
            finally:
                keeping.cancel()
                transport.close()
        if outcome is None:
            outcome = await self._end_unguarded()
        process.wait(REAP_S)  # it has said its last word
        return outcome

    async def _keep_telling(self) -> None:
        """Tell the warden how long the lock can be relied on, until it is lost."""
        while not self._guard.lost and self._guard.remaining:
            self._tell(f"until {self._until_s()}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tell_s):
                    await self._guard.lost.wait()
        self._lose()

    def _lose(self, why: str = "") -> None:
        if self._end is not End.LOST:
            self._end, self._why_ended = End.LOST, why
            self._tell("end")

    async def _listen(self, said: asyncio.StreamReader) -> Outcome | None:
        """Hear what the warden says; None if it has gone without a word."""
        async for line in said:
            match line.split():
                case [b"started", pid]:
                    self._pid = int(pid)
                case [b"failed", number]:
                    code = NOT_FOUND if int(number) == errno.ENOENT else CANNOT_RUN
                    return Outcome(End.FAILED, code, os.strerror(int(number)))
                case [b"stopped", number]:
                    self._stopped(int(number))
                case [b"late"]:
                    self._lose("it was not renewed in time")
                case [b"exited", code]:
                    return Outcome(self._end, int(code), self._why_ended)
                case [b"killed", number]:
                    return Outcome(self._end, exit_code(int(number)), self._why_ended)
        return None

    async def _end_unguarded(self) -> Outcome:
        """End the command without the warden; whoever inherits it takes it away."""
        loop = asyncio.get_running_loop()
        kill_at_s = loop.time() + self._grace_s
        number: int = signal.SIGTERM
        while self._pid is not None:
            try:
                os.killpg(self._pid, number)
            except OSError:
                break
            if number == signal.SIGKILL:
                break
            number = signal.SIGKILL if loop.time() >= kill_at_s else 0  # which only asks
            await asyncio.sleep(ENDING_POLL_S)
        why = "the process that watched over the command is gone"
        return Outcome(End.UNGUARDED, exit_code(signal.SIGTERM), why)

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it is gone, which is noticed elsewhere
            os.write(self._control, line.encode() + b"\n")

    # Signals and the terminal.

    def _reactions(self) -> dict[int, Callable[[int], None]]:
        return {
            **dict.fromkeys(TO_ALL, lambda number: self._tell(f"signal {number}")),
            **dict.fromkeys(TO_ONE, lambda number: self._tell(f"only {number}")),
            signal.SIGTSTP: self._stop,
            signal.SIGCONT: self._go_on,
        }

    def _stop(self, number: int) -> None:
        """Stop the command, and then ourselves."""
        self._tell(f"signal {number}")
        os.kill(os.getpid(), signal.SIGSTOP)

    def _stopped(self, number: int) -> None:
        """Learn that the command was stopped; at a terminal the shell takes over then."""
        if self._is_foreground or number in OF_BACKGROUND:
            self._take_terminal()
            os.kill(os.getpid(), signal.SIGSTOP)

    def _go_on(self, number: int) -> None:
        """Have the command go on, if the lock is still there. We may have been stopped for long."""
        if not self._guard.remaining:
            self._lose("it was not renewed while leasehold was stopped")
            return
        self._tell(f"until {self._until_s()}")
        if self._pid is not None and _has_terminal():
            self._is_foreground = True  # which it was not if it was started in the background
            _give_terminal(self._pid)
        self._tell(f"signal {number}")

    def _take_terminal(self) -> None:
        with contextlib.suppress(OSError):  # it may be gone
            if self._is_foreground and os.tcgetpgrp(_STDIN) == self._pid:
                _give_terminal(os.getpgrp())


def _has_terminal() -> bool:
    """Whether we are in the foreground of a terminal, and no other program reads what we write."""
    try:
        is_terminal = os.isatty(_STDIN) and os.isatty(_STDOUT)
        return is_terminal and os.tcgetpgrp(_STDIN) == os.getpgrp()
    except OSError:
        return False


def _give_terminal(group: int) -> None:
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(_STDIN, group)
    finally:
        signal.signal(signal.SIGTTOU, before)
