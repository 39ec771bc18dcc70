"""etcdctl as a program: run to its end, or beside a test."""

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

RUN_S: Final = 60.0
OWN_LIMITS: Final = (f"--command-timeout={RUN_S:g}s", f"--dial-timeout={RUN_S:g}s")
"""By itself etcdctl gives a call up after 5 s, which a busy machine may take."""


class Etcdctl:
    """Runs etcdctl against one server."""

    def __init__(self, program: str, endpoint: str) -> None:
        self._command = [program, *OWN_LIMITS, "--endpoints", endpoint]

    def command(self, *arguments: str) -> list[str]:
        """Give the command line, for whoever runs it."""
        return [*self._command, *arguments]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end."""
        return subprocess.run(  # noqa: S603  etcdctl
            [*self._command, *arguments], capture_output=True, text=True, timeout=RUN_S, check=False
        )

    def says(self, *arguments: str) -> str:
        """Run it, expect success, and give what it wrote."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, *arguments: str) -> tuple[int, str, str]:
        """Run it: exit code, standard output, and the last line of standard error."""
        done = self.run(*arguments)
        return done.returncode, done.stdout, done.stderr.splitlines()[-1]

    def grant(self, ttl_s: int) -> str:
        """Grant a lease, give its id as etcdctl writes it."""
        words = self.says("lease", "grant", str(ttl_s)).split()
        return words[1]

    @contextmanager
    def going_on(self, *arguments: str) -> "Iterator[Running]":
        """Run it beside the test, then interrupt it: it revokes its lease before it ends."""
        with subprocess.Popen(  # noqa: S603  etcdctl
            [*self._command, *arguments], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Running(process)
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(RUN_S)
                finally:
                    process.kill()


class Running:
    """An etcdctl that goes on, and its lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def lines(self, count: int) -> list[str]:
        """Wait for so many lines."""
        return [self._lines.get(timeout=RUN_S) for _ in range(count)]

    def has_said(self, within_s: float) -> bool:
        """Tell whether there is a line to read, or comes within this time."""
        give_up_at = time.monotonic() + within_s
        while self._lines.empty() and time.monotonic() < give_up_at:
            time.sleep(0.01)
        return not self._lines.empty()


@dataclass(frozen=True)
class Names:
    """Keys of one test."""

    prefix: str

    def __getattr__(self, name: str) -> str:
        return self.prefix + name
