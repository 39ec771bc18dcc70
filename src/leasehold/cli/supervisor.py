"""The supervisor: starts a command, and ends it when the lock that it runs under is lost.

The process that holds the lock may be killed, stopped or stuck, and the command must still end in
time. So there are three processes, each in a process group of its own:

    leasehold lock     holds the lock, and sends until when it is valid
      supervisor       this process: a clock and one child
        command

The supervisor reads lines from a pipe: `until T`, by the clock that runs through suspend; `signal
N` for the process group of the command; `only N` for the command alone; `end`. It ends the process
group when it reads `end`, when the time is up, and when the pipe is closed, which happens when
`leasehold` has ended in any way. To end means SIGTERM and, after the grace period, SIGKILL. T is
one grace period before the end of the lease. A delay of the supervisor does not postpone SIGKILL.

A command that is stopped (Ctrl-Z) when the time is up is left stopped, and SIGSTOP stops the
members of its group that have ignored the first stop. From then on it never runs again: SIGKILL
ends it when it would be continued, without a grace period, unless a later `until` came before.

The supervisor writes lines to another pipe: `started PID`, `failed ERRNO` if the command cannot be
run, `stopped N`, `late` when the time was up, and last `exited CODE` or `killed N`. If the
supervisor itself is killed, that pipe is closed and `leasehold` ends the command. No other signal
ends the supervisor: a service manager sends its signals to every process of a unit.

It is run by its file and imports only the standard library, so that it starts fast and stays small.
"""

import contextlib
import os
import select
import signal
import sys
import time

POLL_S = 0.5
"""How often the clock is read: system timers do not run through suspend."""

ENDING_POLL_S = 0.02
"""The same while waiting for a process group to end, for which there is no notification."""

MAX_LINE_BYTES = 4096

FAULTS = (
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGSEGV,
    signal.SIGSYS,
)
"""Signals of a defect in the supervisor itself."""

IGNORED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, *FAULTS}
"""Signals that the supervisor ignores: it forwards those that `leasehold` sends over the pipe."""

