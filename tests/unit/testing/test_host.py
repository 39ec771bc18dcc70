"""Stop, suspend, stall, crash, restart: their effect on clocks, timers, tasks and messages."""

import asyncio
from collections.abc import Callable

import pytest

from leasehold.testing import Faults, Host, Simulation, seeds

FIXED_DELAY = Faults(delay=(0.1, 0.1))


def _ticks(sim: Simulation, host: Host) -> list[float]:
    """Note the true time of every second that the host counts."""
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1.0)
            seen.append(sim.now)

    host.start(tick)
    return seen


def _readings(host: Host) -> tuple[float, float, float]:
    return host.clock.monotonic(), host.clock.boottime(), host.clock.wall()


def _gains(host: Host, before: tuple[float, float, float]) -> list[float]:
    return [round(now - then, 4) for now, then in zip(_readings(host), before, strict=True)]


def test_a_stopped_process_runs_nothing_while_its_clocks_go_on() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        seen, before = _ticks(sim, host), _readings(host)
        sim.at(2.5, lambda: host.stop(5.0))
        sim.run_for(7.4)
        assert host.halted
        assert seen == pytest.approx([1.0, 2.0])
        assert _gains(host, before) == [7.4, 7.4, 7.4]
        sim.run_for(2.0)
        assert not host.stopped
        assert seen == pytest.approx([1.0, 2.0, 7.5, 8.5])


def test_a_suspended_machine_keeps_monotonic_and_timers_still() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        seen, before = _ticks(sim, host), _readings(host)
        sim.at(2.5, lambda: host.suspend(5.0))
        sim.run_for(7.4)
        assert host.suspended
        assert seen == pytest.approx([1.0, 2.0])
        assert _gains(host, before) == [2.5, 7.4, 7.4]
        sim.run_for(1.7)
        assert seen == pytest.approx([1.0, 2.0, 8.0, 9.0])
        assert _gains(host, before) == [4.1, 9.1, 9.1]


def test_a_stall_lets_time_pass_inside_a_callback() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        seen, before = _ticks(sim, host), _readings(host)
        inside: list[list[float]] = []

        async def be_slow() -> None:
            await asyncio.sleep(2.5)
            host.stall(5.0)
            inside.append(_gains(host, before))
            asyncio.get_running_loop().call_soon(lambda: inside.append([sim.now]))

        task = host.start(be_slow)
        sim.run_for(7.4)
        assert inside == [[7.5, 7.5, 7.5]]
        assert seen == pytest.approx([1.0, 2.0])
        sim.run_for(2.0)
        assert inside[1] == pytest.approx([7.5])
        assert seen == pytest.approx([1.0, 2.0, 7.5, 8.5])
        assert task.done()


def test_what_was_ready_behind_a_stall_waits_in_order() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        ran: list[tuple[str, float]] = []

        def note(name: str) -> None:
            ran.append((name, sim.now))

        def schedule() -> None:
            loop = asyncio.get_running_loop()
            loop.call_soon(host.stall, 3.0)
            for name in ("first", "second"):
                loop.call_soon(note, name)

        host.call(schedule)
        sim.run_for(5.0)
        assert ran == [("first", 3.0), ("second", 3.0)]


def test_a_stop_that_meets_a_stall_begins_when_it_ends() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        start = host.clock.monotonic()
        host.stall(4.0)
        sim.at(1.0, lambda: host.suspend(2.0))
        sim.run_for(10.0)
        assert host.clock.monotonic() - start == pytest.approx(8.0)
        assert host.clock.boottime() - start == pytest.approx(10.0)


def test_halts_end_on_their_own_timers_only() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        host.stop(5.0)
        host.resume()
        host.stop()
        sim.run_for(6.0)
        assert host.stopped
        host.stop(3.0)
        host.suspend(1.0)
        sim.run_for(2.0)
        assert (host.stopped, host.suspended) == (True, False)
        sim.run_for(2.0)
        assert not host.stopped


def test_nothing_can_be_called_in_a_host_that_is_halted() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        for halt, undo in ((host.stop, host.resume), (host.suspend, host.wake)):
            halt()
            with pytest.raises(RuntimeError, match="stopped"):
                host.call(print)
            undo()
        assert host.call(lambda: 1) == 1


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_halts_refuse_what_is_no_length_of_time(seconds: float) -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        for halt in (host.stop, host.suspend, host.stall):
            with pytest.raises(ValueError, match="seconds"):
                halt(seconds)
        assert not host.stopped
        assert not host.suspended


