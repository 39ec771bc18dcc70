"""Stopping a real process, and knowing that it has stopped."""

import os
import signal
import time
from pathlib import Path
from typing import Final

STOP_S: Final = 60.0


def stop(pid: int) -> None:
    """Stop a process, and return when it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    wait_until_stopped(pid)


def wait_until_stopped(pid: int) -> None:
    """Wait until a process has stopped that was told to, or that stops itself."""
    give_up_at = time.monotonic() + STOP_S
    while _state(pid) != "T":
        assert time.monotonic() < give_up_at, "the process does not stop"
        os.sched_yield()


def go_on(pid: int) -> None:
    """Let a process go on."""
    os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]
