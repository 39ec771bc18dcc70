"""A command that runs under something that can be lost, such as a lock: the side of `leasehold`.

Theory of operation. The supervisor (`supervisor.py`) starts the command and ends it in time, even
if this process cannot. This module repeatedly sends it the time until which the lock is valid, and
the signals to forward; it turns the supervisor's reports into an exit code.

Invariant: the command ends before the lock's lease does, whatever TTL the server has granted. The
supervisor sends SIGTERM one grace period before the end of the lease, and SIGKILL by that end.

On a terminal the command is in the foreground, as if a shell had started it: it receives keys such
as Ctrl-C. If it is stopped there (Ctrl-Z) we stop as well, and continue it only if the lock is
still held when we continue.
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

from leasehold.basics.durations import Duration, seconds_of
from leasehold.cli.signals import SIGNALS, STOPPING, exit_code
from leasehold.clock import SYSTEM_CLOCK
from leasehold.sessions.kept_lease import Signal

SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")

SEND_EVERY: Final = 0.05
MAX_SEND_EVERY_S: Final = 1.0
"""The interval of updates to the supervisor: a fraction of the TTL, and the maximum."""

MAX_GRACE: Final = 1 / 2
"""The longest grace period, as a fraction of the time that remains when the command is started: the
command needs time to run before it is ended."""

ENDING_POLL_S: Final = 0.02
REAP_S: Final = 5.0

CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
"""Exit codes of shells for a command that cannot be run, and for one that does not exist."""

TO_ALL: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Forwarded to the process group of the command, as a terminal would."""

