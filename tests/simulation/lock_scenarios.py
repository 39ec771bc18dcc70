"""Scenarios for locks: each takes a seed, and raises `Violation` if a promise was broken."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from leasehold.core.holding import session_margin_s
from leasehold.testing import Faults, Simulation
from tests.simulation.far_server import Stragglers
from tests.simulation.lock_world import (
    MAX_DRIFT_PPM,
    QUIET,
    STORMY,
    Habits,
    LockWorld,
    crash_process,
    crash_server,
    mishap,
)
from tests.simulation.oracle import Violation

BUSY: Final = Habits(pause_s=(0.0, 0.5), work_s=(0.0, 0.3), stalls=0.02, cancels=0.1)


def _finish(world: LockWorld) -> LockWorld:
    """After all faults: everybody gets everything, and nothing is left."""
    world.calm_down()
    world.check_everybody_gets_everything()
    world.stop_working()
    world.check_no_waiter_is_left()
    world.wind_down()
    return world


def storms(seed: int, minutes: float = 1.0, **options: Any) -> LockWorld:
    """Everything goes wrong."""
    with Simulation(seed) as sim:
        world = LockWorld(sim, STORMY, habits=options.pop("habits", BUSY), **options)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 6.0))
            mishap(world)
        return _finish(world)
