"""The benchmark of locks: its arithmetic, its report, and what it measures with, at a tiny size."""

import asyncio
import json
import logging
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest

from benchmarks.client.clients import Absent
from benchmarks.common.page import END, begin
from benchmarks.common.stats import Spread
from benchmarks.etcd.servers import ETCD, OURS, CannotStart, Server
from benchmarks.locks import contenders, contest, driving, holding, page, report, targets, traffic
from benchmarks.locks.contenders import (
    AETCD,
    CACHED,
    CACHED_SYNC,
    CONTENDERS,
    IN_TABLES,
    KAZOO,
    NO_RECALL,
    REDIS_PY,
    UNCACHED,
)
from benchmarks.locks.contest import COUNTING, CROWDING, HANDING_OVER, REACQUIRING, Contest
from benchmarks.locks.counting import count, count_async
from benchmarks.locks.driving import (
    ACQUIRE_US,
    BYTES,
    CROWD,
    HAND_OVER,
    HANDED_OVER,
    MESSAGES,
    PAIR_US,
    REACQUIRE,
    TOOK_S,
    Order,
    WrongAnswer,
)
from benchmarks.locks.messages import (
    GRPC,
    JUTE,
    PREFACE,
    PROTOCOLS,
    RESP,
    GrpcMessages,
    RedisMessages,
)
from benchmarks.locks.model import (
    Delays,
    Workload,
    approvals_per_s,
    benefit,
    client_term_s,
    messages_per_s,
    share_of_no_lease,
)
from benchmarks.locks.plot import write_plot
from benchmarks.locks.relay import Traffic, relaying
from benchmarks.locks.scale import FULL, QUICK
from benchmarks.locks.servers import REDIS, ZOOKEEPER, running
from benchmarks.transport.samples import (
    CPU_US,
    OTHER_CPU_US,
    P50_MS,
    P99_MS,
    Cell,
    Cells,
    Figures,
    Run,
    Sample,
)

ROOT = Path(__file__).resolve().parents[2]
HAS_MATPLOTLIB = find_spec("matplotlib") is not None
NO_MATPLOTLIB = "matplotlib draws the plot; it is in the dependency group `bench`, not in `dev`"
NEEDS_REDIS = pytest.mark.skipif(
    shutil.which("redis-server") is None or find_spec("redis") is None,
    reason="needs redis-server, and redis of the dependency group `bench`",
)


# The model.


@pytest.fixture(autouse=True)
def _loud() -> Iterator[None]:
    """Have warnings told again: what is measured here has a process of its own, else."""
    logger = logging.getLogger("leasehold")
    level = logger.level
    yield
    logger.setLevel(level)


def test_without_a_lease_each_read_is_a_request_and_an_answer() -> None:
    assert messages_per_s(Workload(clients=7), 0.0) == pytest.approx(2 * 7 * 0.864)
    assert share_of_no_lease(Workload(), 0.0) == 1.0


def test_at_a_term_of_ten_seconds_a_tenth_of_the_traffic_is_left() -> None:
    exact = Delays(0.0, 0.0, 0.0)
    assert share_of_no_lease(Workload(), 10.0, exact) == pytest.approx(1 / (1 + 8.64))
    assert share_of_no_lease(Workload(), 10.0) == pytest.approx(0.1, abs=0.006)


def test_a_client_has_a_shorter_term_than_the_server_and_never_a_negative_one() -> None:
    delays = Delays(propagation_s=0.01, processing_s=0.02, clock_error_s=0.1)
    assert client_term_s(1.0, delays) == pytest.approx(1.0 - 0.05 - 0.1)
    assert client_term_s(0.1, delays) == 0.0


def test_what_is_shared_needs_the_leave_of_the_others_for_each_write() -> None:
    alone, shared = Workload(), Workload(sharing=10, clients=10)
    assert approvals_per_s(alone, 10.0) == 0.0
    assert approvals_per_s(shared, 0.0) == 0.0
    assert approvals_per_s(shared, 10.0) == pytest.approx(10 * 10 * 0.04)


def test_a_term_saves_messages_exactly_where_the_benefit_exceeds_one() -> None:
    good, bad = Workload(sharing=40, clients=1), Workload(sharing=50, clients=1)
    assert benefit(good) > 1 > benefit(bad)
    assert share_of_no_lease(good, 1e6) < 1 < share_of_no_lease(bad, 1e6)


