"""The grace period of a command that runs under a lock ends before the lock's lease does."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli import argument_types
from leasehold.cli.run_while_held import chosen_grace_s
from leasehold.cli.supervised_command import SUPERVISOR, CommandEnd, SupervisedCommand
from leasehold.cli.supervisor import POLL_S, Supervisor, now_s
from leasehold.clock import SYSTEM_CLOCK
from leasehold.sessions.kept_lease import Signal
from tests.support.serve_command import WITHIN_S

TERMS_S = st.integers(1, 10**9).map(lambda length_ms: length_ms / 1000)
IGNORES_SIGTERM = ["sh", "-c", "trap '' TERM; echo ready; exec sleep 100"]
TELLS_SIGTERM = ["sh", "-c", "trap 'echo runs; exit' TERM; echo ready; while :; do sleep 1; done"]


@pytest.mark.parametrize(
    ("ttl_s", "grace_s"), [(10.0, 3.0), (9.0, 3.0), (3.0, 1.0), (2.0, 0.666), (0.002, 0.0)]
)
def test_the_default_is_3_s_or_a_third_of_the_ttl(ttl_s: float, grace_s: float) -> None:
    assert chosen_grace_s(None, ttl_s) == grace_s


@given(TERMS_S)
def test_the_default_is_accepted_when_written_explicitly(ttl_s: float) -> None:
    default_s = chosen_grace_s(None, ttl_s)
    assert (
        chosen_grace_s(argument_types.term_or_0_s(argument_types.shown_term(default_s)), ttl_s)
        == default_s
    )


@given(TERMS_S, TERMS_S)
def test_a_pair_is_accepted_or_both_suggestions_are(grace_s: float, ttl_s: float) -> None:
    try:
        assert chosen_grace_s(grace_s, ttl_s) == grace_s
        assert grace_s <= ttl_s / 3 + 1e-6
    except ValueError as error:
        assert grace_s > ttl_s / 3
        _, _, suggestions = str(error).partition(": use --ttl ")
        longer, _, shorter = suggestions.partition(" or --grace ")
        assert chosen_grace_s(grace_s, argument_types.term_s(longer)) == grace_s
        shorter_s = argument_types.term_or_0_s(shorter)
        assert chosen_grace_s(shorter_s, ttl_s) == shorter_s < grace_s


class ShortLease:
    """A lock whose lease is not renewed."""

    def __init__(self, ttl_s: float) -> None:
        self._end_s = time.monotonic() + ttl_s
        self.lost = Signal()

    @property
    def remaining(self) -> float:
        return max(0.0, self._end_s - time.monotonic())


def test_the_grace_period_is_shortened_to_fit_into_a_shorter_lease() -> None:
    """A server may grant less than the requested TTL, for which the options were checked."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited: the trap may come too late
    try:
        supervised = SupervisedCommand(
            ShortLease(2.0), IGNORES_SIGTERM, grace_s=600.0, term_s=1800.0
        )
        outcome = asyncio.run(asyncio.wait_for(supervised.run({}), WITHIN_S))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (outcome.end, outcome.code) == (CommandEnd.LOST, 128 + signal.SIGKILL)


class Supervised:
    """A supervisor with a command; the lock is valid for a long time."""

    def __init__(self, command: list[str], grace_s: float) -> None:
        control, self.control = os.pipe()
        self._report, report = os.pipe()
        until_s = SYSTEM_CLOCK.boottime() + 600
        line = [sys.executable, "-I", "-S", str(SUPERVISOR)]
        line += [*map(str, (control, report, until_s, grace_s, 0)), *command]
        self._process = subprocess.Popen(  # noqa: S603  our own program
            line, pass_fds=(control, report), stdout=subprocess.PIPE, bufsize=0
        )
        os.close(control)
        os.close(report)
        assert self._process.stdout is not None
        self.output = self._process.stdout
        self.reports = os.fdopen(self._report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.control)
        self._process.kill()
        self._process.wait()
        self.output.close()
        self.reports.close()

    def send(self, *lines: str) -> None:
        """Send lines together, so that they are read together."""
        os.write(self.control, "".join(f"{line}\n" for line in lines).encode())

    def read_to_the_end(self) -> list[str]:
        """Wait until the supervisor has ended; return its remaining reports."""
        assert self._process.wait(WITHIN_S) == 0
        return self.reports.read().splitlines()


def test_a_delayed_supervisor_does_not_extend_the_grace_period_beyond_the_lease() -> None:
    """As after a suspend: SIGTERM and SIGKILL are both overdue when the supervisor runs."""
    grace_s = 600.0
    with Supervised(IGNORES_SIGTERM, grace_s) as supervised:
        assert supervised.output.readline() == b"ready\n"
        supervised.send(f"until {SYSTEM_CLOCK.boottime() - grace_s}")
        assert supervised.read_to_the_end()[1:] == ["late", "killed 9"]


def test_a_stopped_command_does_not_run_again_if_a_delayed_supervisor_reads_the_end_first() -> None:
    """The time is up and the lock is lost when the supervisor runs: SIGCONT would be too late."""
    with Supervised(TELLS_SIGTERM, 600.0) as supervised:
        assert supervised.output.readline() == b"ready\n"
        _, pid = supervised.reports.readline().split()
        os.kill(int(pid), signal.SIGSTOP)
        assert supervised.reports.readline() == f"stopped {signal.SIGSTOP:d}\n"
        supervised.send(f"until {SYSTEM_CLOCK.boottime()}", "end")
        assert supervised.read_to_the_end() == ["killed 9"]
        assert supervised.output.read() == b""


def test_the_clock_of_a_stopped_command_is_read_when_its_time_is_up() -> None:
    """Then its group is stopped as a whole; waiting for the next poll could be too late."""
    supervisor = Supervisor(-1, -1, now_s() + POLL_S / 100, 1.0)
    for number in (supervisor._alarm, supervisor._bell):
        os.close(number)
    supervisor._is_stopped = True
    assert supervisor._rest_ms() < POLL_S * 1000 / 2
    supervisor._is_frozen = True
    assert supervisor._rest_ms() >= POLL_S * 1000
