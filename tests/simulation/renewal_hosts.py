"""The hosts of a simulated renewal service: servers, landlords, and listeners.

A server has the shipped renewal service and mailboxes, on an embedded engine of its own or on a
keyspace that it shares with other servers. Renewals, events and calls of clients are messages of
the simulated network, in place of gRPC.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

from leasehold.basics.durations import FOREVER, Requested
from leasehold.basics.endpoint_list import EndpointList
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.interface import Engine
from leasehold.errors import LeaseDenied, NoSuchObject, ShardLost, UnknownLease
from leasehold.events.mailboxes import MailboxService
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.lease import Outcome
from leasehold.leases.policies import DurationPolicy
from leasehold.renewal import grantor_connections
from leasehold.renewal.grantor_connections import ConnectionKey, GrantorConnection, Wants
from leasehold.renewal.grantors import Grantors, MemberLease, UndecodableLease
from leasehold.renewal.references import LeaseReference, ReferencedLease
from leasehold.renewal.service import RenewalLimits, RenewalService
from leasehold.renewal.state import SetEvent
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.shards import LocalShards, Shards
from leasehold.testing import Host, Network, Simulation
from tests.simulation import far_disk
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import KeyspaceServer
from tests.simulation.renewal_oracle import GrantedLease, RenewalOracle

RENEW: Final = "renew"
NOTIFY: Final = "notify"
CALL: Final = "call"

CALL_S: Final = 60.0
"""The timeout of a call of a client, and of one that is passed on."""

CONNECT_S: Final = (0.0, 0.5)
"""How long a renewal waits for a connection, in some cases."""

Request = tuple[str, str, tuple[Any, ...], bool]
"""A method, a set or mailbox, arguments, and whether it was passed on."""


class World(Protocol):
    """The part of the world that hosts use."""

    sim: Simulation
    network: Network
    oracle: RenewalOracle
    landlords: "list[SimulatedLandlord]"
    listeners: "list[ListenerHost]"
    servers: "list[RenewalServer]"
    limits: RenewalLimits
    session_ttl_s: float


class SimulatedLandlord:
    """Grants leases, whose ends outlive its process. Terms have a maximum."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self.host = host
        self.leases: dict[str, GrantedLease] = {}
        self.refuses: set[str] = set()
        """Leases that its policy does not renew any more."""
        self.is_overloaded = False
        """Whether calls fail, indefinitely."""
        self.serve()

    def serve(self) -> None:
        """Answer calls, after each start of the process."""
        self._world.network.serve(self.host, RENEW, self._renew_all)

    def grant(self, name: str, term_s: float) -> GrantedLease:
        """Grant a lease."""
        lease = GrantedLease(name, self.host, term_s, self._world.sim.now + term_s)
        self.leases[name] = self._world.oracle.leases[name] = lease
        return lease

    def reference(self, name: str) -> bytes:
        """Return the encoded reference of a lease."""
        return LeaseReference(self.host.name, name, endpoints=(f"{self.host.name}:1",)).encode()

    async def _renew_all(self, wants: Sequence[tuple[str, float]]) -> list[Outcome]:
        await asyncio.sleep(self._world.sim.random.uniform(0.0, 0.05))
        if self.is_overloaded:
            raise TimeoutError("the landlord is overloaded")
        return [self._renew(*each) for each in wants]

    def _renew(self, name: str, requested_s: float) -> Outcome:
        lease = self.leases[name]
        now = self._world.sim.now
        if name in self.refuses:
            lease.is_cancelled = True
            return LeaseDenied("the policy says no")
        if not lease.is_alive(now):
            return UnknownLease(name)
        term_s = min(requested_s, lease.most_s)
        # A request that is late or repeated must not shorten the term of a later one: with gRPC
        # they arrive in the order in which they were sent.
        lease.end = max(lease.end, now + term_s)
        lease.renewed_at = now
        return term_s


class ListenerHost:
    """A process that receives events."""

    def __init__(self, world: World, host: Host) -> None:
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


