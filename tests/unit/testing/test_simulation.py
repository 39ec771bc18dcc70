"""Time passes, errors surface, spinning is named, and closing ends everything."""

import asyncio

import pytest

from leasehold.testing import NotReached, Simulation, SimulationError, Spinning, simulation


async def _fail() -> None:
    await asyncio.sleep(1.0)
    raise LookupError("lost")


async def _sleep_for_ever() -> None:
    await asyncio.Event().wait()


def _expect_no_running_loop() -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def _divide_by_zero() -> None:
    1 / 0  # noqa: B018


def test_events_from_outside_run_at_their_time_in_order_and_in_no_host() -> None:
    with Simulation(0) as sim:
        seen: list[tuple[str, float]] = []
        sim.at(2.0, lambda: seen.append(("at", sim.now)))
        sim.after(1.0, lambda: seen.append(("after", sim.now)))
        sim.at(2.0, lambda: seen.append(("at again", sim.now)))
        sim.at(1.5, _expect_no_running_loop)
        sim.run_for(2.0)
        assert seen == [("after", 1.0), ("at", 2.0), ("at again", 2.0)]
        assert sim.now == 2.0
        with pytest.raises(ValueError, match="cannot run at"):
            sim.at(1.0, print)
        with pytest.raises(ValueError, match="delay"):
            sim.after(-1.0, print)


def test_run_until_stops_as_soon_as_the_predicate_is_true() -> None:
    with Simulation(0) as sim:
        task = sim.host("a").start(asyncio.sleep, 3.0)
        sim.run_until(task.done, within=100.0)
        assert sim.now == pytest.approx(3.0)


def test_run_until_says_what_was_not_reached() -> None:
    with Simulation(42) as sim:
        task = sim.host("a").start(asyncio.sleep, 30.0)
        with pytest.raises(NotReached, match=r"\[seed 42, t=5\.0+\] .*done was not true within 5"):
            sim.run_until(task.done, within=5.0)
        assert sim.now == 5.0


def test_an_error_in_an_event_from_outside_leaves_the_run() -> None:
    with Simulation(0) as sim:
        sim.after(1.0, _divide_by_zero)
        with pytest.raises(ZeroDivisionError):
            sim.run_for(2.0)


def test_a_callback_that_raises_fails_the_run_it_happens_in() -> None:
    with Simulation(5) as sim:
        host = sim.host("a")
        host.loop.call_later(1.0, _divide_by_zero)
        with pytest.raises(SimulationError, match=r"\[seed 5, t=1\.0+, host a\].*ZeroDiv") as info:
            sim.run_for(100.0)
        assert isinstance(info.value.__cause__, ZeroDivisionError)
        assert (info.value.seed, info.value.host) == (5, "a")
        assert sim.now == pytest.approx(1.0)


def test_a_failed_task_that_is_forgotten_fails_the_run() -> None:
    with Simulation(5) as sim:
        sim.host("a").start(_fail)
        with pytest.raises(SimulationError, match="LookupError: lost"):
            sim.run_for(100.0)
        assert sim.now == pytest.approx(1.0)


def test_a_failed_task_that_is_kept_but_not_asked_fails_at_closing() -> None:
    sim = Simulation(5)
    task = sim.host("a").start(_fail)
    sim.run_for(100.0)
    with pytest.raises(SimulationError, match=r"t=1\.0+, host a\] task failed unnoticed: _fail"):
        sim.close()
    assert task.done()


def test_a_failed_task_whose_result_is_read_is_nobodys_error() -> None:
    with Simulation(5) as sim:
        task = sim.host("a").start(_fail)
        sim.run_for(100.0)
        with pytest.raises(LookupError):
            task.result()


def test_several_errors_come_together() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        for text in ("first", "second"):
            host.loop.call_soon(int, text)
        with pytest.raises(SimulationError, match="first") as info:
            sim.run_for(1.0)
        assert "second" in info.value.__notes__[0]


def test_closing_cancels_tasks_and_runs_them_to_their_end() -> None:
    ended: list[str] = []

    async def careful(name: str) -> None:
        try:
            await _sleep_for_ever()
        finally:
            await asyncio.sleep(5.0)
            ended.append(name)

    with Simulation(0) as sim:
        hosts = [sim.host(name) for name in "abc"]
        for host in hosts:
            host.start(careful, host.name)
        sim.run_for(1.0)
        hosts[0].stop()
        hosts[1].suspend()
        sim.at(3.0, lambda: ended.append("events from outside do not run while closing"))
    assert sorted(ended) == ["a", "b", "c"]
    assert all(host.loop.is_closed() for host in hosts)
    sim.close()
    with pytest.raises(RuntimeError, match="closed"):
        sim.run_for(1.0)


