"""For tests of blocking code: programs of a few lines, run in processes of their own."""

import subprocess
import sys
import time
from collections.abc import Callable
from textwrap import dedent

SCRIPT_S = 60.0
WITHIN_S = 30.0
POLL_S = 0.005


def run_script(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program, with all that Python can warn of turned on."""
    return subprocess.run(  # noqa: S603  our own lines
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=SCRIPT_S,
        check=False,
    )


def printed_by(code: str, *arguments: str) -> str:
    """Run a program that must end well, and without a word of complaint."""
    run = run_script(code, *arguments)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout + run.stderr
    return run.stdout


def until(condition: Callable[[], bool]) -> None:
    """Poll for a condition."""
    give_up_at = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(POLL_S)
