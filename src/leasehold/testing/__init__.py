"""Seeded simulation: shipped asyncio code on several hosts, in one thread, in virtual time.

A `Simulation` holds hosts, each with its own event loop and its own clocks, and a network between
them. Code under test runs unchanged; only its clock and its network are simulated. Everything that
asyncio, clocks and networks leave open is drawn from a seed: which host runs first, which of two
timers for one instant, how long a message takes and whether it arrives. So a test that runs with
many seeds covers many orders of events, and a seed that fails fails again.

>>> import asyncio
>>> from leasehold.testing import Faults, Simulation
>>> with Simulation(seed=7) as sim:
...     client, server = sim.host("client"), sim.host("server", drift_ppm=50)
...     network = sim.network(Faults(loss=0.2, duplicate=0.1, delay=(0.001, 0.05)))
...
...     async def double(number):
...         await asyncio.sleep(1.0)
...         return 2 * number
...
...     async def ask():
...         while True:
...             try:
...                 return await network.call(client, server, "double", 21, timeout=3.0)
...             except (TimeoutError, ConnectionRefusedError):
...                 await asyncio.sleep(0.5)
...
...     network.serve(server, "double", double)
...     sim.at(0.5, server.crash)  # the request is lost, and so is the service
...     sim.at(5.0, server.restart)
...     sim.at(5.0, lambda: network.serve(server, "double", double))
...     task = client.start(ask)
...     sim.run_until(task.done, within=60.0)
...     print(task.result(), sim.now > 5.0)
42 True

*Running.* `run_for` and `run_until` let virtual time pass; `at` and `after` schedule external
events, such as faults. `host.start` runs a coroutine on a host, `host.call` a plain function.
Inside, `current_host()` returns the host. For a single host, `run_virtual(function, *args)` is the
equivalent of `asyncio.run`; for code without a loop there is `VirtualClock`.

*Time.* `sim.now` is true time. A host's clocks start at different readings and may drift, so
never compare readings of two hosts, or one with `sim.now`; compare differences. A host can be
stopped, suspended, stalled, crashed and restarted (see `Host` for the effect on its clocks).

*Communication.* Calls may be lost, duplicated, late and out of order. Connections are like TCP's.
Messages are copied. Services and listeners belong to a process: after `restart`, serve again.

*Errors.* An unhandled exception in a host fails the run (`SimulationError`), as does code that
spins (`Spinning`). Keep a task and read its result if it is expected to fail. Threads, sockets and
executors are refused (`NotSimulated`). An exception that leaves the `with` block has a note with
the seed and the last lines of the trace.

*Seeds.* Give a test `@pytest.mark.parametrize("seed", seeds(20))`. `LEASEHOLD_SEED=7` replays one,
`LEASEHOLD_SEEDS=500` tries more. Two runs of a seed have the same `sim.digest()`, as long as the
code under test does not depend on the order of sets of strings, on addresses, or on real time.

*Real servers.* `LocalServer` is a real server in this process, in real time, over a real socket.
The fixtures of `leasehold.pytest_plugin` use it. A `Wire` is a relay to any real server, which can
be cut.
"""

from leasehold.testing.clocks import HostClock, VirtualClock
from leasehold.testing.connections import Connection
from leasehold.testing.host import Host
from leasehold.testing.local_server import LocalServer
from leasehold.testing.network import Handler, Network
from leasehold.testing.packets import Counters, Faults
from leasehold.testing.relay import Wire
from leasehold.testing.simulation import Simulation, current_host, run_virtual, seeds
from leasehold.testing.simulation_errors import NotReached, NotSimulated, SimulationError, Spinning

__all__ = [
    "Connection",
    "Counters",
    "Faults",
    "Handler",
    "Host",
    "HostClock",
    "LocalServer",
    "Network",
    "NotReached",
    "NotSimulated",
    "Simulation",
    "SimulationError",
    "Spinning",
    "VirtualClock",
    "Wire",
    "current_host",
    "run_virtual",
    "seeds",
]
