"""Connections: in order and complete while they stand, broken as a whole."""

import asyncio
from typing import Any

import pytest

from leasehold.testing import Connection, Faults, Host, Simulation, seeds
from leasehold.testing.connections import (
    BROKEN_AFTER_S,
    CONNECT_WITHIN_S,
    MAX_UNREAD,
    NOTICE_SPREAD,
)

ROUGH = Faults(loss=0.2, duplicate=0.2, delay=(0.01, 0.1), spike=0.1)
LATEST_NOTICE_S = BROKEN_AFTER_S * NOTICE_SPREAD


class Line:
    """Two hosts, a connection between them, and what each side read from it."""

    def __init__(self, sim: Simulation, faults: Faults | None = None) -> None:
        self.sim = sim
        self.network = sim.network(faults if faults is not None else Faults(delay=(0.01, 0.02)))
        self.a: Host = sim.host("a")
        self.b: Host = sim.host("b")
        self.at_a: list[Any] = []
        self.at_b: list[Any] = []
        self.accepted: list[Connection] = []
        self.network.listen(self.b, "in", self.accept)
        task = self.a.start(self.network.connect, self.a, self.b, "in")
        sim.run_until(task.done, within=10.0)
        sim.run_until(lambda: self.accepted, within=1.0)
        self.from_a = task.result()
        self.from_b = self.accepted[0]

    async def accept(self, connection: Connection) -> None:
        self.accepted.append(connection)

    def read_both(self) -> None:
        self.a.start(self.read, self.from_a, self.at_a)
        self.b.start(self.read, self.from_b, self.at_b)

    async def read(self, connection: Connection, into: list[Any]) -> None:
        try:
            while True:
                into.append(await connection.receive())
        except (ConnectionError, EOFError) as error:
            into.append((type(error), self.sim.now))


@pytest.mark.parametrize("seed", seeds(10))
def test_messages_arrive_once_and_in_order_both_ways(seed: int) -> None:
    with Simulation(seed) as sim:
        line = Line(sim, ROUGH)
        line.read_both()

        async def talk(connection: Connection) -> None:
            for number in range(100):
                connection.send(number)
                await asyncio.sleep(sim.random.choice([0.0, 0.01, 0.1]))

        line.a.start(talk, line.from_a)
        line.b.start(talk, line.from_b)
        sim.run_for(100.0)
        assert line.at_b == list(range(100))
        assert line.at_a == list(range(100))


def test_ends_know_their_hosts() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        assert (line.from_a.host, line.from_a.peer, line.from_a.name) == (line.a, line.b, "in")
        assert (line.from_b.host, line.from_b.peer) == (line.b, line.a)


def test_a_lost_packet_shows_as_delay() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        line.read_both()
        line.network.default = Faults(loss=1.0, delay=(0.01, 0.02))
        start = sim.now
        line.a.call(line.from_a.send, 1)
        sim.run_until(lambda: line.at_b, within=60.0)
        assert sim.now - start > 1.0
        assert line.network.counters.lost > 0


def test_messages_are_copies() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        line.read_both()
        message = [1]
        line.a.call(line.from_a.send, message)
        message.append(2)
        sim.run_for(1.0)
        assert line.at_b == [[1]]


def test_after_close_what_was_sent_arrives_and_then_the_end() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        line.read_both()
        line.a.call(line.from_a.send, "last")
        line.a.call(line.from_a.close)
        line.a.call(line.from_a.close)
        with pytest.raises(ConnectionAbortedError):
            line.a.call(line.from_a.send, "too late")
        sim.run_for(1.0)
        assert [line.at_b[0], line.at_b[1][0]] == ["last", EOFError]
        assert line.at_a[0][0] is ConnectionAbortedError
        with pytest.raises(BrokenPipeError):
            line.b.call(line.from_b.send, "nobody reads this")


def test_nobody_listening_refuses() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        for host in (line.a, line.b):
            task = line.a.start(line.network.connect, line.a, host, "out")
            sim.run_until(task.done, within=5.0)
            with pytest.raises(ConnectionRefusedError, match="out"):
                task.result()
        line.b.crash()
        task = line.a.start(line.network.connect, line.a, line.b, "in")
        sim.run_until(task.done, within=5.0)
        with pytest.raises(ConnectionRefusedError, match="in"):
            task.result()


