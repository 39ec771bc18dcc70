"""The grace period of a command that runs under a lock ends before the lock's lease does."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli import argument_types
from leasehold.cli.run_while_held import chosen_grace_s
from leasehold.cli.supervised_command import SUPERVISOR, CommandEnd, SupervisedCommand
from leasehold.clock import SYSTEM_CLOCK
from leasehold.sessions.kept_lease import Signal
from tests.support.serve_command import WITHIN_S

TERMS_S = st.integers(1, 10**9).map(lambda length_ms: length_ms / 1000)
IGNORES_SIGTERM = ["sh", "-c", "trap '' TERM; echo ready; exec sleep 100"]


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
    supervised = SupervisedCommand(ShortLease(2.0), IGNORES_SIGTERM, grace_s=600.0, term_s=1800.0)
    outcome = asyncio.run(asyncio.wait_for(supervised.run({}), WITHIN_S))
    assert (outcome.end, outcome.code) == (CommandEnd.LOST, 128 + signal.SIGKILL)


def test_a_delayed_supervisor_does_not_extend_the_grace_period_beyond_the_lease() -> None:
    """As after a suspend: SIGTERM and SIGKILL are both overdue when the supervisor runs."""
    control, our_control = os.pipe()
    report, their_report = os.pipe()
    grace_s, now_s = 600.0, SYSTEM_CLOCK.boottime()
    line = [sys.executable, "-I", "-S", str(SUPERVISOR)]
    line += [*map(str, (control, their_report, now_s + 600, grace_s, 0)), *IGNORES_SIGTERM]
    with subprocess.Popen(  # noqa: S603  our own program
        line, pass_fds=(control, their_report), stdout=subprocess.PIPE
    ) as supervisor:
        os.close(control)
        os.close(their_report)
        assert supervisor.stdout is not None
        try:
            assert supervisor.stdout.readline() == b"ready\n"
            os.write(our_control, f"until {now_s - grace_s}\n".encode())
            assert supervisor.wait(WITHIN_S) == 0
        finally:
            os.close(our_control)
            supervisor.kill()
    with os.fdopen(report) as lines:
        assert lines.read().splitlines()[1:] == ["late", "killed 9"]
