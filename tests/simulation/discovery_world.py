"""A discovery service, registrars, listeners, and clients that use it, over a faulty network.

The server has the shipped service, on an embedded engine of its own or on a keyspace over the
network. Calls of clients and events are messages of the simulated network, in place of gRPC. All
draws are from the seed.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from leasehold.discovery.live_registration import Interests, StoredListener
from leasehold.discovery.locators import InterestChange, Locator, changed_groups, changed_locators
from leasehold.discovery.registration_drafts import Draft
from leasehold.discovery.service import DiscoveryService
from leasehold.discovery.state import Groups
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.interface import Engine, prefix_end
from leasehold.errors import LeaseholdError, NoSuchObject, ShardLost, UnknownLease
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.policies import DurationPolicy
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.record_storage import service_prefix
from leasehold.services.shards import LocalShards, Shards
from leasehold.testing import Faults, Host, NotReached, Simulation
from tests.simulation import far_disk
from tests.simulation.discovery_oracle import DiscoveryOracle, RegistrationModel
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import KeyspaceServer, Stragglers
from tests.simulation.oracle import Violation
from tests.support.discovery_stage import make_service
from tests.support.registrar_network import RegistrarNetwork

CALL: Final = "call"
NOTIFY: Final = "notify"
CALL_S: Final = 60.0

QUIET: Final = Faults(delay=(0.001, 0.02))
LATE: Final = Faults(
    delay=(0.001, 0.1), spike=0.1, spike_delay=(0.1, 5.0), duplicate=0.1, loss=0.05
)
"""For events. Calls of clients are neither lost nor repeated: they go over streams."""

NAMES: Final = ("R0", "R1", "R2", "R3", "R4", "R5")
GROUPS: Final = ("a", "b", "c")
TERMS_S: Final = (60.0, 200.0, 600.0)


@dataclass(frozen=True, slots=True)
class Habits:
    """How often clients do what, as weights."""

    pause_s: tuple[float, float] = (0.2, 6.0)
    weights: dict[str, int] = field(
        default_factory=lambda: {
            "groups": 6,
            "locators": 6,
            "discard": 3,
            "cancel": 1,
            "nothing": 4,
        }
    )
    locators: tuple[int, ...] = (0, 0, 1, 2)
    """How many locators a client names."""
    renews: float = 0.9
    """How often a registration that ends soon is renewed; otherwise it is left to end."""


USUAL: Final = Habits()


class ObservedService(DiscoveryService):
    """The shipped service; the oracle sees what it stores."""

    oracle: DiscoveryOracle

    def commit(self, draft: Draft) -> None:
        self.oracle.stores(draft.live.record.id, draft.events)
        super().commit(draft)


class ListenerProcess:
    """A process that receives events."""

    def __init__(self, world: "DiscoveryWorld", host: Host) -> None:
        self._world = world
        self.host = host
        self.gone: set[str] = set()
        """Listeners that do not exist any more."""
        self.slow_s = 0.0
        self.serve()

    def serve(self) -> None:
        """Receive events, after each start of the process."""
        self._world.network.serve(self.host, NOTIFY, self._notified)

    async def _notified(self, call: tuple[str, Sequence[RemoteEvent]]) -> None:
        target, events = call
        if self.slow_s:
            await asyncio.sleep(self.slow_s)
        if target in self.gone:
            raise NoSuchObject("listeners", target)
        self._world.oracle.received(target, events)


class DiscoveryServer:
    """A server with the discovery service; it can be crashed and started again."""

    def __init__(
        self, world: "DiscoveryWorld", host: Host, keyspace: KeyspaceServer | None
    ) -> None:
        """Without a `keyspace` it has an embedded engine of its own."""
        self.world = world
        self.host = host
        self._keyspace = keyspace
        self._image: bytes | None = None
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.starts += 1
        self.engine: Engine | None = None
        self.service: DiscoveryService | None = None
        if self._keyspace is None:
            self.engine = far_disk.open_engine(self.host, self.world.sim.random, self._image)
        self.host.start(self._begin)

    async def _begin(self) -> None:
        random, clock = self.world.sim.random, self.host.clock
        shards: Shards
        if self._keyspace is None:
            assert self.engine is not None
            shards = LocalShards(self.engine, random=random)
        else:
            self.engine = FarKeyspace(self._keyspace, self.host)
            await self.engine.start()
            shards = ElectedShards(
                self.engine, self.host.name, ttl_s=3.0, clock=clock, random=random
            )
        service = make_service(
            self.engine,
            shards,
            self.world.registrars.view(self.host),
            self,
            DurationPolicy(7200.0, 3600.0),
            clock=clock,
            random=random,
            kind=ObservedService,
        )
        assert isinstance(service, ObservedService)
        service.oracle = self.world.oracle
        self.service = service
        await service.start()
        await shards.start([service])
        self.world.network.serve(self.host, CALL, self._answer)

    async def send(
        self, target: EventTarget, events: Sequence[RemoteEvent], check: Callable[[], None]
    ) -> None:
        """Send events over the simulated network: as an `EventTransport`."""
        check()
        self.world.oracle.sends(events)
        listener = next(each for each in self.world.listeners if each.host.name == target.endpoint)
        await self.world.network.call(
            self.host, listener.host, NOTIFY, (target.id, list(events)), timeout=10.0
        )

    def crash(self) -> None:
        """Kill the process. What is on the disk stays."""
        if self._keyspace is None:
            assert isinstance(self.engine, EmbeddedEngine)
            self._image = far_disk.image_of(self.engine)
        self.host.crash()
        if isinstance(self.engine, EmbeddedEngine):
            self.engine.discard()

    def restart(self) -> None:
        """Start the process again."""
        self.host.restart()
        self.start()

    # Calls of clients.

    async def _answer(self, request: tuple[str, tuple[Any, ...]]) -> Any:
        method, args = request
        handler: Callable[..., Awaitable[Any]] = getattr(self, f"_{method}")
        return await handler(*args)

    @property
    def _running(self) -> DiscoveryService:
        assert self.service is not None
        return self.service

    async def _register(
        self, groups: Groups, locators: Sequence[Locator], target: EventTarget, term_s: float
    ) -> tuple[str, float]:
        listener = StoredListener(target, target.id.encode())
        made, granted = await self._running.register(Interests(groups, locators), listener, term_s)
        assert isinstance(granted, float)
        return made, granted

    async def _groups(self, registration: str, change: InterestChange, given: Groups) -> None:
        await self._running.change_groups(registration, change, given)

    async def _locators(
        self, registration: str, change: InterestChange, given: Sequence[Locator]
    ) -> None:
        await self._running.change_locators(registration, change, given)

    async def _discard(self, registration: str, registrar: str) -> set[str]:
        await self._running.discard(registration, registrar)
        return (await self._show(registration))[2]

    async def _renew(self, registration: str, term_s: float) -> None:
        await self._running.records.renew(registration, term_s)

    async def _cancel(self, registration: str) -> None:
        await self._running.records.cancel(registration)

    async def _show(
        self, registration: str
    ) -> tuple[Groups, tuple[Locator, ...], set[str], int, int]:
        live = self._running.find(registration)
        found = {each.id for each in self._running.registrars_of(live)}
        interests, queue = live.interests, live.queue
        return interests.groups, interests.locators, found, queue.number, len(queue)


class Uncertain(Exception):
    """A call had no answer: it may be executed at any time."""


class DiscoveryWorld:
    """A server, registrars, listeners and clients, and the oracle that observes them."""

    def __init__(
        self,
        sim: Simulation,
        *,
        has_keyspace: bool = False,
        clients: int = 3,
        habits: Habits = USUAL,
    ) -> None:
        self.sim = sim
        self.network = sim.network(QUIET)
        self.habits = habits
        self.registrars = RegistrarNetwork(sim)
        self.oracle = DiscoveryOracle(sim, self.registrars)
        self.counts: Counter[str] = Counter()
        self.is_over = False
        """Whether clients make no further calls."""
        self.is_paused = False
        """Whether clients make no calls for a while."""
        self._names = 0
        self.gone: set[str] = set()
        """Registrars that will not return."""
        for name in NAMES[:4]:
            self.registrars.add(name, self._some_groups())
        keyspace_host = sim.host("keyspace") if has_keyspace else None
        self.keyspace = (
            None if keyspace_host is None else KeyspaceServer(sim, self.network, keyspace_host)
        )
        self.listeners = [ListenerProcess(self, sim.host(f"listener{n}")) for n in range(2)]
        self.server = DiscoveryServer(self, sim.host("server"), self.keyspace)
        for listener in self.listeners:
            self.network.link(self.server.host, listener.host, LATE)
        self.clients = [sim.host(f"client{n}") for n in range(clients)]
        for client in self.clients:
            client.start(self._use_registrations, client)
        self.oracle.start()

    def _some_groups(self) -> str:
        return " ".join(each for each in GROUPS if self.sim.random.random() < 0.5)

    # Clients.

    async def call(self, client: Host, method: str, *args: Any) -> Any:
        """Make a call. Raises `Uncertain` if there is no answer."""
        try:
            request = (method, args)
            return await self.network.call(client, self.server.host, CALL, request, timeout=CALL_S)
        except TimeoutError as error:
            self.counts["uncertain"] += 1
            raise Uncertain(method) from error

    async def _use_registrations(self, client: Host) -> None:
        random = self.sim.random
        while not self.is_over:
            self._names += 1
            name = f"target{self._names}"
            target = EventTarget(random.choice(self.listeners).host.name, name)
            groups, locators = self._draw_groups(), self._draw_locators()
            term_s = random.choice(TERMS_S)
            try:
                made, granted_s = await self.call(
                    client, "register", groups, locators, target, term_s
                )
            except (LeaseholdError, OSError, Uncertain):
                await asyncio.sleep(1.0)
                continue
            self.counts["registrations"] += 1
            now = self.sim.now
            model = RegistrationModel(made, name, groups, frozenset(locators), now + granted_s, now)
            self.oracle.add(model)
            await self._use(client, model, term_s)

    async def _use(self, client: Host, model: RegistrationModel, term_s: float) -> None:
        random = self.sim.random
        names, weights = zip(*self.habits.weights.items(), strict=True)
        while True:
            await asyncio.sleep(random.uniform(*self.habits.pause_s))
            if self.is_over:
                return
            if self.is_paused:
                continue
            action = random.choices(names, weights)[0]
            if model.latest - self.sim.now < 0.5 * term_s and random.random() < self.habits.renews:
                action = "renew"
            self.counts[action] += 1
            try:
                await getattr(self, f"_do_{action}")(client, model, term_s)
            except (NoSuchObject, UnknownLease):
                model.ended_at = model.ended_at or self.sim.now
                self.counts["ended"] += 1
            except ShardLost:  # it is being loaded
                continue
            except (LeaseholdError, OSError, Uncertain):
                model.is_uncertain = True
                model.latest = max(model.latest, self.sim.now + CALL_S + term_s)
            if model.ended_at is not None:
                return

    async def _do_nothing(self, client: Host, model: RegistrationModel, term_s: float) -> None:
        """Let time pass."""

    async def _do_groups(self, client: Host, model: RegistrationModel, term_s: float) -> None:
        change, given = self.sim.random.choice(list(InterestChange)), self._draw_groups()
        if model.groups is None or given is None:
            change = InterestChange.SET
        model.changed_at = self.sim.now
        await self.call(client, "groups", model.id, change, given)
        model.groups = changed_groups(model.groups, change, given)
        model.changed_at = self.sim.now

    async def _do_locators(self, client: Host, model: RegistrationModel, term_s: float) -> None:
        change, given = self.sim.random.choice(list(InterestChange)), self._draw_locators()
        model.changed_at = self.sim.now
        await self.call(client, "locators", model.id, change, given)
        model.locators = frozenset(changed_locators(model.locators, change, given))
        model.changed_at = self.sim.now

    async def _do_discard(self, client: Host, model: RegistrationModel, term_s: float) -> None:
        had = (await self.call(client, "show", model.id))[2]
        if had:
            registrar = self.sim.random.choice(sorted(had))
            model.discards[registrar] = self.sim.now
            found = await self.call(client, "discard", model.id, registrar)
            if registrar in found:
                self.oracle.fail(f"{registrar} is still in {model.id[:4]} after its discard")

    async def _do_renew(self, client: Host, model: RegistrationModel, term_s: float) -> None:
        latest = model.latest
        model.latest = self.sim.now + CALL_S + term_s
        try:
            await self.call(client, "renew", model.id, term_s)
        except (NoSuchObject, UnknownLease):
            model.latest = latest
            raise
        model.latest = self.sim.now + term_s

    async def _do_cancel(self, client: Host, model: RegistrationModel, term_s: float) -> None:
        await self.call(client, "cancel", model.id)
        model.ended_at = self.sim.now

    def _draw_groups(self) -> Groups:
        if self.sim.random.random() < 0.1:
            return None
        return frozenset(self._some_groups().split())

    def _draw_locators(self) -> tuple[Locator, ...]:
        random = self.sim.random
        names = random.sample(NAMES, random.choice(self.habits.locators))
        return tuple(Locator(f"{each.lower()}{random.choice(('', '-alias'))}") for each in names)

    # The end.

    def calm_down(self, seconds: float) -> None:
        """End all faults, except of registrars that are gone, and let things settle."""
        self.is_over = True
        self.network.heal()
        if self.keyspace is not None:
            self.keyspace.stragglers = Stragglers()
            if self.keyspace.host.down:
                self.keyspace.restart()
        for listener in self.listeners:
            listener.slow_s = 0.0
            self.network.link(self.server.host, listener.host, QUIET)
            if listener.host.down:
                listener.host.restart()
                listener.serve()
        if self.server.host.down:
            self.server.restart()
        self.registrars.answer_s = 0.0
        for name in self.registrars.registrars:
            if name not in self.gone:
                self.registrars.restore(name)
        for model in list(self.oracle.registrations.values()):
            self.renew(model)
        self.sim.run_for(seconds)
        self.raise_if_violated()

    def renew(self, model: RegistrationModel) -> None:
        """Keep a registration that lives; note that it has ended if it has."""
        term_s = 3600.0
        if model.ended_at is not None:
            return
        try:
            self.run(self._until_answered, "renew", model.id, term_s)
            model.latest = self.sim.now + term_s
        except (NoSuchObject, UnknownLease):
            is_gone = any(model.listener in each.gone for each in self.listeners)
            if self.sim.now < model.latest - 1.0 and not model.is_uncertain and not is_gone:
                self.oracle.fail(f"registration {model.id[:4]} ended too early")
            model.ended_at = self.sim.now

    async def _until_answered(self, method: str, *args: Any) -> Any:
        while True:
            try:
                return await self.call(self.clients[0], method, *args)
            except (NoSuchObject, UnknownLease):
                raise
            except (LeaseholdError, OSError, Uncertain):
                await asyncio.sleep(0.5)

    def run(self, work: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run a coroutine function on the host of a client, in a calm world."""

        async def call() -> Any:
            return await work(*args)

        task = self.clients[0].start(call)
        self.sim.run_until(task.done, within=600.0)
        return task.result()

    def check_registrations(self, *, is_restarted: bool, is_delivered: bool = True) -> None:
        """Compare all registrations that live with what they should have."""
        for model in list(self.oracle.registrations.values()):
            if model.ended_at is not None:
                continue
            self.counts["checked"] += 1
            try:
                show = self.run(self._until_answered, "show", model.id)
            except NoSuchObject:
                self.renew(model)
                continue
            groups, locators, found, number, waiting = show
            if not model.is_uncertain and (groups, frozenset(locators)) != (
                model.groups,
                model.locators,
            ):
                self.oracle.fail(f"registration {model.id[:4]} wants something else")
            model.groups, model.locators = groups, frozenset(locators)
            self.oracle.check(
                model, found, number, waiting, is_restarted=is_restarted, is_delivered=is_delivered
            )
        self.sim.run_for(0.1)
        self.raise_if_violated()

    def wind_down(self, within_s: float = 60.0) -> None:
        """Cancel all registrations: then no key of them is left."""
        for model in self.oracle.registrations.values():
            if model.ended_at is None:
                self.run(self._until_answered, "cancel", model.id)
                model.ended_at = self.sim.now
        try:
            self.sim.run_until(lambda: not self._keys(), within=within_s)
        except NotReached as error:
            left = [key.decode() for key in self._keys()]
            raise Violation(f"{len(left)} keys are left: {left[:3]}") from error
        self.registrars.add("last", "a b c")
        self.sim.run_for(5.0)  # nothing is sent any more
        self.raise_if_violated()

    def _keys(self) -> list[bytes]:
        prefix = service_prefix("discovery")
        if self.keyspace is not None:
            return [key for key in self.keyspace.pairs() if key.startswith(prefix)]
        engine: Any = self.server.engine
        found: Iterable[Any] = engine._store.keyspace.range(prefix, prefix_end(prefix))
        return [item[5] for item in found]

    def raise_if_violated(self) -> None:
        """Raise the first violation."""
        if self.oracle.violations:
            raise Violation(self.oracle.violations[0])


def crash_server(world: DiscoveryWorld, for_s: float) -> None:
    """Kill the server, and start it again."""
    server = world.server
    if not server.host.down and (world.keyspace is not None or server.engine is not None):
        server.crash()
        world.sim.after(for_s, partial(_restart, server))


def _restart(server: DiscoveryServer) -> None:
    if server.host.down:
        server.restart()