class LandlordConnection(GrantorConnection):
    """A landlord on another host."""

    def __init__(self, server: "RenewalServer", landlord: SimulatedLandlord) -> None:
        super().__init__()
        self._server = server
        self._landlord = landlord

    async def renew(self, wants: Wants) -> Sequence[Outcome]:
        server, random = self._server, self._server.world.sim.random
        if random.random() < 0.3:
            await asyncio.sleep(random.uniform(*CONNECT_S))
        grantor_connections._check_all(lease for lease, _ in wants)
        named = [(str(lease.cookie), _seconds(requested)) for lease, requested in wants]
        set_of = server.grantors.set_of
        server.world.oracle.sends(
            server,
            [
                (set_of[lease], name, requested_s)
                for (lease, _), (name, requested_s) in zip(wants, named, strict=True)
            ],
        )
        found: list[Outcome] = await server.world.network.call(
            server.host, self._landlord.host, RENEW, named
        )
        return found

    async def cancel(self, leases: Sequence[ReferencedLease]) -> Sequence[Outcome]:
        raise AssertionError("a renewal service cancels nothing")


def _seconds(requested: Requested) -> float:
    return requested if isinstance(requested, float) else float("inf")


class SimulatedGrantors(Grantors):
    """Connects to landlords of the simulation."""

    server: "RenewalServer"
    set_of: dict[Any, str]
    """The set of each lease."""

    def lease(self, *args: Any, set_id: str, **named: Any) -> MemberLease | UndecodableLease:
        made = super().lease(*args, set_id=set_id, **named)
        self.set_of[made] = set_id
        return made

    def _connection(self, key: Hashable) -> AbstractContextManager[GrantorConnection]:
        if not isinstance(key, ConnectionKey):
            return super()._connection(key)
        return nullcontext(self._connected(key))

    def _connected(self, key: ConnectionKey) -> GrantorConnection:
        name = key.endpoints[0].partition(":")[0]
        world = self.server.world
        landlord = next(each for each in world.landlords if each.host.name == name)
        return LandlordConnection(self.server, landlord)


class Delivery:
    """Sends events over the simulated network: an `EventTransport`."""

    def __init__(self, server: "RenewalServer") -> None:
        self._server = server

    async def send(
        self, target: EventTarget, events: Sequence[RemoteEvent], check: Callable[[], None]
    ) -> None:
        server, world = self._server, self._server.world
        check()
        world.oracle.sends_events(server, target, events)
        if target.is_mailbox:
            await server.answer(("deliver", target.id, (list(events),), False))
            return
        listener = next(each for each in world.listeners if each.host.name == target.endpoint)
        await world.network.call(
            server.host, listener.host, NOTIFY, (target.id, list(events)), timeout=10.0
        )