# Counting messages.


def frame(kind: int, stream: int, payload: bytes, flags: int = 0) -> bytes:
    """A frame of HTTP/2."""
    head = len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4)
    return head + payload


def grpc_message(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4) + body


GRPC_TALK = b"".join(
    (
        PREFACE,
        frame(4, 0, b""),  # SETTINGS
        frame(1, 1, b"headers"),
        frame(0, 1, grpc_message(b"first") + grpc_message(b"")),
        frame(0, 3, grpc_message(b"in two frames")[:7]),
        frame(0, 1, b"\2" + grpc_message(b"padded") + b"\0\0", flags=0x8),
        frame(0, 3, grpc_message(b"in two frames")[7:]),
        frame(0, 1, grpc_message(b"after the padding")),
        frame(0, 1, b"", flags=0x1),  # the end of a stream
    )
)
REDIS_TALK = b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n*1\r\n"
ZOOKEEPER_TALK = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01x"


@pytest.mark.parametrize(
    ("protocol", "talk", "expected"),
    [(GRPC, GRPC_TALK, 5), (RESP, REDIS_TALK, 2), (JUTE, ZOOKEEPER_TALK, 3)],
)
def test_messages_are_counted_in_whatever_pieces_they_come(
    protocol: str, talk: bytes, expected: int
) -> None:
    for size in (1, 2, 3, 7, len(talk)):
        counter = PROTOCOLS[protocol]()
        for at in range(0, len(talk), size):
            counter.feed(talk[at : at + size])
        assert counter.count == expected
    counter = PROTOCOLS[protocol]()
    counter.feed(talk[:-1])
    assert counter.count == expected - 1 or protocol == GRPC


def test_what_is_no_such_protocol_is_not_counted_as_if_it_were() -> None:
    with pytest.raises(ValueError, match=r"HTTP/2"):
        GrpcMessages().feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    with pytest.raises(ValueError, match="PING"):
        RedisMessages().feed(b"PING\r\n")


@contextmanager
def echoing() -> Iterator[int]:
    """A server that sends back what it gets, twice, on one connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(1000):
                connection.sendall(2 * data)

    thread = Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


def receive(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        data = connection.recv(size - len(got))
        assert data
        got += data
    return got


class Pinger:
    """A lock of a client that sends a message to acquire it, and nothing to release it."""

    def __init__(self, connection: socket.socket, *, is_cached: bool) -> None:
        self._connection = connection
        self._is_cached = is_cached
        self._has_asked = False

    def pairs(self, times: int) -> None:
        for _ in range(times):
            if not (self._is_cached and self._has_asked):
                self._connection.sendall(b"\0\0\0\x02hi")
                assert receive(self._connection, 12) == 2 * b"\0\0\0\x02hi"
            self._has_asked = True

    async def async_pairs(self, times: int) -> None:
        self.pairs(times)


@pytest.mark.parametrize("is_cached", [False, True])
def test_the_relay_counts_what_each_pair_sends(is_cached: bool) -> None:
    expected = {MESSAGES: 0.0, BYTES: 0.0} if is_cached else {MESSAGES: 1.0, BYTES: 18.0}
    with (
        echoing() as port,
        relaying(port, JUTE) as relay,
        socket.create_connection(("127.0.0.1", relay.port)) as connection,
    ):
        pinger = Pinger(connection, is_cached=is_cached)
        assert count(relay, 4, pinger.pairs) == expected
        assert asyncio.run(count_async(relay, 4, pinger.async_pairs)) == expected
        sent = 1 if is_cached else 2 * (1 + 4)
        assert relay.traffic() == Traffic(sent, 6 * sent, 12 * sent)


def test_a_relay_ends_with_connections_open() -> None:
    with echoing() as port, relaying(port, JUTE) as relay:
        connection = socket.create_connection(("127.0.0.1", relay.port))
        connection.sendall(b"\0\0\0\0")
        receive(connection, 8)
    assert connection.recv(1) == b""
    connection.close()


# What locks are made to do.


def order(what: str, **more: Any) -> Order:
    return Order(what, 0.05, 0, 1, 5.0, **more)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No warming up, short pauses, and only this process's processor time."""
    monkeypatch.setattr(driving, "WARM_UP_S", 0.01)
    monkeypatch.setattr(driving, "PAUSE_S", (0.005, 0.01))
    monkeypatch.setattr(driving, "cpu_s_of", lambda _pid: 0.0)