def _order_after_resume(seed: int) -> str:
    with Simulation(seed) as sim:
        a, b = sim.host("a"), sim.host("b")
        network = sim.network(FIXED_DELAY)
        seen: list[str] = []
        network.serve(b, "note", seen.append)

        async def wait() -> None:
            await asyncio.sleep(1.0)
            seen.append("timer")

        async def send() -> None:
            await network.call(a, b, "note", "message")

        b.start(wait)
        sim.run_for(0.01)
        b.stop(5.0)
        a.start(send)
        sim.run_for(10.0)
        return " ".join(seen)


def test_after_a_stop_the_seed_draws_whether_timers_or_messages_come_first() -> None:
    assert {_order_after_resume(seed) for seed in range(20)} == {"timer message", "message timer"}


def test_a_crash_ends_all_tasks_without_another_line() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        lines: list[str] = []

        async def careful() -> None:
            try:
                await asyncio.sleep(100.0)
            except BaseException:
                lines.append("except")
                raise
            finally:
                lines.append("finally")
                await asyncio.sleep(1.0)
                lines.append("after")

        async def unstarted() -> None:
            lines.append("started")

        host.start(careful)
        sim.run_for(1.0)
        host.start(unstarted)
        host.loop.call_soon(lines.append, "callback")
        host.crash()
        assert host.down
        sim.run_for(1000.0)
        host.restart()
        sim.run_for(1000.0)
        assert lines == []


def test_a_host_that_crashes_itself_gets_no_further_than_its_next_await() -> None:
    with Simulation(0) as sim:
        a, b = sim.host("a"), sim.host("b")
        network = sim.network()
        heard: list[str] = []
        network.serve(b, "hear", heard.append)

        async def give_up() -> None:
            a.crash()
            await network.call(a, b, "hear", "too late")
            heard.append("answer")

        a.start(give_up)
        a.start(give_up)
        sim.run_for(10.0)
        assert heard == []
        assert sim.trace[-1].endswith("a crash")


def test_code_that_restarts_its_own_host_is_of_the_old_process() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        ran: list[int] = []

        def again() -> None:
            host.restart()
            ran.append(host.incarnation)

        host.loop.call_soon(again)
        host.loop.call_soon(again)
        sim.run_for(1.0)
        assert ran == [2]


def test_finally_blocks_of_the_dead_reach_nobody() -> None:
    heard: list[str] = []
    with Simulation(0) as sim:
        a, b = sim.host("a"), sim.host("b")
        network = sim.network()
        network.serve(b, "hear", heard.append)

        async def say_goodbye() -> None:
            try:
                await asyncio.sleep(100.0)
            finally:
                await network.call(a, b, "hear", "goodbye")

        a.start(say_goodbye)
        sim.run_for(1.0)
        a.restart()
        sim.run_for(1.0)
    assert heard == []


def test_a_task_that_cannot_be_closed_is_left_alone() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1.0)
            except BaseException:  # noqa: BLE001, S112
                continue

    with Simulation(0) as sim:
        host = sim.host("a")
        host.start(stubborn)
        sim.run_for(5.0)
        host.crash()


def test_clocks_go_on_through_crash_and_restart() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        before, loop = _readings(host), host.loop
        host.crash()
        sim.run_for(3.0)
        host.restart()
        sim.run_for(4.0)
        assert _gains(host, before) == [7.0, 7.0, 7.0]
        assert host.loop is not loop
        assert host.call(lambda: asyncio.get_running_loop().time()) == host.clock.monotonic()


def test_a_crashed_host_must_be_restarted_before_use() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        host.crash()

        async def nothing() -> None: ...

        attempts: list[Callable[[], object]] = [
            lambda: host.start(nothing),
            lambda: host.call(print),
            host.crash,
        ]
        for attempt in attempts:
            with pytest.raises(RuntimeError, match="down"):
                attempt()
        host.restart()
        assert host.call(lambda: 1) == 1


@pytest.mark.parametrize("seed", seeds(3))
def test_messages_that_wait_for_a_stopped_host_are_lost_when_it_crashes(seed: int) -> None:
    with Simulation(seed) as sim:
        a, b = sim.host("a"), sim.host("b")
        network = sim.network(FIXED_DELAY)
        seen: list[int] = []
        network.serve(b, "note", seen.append)

        async def send() -> None:
            with pytest.raises(TimeoutError):
                await network.call(a, b, "note", 1, timeout=5.0)

        b.stop()
        task = a.start(send)
        sim.run_for(1.0)
        b.restart()
        network.serve(b, "note", seen.append)
        sim.run_until(task.done, within=10.0)
        task.result()
        assert seen == []