OF_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, but a command should not."""


def now_s() -> float:
    """Read the clock that runs through suspend, as `leasehold.clock` does."""
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    return time.clock_gettime(getattr(time, name)) if hasattr(time, name) else time.monotonic()


class Supervisor:
    """One command and its state."""

    def __init__(self, control: int, report: int, until_s: float, grace_s: float) -> None:
        self._control = control
        self._report = report
        self._until_s = until_s
        self._grace_s = grace_s
        self._pid = 0
        self._is_stopped = False
        self._is_frozen = False
        """Whether the time was up while the command was stopped."""
        self._kill_at_s: float | None = None
        """When remaining processes are killed; set once ending has begun."""
        self._is_killed = False
        self._unread = b""
        self._alarm, self._bell = os.pipe()
        for number in (self._alarm, self._bell):
            os.set_blocking(number, False)

    # The command.

    def start(self, command: list[str], *, is_foreground: bool) -> None:
        """Start it in its own process group, which may be the foreground group of the terminal.

        Signals are blocked here, and have been since before this process was started. So none
        ends the supervisor before it ignores them, and none is lost to a command that is about to
        have the default action for it.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        self._pid = os.fork()
        if self._pid == 0:
            self._become(command, is_foreground=is_foreground)
        for each in IGNORED:
            signal.signal(each, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with contextlib.suppress(OSError):  # the child has done so already, or is gone
            os.setpgid(self._pid, self._pid)
        self._report_line(f"started {self._pid}")

    def _become(self, command: list[str], *, is_foreground: bool) -> None:
        """Execute the command in the new process."""
        failure = 0
        try:
            signal.set_wakeup_fd(-1)
            os.setpgid(0, 0)
            if is_foreground:
                with contextlib.suppress(OSError):  # the terminal may be gone
                    os.tcsetpgrp(0, os.getpid())
            for each in (*OF_PYTHON, signal.SIGCHLD):
                signal.signal(each, signal.SIG_DFL)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # instead of Python's
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvp(command[0], command)  # noqa: S606  its purpose
        except OSError as error:
            failure = error.errno or 0
        finally:
            self._report_line(f"failed {failure}")
            os._exit(126)

    # Until it is over.

    def go_on(self) -> None:
        """Supervise it until it has ended, and report how."""
        poll = select.poll()
        for number in (self._control, self._alarm):
            poll.register(number, select.POLLIN)
        status: int | None = None
        while status is None or not self._is_over():
            for number, _ in poll.poll(self._rest_ms()):
                if number == self._alarm:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._alarm, MAX_LINE_BYTES)
                elif not self._read_control():
                    poll.unregister(self._control)
                    self._begin_end()  # `leasehold` has ended, so the lock is not held
            if status is None:
                status = self._reap()
            self._check_clock()
        code = os.waitstatus_to_exitcode(status)
        self._report_line(f"exited {code}" if code >= 0 else f"killed {-code}")

    def _rest_ms(self) -> float:
        if self._kill_at_s is None:
            rest_s = POLL_S if self._is_frozen else min(POLL_S, self._until_s - now_s())
        elif self._is_killed:
            rest_s = ENDING_POLL_S
        else:
            rest_s = min(ENDING_POLL_S, self._kill_at_s - now_s())
        return max(0.0, rest_s) * 1000 + 1

    def _is_over(self) -> bool:
        """Whether nothing is left to end. Processes that outlive an ended command do not count."""
        if self._kill_at_s is None or self._is_killed:
            return True
        try:
            os.killpg(self._pid, 0)
        except OSError:
            return True
        return False

    def _read_control(self) -> bool:
        """Process one input; return False if the pipe is closed."""
        data = os.read(self._control, MAX_LINE_BYTES)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            match line.split():
                case [b"until", moment]:
                    self._until_s = float(moment)
                    self._is_frozen = False  # it is frozen again if the new time is up as well
                case [b"signal", number]:
                    self._signal(int(number))
                case [b"only", number]:
                    self._signal(int(number), is_alone=True)
                case [b"end"]:
                    self._begin_end()
        return bool(data)

    def _reap(self) -> int | None:
        """Check the command; return its status if it has ended."""
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                return None
            if os.WIFSTOPPED(status):
                self._is_stopped = True
                self._report_line(f"stopped {os.WSTOPSIG(status)}")
            elif os.WIFCONTINUED(status):
                self._is_stopped = False
            else:
                return status

    def _check_clock(self) -> None:
        if self._kill_at_s is not None:
            if now_s() >= self._kill_at_s:
                self._signal(signal.SIGKILL)
                self._is_killed = True
        elif now_s() >= self._until_s:
            if self._is_stopped:
                self._is_frozen = True
                self._signal(signal.SIGSTOP)  # repeatedly: a member may be continued
            else:
                self._report_line("late")
                self._begin_end()

    def _begin_end(self) -> None:
        if self._kill_at_s is not None:
            return
        if self._is_frozen or (self._is_stopped and now_s() >= self._until_s):
            self._kill_at_s = now_s()
        else:
            # Not later than the end of the lease, even if this process was delayed.
            self._kill_at_s = min(now_s(), self._until_s) + self._grace_s
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process does not handle it

    def _signal(self, number: int, *, is_alone: bool = False) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is gone, or belongs to another user
            (os.kill if is_alone else os.killpg)(self._pid, number)

    def _report_line(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the reader may be gone
            os.write(self._report, line.encode() + b"\n")


def main(arguments: list[str]) -> None:
    """Start and supervise a command: CONTROL REPORT UNTIL GRACE FOREGROUND COMMAND..."""
    control, report, until_s, grace_s, is_foreground, *command = arguments
    for number in (control, report):
        os.set_inheritable(int(number), False)
    supervisor = Supervisor(int(control), int(report), float(until_s), float(grace_s))
    supervisor.start(command, is_foreground=is_foreground == "1")
    supervisor.go_on()


if __name__ == "__main__":
    main(sys.argv[1:])
