"""The loads that run for minutes: what they count, and that a stall cannot hide from them."""

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from random import Random
from time import sleep
from typing import Final, Self

import pytest

from benchmarks.common.children import Later, MeasurementFailed, each_from_child
from benchmarks.common.command import write_page
from benchmarks.common.page import END, begin
from benchmarks.common.stats import quantile
from benchmarks.endurance import __main__ as endurance_command
from benchmarks.endurance.measuring import Endurance, slope
from benchmarks.endurance.report import tables as endurance_tables
from benchmarks.etcd.pacing import PacedCalls, Pacer, latencies_ms
from benchmarks.etcd.script import HeaderWriter, constant_timeout
from benchmarks.longrun.flood import run_flood
from benchmarks.longrun.histogram import STEP, Histogram, Seconds
from benchmarks.longrun.keepers import KeepersResult
from benchmarks.longrun.watching import WatchingResult
from benchmarks.overload import __main__ as overload_command
from benchmarks.overload.measuring import FLOOD, Overload, Phase
from benchmarks.overload.report import tables as overload_tables
from leasehold.basics.addresses import TcpAddress
from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, Exchange
from leasehold.serving.grpc_server import GrpcServer

PUT: Final = "/etcdserverpb.KV/Put"
STALL_S: Final = 0.3
DEADLINE_S: Final = 20.0


class PutServer:
    """A server of Put in a thread, which stalls once, or refuses every second call."""

    def __init__(self, *, stalls_at: int | None = None, refuses: bool = False) -> None:
        self._stalls_at, self._refuses = stalls_at, refuses
        self._calls = 0
        self.port = 0
        self._up, self._thread = threading.Event(), threading.Thread(target=self._main)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(DEADLINE_S)

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with GrpcServer({PUT: Exchange(self._put)}) as server:
            (address,) = await server.start([TcpAddress("127.0.0.1", 0)])
            assert isinstance(address, TcpAddress)
            self.port = address.port
            self._up.set()
            await self._over.wait()

    def _put(self, _message: bytes) -> Answer:
        self._calls += 1
        if self._calls == self._stalls_at:
            sleep(STALL_S)  # this is what is to be seen
        if self._refuses and self._calls % 2:
            raise RpcError(Status.RESOURCE_EXHAUSTED, "etcdserver: too many requests")
        return b"", 0


def paced(port: int, calls: int) -> list[PacedCalls]:
    connections = [PacedCalls(port) for _ in range(2)]
    for each in connections:
        headers = HeaderWriter(f"127.0.0.1:{port}", constant_timeout(), each.table_size)
        each.stock(headers, PUT, repeat(b"body"), calls)
    return connections


def test_a_stall_is_seen_by_every_call_that_was_due_in_it() -> None:
    """A load that waits for its answers would have seen it once."""
    per_s, seconds = 200.0, 1.0
    with PutServer(stalls_at=50) as server:
        connections = paced(server.port, 300)
        Pacer(connections, per_s).run(seconds, DEADLINE_S)
        latencies_s = [each for one in connections for each in one.latencies_s]
        for each in connections:
            each.close()
    assert len(latencies_s) == per_s * seconds
    slow = sum(each >= STALL_S / 2 for each in latencies_s)
    assert slow >= per_s * STALL_S / 2 - 2
    assert latencies_ms(connections, 0.99)[0] >= 1e3 * STALL_S * 0.9


def test_a_call_without_an_answer_counts_as_endless() -> None:
    with PutServer() as server:
        connections = paced(server.port, 10)
        Pacer(connections, 100.0).run(0.1, DEADLINE_S)
        connections[0].due.append(0.0)
        assert latencies_ms(connections, 1.0) == [math.inf]
        assert latencies_ms(connections, 0.5)[0] < math.inf
        for each in connections:
            each.close()


def test_a_flood_counts_what_was_done_and_what_was_refused_in_etcds_words() -> None:
    with PutServer(refuses=True) as server:
        found = run_flood(server.port, 500.0, 0.4, 3)
    assert (found.due, found.unanswered, found.others) == (200, 0, {})
    assert found.acknowledged + found.refused == 200 + 3 * 2, "those that warm up count as well"
    assert abs(found.acknowledged - found.refused) <= 1


def test_a_histogram_is_as_exact_as_it_says() -> None:
    rng = Random(1)
    values = [rng.lognormvariate(-6.0, 1.5) for _ in range(5_000)]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    for fraction in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = quantile(values, fraction - 1e-9)
        assert exact <= histogram.quantile(fraction) <= exact * (1.0 + 2 * STEP), fraction
    assert len(histogram) == 5_000
    assert histogram.quantile(1.0) == max(values)
    assert Histogram().quantile(0.99) == 0.0


