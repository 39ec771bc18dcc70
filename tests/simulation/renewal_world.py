"""A renewal service, landlords, listeners, and clients that use it, over a faulty network.

All draws are from the seed.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from leasehold.errors import NoSuchObject
from leasehold.renewal.service import RenewalLimits
from leasehold.renewal.state import SetEvent
from leasehold.services.record_storage import service_prefix
from leasehold.testing import Faults, Host, NotReached, Simulation
from tests.simulation.far_server import EtcdLikeServer, KeyspaceServer, Stragglers
from tests.simulation.oracle import Violation
from tests.simulation.renewal_clients import Habits, RenewalClient, RenewalClients
from tests.simulation.renewal_hosts import ListenerHost, RenewalServer, SimulatedLandlord
from tests.simulation.renewal_oracle import RenewalOracle

MAX_DRIFT_PPM: Final = 300.0
USUAL: Final = Habits()
QUIET: Final = Faults(delay=(0.001, 0.02))
STORMY: Final = Faults(delay=(0.001, 0.1), spike=0.02, spike_delay=(0.1, 0.6))
REPEATING: Final = Faults(delay=(0.001, 0.1), spike=0.05, spike_delay=(0.1, 0.3), duplicate=0.1)
"""For renewals: an answer takes less than a second."""
LATE: Final = Faults(
    delay=(0.001, 0.1), spike=0.1, spike_delay=(0.1, 5.0), duplicate=0.1, loss=0.05
)
"""For events. Calls of clients are neither lost nor repeated: they go over streams."""


class RenewalWorld(RenewalClients):
    """Servers, landlords, listeners and clients, and the oracle that observes them."""

    def __init__(
        self,
        sim: Simulation,
        faults: Faults = QUIET,
        *,
        servers: int = 1,
        etcd: bool | None = None,
        clients: int = 2,
        tasks: int = 2,
        habits: Habits = USUAL,
        limits: RenewalLimits | None = None,
        session_ttl_s: float = 3.0,
    ) -> None:
        """One server has an embedded engine, unless `etcd` is given; several share a keyspace."""
        super().__init__()
        self.sim = sim
        self.network = sim.network(faults)
        self.habits = habits
        self.limits = limits or RenewalLimits()
        self.session_ttl_s = session_ttl_s
        self._cuts: list[tuple[set[Host], set[Host]]] = []
        self.servers: list[RenewalServer] = []
        self.oracle = RenewalOracle(sim, self)
        self.keyspace: KeyspaceServer | None = None
        if servers > 1 or etcd is not None:
            is_etcd = sim.random.random() < 0.5 if etcd is None else etcd
            kind = EtcdLikeServer if is_etcd else KeyspaceServer
            self.keyspace = kind(sim, self.network, self._host("keyspace"))
        self.landlords = [SimulatedLandlord(self, self._host(f"landlord{n}")) for n in range(2)]
        self.listeners = [ListenerHost(self, self._host(f"listener{n}")) for n in range(2)]
        self.servers += [
            RenewalServer(self, self._host(f"server{n}"), self.keyspace) for n in range(servers)
        ]
        for server in self.servers:
            for landlord in self.landlords:
                self.network.link(server.host, landlord.host, REPEATING)
            for listener in self.listeners:
                self.network.link(server.host, listener.host, LATE)
        self.clients = [RenewalClient(self._host(f"client{n}")) for n in range(clients)]
        for client in self.clients:
            for _ in range(tasks):
                client.host.start(self._use_sets, client)
            client.host.start(self._read_mailbox, client)
        self.oracle.start()

    def _host(self, name: str) -> Host:
        random = self.sim.random
        return self.sim.host(name, drift_ppm=random.uniform(-MAX_DRIFT_PPM, MAX_DRIFT_PPM))

    # Partitions.

    def cut(self, one: Sequence[Host], other: Sequence[Host], for_s: float) -> None:
        """Lose messages between hosts for a while."""
        cut = (set(one), set(other))
        self._cuts.append(cut)
        self.network.partition(*cut)

        def end() -> None:
            if cut in self._cuts:
                self._cuts.remove(cut)
                self._restore_cuts()

        self.sim.after(for_s, end)

    def _restore_cuts(self) -> None:
        self.network.heal()
        for cut in self._cuts:
            self.network.partition(*cut)

    def is_cut(self, one: Host, other: Host) -> bool:
        """Whether messages between two hosts are lost."""
        return any(
            (one in left and other in right) or (one in right and other in left)
            for left, right in self._cuts
        )

    def is_overloaded(self, landlord: Host) -> bool:
        """Whether a landlord answers no calls."""
        return any(each.is_overloaded for each in self.landlords if each.host is landlord)

    # The end.

    def calm_down(self, seconds: float) -> None:
        """End all faults, and let things settle."""
        self._cuts.clear()
        self.network.heal()
        if self.keyspace is not None:
            self.keyspace.stragglers = Stragglers()
            if self.keyspace.host.down:
                self.keyspace.restart()
        for landlord in self.landlords:
            landlord.is_overloaded = False
        others: list[SimulatedLandlord | ListenerHost] = [*self.landlords, *self.listeners]
        for each in others:
            if each.host.down:
                each.host.restart()
                each.serve()
        for listener in self.listeners:
            listener.slow_s = 0.0
        for server in self.servers:
            if server.host.down:
                server.restart()
            if server.host.stopped:
                server.host.resume()
        self.sim.run_for(seconds)

    def run(self, client: RenewalClient, work: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run a coroutine function on the host of a client, in a calm world."""

        async def call() -> Any:
            return await work(*args)

        task = client.host.start(call)
        self.sim.run_until(task.done, within=600.0)
        return task.result()

    def check_sets(self) -> None:
        """Compare all sets that live with what the calls say."""
        client = self.clients[0]
        for model in list(self.oracle.sets.values()):
            if not model.lives(self.sim.now + 1.0):
                continue
            self.counts["checked sets"] += 1
            try:
                found = self.run(client, self.call_until, client, "members", model.id)
                self.oracle.check_members(model, found)
                for kind in SetEvent:
                    if model.events[kind].registrations:
                        number = self.run(client, self.listen, client, model, kind)
                        self.sim.run_for(5.0)
                        self.oracle.check_events(model, kind, number)
            except NoSuchObject:
                self._found_ended(model)
        self.raise_if_violated()

    def wind_down(self, within_s: float = 200.0) -> None:
        """Wait until all sets have ended: then no key of them is left."""
        self.is_over = True
        try:
            self.sim.run_until(lambda: not self._keys(), within=within_s)
        except NotReached as error:
            left = [key.decode() for key in self._keys()]
            raise Violation(f"{len(left)} keys are left of sets that ended: {left[:3]}") from error
        for model in self.oracle.sets.values():
            model.ended_at = model.ended_at or self.sim.now
        self.sim.run_for(30.0)  # nothing is sent for them any more
        self.raise_if_violated()

    def _keys(self) -> list[bytes]:
        prefix = service_prefix("renewal")
        if self.keyspace is not None:
            return [key for key in self.keyspace.pairs() if key.startswith(prefix)]
        engine: Any = self.servers[0].engine
        found = engine._store.keyspace.range(prefix, prefix[:-1] + b"0")
        return [item[5] for item in found]

    def raise_if_violated(self) -> None:
        """Raise the first violation."""
        if self.oracle.violations:
            raise Violation(self.oracle.violations[0])


def crash_server(world: RenewalWorld, server: RenewalServer, for_s: float) -> None:
    """Kill a server, and start it again."""
    if not server.host.down and (world.keyspace is not None or server.engine is not None):
        server.crash()
        world.sim.after(for_s, partial(_restart, server))


def _restart(server: RenewalServer) -> None:
    if server.host.down:
        server.restart()