class LoopLock:
    """A client's view of a lock of this event loop; one that excludes no task, if broken."""

    def __init__(self, lock: asyncio.Lock, *, is_broken: bool = False) -> None:
        self._lock = lock
        self._is_broken = is_broken

    async def acquire(self) -> None:
        if not self._is_broken:
            await self._lock.acquire()

    async def release(self) -> None:
        if not self._is_broken:
            self._lock.release()


async def drive(what: Order, clients: int, *, is_broken: bool = False) -> Figures:
    lock = asyncio.Lock()
    return await driving.drive([LoopLock(lock, is_broken=is_broken) for _ in range(clients)], what)


@pytest.mark.usefixtures("short")
def test_re_acquiring_is_timed() -> None:
    for figures in (
        asyncio.run(drive(order(REACQUIRE), 1)),
        driving.drive_threads([Lock()], order(REACQUIRE)),
    ):
        assert 0.0 < figures[ACQUIRE_US] <= figures[PAIR_US]
        assert figures[OTHER_CPU_US] == 0.0


@pytest.mark.usefixtures("short")
def test_a_hand_over_is_timed_from_the_release() -> None:
    shared = Lock()
    for figures in (
        asyncio.run(drive(order(HAND_OVER), 2)),
        driving.drive_threads([shared, shared], order(HAND_OVER)),
    ):
        assert figures[HANDED_OVER] >= 1
        assert 0.0 < figures[P50_MS] <= figures[P99_MS]


@pytest.mark.usefixtures("short")
def test_a_lock_that_two_hold_has_no_figures() -> None:
    until_it_is_seen = replace(order(HAND_OVER), seconds=60.0)  # a starved thread may miss a turn
    with pytest.raises(WrongAnswer, match="two clients"):
        asyncio.run(drive(until_it_is_seen, 2, is_broken=True))
    with pytest.raises(WrongAnswer, match="two clients"):
        driving.drive_threads([Lock(), Lock()], until_it_is_seen)


@pytest.mark.usefixtures("short")
def test_a_crowd_takes_at_least_as_long_as_all_hold_the_lock() -> None:
    shared, crowd = Lock(), order(CROWD, clients=3, turns=2, hold_s=0.01)
    assert crowd.connections == 3
    for figures in (
        asyncio.run(drive(crowd, 3)),
        driving.drive_threads([shared] * 3, crowd),
    ):
        assert figures[TOOK_S] >= 6 * 0.01


# The report.


def taken(number: int, figures: Figures) -> Sample:
    """A sample, as if it had been measured on a steady machine."""
    return Sample(number, figures, (1.0, 1.1))


def measured() -> Cells:
    """Some of everything, as if it had been measured."""
    cells: Cells = {}
    for who in IN_TABLES:
        us = 2.0 if who == CACHED else 4.0 if who == CACHED_SYNC else 400.0
        sent = 0.0 if us < 100 else 2.0
        figures = {ACQUIRE_US: us, PAIR_US: 2 * us, CPU_US: us, OTHER_CPU_US: 9.0}
        if who != NO_RECALL:
            cells[report.cell(REACQUIRING, who)] = [taken(number, figures) for number in range(2)]
            cells[report.cell(COUNTING, who)] = [taken(0, {MESSAGES: sent, BYTES: 100 * sent})]
            handed = {P50_MS: 2.0, P99_MS: 4.0, HANDED_OVER: 20.0}
            cells[report.cell(HANDING_OVER, who)] = [taken(0, handed)]
        cells[report.cell(CROWDING, who)] = [taken(0, {TOOK_S: 6.0})]
    for server, messages in ((OURS, 0.1), (ETCD, 0.2)):
        held = {holding.MESSAGES: messages, holding.BYTES: 9.0, holding.CPU: 0.002}
        held |= {holding.SERVER_CPU: 0.001, holding.LOCKS: 10_000, holding.TTL_S: 30.0}
        cells[Cell(holding.PART, holding.PART, server)] = [taken(0, held)]
    for sharing in traffic.SHARING:
        for term_s, messages in ((0.0, 4.0), (10.0, 0.4), (30.0, 0.2)):
            cell = Cell(traffic.PART, traffic.name_of(sharing, term_s), traffic.OURS)
            cells[cell] = [taken(0, {traffic.MESSAGES: messages, traffic.TERM_S: term_s})]
    return cells