def test_histograms_add_up_and_a_phase_has_its_whole_seconds() -> None:
    seconds = Seconds()
    for at in (9.5, 10.0, 10.9, 11.5, 12.1):
        seconds.add(at, at / 1000.0)
    phase = seconds.between(10.0, 12.05)
    assert len(phase) == 3
    assert phase.max_s == 0.0115
    assert len(seconds.between(0.0, math.inf)) == 5


def test_the_slope_is_that_of_a_line_through_noise() -> None:
    rng = Random(2)
    line = [(float(x), 100.0 + 3.0 * x + rng.uniform(-1.0, 1.0)) for x in range(200)]
    assert slope(line) == pytest.approx(3.0, abs=0.01)
    assert slope([(0.0, 5.0), (1.0, 5.0)]) == 0.0
    assert slope([(0.0, 5.0)]) is None
    assert slope([]) is None


def numbers(until: int) -> Iterator[int]:
    yield from range(until)
    raise ValueError("no more")


def test_what_a_child_gave_before_it_failed_counts() -> None:
    found: list[int] = []
    with pytest.raises(MeasurementFailed, match="no more"):
        found.extend(each_from_child(DEADLINE_S, numbers, 3))
    given = each_from_child(DEADLINE_S, numbers, 3)
    assert [next(given) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(MeasurementFailed, match="no more"):
        next(given)
    assert Later(math.gcd, 12, 18).result(DEADLINE_S) == 6


def histogram_of(*values: float) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


def overload(renewal_s: float) -> Overload:
    phase = Phase(FLOOD, 10.0, histogram_of(*[renewal_s] * 10), histogram_of(0.001))
    return Overload(
        "a machine",
        phases=[phase],
        acknowledged=5,
        written=6,
        unanswered=1,
        recovered_s=0.5,
        missing=["something"],
    )


def test_an_overload_is_judged_by_what_was_asked_for(tmp_path: Path) -> None:
    well, *_ = overload_tables(overload(0.0195))
    assert [row[-1] for row in well.rows] == ["yes"] * 5
    badly, *_ = overload_tables(
        replace(overload(0.021), lost=1, written=4, other_failures={"?": 1}, recovered_s=None)
    )
    assert [row[-1] for row in badly.rows] == ["NO"] * 5
    assert "something" in badly.as_markdown()
    doubled, *_ = overload_tables(replace(overload(0.001), written=7))
    assert doubled.rows[2][-1] == "NO", "more was written than was asked for"
    page = tmp_path / overload_command.PAGE
    page.write_text(f"{begin(overload_command.COMMAND)}\n{END}\n", encoding="utf-8")
    found = overload(0.01)
    write_page(tmp_path, page.name, overload_command.COMMAND, found, overload_tables(found))
    assert "renewal, p99" in page.read_text(encoding="utf-8")
    assert json.loads(json.dumps(overload(0.01).as_json()))["phases"][0]["renewals"]["counts"]


def endurance(growth: float) -> Endurance:
    memory = [(float(at), int(1e8 * (1.0 + growth * at / 60.0))) for at in range(600)]
    watched = WatchingResult(2, expected=4, seen=4)
    return Endurance("a machine", endurance_command.FULL, KeepersResult(10), watched, 10, memory)


def test_endurance_is_judged_by_what_was_asked_for(tmp_path: Path) -> None:
    well, *_ = endurance_tables(endurance(0.004))
    assert [row[-1] for row in well.rows] == ["yes"] * 4
    bad = replace(
        endurance(0.02),
        leases_left=9,
        held=KeepersResult(10, overtaken=1),
        watched=WatchingResult(2, expected=4, seen=4, wrong=1),
    )
    assert [row[-1] for row in endurance_tables(bad)[0].rows] == ["NO"] * 4
    missed = replace(endurance(0.0), watched=WatchingResult(2, expected=4, seen=3))
    assert endurance_tables(missed)[0].rows[2][-1] == "NO"
    page = tmp_path / endurance_command.PAGE
    page.write_text(f"{begin(endurance_command.COMMAND)}\n{END}\n", encoding="utf-8")
    found = endurance(0.0)
    write_page(tmp_path, page.name, endurance_command.COMMAND, found, endurance_tables(found))
    assert "events at each watcher" in page.read_text(encoding="utf-8")
