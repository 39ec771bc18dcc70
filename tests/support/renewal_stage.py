"""A renewal service in virtual time, on an engine that can be crashed and started again.

with Stage() as stage:
    set_id = stage.run(stage.service.create_set, 60.0)
    stage.add(set_id, stage.place.lease("a", 30.0))
    stage.pass_time(100.0)
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self, TypeVar

from leasehold import FOREVER
from leasehold.basics.durations import Duration, Requested, seconds_of
from leasehold.basics.endpoint_list import EndpointList
from leasehold.engine.values import KeyValue
from leasehold.errors import ConnectionLost, LeaseDenied, UnknownLease, fresh
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.lease import Outcome
from leasehold.renewal.grantor_connections import ConnectionKey, GrantorConnection, Wants
from leasehold.renewal.grantors import Grantors
from leasehold.renewal.references import LeaseReference, ReferencedLease
from leasehold.renewal.service import RenewalLimits, RenewalService
from leasehold.renewal.state import Member, SetEvent
from leasehold.services.shards import LocalShards
from leasehold.testing import Simulation
from leasehold.wire import renewal_pb2 as pb
from tests.simulation.far_disk import image_of, open_engine
from tests.support.faulty_engine import FaultyEngine

T = TypeVar("T")

WARNING, FAILURE = SetEvent.EXPIRATION_WARNING, SetEvent.RENEWAL_FAILURE
WITHIN_S = 1e6


class FakeLandlord(GrantorConnection):
    """Answers renewals as a test says, and records when which leases were renewed."""

    def __init__(self, stage: "Stage") -> None:
        super().__init__()
        self._stage = stage
        self.calls_made: list[tuple[float, list[tuple[Any, Requested]]]] = []
        self.ends: dict[Any, float] = {}
        """The ends of leases, in the time of the stage."""
        self.most_s = 30.0
        """The longest term."""
        self.error: BaseException | None = None
        """Fails every call."""
        self.errors: dict[Any, BaseException] = {}
        """Fails single leases."""
        self.batch_error: BaseException | None = None
        """Fails calls for several leases."""
        self.delay_s = 0.0
        """How long a call takes; its leases are renewed at its beginning."""

    def lease(
        self, name: str, term_s: float = 30.0, at: str = "landlord:1", credentials: str = ""
    ) -> LeaseReference:
        """Grant a lease now."""
        self.ends[name] = self._stage.now + term_s
        return LeaseReference("landlord", name, endpoints=(at,), credentials=credentials)

    def is_alive(self, name: str) -> bool:
        """Whether a lease has not ended."""
        return self.ends[name] > self._stage.now

    def times(self, name: str) -> list[float]:
        """When a lease was renewed, successfully or not."""
        return [at for at, wants in self.calls_made if name in dict(wants)]

    def requests(self, name: str) -> list[Requested]:
        """The durations that were requested for a lease."""
        return [dict(wants)[name] for _, wants in self.calls_made if name in dict(wants)]

    def batches(self) -> list[list[str]]:
        """The leases of each call."""
        return [[name for name, _ in wants] for _, wants in self.calls_made]

    async def renew(self, wants: Wants) -> Sequence[Outcome]:
        named = [(lease.cookie, requested) for lease, requested in wants]
        self.calls_made.append((self._stage.now, named))
        error = self.error or (self.batch_error if len(wants) > 1 else None)
        if error is not None:
            raise fresh(error)
        outcomes = [self._renew(*each) for each in named]
        await asyncio.sleep(self.delay_s)
        return outcomes

    def _renew(self, name: Any, requested: Requested) -> Outcome:
        if name in self.errors:
            return self.errors[name]
        if self.ends.get(name, 0.0) <= self._stage.now:
            return UnknownLease(name)
        term: Duration = self.most_s
        if isinstance(requested, float):
            term = min(requested, self.most_s)
        self.ends[name] = self._stage.now + seconds_of(term)
        return term

    async def cancel(self, leases: Sequence[ReferencedLease]) -> Sequence[Outcome]:
        raise AssertionError("a renewal service cancels nothing")


class Inbox:
    """Receives events, or fails as a test says."""

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        self.received: dict[str, list[tuple[float, RemoteEvent]]] = {}
        self.errors: dict[str, BaseException] = {}
        self.delays_s: dict[str, float] = {}
        self.lingers_s: dict[str, float] = {}
        """How long a call goes on after it was cancelled; the events arrive then."""
        self.attempts: list[tuple[float, str]] = []

    async def send(
        self, target: EventTarget, events: Sequence[RemoteEvent], check: Callable[[], None]
    ) -> None:
        self.attempts.append((self._stage.now, target.id))
        try:
            await asyncio.sleep(self.delays_s.get(target.id, 0.0))
        except asyncio.CancelledError:
            if target.id in self.lingers_s:
                await asyncio.sleep(self.lingers_s[target.id])
                self._receive(target, events)
            raise
        check()
        if target.id in self.errors:
            raise fresh(self.errors[target.id])
        self._receive(target, events)

    def _receive(self, target: EventTarget, events: Sequence[RemoteEvent]) -> None:
        inbox = self.received.setdefault(target.id, [])
        inbox.extend((self._stage.now, event) for event in events)

    def events(self, name: str) -> list[RemoteEvent]:
        return [event for _, event in self.received.get(name, [])]

    def numbers(self, name: str) -> list[int]:
        return [event.number for event in self.events(name)]

    def times(self, name: str) -> list[float]:
        return [at for at, _ in self.received.get(name, [])]

    def tried(self, name: str) -> list[float]:
        """When events were sent to a listener, successfully or not."""
        return [at for at, target in self.attempts if target == name]

    def failures(self, name: str) -> list[pb.FailurePayload]:
        """The failures that a listener has received."""
        return [pb.FailurePayload.FromString(event.payload) for event in self.events(name)]

    def warnings(self, name: str) -> list[pb.WarningPayload]:
        """The warnings that a listener has received."""
        return [pb.WarningPayload.FromString(event.payload) for event in self.events(name)]

    def failed(self, name: str) -> list[str]:
        """The leases whose failures a listener has received."""
        found = self.failures(name)
        return [str(LeaseReference.decode(each.reference).cookie) for each in found]


class StageGrantors(Grantors):
    """Connects every place to the fake landlord of the stage."""

    stage: "Stage"

    def _connection(self, key: Hashable) -> AbstractContextManager[GrantorConnection]:
        if isinstance(key, ConnectionKey):
            return nullcontext(self.stage.place)
        return super()._connection(key)


class Stage:
    """A server with a renewal service, a landlord, and listeners."""

    def __init__(
        self, seed: int = 0, limits: RenewalLimits | None = None, **grantor_options: Any
    ) -> None:
        self.sim = Simulation(seed=seed)
        self.limits = limits or RenewalLimits()
        self.options: dict[str, Any] = {"allowed": EndpointList(["*"]), **grantor_options}
        self.host = self.sim.host("server")
        self.place = FakeLandlord(self)
        self.inbox = Inbox(self)
        self._image: bytes | None = None
        self._begun = 0.0
        self._start()
        self._begun = self.sim.now

    def __enter__(self) -> Self:
        self.sim.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.sim.__exit__(kind, error, traceback)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.sim.now - self._begun

    def _start(self) -> None:
        self.engine = open_engine(self.host, self.sim.random, self._image)
        self.host.call(self._make)
        self.run(self._begin)

    def _make(self) -> None:
        clock = self.host.clock
        self.faulty = FaultyEngine(self.engine)
        self.shards = LocalShards(self.faulty)
        self.grantors = StageGrantors(self.faulty, clock=clock, **self.options)
        self.grantors.stage = self
        self.service = RenewalService(
            self.faulty,
            self.shards,
            self.grantors,
            self.inbox,
            self.limits,
            clock=clock,
            random=self.sim.random,
        )

    async def _begin(self) -> None:
        await self.shards.start([self.service.records])
        await self.service.start()

    def crash(self, down_s: float = 0.0) -> None:
        """Kill the server, and start it again with what is on its disk."""
        self._image = image_of(self.engine)
        self.host.crash()
        self.sim.run_for(down_s)
        self.host.restart()
        self._start()

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
        """Run a coroutine function on the server's host."""

        async def call() -> T:
            return await function(*args, **named)

        task = self.host.start(call)
        self.sim.run_until(task.done, within=WITHIN_S)
        return task.result()

    def pass_time(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.sim.run_for(seconds)

    # Calls, with defaults.

    def create(self, duration: Requested = 7200.0) -> str:
        """Create a set."""
        return self.run(self.service.create_set, duration)[0]

    def add(
        self,
        set_id: str,
        reference: LeaseReference,
        desired: Requested = FOREVER,
        renew: Requested = FOREVER,
        remaining: Duration | None = 30.0,
    ) -> None:
        """Add a lease to a set."""
        term = (
            None
            if remaining is None
            else max(30.0, remaining)
            if remaining is not FOREVER
            else FOREVER
        )
        encoded = reference.encode()
        self.run(self.service.renew_for, set_id, encoded, remaining, term, desired, renew)

    def remove(self, set_id: str, reference: LeaseReference) -> Member | None:
        """Remove a lease from a set."""
        return self.run(self.service.remove, set_id, reference.encode())

    def renew_set(self, set_id: str, duration: Requested) -> Duration:
        """Renew the lease of a set."""
        return self.run(self.service.records.renew, set_id, duration)

    def clear(self, set_id: str, kind: SetEvent) -> None:
        """Remove a listener."""
        self.run(self.service.clear_listener, set_id, kind)

    def member(self, set_id: str, name: str) -> Member:
        """A lease in a set, with its last recorded end."""
        for member in self.service.members_after(set_id, 0, 1_000_000):
            if LeaseReference.decode(member.reference).cookie == name:
                return member
        raise LookupError(name)

    def stored(self, set_id: str, below: bytes = b"") -> dict[bytes, bytes]:
        """The keys of a set, by what follows its id."""
        items = self.engine._store.keyspace.range(b"leasehold/renewal/", b"leasehold/renewal0")
        found = {}
        for item in items:
            pair = KeyValue(item)
            _, mine, suffix = pair.key.partition(set_id.encode())
            if mine and suffix.startswith(below):
                found[suffix] = pair.value
        return found

    def wall(self, at: float) -> float:
        """A time of the stage, by the wall clock of the server."""
        return self.host.clock.wall() + at - self.now

    def members(self, set_id: str) -> list[str]:
        """The leases in a set."""
        found = self.service.members_after(set_id, 0, 1_000_000)
        return [str(LeaseReference.decode(each.reference).cookie) for each in found]

    def listen(
        self,
        set_id: str,
        kind: SetEvent,
        name: str,
        handback: bytes = b"",
        min_warning_s: float = 0.0,
    ) -> int:
        """Set a listener."""
        target = EventTarget("listener:1", name)
        return self.run(self.service.set_listener, set_id, kind, target, handback, min_warning_s)


LOST = ConnectionLost("the landlord does not answer")
REFUSED = LeaseDenied("the landlord refuses")
