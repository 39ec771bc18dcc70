"""The processes that clients run in, from the side of the process that controls them."""

import json
import subprocess
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Final

from benchmarks.common.children import MeasurementFailed
from benchmarks.common.command import ROOT
from benchmarks.transport.samples import Figures

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PROGRAM: Final = "benchmarks.client.program"
END_S: Final = 20.0


class Worker:
    """A client's process, which stays through the run; after a failure it is another one."""

    def __init__(self, who: str, python: Path, program: str = PROGRAM) -> None:
        self._command = [str(python), "-m", program, who]
        self._process: subprocess.Popen[str] | None = None

    def obey(self, order: "DataclassInstance", limit_s: float) -> Figures:
        """Have a sample measured. Raises `MeasurementFailed`, also if it takes too long."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asdict(order)) + "\n")
            process.stdin.flush()
            if not select([process.stdout], (), (), limit_s)[0]:
                process.kill()
                raise MeasurementFailed(f"not done within {limit_s:.0f} s")
            line = process.stdout.readline()
            if not line:
                raise MeasurementFailed(f"the process ended with {process.wait(END_S)}")
        except OSError as error:
            self.end()
            raise MeasurementFailed(f"the process has ended: {error}") from error
        except MeasurementFailed:
            self.end()
            raise
        answer = json.loads(line)
        if "failure" in answer:
            self.end()
            raise MeasurementFailed(answer["failure"])
        figures: Figures = answer["figures"]
        return figures

    def _start(self) -> "subprocess.Popen[str]":
        self._process = subprocess.Popen(  # noqa: S603  our own program
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self._process

    def end(self) -> None:
        """Let the process end, or else end it."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        with suppress(BrokenPipeError):  # it has ended with something unread
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