def test_connecting_over_a_cut_link_times_out() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        line.network.partition({line.a})
        start = sim.now
        task = line.a.start(line.network.connect, line.a, line.b, "in")
        sim.run_until(task.done, within=60.0)
        with pytest.raises(TimeoutError):
            task.result()
        assert sim.now - start == pytest.approx(CONNECT_WITHIN_S)


def _last_words(seed: int) -> list[Any]:
    """What one side reads when the other sends something and crashes."""
    with Simulation(seed) as sim:
        line = Line(sim)
        line.read_both()
        line.b.call(line.from_b.send, "last words")
        line.b.crash()
        crashed_at = sim.now
        sim.run_for(1.0)
        kind, when = line.at_a.pop()
        assert kind is ConnectionResetError
        assert 0.01 <= when - crashed_at <= 0.02
        assert line.at_b == []
        with pytest.raises(ConnectionResetError):
            line.a.call(line.from_a.send, "anyone?")
        return line.at_a


def test_a_crash_resets_the_other_side_which_may_miss_what_it_has_not_read() -> None:
    outcomes = [_last_words(seed) for seed in range(40)]
    assert ["last words"] in outcomes
    assert [] in outcomes


def test_an_old_connection_means_nothing_to_a_restarted_process() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        line.b.restart()
        with pytest.raises(RuntimeError, match="belongs to code on b"):
            line.b.call(line.from_b.send, 1)
        line.a.call(line.from_a.send, 1)
        sim.run_for(1.0)
        with pytest.raises(ConnectionResetError):
            line.a.call(line.from_a.send, 2)


def test_a_short_partition_only_delays() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        line.read_both()
        line.network.partition({line.a})
        for number in range(5):
            line.a.call(line.from_a.send, number)
        sim.run_for(BROKEN_AFTER_S - 1.0)
        assert line.at_b == []
        line.network.heal()
        line.a.call(line.from_a.send, 5)
        sim.run_for(LATEST_NOTICE_S)
        assert line.at_b == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", seeds(5))
@pytest.mark.parametrize("one_way", [False, True])
def test_a_long_partition_breaks_both_sides_each_in_its_time(seed: int, one_way: bool) -> None:
    with Simulation(seed) as sim:
        line = Line(sim)
        line.read_both()
        cut_at = sim.now
        line.network.partition({line.a}, {line.b}, one_way=one_way)
        line.a.call(line.from_a.send, "lost")
        sim.run_for(BROKEN_AFTER_S - 0.1)
        assert line.at_a == line.at_b == []
        sim.run_for(LATEST_NOTICE_S)
        line.network.heal()
        sim.run_for(10.0)
        ((kind_a, when_a),) = line.at_a
        ((kind_b, when_b),) = line.at_b
        assert kind_a is kind_b is ConnectionResetError
        assert when_a != when_b
        assert min(when_a, when_b) - cut_at >= BROKEN_AFTER_S
        assert max(when_a, when_b) - cut_at <= LATEST_NOTICE_S + 0.1


def test_what_is_read_and_what_waits_is_bounded() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        for number in range(MAX_UNREAD):
            line.a.call(line.from_a.send, number)
        with pytest.raises(BufferError, match=f"last {MAX_UNREAD} messages"):
            line.a.call(line.from_a.send, "one too many")
        sim.run_for(1.0)
        line.read_both()
        sim.run_for(1.0)
        line.a.call(line.from_a.send, MAX_UNREAD)
        sim.run_for(1.0)
        assert line.at_b == list(range(MAX_UNREAD + 1))


def test_a_stopped_process_is_connected_by_its_kernel() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        line.b.stop(5.0)
        task = line.a.start(line.network.connect, line.a, line.b, "in")
        sim.run_until(task.done, within=1.0)
        task.result()
        assert len(line.accepted) == 1
        sim.run_for(6.0)
        assert len(line.accepted) == 2


def test_ends_are_used_by_code_on_their_own_host() -> None:
    with Simulation(0) as sim:
        line = Line(sim)
        with pytest.raises(RuntimeError, match="belongs to code on a"):
            line.b.call(line.from_a.send, 1)
        task = line.b.start(line.network.connect, line.a, line.b, "in")
        sim.run_for(1.0)
        with pytest.raises(RuntimeError, match="code that runs on it"):
            task.result()