TO_ONE: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""Forwarded to the command alone, which defines their meaning."""

OF_BACKGROUND: Final = (signal.SIGTTIN, signal.SIGTTOU)
"""These stop a background command that uses the terminal."""

_STDIN: Final = 0
_STDOUT: Final = 1


class HeldRight(Protocol):
    """The lock or permit that a command runs under."""

    @property
    def remaining(self) -> Duration:
        """How long it is still valid; 0 once it is lost."""

    @property
    def lost(self) -> Signal:
        """Set once it is lost."""


class CommandEnd(Enum):
    """How the command has ended."""

    EXITED = "exited"
    LOST = "lost"
    FAILED = "failed"
    """The command does not exist, or cannot be run."""
    UNGUARDED = "unguarded"
    """The supervisor was gone, so the command was ended."""


class CommandOutcome(NamedTuple):
    """The result of a command."""

    end: CommandEnd
    code: int
    """Its exit code, as a shell reports it."""
    why: str = ""


class SupervisedCommand:
    """One command, from its start to its end."""

    def __init__(
        self, guard: HeldRight, command: Sequence[str], *, grace_s: float, term_s: float
    ) -> None:
        self._guard = guard
        self._command = list(command)
        self._grace_s = min(grace_s, MAX_GRACE * seconds_of(guard.remaining))
        self._send_every_s = min(MAX_SEND_EVERY_S, SEND_EVERY * term_s)
        self._control = -1
        self._pid: int | None = None
        self._stdin: int | None = None
        self._is_foreground = False
        self._why_ended = ""
        self._end = CommandEnd.EXITED

    async def run(
        self,
        variables: Mapping[str, str],
        *,
        stdin: int | None = None,
        on_stop: Callable[[int], None] | None = None,
    ) -> CommandOutcome:
        """Run it to its end, with these variables in its environment.

        `stdin` is a file for its standard input, in the place of ours; it is then not in the
        foreground of a terminal. `on_stop` is called for SIGINT and SIGTERM, which are then not
        forwarded: it may make the guard report a loss, which ends the command.
        """
        self._stdin = stdin
        self._is_foreground = stdin is None and _has_terminal()
        control, self._control = os.pipe()
        report, their_report = os.pipe()
        os.set_blocking(self._control, False)
        reactions = self._reactions() | (
            {} if on_stop is None else dict.fromkeys(STOPPING, on_stop)
        )
        with SIGNALS.forwarding(reactions):
            try:
                await asyncio.sleep(
                    0
                )  # a signal that arrived before ends us before the command starts
                process = self._start(control, their_report, variables)
                return await self._watch(process, report)
            finally:
                os.close(self._control)  # which makes the supervisor end a running command
                self._take_terminal()

    def _start(
        self, control: int, report: int, variables: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start the supervisor in its own process group, so that it gets no keys of the terminal.

        It inherits blocked signals, so that none ends it before it ignores them.
        """
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for number in (control, report):
            os.set_inheritable(number, True)
        settings = [control, report, self._until_s(), self._grace_s, int(self._is_foreground)]
        try:
            return subprocess.Popen(  # noqa: S603  our own program and arguments
                [sys.executable, "-I", "-S", SUPERVISOR, *map(str, settings), *self._command],
                env={**os.environ, **variables},
                stdin=self._stdin,
                close_fds=False,  # files that a shell has opened for the command
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(control)
            os.close(report)

    def _until_s(self) -> float:
        return SYSTEM_CLOCK.boottime() + seconds_of(self._guard.remaining) - self._grace_s

    # While it runs.

    async def _watch(self, process: "subprocess.Popen[bytes]", report: int) -> CommandOutcome:
        reports = asyncio.StreamReader()
        with open(report, "rb", buffering=0) as pipe:  # noqa: ASYNC230  it is open
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reports), pipe
            )
            keeping = asyncio.create_task(self._keep_sending())
            try:
                outcome = await self._read_reports(reports)
            finally:
                keeping.cancel()
                transport.close()
        if outcome is None:
            outcome = await self._end_unguarded()
        process.wait(REAP_S)  # it has sent its last report
        return outcome

    async def _keep_sending(self) -> None:
        """Send the supervisor the time until which the lock is valid, until it is lost."""
        while not self._guard.lost and self._guard.remaining:
            self._send(f"until {self._until_s()}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._send_every_s):
                    await self._guard.lost.wait()
        self._lose()

    def _lose(self, why: str = "") -> None:
        if self._end is not CommandEnd.LOST:
            self._end, self._why_ended = CommandEnd.LOST, why
            self._send("end")

    async def _read_reports(self, reports: asyncio.StreamReader) -> CommandOutcome | None:
        """Read the supervisor's reports; return None if it has ended without a last one."""
        async for line in reports:
            match line.split():
                case [b"started", pid]:
                    self._pid = int(pid)
                case [b"failed", number]:
                    code = NOT_FOUND if int(number) == errno.ENOENT else CANNOT_RUN
                    return CommandOutcome(CommandEnd.FAILED, code, os.strerror(int(number)))
                case [b"stopped", number]:
                    self._stopped(int(number))
                case [b"late"]:
                    self._lose("it was not renewed in time")
                case [b"exited", code]:
                    return CommandOutcome(self._end, int(code), self._why_ended)
                case [b"killed", number]:
                    return CommandOutcome(self._end, exit_code(int(number)), self._why_ended)
        return None

    async def _end_unguarded(self) -> CommandOutcome:
        """End the command without the supervisor; the process that inherits it reaps it."""
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
            number = signal.SIGKILL if loop.time() >= kill_at_s else 0  # 0 only checks
            await asyncio.sleep(ENDING_POLL_S)
        why = "the supervisor of the command was killed"
        return CommandOutcome(CommandEnd.UNGUARDED, exit_code(signal.SIGTERM), why)

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it is gone, which is detected elsewhere
            os.write(self._control, line.encode() + b"\n")

    # Signals and the terminal.

    def _reactions(self) -> dict[int, Callable[[int], None]]:
        return {
            **dict.fromkeys(TO_ALL, lambda number: self._send(f"signal {number}")),
            **dict.fromkeys(TO_ONE, lambda number: self._send(f"only {number}")),
            signal.SIGTSTP: self._stop,
            signal.SIGCONT: self._go_on,
        }

    def _stop(self, number: int) -> None:
        """Stop the command, and then ourselves."""
        self._send(f"signal {number}")
        os.kill(os.getpid(), signal.SIGSTOP)

    def _stopped(self, number: int) -> None:
        """Handle a stop of the command; on a terminal the shell then takes over."""
        if self._is_foreground or number in OF_BACKGROUND:
            self._take_terminal()
            os.kill(os.getpid(), signal.SIGSTOP)

    def _go_on(self, number: int) -> None:
        """Continue the command if the lock is still held. We may have been stopped for long."""
        if not self._guard.remaining:
            self._lose("it was not renewed while leasehold was stopped")
            return
        self._send(f"until {self._until_s()}")
        if self._pid is not None and self._stdin is None and _has_terminal():
            self._is_foreground = True  # it was not if it was started in the background
            _give_terminal(self._pid)
        self._send(f"signal {number}")

    def _take_terminal(self) -> None:
        with contextlib.suppress(OSError):  # it may be gone
            if self._is_foreground and os.tcgetpgrp(_STDIN) == self._pid:
                _give_terminal(os.getpgrp())


def _has_terminal() -> bool:
    """Whether input and output are a terminal, and we are in its foreground."""
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