def results(cells: Cells, *missing: str) -> report.Results:
    return report.Results("a machine", cells, list(missing))


def test_a_target_is_reached_by_the_median_and_narrowly_if_not_in_the_worse_quartile() -> None:
    assert targets.within(Spread(3.0, 1.0, 3.0), 3.0) == "yes"
    assert targets.within(Spread(3.0, 1.0, 3.1), 3.0) == "yes, but not in every fourth pair"
    assert targets.within(Spread(3.1, 1.0, 3.2), 3.0) == "NO"


def test_verdicts_stand_beside_the_figures_and_what_is_missing_is_named() -> None:
    table = report.target_table(results(measured(), f"{KAZOO}: ZooKeeper is not there"))
    assert [[*row] for row in table.rows] == [
        [f"acquiring again, {CACHED}", "3 µs", "2.00 µs", "yes"],
        [f"messages of that, {CACHED}", "0", "0", "yes"],
        [f"acquiring again, {CACHED_SYNC}", "5 µs", "4.00 µs", "yes"],
        [f"messages of that, {CACHED_SYNC}", "0", "0", "yes"],
        [
            "consistency traffic with a term of 10 s, relative to ours without leases",
            "about 10%",
            "10.0%",
            "yes",
        ],
    ]
    assert table.note == f"missing: {KAZOO}: ZooKeeper is not there"
    cells = measured()
    cells[report.cell(COUNTING, CACHED)] = [taken(0, {MESSAGES: 0.01, BYTES: 1.0})]
    assert [*report.target_table(results(cells)).rows[1]][1:] == ["0", "0.01", "NO"]


def test_every_part_has_its_table_and_what_was_not_measured_has_none() -> None:
    made = {each.title: each for each in report.tables(results(measured()), FULL)}
    assert list(made) == [
        "Targets",
        "An uncontended lock",
        "Handing over",
        "10 clients on one lock",
        "Holding 10,000 locks, with a lease of 30 s",
        "Consistency traffic, S = 1",
        "Consistency traffic, S = 10",
    ]
    rows = {row[0]: row[1:] for row in made["An uncontended lock"].rows}
    assert NO_RECALL not in rows
    assert rows[UNCACHED] == [OURS, "400", "800", "200", "400", "9.00", "2.00", "200"]
    rows = {row[0]: row[1:] for row in made["10 clients on one lock"].rows}
    assert rows[NO_RECALL] == [OURS, "6.00", "100"]
    held = made["Holding 10,000 locks, with a lease of 30 s"].rows
    assert [row[1] for row in held] == ["0.10", "0.20", "1,000"]
    row = made["Consistency traffic, S = 1"].rows[1]
    assert row == ["10 s", "0.18", "10.5%", "0.40", "10.0%"]
    assert report.tables(results({}), FULL) == []


def test_whoever_was_not_measured_has_a_row_that_says_why() -> None:
    cells = {each: samples for each, samples in measured().items() if each.who != REDIS_PY}
    why = "Redis is not there: apt-get install redis-server"
    made = {each.title: each for each in report.tables(results(cells, f"{REDIS_PY}: {why}"), FULL)}
    for title in ("An uncontended lock", "Handing over", "10 clients on one lock"):
        rows = {row[0]: row for row in made[title].rows}
        assert rows[REDIS_PY][:3] == [REDIS_PY, REDIS, f"not measured: {why}"]
        assert len(rows[REDIS_PY]) == len(made[title].headings)


def test_raw_results_can_be_written_down() -> None:
    raw = json.loads(json.dumps(results(measured(), "it").as_json()))
    assert raw["missing"] == ["it"]


@pytest.mark.skipif(not HAS_MATPLOTLIB, reason=NO_MATPLOTLIB)
def test_the_plot_is_drawn_of_whatever_was_measured(tmp_path: Path) -> None:
    for number, cells in enumerate((measured(), {})):
        path = tmp_path / f"{number}.svg"
        write_plot(results(cells), FULL, path)
        assert "<svg" in path.read_text(encoding="utf-8")


