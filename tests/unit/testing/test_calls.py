"""Calls: answers, errors, and every fault within its bounds."""

import asyncio
from typing import Any

import pytest

from leasehold.testing import Faults, Host, Network, Simulation, seeds

QUICK = Faults(delay=(0.01, 0.01))


class CustomError(Exception):
    """Makes a message of its argument, as exceptions with attributes do."""

    def __init__(self, key: str) -> None:
        super().__init__(f"unknown key {key}")
        self.key = key


class Pair:
    """A client and a server on a network."""

    def __init__(self, sim: Simulation, faults: Faults = QUICK) -> None:
        self.sim = sim
        self.client: Host = sim.host("client")
        self.server: Host = sim.host("server")
        self.network: Network = sim.network(faults)

    def ask(self, payload: Any = None, timeout: float | None = None) -> "asyncio.Task[Any]":
        return self.client.start(self._call, payload, timeout)

    async def _call(self, payload: Any, timeout: float | None) -> Any:  # noqa: ASYNC109
        return await self.network.call(self.client, self.server, "x", payload, timeout)

    def answer(self, payload: Any = None, timeout: float | None = None) -> Any:
        task = self.ask(payload, timeout)
        self.sim.run_until(task.done, within=60.0)
        return task.result()


def test_a_plain_handler_answers_after_two_delays() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)
        pair.network.serve(pair.server, "x", lambda number: number + 1)
        assert pair.answer(41) == 42
        assert sim.now == pytest.approx(0.02)


def test_an_async_handler_runs_in_the_loop_of_its_host() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)

        async def handle(_payload: object) -> bool:
            await asyncio.sleep(1.0)
            return asyncio.get_running_loop() is pair.server.loop

        pair.network.serve(pair.server, "x", handle)
        assert pair.answer()


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_travels_to_the_caller_with_its_attributes(is_async: bool) -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)
        raised: list[CustomError] = []

        def fail(key: str) -> None:
            raised.append(CustomError(key))
            raise raised[0]

        async def fail_later(key: str) -> None:
            await asyncio.sleep(1.0)
            fail(key)

        pair.network.serve(pair.server, "x", fail_later if is_async else fail)
        with pytest.raises(CustomError, match=r"^unknown key k$") as info:
            pair.answer("k")
        assert info.value.key == "k"
        assert info.value is not raised[0]


def test_hosts_share_no_objects() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim, Faults(duplicate=1.0))
        received: list[list[int]] = []

        def handle(payload: list[int]) -> list[int]:
            received.append(payload)
            payload.append(9)
            return payload

        pair.network.serve(pair.server, "x", handle)
        sent = [1]
        task = pair.ask(sent)
        sim.run_for(0.0001)
        sent.append(2)
        sim.run_until(task.done, within=1.0)
        sim.run_for(1.0)
        assert received == [[1, 9], [1, 9]]
        assert received[0] is not received[1]
        assert task.result() == [1, 9]
        assert task.result() is not received[0]


def test_without_a_reply_the_call_times_out_or_waits_for_ever() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim, Faults(loss=1.0))
        pair.network.serve(pair.server, "x", lambda _: None)
        patient = pair.ask()
        with pytest.raises(TimeoutError):
            pair.answer(timeout=5.0)
        assert sim.now == pytest.approx(5.0)
        sim.run_for(100_000.0)
        assert not patient.done()


@pytest.mark.parametrize("served_elsewhere", [False, True])
def test_a_host_that_does_not_serve_refuses(served_elsewhere: bool) -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)
        if served_elsewhere:
            pair.network.serve(pair.server, "y", lambda _: None)
        with pytest.raises(ConnectionRefusedError, match="server"):
            pair.answer()
        assert sim.now == pytest.approx(0.02)


def test_a_service_ends_with_its_process() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)
        pair.network.serve(pair.server, "x", lambda _: "old")
        pair.server.crash()
        with pytest.raises(ConnectionRefusedError):
            pair.answer()
        pair.server.restart()
        with pytest.raises(ConnectionRefusedError):
            pair.answer()
        pair.network.serve(pair.server, "x", lambda _: "new")
        assert pair.answer() == "new"


def test_a_call_can_be_cancelled_and_its_late_reply_is_ignored() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)
        pair.network.serve(pair.server, "x", lambda _: 1)
        task = pair.ask()
        sim.run_for(0.015)
        pair.client.call(task.cancel)
        sim.run_for(1.0)
        assert task.cancelled()
        assert pair.network.counters.delivered == 2


