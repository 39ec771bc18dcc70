"""The loop of a host is asyncio's, with order drawn from the seed where asyncio leaves it open."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from leasehold.testing import Host, NotSimulated, Simulation, run_virtual, seeds


def test_timeouts_groups_queues_events_and_gather_work() -> None:
    async def everything() -> list[str]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10.0):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(100.0), 10.0)
        queue: asyncio.Queue[str] = asyncio.Queue(1)

        async def produce() -> None:
            for item in ("x", "y", "z"):
                await asyncio.sleep(1.0)
                await queue.put(item)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            seen = [await queue.get() for _ in range(3)]
        assert await asyncio.gather(asyncio.sleep(5, "a"), asyncio.sleep(3, "b")) == ["a", "b"]  # type: ignore[comparison-overlap]
        assert loop.time() - start == pytest.approx(28.0)
        return seen

    assert run_virtual(everything) == ["x", "y", "z"]


def test_async_generators_are_finalised() -> None:
    ended: list[bool] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    async def take_one() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1.0)

    run_virtual(take_one)
    assert ended == [True]


@pytest.mark.parametrize("seed", seeds(5))
def test_call_soon_is_first_in_first_out(seed: int) -> None:
    async def schedule() -> list[int]:
        order: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(order.append, number)
        await asyncio.sleep(0)
        return order

    assert run_virtual(schedule, seed=seed) == list(range(20))


async def _timer_order(delays: list[float]) -> list[int]:
    order: list[int] = []
    for number, delay in enumerate(delays):
        asyncio.get_running_loop().call_later(delay, order.append, number)
    await asyncio.sleep(10.0)
    return order


def test_timers_of_one_instant_run_in_an_order_drawn_from_the_seed() -> None:
    orders = {tuple(run_virtual(_timer_order, [1.0] * 3, seed=seed)) for seed in range(50)}
    assert len(orders) == 6


@pytest.mark.parametrize("seed", seeds(5))
def test_timers_of_different_instants_run_in_order(seed: int) -> None:
    assert run_virtual(_timer_order, [3.0, 1.0, 2.0], seed=seed) == [1, 2, 0]


def test_a_timer_never_fires_early_by_its_own_clock() -> None:
    with Simulation(1) as sim:
        host = sim.host("a", drift_ppm=33.3)
        lateness: list[float] = []

        async def check() -> None:
            for step in range(1000):
                due = host.loop.time() + 0.1 * step
                await asyncio.sleep(0.1 * step)
                lateness.append(host.loop.time() - due)

        sim.run_until(host.start(check).done, within=1e6)
        assert 0.0 <= min(lateness) <= max(lateness) < 1e-9


def test_cancelled_timers_do_not_pile_up() -> None:
    async def many_timeouts() -> int:
        loop: Any = asyncio.get_running_loop()
        for _ in range(5000):
            async with asyncio.timeout(1e6):
                await asyncio.sleep(0.001)
        return len(loop._timers)

    assert run_virtual(many_timeouts) < 500


@pytest.mark.parametrize(
    "ask",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: loop.create_connection(asyncio.Protocol, "localhost", 1),
        lambda loop: loop.create_server(asyncio.Protocol, "localhost", 1),
        lambda loop: loop.getaddrinfo("localhost", 1),
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.run_forever(),
        lambda loop: loop.run_until_complete(None),
        lambda loop: loop.subprocess_shell(asyncio.SubprocessProtocol, "true"),
        lambda loop: loop.add_signal_handler(1, print),
    ],
)
def test_what_would_leave_the_simulated_world_is_refused(ask: Callable[[Any], object]) -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        with pytest.raises(NotSimulated, match="not simulated"):
            host.call(ask, host.loop)


def test_other_threads_are_refused_and_the_own_one_is_not() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        ran: list[str] = []
        host.loop.call_soon_threadsafe(ran.append, "own")
        refusals: list[NotSimulated] = []

        def intrude() -> None:
            try:
                host.loop.call_soon_threadsafe(ran.append, "other")
            except NotSimulated as error:
                refusals.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        sim.run_for(1.0)
        assert (ran, len(refusals)) == (["own"], 1)


def test_start_and_call_run_in_the_loop_of_their_host() -> None:
    with Simulation(0) as sim:
        a, b = sim.host("a"), sim.host("b")

        async def where() -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        task = b.start(where)
        sim.run_until(task.done, within=1.0)
        assert task.result() is b.loop
        assert a.call(asyncio.get_running_loop) is a.loop
        assert a.call(lambda: a.call(asyncio.get_running_loop)) is a.loop
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()


def test_call_passes_arguments_results_and_errors() -> None:
    with Simulation(0) as sim:
        host: Host = sim.host("a")
        assert host.call(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            host.call(divmod, 7, 0)
