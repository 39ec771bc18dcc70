"""One host without ceremony: ordinary async unit tests in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from leasehold.testing.host import Host
from leasehold.testing.loop import HostLoop
from leasehold.testing.simulation import Simulation

P = ParamSpec("P")
T = TypeVar("T")

RUN_WITHIN_S = 1e9  # virtual: some thirty years


def current_host() -> Host:
    """The host whose code is running."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if not isinstance(loop, HostLoop) or not isinstance(loop.owner, Host):
        raise RuntimeError("current_host() was called outside of simulated hosts")
    return loop.owner


def run_virtual(function: Callable[..., Coroutine[Any, Any, T]], *args: Any, seed: int = 0) -> T:
    """Run an async function on a host of its own, as `asyncio.run` would in real time."""
    with Simulation(seed) as sim:
        task = sim.host("main").start(function, *args)
        sim.run_until(task.done, within=RUN_WITHIN_S)
        return task.result()
