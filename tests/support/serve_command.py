"""The command `leasehold` in a process of its own, as a person would give it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WITHIN_S: Final = 60.0
_ADDRESS: Final = re.compile(r"leasehold serves (?:etcd v3|leasehold\.v1) on (.*), from ")


def command(*arguments: str | Path) -> list[str]:
    """Write the command, with warnings as errors."""
    return [sys.executable, "-W", "error", "-m", "leasehold", *map(str, arguments)]


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Take what this process has, without settings of its own."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LEASEHOLD_")}
    return {**kept, **(variables or {})}


def run(
    *arguments: str | Path, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    return subprocess.run(  # noqa: S603  our own command
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        cwd=cwd,
        env=environment(variables),
    )


@dataclass
class Serving:
    """A server that has said its first line."""

    process: "subprocess.Popen[str]"
    greeting: str

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        found = _ADDRESS.match(self.greeting)
        assert found is not None, self.greeting
        return re.split(r", | and ", found[1])

    @property
    def port(self) -> int:
        """The port of its first address."""
        return int(self.addresses[0].rpartition(":")[2])

    def line(self) -> str:
        """Wait for its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int) -> tuple[str, str]:
        """Send a signal, and return what else it says, and what it complains of."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=WITHIN_S)


@contextmanager
def serving(
    *arguments: str | Path, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[Serving]:
    """Run `leasehold serve`, on a free port unless told otherwise, until the block ends."""
    listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    process = subprocess.Popen(  # noqa: S603  our own command
        command("serve", *arguments, *listen),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment(variables),
    )
    with process:
        try:
            assert process.stdout is not None
            greeting = process.stdout.readline()
            if not greeting:
                _, errors = process.communicate(timeout=WITHIN_S)
                raise AssertionError(f"the server did not start: {errors}")
            yield Serving(process, greeting)
        finally:
            process.kill()