def test_an_error_while_closing_is_raised() -> None:
    async def stumble() -> None:
        try:
            await _sleep_for_ever()
        finally:
            raise ValueError("on the way out")

    sim = Simulation(0)
    sim.host("a").start(stumble)
    sim.run_for(1.0)
    with pytest.raises(SimulationError, match="on the way out"):
        sim.close()


def test_tasks_that_do_not_end_are_named() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1.0)
            except asyncio.CancelledError:
                continue

    sim = Simulation(0)
    sim.host("a").start(stubborn)
    sim.run_for(1.0)
    with pytest.raises(SimulationError, match=r"1 tasks do not end: .*stubborn on a"):
        sim.close()


def test_an_exception_that_leaves_the_block_says_how_to_replay_it() -> None:
    with pytest.raises(ZeroDivisionError) as info, Simulation(77) as sim:  # noqa: PT012
        host = sim.host("a")
        sim.run_for(2.0)
        host.record("something telling")
        _divide_by_zero()
    note = info.value.__notes__[0]
    assert "seed 77, t=2.000000" in note
    assert "LEASEHOLD_SEED=77" in note
    assert "2.000000 a something telling" in note


def test_an_error_that_only_closing_finds_says_how_to_replay_it() -> None:
    tasks: list[asyncio.Task[None]] = []
    with pytest.raises(SimulationError) as info, Simulation(78) as sim:  # noqa: PT012
        tasks.append(sim.host("a").start(_fail))
        sim.run_for(2.0)
    assert "LEASEHOLD_SEED=78" in info.value.__notes__[0]


def test_an_error_while_closing_does_not_hide_the_first_one() -> None:
    async def stumble() -> None:
        try:
            await _sleep_for_ever()
        finally:
            raise ValueError("on the way out")

    with pytest.raises(ZeroDivisionError) as info, Simulation(0) as sim:  # noqa: PT012
        sim.host("a").start(stumble)
        sim.run_for(1.0)
        _divide_by_zero()
    assert "on the way out" in info.value.__notes__[1]


def test_code_that_spins_at_one_instant_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MAX_TURNS_WITHOUT_TIME", 1000)

    async def spin() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with Simulation(3) as sim:
        sim.host("quiet").start(_sleep_for_ever)
        sim.host("busy").start(spin)
        with pytest.raises(
            Spinning, match=r"host busy\] more than 1000 turns at one .* task .*spin \(\d+x\)"
        ):
            sim.run_for(1.0)
        sim.run_until(lambda: True, within=0.0)
        with pytest.raises(Spinning):
            sim.close()


def test_too_many_turns_in_all_are_an_error() -> None:
    async def hurry() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0.000001)

    sim = Simulation(3, max_turns=500)
    sim.host("a").start(hurry)
    with pytest.raises(Spinning, match=r"host a\] more than 500 turns; ran most: .*hurry"):
        sim.run_for(100.0)
    with pytest.raises(Spinning):
        sim.close()
    with pytest.raises(ValueError, match="max_turns"):
        Simulation(3, max_turns=0)


def test_the_simulation_cannot_be_run_from_inside() -> None:
    with Simulation(0) as sim:
        sim.after(1.0, lambda: sim.run_for(1.0))
        with pytest.raises(RuntimeError, match="running already"):
            sim.run_for(2.0)
        sim.after(1.0, sim.close)
        with pytest.raises(RuntimeError, match="from inside"):
            sim.run_for(2.0)


def test_two_hosts_cannot_have_one_name() -> None:
    with Simulation(0) as sim:
        sim.host("a")
        with pytest.raises(ValueError, match="'a'"):
            sim.host("a")


def test_the_order_of_hosts_at_one_instant_is_drawn_from_the_seed() -> None:
    orders: set[str] = set()
    for seed in range(50):
        with Simulation(seed) as sim:
            order: list[str] = []
            for name in "abc":
                sim.host(name).loop.call_soon(order.append, name)
            sim.run_for(0.0)
            orders.add("".join(order))
    assert len(orders) == 6


@pytest.mark.slow
def test_three_hours_of_a_hundred_tasks_take_few_turns() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(10.0)
            ticks += 1

    with Simulation(0) as sim:
        host = sim.host("a")
        for _ in range(100):
            host.start(tick)
        sim.run_for(3 * 3600.0)
        assert ticks == 108_000
        # One turn for the timers, one for the tasks they wake.
        assert sim.turns <= 2 * 1080 + 1


def test_the_trace_is_bounded_and_the_digest_is_not() -> None:
    with Simulation(0) as sim:
        for number in range(5000):
            sim.record(f"line {number}")
        assert len(sim.trace) == 1000
        assert sim.trace[-1] == "0.000000 - line 4999"
        before = sim.digest()
        sim.record("one more")
        assert sim.digest() != before
