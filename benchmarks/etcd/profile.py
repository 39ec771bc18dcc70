"""Where our server spends its time in Python under a load, by py-spy."""

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.etcd.load import LoadResult, put_load_on
from benchmarks.etcd.servers import OURS, running

HOW_TO_GET = "py-spy is not there: pip install py-spy"
SAMPLES_PER_S = 250
WRITING_S = 30.0


def py_spy() -> str | None:
    """The program, beside this Python or anywhere."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def profile(case: str, seconds: float, base: Path) -> tuple[LoadResult, Path]:
    """Profile the server under our own load; returns folded stacks, one line each with a count."""
    program = py_spy()
    if program is None:
        raise FileNotFoundError(HOW_TO_GET)
    output = Path(tempfile.mkdtemp(prefix="bench-etcd-profile-")) / f"{case}.folded"
    with (
        tempfile.TemporaryDirectory(dir=base, prefix="bench-etcd-") as directory,
        running(OURS, Path(directory)) as server,
    ):
        recorder = subprocess.Popen(  # noqa: S603  our own command
            [
                *(program, "record", "--pid", str(server.pid), "--format", "raw"),
                *("--gil", "--function"),  # not the loop that waits, nor the thread that syncs
                *("--rate", str(SAMPLES_PER_S), "--duration", "unlimited"),
                *("--output", str(output)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            result = put_load_on(server, case, seconds)
        finally:
            recorder.send_signal(signal.SIGINT)  # it writes what it has, and ends
            recorder.wait(WRITING_S)
    return result, output


def top_functions(folded: str, most: int = 12) -> list[tuple[str, float]]:
    """The functions with the largest own time, as parts of all samples."""
    own: dict[str, int] = {}
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        leaf = stack.rpartition(";")[2]
        own[leaf] = own.get(leaf, 0) + int(count)
    total = sum(own.values()) or 1
    ranked = sorted(own.items(), key=lambda item: -item[1])[:most]
    return [(name, count / total) for name, count in ranked]
