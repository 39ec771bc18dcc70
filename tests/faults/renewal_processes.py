"""Processes of the fault tests of the renewal service: servers, landlords, owners of leases.

Each can be killed, stopped and started again. Lines that it writes are collected in a thread.
"""

import asyncio
import inspect
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

from leasehold.errors import LeaseholdError, is_definite
from tests.support import stopping
from tests.support.serve_command import command, environment
from tests.support.servers import HOST, free_port

HERE: Final = Path(__file__).parent
WAIT_S: Final = 60.0
POLL_S: Final = 0.02
STARTS_MAX: Final = 3
_GREETING: Final = re.compile(r"leasehold serves .* on ([\d.]+:\d+)")


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an event loop; every wait in it has its own deadline."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def eventually(
    condition: Callable[[], Awaitable[bool] | bool], within_s: float = WAIT_S
) -> None:
    """Poll for a condition. Errors count as False if another attempt may succeed."""
    last: object = None
    give_up_at = time.monotonic() + within_s
    while True:
        try:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
        except (LeaseholdError, OSError) as error:
            if is_definite(error):
                raise
            last = error
        assert time.monotonic() < give_up_at, f"it did not happen within {within_s:g} s; {last!r}"
        await asyncio.sleep(POLL_S)


class Program:
    """A process, from its start to its end, and the lines that it has written so far."""

    def __init__(self, words: Sequence[str | Path], log: Path) -> None:
        self.log = log
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._has_ended = False
        with log.open("ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603  our own programs
                [str(word) for word in words],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(),
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def python(cls, script: str, *arguments: object, log: Path) -> Self:
        """Run a program of this folder."""
        return cls([sys.executable, "-W", "error", HERE / script, *map(str, arguments)], log)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    def line(self, number: int = 0) -> str:
        """Wait for a line."""
        with self._news:
            self._news.wait_for(lambda: self._has_ended or len(self.lines) > number, WAIT_S)
        assert len(self.lines) > number, f"{self.lines} {self.log_tail()}"
        return self.lines[number]

    def kill(self) -> None:
        """End the process with SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> None:
        """Stop the process with SIGSTOP."""
        stopping.stop(self.pid)

    def go_on(self) -> None:
        """Let a stopped process go on."""
        stopping.go_on(self.pid)

    def log_tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.process.stdout or not self.process.stdout.closed:
            self.kill()


class Server:
    """`leasehold serve` at the same address after each start."""

    def __init__(self, directory: Path, *options: str, on: Sequence[str] = ()) -> None:
        """Start it; `on` is an etcd cluster that has its state, instead of the directory."""
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "log"
        state = ("--engine", "etcd://" + ",".join(on)) if on else ("--data-dir", directory / "data")
        self._options = (*state, "--renew-at", HOST, *options)
        self.start_s = 0.0
        """How long it took to start."""
        for _ in range(STARTS_MAX):  # another process may take the port meanwhile
            self.endpoint = f"{HOST}:{free_port()}"
            if self._starts():
                return
        raise AssertionError(self.program.log_tail())

    def _starts(self) -> bool:
        began_at = time.monotonic()
        words = command("serve", *self._options, "--listen", self.endpoint)
        self.program = Program(words, self._log)
        try:
            found = _GREETING.match(self.program.line())
        except AssertionError:
            self.program.kill()
            return False
        self.start_s = max(self.start_s, time.monotonic() - began_at)
        return found is not None and found[1] == self.endpoint

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.program.pid

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.program.kill()

    def start(self) -> None:
        """Start it again after a kill."""
        assert self._starts(), self.program.log_tail()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.program.process.poll() is None:
            self.program.go_on()
        self.program.__exit__(*exc)


class LandlordProcess:
    """`renewal_landlord.py`, and what it has reported."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.program = Program.python("renewal_landlord.py", log=directory / "landlord-log")
        self.endpoint: str = json.loads(self.program.line())["address"]

    @property
    def reports(self) -> list[dict[str, Any]]:
        """Everything that it has reported."""
        return [json.loads(line) for line in self.program.lines[1:]]

    def renewals(self, name: str) -> int:
        """Return how often a lease was renewed."""
        return len(self.senders(name))

    def senders(self, name: str) -> list[int]:
        """Return the processes that have sent the renewals of a lease, in their order."""
        return [each["sender"] for each in self.reports if name in each.get("renewed", ())]

    def successive_senders(self, name: str) -> list[int]:
        """Return the same with each run of equal ones as one."""
        return [sender for sender, _ in groupby(self.senders(name))]

    def ended(self) -> dict[str, str]:
        """Return the leases that have ended, and the reasons."""
        return {each["ended"]: each["reason"] for each in self.reports if "ended" in each}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.program.process.poll() is None:
            self.program.go_on()
        self.program.__exit__(*exc)
