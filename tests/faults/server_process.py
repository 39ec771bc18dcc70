"""A real server in a process of its own, to be killed, stopped and started again."""

import re
import selectors
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.support import stopping

SERVER: Final = ("-m", "leasehold")
FAULTY_SERVER: Final = Path(__file__).with_name("faulty_server.py")
READY_S: Final = 120.0
STOP_S: Final = 60.0
GREETING: Final = re.compile(rb"serves etcd v3 on ([\d.]+:\d+)")


class ServerProcess:
    """The process, from its start to its end, on a directory that outlives it."""

    def __init__(self, directory: Path, program: Sequence[str | Path] = SERVER) -> None:
        self._log = directory / "log"
        data = ("--data-dir", directory / "data", "--listen", "127.0.0.1:0")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                [sys.executable, "-W", "error", *program, "serve", *data],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.endpoint = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_until_ready(self) -> Self:
        """Wait for the greeting, which tells the port."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(READY_S), f"not ready after {READY_S} s: {self._tail()}"
        line = self._process.stdout.readline()
        found = GREETING.search(line)
        assert found is not None, f"{line!r} {self._tail()}"
        self.endpoint = found[1].decode()
        return self

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def kill(self) -> None:
        """End the process at once, wherever it is, and wait until it is gone."""
        self._process.kill()
        self._process.wait(STOP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def terminate(self) -> int:
        """Ask the process to end, and return its exit code."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait until the process has ended by itself, and return its exit code."""
        return self._process.wait(STOP_S)

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """Stop the process, and return when it has stopped."""
        stopping.stop(self._process.pid)

    def go_on(self) -> None:
        """Let the process go on."""
        stopping.go_on(self._process.pid)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
