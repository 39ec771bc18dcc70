"""Seeded simulation: shipped asyncio code on several hosts, in one thread, in virtual time.

A `Simulation` holds hosts, each with its own event loop and its own clocks, and a network between
them. Code under test runs unchanged; only its clock and its network are the simulated ones. What
asyncio, clocks and networks leave open is drawn from a seed: which host goes first, which of two
timers for one instant, how long a message takes and whether it arrives. So a test that runs with
many seeds meets many orders of events, and a seed that fails fails again.

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

*Running.* `run_for` and `run_until` let virtual time pass; `at` and `after` plan what happens from
outside, such as faults. `host.start` runs a coroutine on a host, `host.call` a plain function.
Inside, `current_host()` says where one is. For a single host, `run_virtual(function, *args)` is
what `asyncio.run` is in real time; for code without a loop there is `VirtualClock`.

*Time.* `sim.now` is true time. A host's clocks start at readings of their own and may drift, so
never compare readings of two hosts, or one with `sim.now`; compare differences. A host can be
stopped, suspended, stalled, crashed and restarted (`Host` says what each does to its clocks).

*Talk.* Calls may be lost, doubled, late and out of order. Connections are like TCP's. What is
sent is copied. Services and listeners belong to a process: after `restart`, serve again.

*Errors.* An exception in a host that nobody takes fails the run (`SimulationError`), as does code
that spins (`Spinning`). Keep a task and read its result if it is expected to fail. Threads,
sockets and executors are refused (`NotSimulated`). Whatever leaves the `with` block carries a note
with the seed and the last lines of the trace.

*Seeds.* Give a test `@pytest.mark.parametrize("seed", seeds(20))`. `LEASEHOLD_SEED=7` replays one,
`LEASEHOLD_SEEDS=500` tries more. Two runs of a seed have the same `sim.digest()`, as long as the
code under test does not depend on the order of sets of strings, on addresses, or on real time.

*For real.* `LocalServer` is a real server in this process, in real time, over a real socket. The
fixtures of `leasehold.pytest_plugin` are made of it. A `Wire` is in front of any real server, and
can be cut.
"""

from leasehold.testing.calls import Handler
from leasehold.testing.clocks import HostClock, VirtualClock
from leasehold.testing.connection import Connection
from leasehold.testing.errors import NotReached, NotSimulated, SimulationError, Spinning
from leasehold.testing.faults import Faults
from leasehold.testing.host import Host
from leasehold.testing.local_server import LocalServer
from leasehold.testing.network import Network
from leasehold.testing.packets import Counters
from leasehold.testing.seeds import seeds
from leasehold.testing.simulation import Simulation
from leasehold.testing.virtual import current_host, run_virtual
from leasehold.testing.wire import Wire

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
