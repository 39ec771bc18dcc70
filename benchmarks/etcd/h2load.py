"""The load of h2load: the same call with the same headers, again and again.

It counts HTTP's status, not gRPC's, so what was done is verified afterwards: by what the server
has, and where a call changes nothing that can be counted, by the bytes of all answers together.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common.processes import cpu_s_of
from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.control import Control
from benchmarks.etcd.load import LoadResult
from benchmarks.etcd.script import with_prefix
from benchmarks.etcd.workloads import Case, Unverified, Workload

HOW_TO_GET = "h2load is not there (Debian: apt-get install nghttp2-client)"
LONGEST_S = 60.0
"""For one run of it; a server that hangs fails the round."""

PILOT_CALLS = 5
"""For each place in flight: to warm the server up, and to estimate how many calls fill the time."""

MOST_RUNS = 8
ENOUGH = 0.75
"""It takes a number of calls, not a time: it runs again until this part of the time is filled."""

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_FINISHED = re.compile(r"finished in ([\d.]+)(us|ms|s|m), ")
_DATA = re.compile(r"traffic: .*\((\d+)\) data")
_COUNTS = re.compile(r"(\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored")


@dataclass(slots=True)
class _Total:
    """Several runs together."""

    calls: int = 0
    seconds: float = 0.0
    answer_bytes: int = 0

    def rate(self) -> float:
        return self.calls / self.seconds


def is_there() -> bool:
    """Whether h2load can be run."""
    return shutil.which("h2load") is not None


def put_h2load(
    port: int, case: Case, *, seconds: float, server_pid: int, cores: set[int] | None = None
) -> LoadResult:
    """Prepare, load and verify, as `put_load` does."""
    control = Control(port)
    workload = case.workload(control)
    workload.prepare()
    with tempfile.NamedTemporaryFile() as body:
        body.write(with_prefix(workload.body()))
        body.flush()
        command = [
            *("h2load", "-c", str(case.connections), "-m", str(case.in_flight)),
            *("-d", body.name, "-H", "content-type: application/grpc", "-H", "te: trailers"),
            f"http://127.0.0.1:{port}{workload.path}",
        ]
        fewest = PILOT_CALLS * case.connections * case.in_flight
        pilot, counted = _Total(), _Total()
        _run(command, fewest, cores, pilot)
        server_cpu_s, own_cpu_s = cpu_s_of(server_pid), _children_cpu_s()
        rate = pilot.rate()
        for number in range(MOST_RUNS):
            left_s = seconds - counted.seconds
            share = 1.0 if number else 0.5  # the pilot's rate is a guess
            _run(command, max(fewest, int(rate * left_s * share)), cores, counted)
            rate = counted.rate()
            if counted.seconds >= ENOUGH * seconds:
                break
        server_cpu_s, own_cpu_s = cpu_s_of(server_pid) - server_cpu_s, _children_cpu_s() - own_cpu_s
    verified = workload.verify(pilot.calls + counted.calls, [])
    if workload.same_answer:
        verified += _verify_bytes(control, workload, counted)
    control.close()
    return LoadResult(
        workload=case.name,
        calls_per_s=counted.rate(),
        seconds=counted.seconds,
        acknowledged=pilot.calls + counted.calls,
        own_cpu_us_per_call=1e6 * own_cpu_s / counted.calls,
        server_cpu_us_per_call=1e6 * server_cpu_s / counted.calls,
        verified=verified,
    )


def parse(output: str) -> tuple[int, float, int]:
    """How many calls succeeded, in how many seconds, with how many bytes of answers.

    A call that did not succeed is a `LoadFailed`.
    """
    finished, counts = _FINISHED.search(output), _COUNTS.search(output)
    data = _DATA.search(output)
    if finished is None or counts is None or data is None:
        raise LoadFailed(f"h2load said something else: {output[-500:]}")
    total, succeeded, failed, errored = map(int, counts.groups())
    if failed or errored or total != succeeded:
        raise LoadFailed(f"h2load: {succeeded} of {total} calls succeeded")
    return succeeded, float(finished[1]) * _UNITS_S[finished[2]], int(data[1])


def _verify_bytes(control: Control, workload: Workload, total: _Total) -> str:
    one = len(with_prefix(control.call(workload.path, workload.body())))
    if total.answer_bytes != total.calls * one:
        raise Unverified(
            f"{total.calls} answers of {one} bytes each had {total.answer_bytes} bytes in all"
        )
    return f", all answers had {one} bytes"


def _run(command: Sequence[str], calls: int, cores: set[int] | None, total: _Total) -> None:
    done = subprocess.run(  # noqa: S603  our own command
        [command[0], "-n", str(calls), *command[1:]],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=True,
        preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, cores),
    )
    succeeded, seconds, answer_bytes = parse(done.stdout)
    total.calls += succeeded
    total.seconds += seconds
    total.answer_bytes += answer_bytes


def _children_cpu_s() -> float:
    used = os.times()
    return used.children_user + used.children_system