class RenewalServer:
    """A server with the renewal service and mailboxes; it can be crashed and started again."""

    def __init__(self, world: World, host: Host, keyspace: KeyspaceServer | None) -> None:
        """Without a `keyspace` it has an embedded engine of its own."""
        self.world = world
        self.host = host
        self._keyspace = keyspace
        self._image: bytes | None = None
        self.shard_count = 0
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.starts += 1
        self.service: RenewalService | None = None
        self.engine: Engine | None = None
        self.shards: Shards | None = None
        if self._keyspace is None:
            self.engine = far_disk.open_engine(self.host, self.world.sim.random, self._image)
        self.host.start(self._begin)

    async def _begin(self) -> None:
        random, clock = self.world.sim.random, self.host.clock
        if self._keyspace is None:
            assert self.engine is not None
            self.shards = LocalShards(self.engine, random=random)
        else:
            self.engine = FarKeyspace(self._keyspace, self.host)
            await self.engine.start()
            self.shards = ElectedShards(
                self.engine,
                self.host.name,
                ttl_s=self.world.session_ttl_s,
                clock=clock,
                random=random,
            )
        self.grantors = SimulatedGrantors(self.engine, allowed=EndpointList(["*"]), clock=clock)
        self.grantors.server, self.grantors.set_of = self, {}
        self.mailboxes = MailboxService(
            self.engine, self.shards, DurationPolicy(7200.0, 3600.0), clock=clock, random=random
        )
        self.service = RenewalService(
            self.engine,
            self.shards,
            self.grantors,
            Delivery(self),
            self.world.limits,
            clock=clock,
            random=random,
        )
        await self.shards.start([self.service.records, self.mailboxes.records])
        self.shard_count = self.shards.count
        await self.service.start()
        self.world.network.serve(self.host, CALL, self.answer)

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

    # For the oracle.

    def owns(self, shard: int) -> bool:
        """Whether it owns a shard now, by its clock."""
        return (
            not self.host.down and self.shards is not None and self.shards.owned(shard) is not None
        )

    def shard_of(self, set_id: str) -> int:
        """Return the shard of a set."""
        assert self.shards is not None
        return self.shards.shard_of(set_id)

    def record_of(self, set_id: str) -> Any:
        """Return the record of a set that it serves, or None."""
        if self.host.down or self.service is None:
            return None
        record = self.service.records._records.get(set_id)
        return record if record is not None and record.ownership.is_valid else None

    # Calls of clients, and of other servers.

    async def answer(self, request: Request) -> Any:
        """Answer a call, or pass it on to the server that owns the shard."""
        method, object_id, args, is_passed_on = request
        assert self.shards is not None
        if object_id:
            shard = self.shards.shard_of(object_id)
            if self.shards.owned(shard) is None:
                return await self._pass_on(shard, request)
        elif not self.shards.all_owned and not is_passed_on:
            raise ShardLost(0, "this server has no shard")
        handler: Callable[..., Any] = getattr(self, f"_{method}")
        return await handler(*([object_id] if object_id else []), *args)

    async def _pass_on(self, shard: int, request: Request) -> Any:
        method, object_id, args, is_passed_on = request
        assert self.shards is not None
        address = self.shards.address_of(shard)
        if is_passed_on or address in ("", self.host.name):
            raise ShardLost(shard, "it has no owner at present")
        other = next(each for each in self.world.servers if each.host.name == address)
        again: Request = (method, object_id, args, True)
        return await self.world.network.call(self.host, other.host, CALL, again, timeout=CALL_S)

    @property
    def _running(self) -> RenewalService:
        assert self.service is not None
        return self.service

    async def _create(self, term_s: float) -> tuple[str, float]:
        set_id, granted = await self._running.create_set(term_s)
        return set_id, _seconds(granted)

    async def _renew(self, set_id: str, term_s: float) -> float:
        return _seconds(await self._running.records.renew(set_id, term_s))

    async def _cancel(self, set_id: str) -> None:
        await self._running.records.cancel(set_id)

    async def _add(
        self, set_id: str, reference: bytes, remaining_s: float, term_s: float, desired_s: float
    ) -> None:
        desired: Requested = FOREVER if desired_s == float("inf") else desired_s
        await self._running.renew_for(set_id, reference, remaining_s, term_s, desired, FOREVER)

    async def _remove(self, set_id: str, reference: bytes) -> bool:
        return await self._running.remove(set_id, reference) is not None

    async def _members(self, set_id: str) -> list[str]:
        found = self._running.members_after(set_id, 0, 1_000_000)
        return [str(LeaseReference.decode(member.reference).cookie) for member in found]

    async def _listen(
        self,
        set_id: str,
        kind: SetEvent,
        target: EventTarget,
        handback: bytes,
        min_warning_s: float,
    ) -> int:
        return await self._running.set_listener(set_id, kind, target, handback, min_warning_s)

    async def _clear(self, set_id: str, kind: SetEvent) -> None:
        await self._running.clear_listener(set_id, kind)

    async def _create_mailbox(self, term_s: float) -> str:
        return (await self.mailboxes.create(term_s))[0]

    async def _deliver(self, mailbox: str, events: Sequence[RemoteEvent]) -> None:
        await self.mailboxes.deliver(mailbox, events)
        self.world.oracle.stored(mailbox, events)

    async def _read(self, mailbox: str, after: int) -> list[tuple[int, RemoteEvent]]:
        found = await self.mailboxes.read(mailbox, after, 50)
        return [(mail.position, mail.event) for mail in found]

    async def _acknowledge(self, mailbox: str, position: int) -> None:
        await self.mailboxes.acknowledge(mailbox, position)

    async def _end_mailbox(self, mailbox: str) -> None:
        await self.mailboxes.records.cancel(mailbox)
