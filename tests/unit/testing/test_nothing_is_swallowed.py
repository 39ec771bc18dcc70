"""A test must not pass because the simulation looked away."""

import asyncio

import pytest

from leasehold.testing import Simulation, SimulationError, Spinning


async def _fails() -> None:
    raise AssertionError("a real bug")


def test_a_failure_counts_although_its_host_crashes_afterwards() -> None:
    def fail_and_crash() -> None:
        with Simulation(1) as sim:
            host = sim.host("h")
            kept = host.start(_fails)
            sim.run_for(1.0)
            host.crash()
            del kept
            sim.run_for(1.0)

    with pytest.raises(SimulationError, match="a real bug"):
        fail_and_crash()


def test_events_from_outside_that_spin_are_found() -> None:
    with Simulation(1) as sim:

        def again() -> None:
            sim.after(0.0, again)

        again()
        with pytest.raises(Spinning, match="outside all hosts"):
            sim.run_for(1.0)


def test_a_task_started_from_inside_leaves_the_loop_running() -> None:
    async def nothing() -> None:
        return

    async def main() -> None:
        task = host.start(nothing)
        assert host.loop.is_running()
        host.stall(1.0)
        assert host.call(int) == 0
        await task

    with Simulation(1) as sim:
        host = sim.host("h")
        started = host.start(main)
        sim.run_until(started.done, within=5.0)
        assert started.exception() is None
        assert isinstance(started, asyncio.Task)
