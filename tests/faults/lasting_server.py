"""A server on one port and one directory, however often it is started."""

import subprocess
import time
from pathlib import Path
from typing import Final

from tests.support import stopping
from tests.support.servers import HOST, RunningServer, becomes_healthy, free_port, leasehold_command

STOP_S: Final = 60.0


class LastingServer:
    """The server, to be killed, stopped and started again. It is started when it is made.

    `start_s` is how long the last start took, on this machine under its present load.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        began_at = time.monotonic()
        log = self._directory / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                leasehold_command(self._directory / "data", self._port),
                stdout=output,
                stderr=output,
            )
        if not becomes_healthy(RunningServer(self._port, self._process, log)):
            self.close()
            raise AssertionError(f"the server does not serve:\n{log.read_text()}")
        self.start_s = time.monotonic() - began_at

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self._port}"

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> None:
        """Stop it, and return when it has stopped."""
        stopping.stop(self._process.pid)

    def go_on(self) -> None:
        """Let it go on."""
        stopping.go_on(self._process.pid)

    def close(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self.kill()