def test_the_page_has_a_place_for_the_results() -> None:
    text = (ROOT / "docs" / page.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(page.COMMAND)) == text.count(END) == 1


def test_messages_are_counted_where_nothing_has_to_be_renewed(tmp_path: Path) -> None:
    server = Server(OURS, 1, 2, tmp_path)
    counted = contest.order_for(COUNTING, FULL, server)
    assert counted.is_counted
    assert counted.ttl_s >= 60.0
    assert not contest.order_for(REACQUIRING, FULL, server).is_counted
    assert contest.order_for(CROWDING, FULL, server).ttl_s == 5.0


# Consistency traffic, simulated.


def test_with_a_term_reads_cost_next_to_nothing_and_without_one_each_is_paid_for() -> None:
    none, some = (traffic.figures(1, term_s, 60.0) for term_s in (0.0, 10.0))
    assert none[traffic.MESSAGES] >= 4 * 0.8 * none[traffic.READS] / 60.0
    renewals_per_s = 2 * 3 / 10.0
    assert some[traffic.MESSAGES] <= 1.3 * renewals_per_s


def test_a_writer_asks_all_caches_for_their_leave() -> None:
    alone, shared = (traffic.figures(sharing, 10.0, 60.0 * sharing) for sharing in (1, 3))
    assert shared[traffic.MESSAGES] / 3 > 1.2 * alone[traffic.MESSAGES]


# Available contenders.


def test_a_library_that_is_not_installed_is_absent_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contenders, "is_ready", lambda _name: False)
    monkeypatch.setattr(contenders, "find_spec", lambda _name: None)
    found = {who: contenders.interpreter_of(who) for who in (AETCD, KAZOO)}
    assert found == {
        AETCD: Absent("aetcd is not there, or too old: `make clients` installs it"),
        KAZOO: Absent("kazoo is not there: it is in the dependency group `bench`"),
    }


@pytest.mark.parametrize(
    ("name", "way"),
    [
        (REDIS, "Redis is not there: apt-get install redis-server"),
        (ZOOKEEPER, "ZooKeeper is not there: apt-get install zookeeper"),
    ],
)
def test_a_server_that_is_not_there_cannot_be_started_and_a_way_out_is_told(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("benchmarks.locks.servers.shutil.which", lambda _name: None)
    monkeypatch.setattr("benchmarks.locks.servers._ZOOKEEPER_OF_DEBIAN", tmp_path / "none")
    with pytest.raises(CannotStart, match=way), running(name, tmp_path):
        pass


def test_without_a_server_its_libraries_are_missing_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextmanager
    def only_etcd(name: str, _directory: Path) -> Iterator[Server]:
        if name != ETCD:
            raise CannotStart(f"{name} is not there")
        yield Server(name, 1, 1, tmp_path)

    monkeypatch.setattr(contest, "running", only_etcd)
    monkeypatch.setattr(contest, "interpreter_of", lambda _who: Path(sys.executable))
    monkeypatch.setattr(Contest, "_sample", lambda *_args: {TOOK_S: 1.0})
    run = Run()
    Contest(run, QUICK, tmp_path).measure((CROWDING,))
    on_etcd = {who for who, each in CONTENDERS.items() if each.server == ETCD}
    assert {each.who for each in run.cells} == on_etcd
    assert f"{REDIS_PY}: redis is not there" in run.missing
    assert len(run.missing) == len(CONTENDERS) - len(on_etcd)


@NEEDS_REDIS
def test_a_run_prints_its_tables_and_writes_page_plot_and_figures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.locks", "--quick", "--only", "reacquire"]
    done = subprocess.run(  # noqa: S603  our own module
        [
            *(*command, "--data-dir", str(tmp_path)),
            *("--output", str(tmp_path), "--json", str(tmp_path / "raw.json")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "An uncontended lock" in done.stdout
    assert "redis-py, threads" in (tmp_path / page.PAGE).read_text(encoding="utf-8")
    raw = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))
    sent = {
        each["cell"]["who"]: each["samples"][0]["figures"][MESSAGES]
        for each in raw["cells"]
        if each["cell"]["part"] == COUNTING
    }
    assert sent[REDIS_PY] == 2.0
    for who in contenders.FROM_CACHE:
        assert sent.get(who, 0.0) == 0.0
