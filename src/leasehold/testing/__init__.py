"""Seeded simulation."""

from leasehold.testing.calls import Handler
from leasehold.testing.clocks import HostClock, VirtualClock
from leasehold.testing.errors import NotReached, NotSimulated, SimulationError, Spinning
from leasehold.testing.faults import Faults
from leasehold.testing.host import Host
from leasehold.testing.network import Network
from leasehold.testing.seeds import seeds
from leasehold.testing.simulation import Simulation
from leasehold.testing.virtual import current_host, run_virtual
from leasehold.testing.wire import Counters

__all__ = [
    "Counters",
    "Faults",
    "Handler",
    "Host",
    "HostClock",
    "Network",
    "NotReached",
    "NotSimulated",
    "Simulation",
    "SimulationError",
    "Spinning",
    "VirtualClock",
    "current_host",
    "run_virtual",
    "seeds",
]
