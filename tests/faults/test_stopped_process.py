"""A real landlord process, stopped with SIGSTOP for longer than its leases run."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import stopping

LEASES = 20
TERM_S = 4.0
"""Longer than a busy machine takes to stop a process that is ready."""
STOP_S = 6.0
DEADLINE_S = 60.0
SCRIPT = Path(__file__).with_name("landlord_process.py")


class LandlordProcess:
    """The process, and all it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._said: list[str] = []
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._said.append(line.strip())
                self._news.notify_all()

    def said(self, word: str) -> list[str]:
        """All lines so far that begin with a word."""
        with self._news:
            return [line for line in self._said if line.split()[0] == word]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something was said."""
        with self._news:
            assert self._news.wait_for(condition, DEADLINE_S), f"never {what}: {self._said}"

    def wait_for_renewals(self) -> None:
        """Wait until each lease was renewed once, and see that none had ended before."""
        self.wait_for(lambda: len(self.said("renewed")) == LEASES, "renewed")
        with self._news:
            _ready, *said = (line.split()[0] for line in self._said)
        assert said[:LEASES] == ["renewed"] * LEASES, said

    def renew_all(self) -> None:
        """Ask for a renewal of every lease."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"renew {n}\n" for n in range(LEASES)))
        self._process.stdin.flush()

    def stop(self) -> None:
        """Stop the process, and return when it has stopped."""
        stopping.stop(self._process.pid)

    def go_on(self) -> None:
        """Let the process go on."""
        stopping.go_on(self._process.pid)


@contextmanager
def landlord_process(loop: str) -> Iterator[LandlordProcess]:
    """Run the landlord's process."""
    with subprocess.Popen(  # noqa: S603  our own script
        [sys.executable, "-W", "error", SCRIPT, loop, str(LEASES), str(TERM_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        landlord = LandlordProcess(process)
        try:
            landlord.wait_for(lambda: bool(landlord.said("ready")), "ready")
            yield landlord
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_stopped_landlord_ends_no_lease_whose_holder_renews_meanwhile(loop: str) -> None:
    with landlord_process(loop) as landlord:
        landlord.stop()
        landlord.renew_all()
        time.sleep(STOP_S)  # this is the fault, not a hope
        landlord.go_on()
        landlord.wait_for_renewals()
        assert not landlord.said("unknown")
        landlord.wait_for(lambda: len(landlord.said("ended")) == LEASES, "ended")


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_holders_may_come_back_within_a_grace_after_a_long_stop(loop: str) -> None:
    with landlord_process(loop) as landlord:
        landlord.stop()
        time.sleep(STOP_S)  # this is the fault, not a hope
        landlord.go_on()
        landlord.renew_all()
        landlord.wait_for_renewals()
        landlord.wait_for(lambda: len(landlord.said("ended")) == LEASES, "ended")
        assert landlord.said("ended") == [f"ended {n} expired" for n in range(LEASES)]