def test_a_reply_to_a_process_that_is_gone_is_lost() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)
        pair.network.serve(pair.server, "x", lambda _: 1)
        pair.ask()
        sim.run_for(0.015)
        pair.client.restart()
        sim.run_for(1.0)
        assert (pair.network.counters.delivered, pair.network.counters.lost) == (1, 1)


def test_a_call_is_made_by_code_on_its_own_host() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)
        task = pair.server.start(pair.network.call, pair.client, pair.server, "x", None)
        sim.run_for(1.0)
        with pytest.raises(RuntimeError, match="code that runs on it"):
            task.result()


def test_what_a_stalled_host_sends_leaves_after_the_stall() -> None:
    with Simulation(0) as sim:
        pair = Pair(sim)
        arrived: list[float] = []
        pair.network.serve(pair.server, "x", lambda _: arrived.append(sim.now))
        pair.client.loop.call_soon(pair.client.stall, 3.0)
        pair.ask()
        sim.run_for(10.0)
        assert arrived == pytest.approx([3.01])

        async def stall_and_send() -> None:
            pair.client.stall(3.0)
            await pair.network.call(pair.client, pair.server, "x", None)

        pair.client.start(stall_and_send)
        sim.run_for(1.0)
        pair.client.crash()
        sim.run_for(10.0)
        assert len(arrived) == 1


def _flood(seed: int, faults: Faults, count: int = 1000) -> tuple[Network, list[float], list[int]]:
    """Send numbers from one host to another; return delays and the order of arrival."""
    with Simulation(seed) as sim:
        pair = Pair(sim, faults)
        pair.network.link(pair.server, pair.client, Faults(loss=1.0), one_way=True)
        delays: list[float] = []
        order: list[int] = []

        def note(payload: tuple[int, float]) -> None:
            order.append(payload[0])
            delays.append(sim.now - payload[1])

        pair.network.serve(pair.server, "x", note)
        for number in range(count):
            pair.ask((number, 0.0))
        sim.run_for(100.0)
        return pair.network, delays, order


@pytest.mark.parametrize("seed", seeds(3))
def test_loss_is_as_frequent_as_set(seed: int) -> None:
    _, _, order = _flood(seed, Faults(loss=0.3))
    assert 600 < len(order) < 800
    assert len(set(order)) == len(order)


@pytest.mark.parametrize("seed", seeds(3))
def test_duplicates_are_as_frequent_as_set_and_come_once(seed: int) -> None:
    network, _, order = _flood(seed, Faults(duplicate=0.3))
    assert 1200 < len(order) < 1400
    assert max(order.count(number) for number in range(1000)) == 2
    assert network.counters.duplicated == len(order) - 1000


@pytest.mark.parametrize("seed", seeds(3))
def test_delays_stay_in_their_range_and_reorder(seed: int) -> None:
    _, delays, order = _flood(seed, Faults(delay=(0.1, 0.2)))
    assert 0.1 <= min(delays) < 0.11
    assert 0.19 < max(delays) <= 0.2
    assert sorted(order) == list(range(1000))
    assert order != sorted(order)


@pytest.mark.parametrize("seed", seeds(3))
def test_spikes_are_as_frequent_as_set_and_in_their_range(seed: int) -> None:
    _, delays, _ = _flood(seed, Faults(delay=(0.1, 0.2), spike=0.2, spike_delay=(5.0, 6.0)))
    spikes = [delay for delay in delays if delay > 0.2]
    assert 130 < len(spikes) < 270
    assert 5.1 <= min(spikes) <= max(spikes) <= 6.2


def test_without_faults_nothing_is_lost_or_doubled() -> None:
    network, _, order = _flood(0, Faults())
    assert sorted(order) == list(range(1000))
    assert network.counters.sent == 2000
    assert (network.counters.delivered, network.counters.lost) == (1000, 1000)  # replies are cut


def test_more_messages_than_a_host_can_hold_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.testing.host.MAX_WAITING_MESSAGES", 10)
    with Simulation(0) as sim:
        pair = Pair(sim)
        seen: list[int] = []
        pair.network.serve(pair.server, "x", seen.append)
        pair.server.stop(5.0)
        for number in range(30):
            pair.ask(number)
        sim.run_for(10.0)
        assert len(seen) == 10


@pytest.mark.parametrize(
    ("setting", "value"),
    [("loss", 1.5), ("duplicate", -0.1), ("spike", 2.0), ("delay", (2.0, 1.0)),
     ("spike_delay", (-1.0, 1.0)), ("delay", (0.0, float("inf")))],
)  # fmt: skip
def test_bad_faults_are_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=setting):
        Faults(**{setting: value})
