"""The commands for clients, given in this process: the same code as in one of its own, sooner.

What a process of its own shows (signals, closed streams, shells) is tested with one.
"""

import io
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from leasehold.cli import main

VARIABLE = "LEASEHOLD_ENDPOINTS"


class Said(NamedTuple):
    """What a command has printed, and what it has ended with."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """What it has printed, as text."""
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        """What it has printed, in lines."""
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        """The one document that it has printed."""
        (line,) = self.lines
        return json.loads(line)

    @property
    def complaint(self) -> str:
        """The one line of the error."""
        (line,) = self.err.splitlines()
        return line


class Command:
    """`leasehold`, with a server that it finds."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Said:
        """Run a command."""
        with pytest.MonkeyPatch.context() as patch, _signals_kept():
            out, err = io.BytesIO(), io.BytesIO()
            patch.setenv(VARIABLE, self.endpoint)
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
            patch.setattr(sys, "stderr", io.TextIOWrapper(err, "utf-8", write_through=True))
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
            code = main(arguments)
            return Said(code, out.getvalue(), err.getvalue().decode())

    def ok(self, *arguments: str, stdin: bytes = b"") -> Said:
        """Run a command that succeeds."""
        said = self(*arguments, stdin=stdin)
        assert said.code == 0, said
        return said

    def fails(self, code: int, *arguments: str, stdin: bytes = b"") -> str:
        """Run a command that fails with a code; return its one line."""
        said = self(*arguments, stdin=stdin)
        assert said.code == code, said
        assert not said.out, said
        return said.complaint


@contextmanager
def _signals_kept() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
