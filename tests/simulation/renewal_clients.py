"""Clients of a simulated renewal service, and the model of their sets.

Each client has tasks that create a set and make calls on it until it ends; then they begin with
another one. After each call the model of the set in the oracle is updated: with the answer, or with
everything that may have happened if there was none.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Final

from leasehold.errors import LeaseholdError, NoSuchObject, UnknownLease
from leasehold.events.state import EventTarget
from leasehold.renewal.state import SetEvent
from leasehold.testing import Host, Network, Simulation
from tests.simulation.renewal_hosts import (
    CALL,
    CALL_S,
    ListenerHost,
    RenewalServer,
    SimulatedLandlord,
)
from tests.simulation.renewal_oracle import (
    KEEPING_S,
    UNKNOWN_S,
    EventsModel,
    MemberModel,
    Membership,
    RenewalOracle,
    SetModel,
)

SET_TERMS_S: Final = (15.0, 30.0, 60.0)
LEASE_TERMS_S: Final = (6.0, 10.0, 20.0)
WARNING, FAILURE = SetEvent.EXPIRATION_WARNING, SetEvent.RENEWAL_FAILURE


@dataclass(frozen=True, slots=True)
class Habits:
    """How often clients do what, as weights."""

    pause_s: tuple[float, float] = (0.1, 3.0)
    weights: dict[str, int] = field(
        default_factory=lambda: {
            "add": 8,
            "remove": 2,
            "replace": 2,
            "renew": 3,
            "cancel": 1,
            "listen": 2,
            "clear": 1,
            "vanish": 1,
            "end_lease": 2,
            "nothing": 2,
        }
    )
    desired_s: tuple[float, float] = (5.0, 60.0)
    """The desired durations of leases; every other one is to be kept forever."""
    warnings_s: tuple[float, ...] = (0.0, 3.0, 8.0)
    renews: float = 0.8
    """How often a set that ends soon is renewed; otherwise it is left to end."""


@dataclass(eq=False)
class RenewalClient:
    """A process that uses the service."""

    host: Host
    mailbox: str = ""
    position: int = 0
    sets: int = 0


class Uncertain(Exception):
    """A call had no answer: it may be executed at any time."""


class RenewalClients:
    """The calls of clients; `RenewalWorld` is one, with everything else that it takes."""

    sim: Simulation
    network: Network
    oracle: RenewalOracle
    servers: list[RenewalServer]
    landlords: list[SimulatedLandlord]
    listeners: list[ListenerHost]
    habits: Habits

    def __init__(self) -> None:
        self.is_over = False
        """Whether no further calls are made."""
        self.counts: Counter[str] = Counter()
        self._names = 0

    # Calls.

    async def call(
        self, client: RenewalClient, method: str, object_id: str = "", *args: Any
    ) -> Any:
        """Make a call at any server. Raises `Uncertain` if there is no answer."""
        server = self.sim.random.choice(self.servers)
        request = (method, object_id, args, False)
        try:
            return await self.network.call(
                client.host, server.host, CALL, request, timeout=CALL_S + 10.0
            )
        except TimeoutError as error:
            self.counts["uncertain"] += 1
            raise Uncertain(method) from error

    async def call_until(
        self, client: RenewalClient, method: str, object_id: str = "", *args: Any
    ) -> Any:
        """Repeat a call until it is answered; for calls that only read."""
        while True:
            try:
                return await self.call(client, method, object_id, *args)
            except NoSuchObject:
                raise
            except (LeaseholdError, OSError, Uncertain):
                await asyncio.sleep(0.5)

    # Clients.

    async def _use_sets(self, client: RenewalClient) -> None:
        while not self.is_over:
            term_s = self.sim.random.choice(SET_TERMS_S)
            sent_at = self.sim.now
            try:
                set_id, granted_s = await self.call(client, "create", "", term_s)
            except (LeaseholdError, OSError, Uncertain):
                await asyncio.sleep(1.0)
                continue
            client.sets += 1
            self.counts["sets"] += 1
            model = SetModel(set_id, sent_at + granted_s, self.sim.now + granted_s)
            self.oracle.sets[set_id] = model
            try:
                await self._use_set(client, model)
            except (NoSuchObject, UnknownLease):
                self._found_ended(model)
            except Uncertain:
                model.is_uncertain = True

    def _found_ended(self, model: SetModel) -> None:
        now = self.sim.now
        if now < model.earliest - 0.1 - 0.002 * 60.0 and model.ended_at is None:
            self.oracle.fail(f"set {model.id[:4]} ended {model.earliest - now:.3f} s too early")
        model.ended_at = min(now, model.ended_at or now)
        self.counts["ended sets"] += 1

    async def _use_set(self, client: RenewalClient, model: SetModel) -> None:
        random = self.sim.random
        await self.listen(client, model, FAILURE)
        if random.random() < 0.7:
            await self.listen(client, model, WARNING)
        names, weights = zip(*self.habits.weights.items(), strict=True)
        while True:
            await asyncio.sleep(random.uniform(*self.habits.pause_s))
            if self.is_over:
                return
            action = random.choices(names, weights)[0]
            if model.earliest - self.sim.now < 8.0 and random.random() < self.habits.renews:
                action = "renew"
            self.counts[action] += 1
            await getattr(self, f"_do_{action}")(client, model)
            if model.ended_at is not None:
                return

    async def _try(self, work: Awaitable[Any]) -> tuple[bool, Any]:
        """Return whether a call was successful, and its result.

        If it was not, it was executed or never will be, and the set still lives.
        """
        try:
            return True, await work
        except (NoSuchObject, UnknownLease, Uncertain):
            raise
        except (LeaseholdError, OSError):
            return False, None

    async def _do_nothing(self, _client: RenewalClient, _model: SetModel) -> None:
        pass

    async def _do_add(self, client: RenewalClient, model: SetModel) -> None:
        random, sim = self.sim.random, self.sim
        self._names += 1
        landlord = random.choice(self.landlords)
        lease = landlord.grant(f"lease{self._names}", random.choice(LEASE_TERMS_S))
        desired_s = random.choice((float("inf"), random.uniform(*self.habits.desired_s)))
        member = MemberModel(
            lease, sim.now + desired_s, float("inf"), Membership.UNKNOWN, sim.now, sim.now
        )
        model.members[lease.name] = member
        reference, sent_at = landlord.reference(lease.name), sim.now
        work = self.call(client, "add", model.id, reference, lease.most_s, lease.most_s, desired_s)
        done, _ = await self._try(work)
        if sim.now > sent_at + 0.5:
            member.first_end = sent_at + lease.most_s
        member.changed_at, member.latest = sim.now, sim.now + desired_s
        if done:
            member.membership = Membership.IN
        else:
            await self._resolve(client, model)

    async def _resolve(self, client: RenewalClient, model: SetModel) -> None:
        """Read the members, after a call that was executed or never will be."""
        names = await self.call_until(client, "members", model.id)
        for name, member in model.members.items():
            if member.membership is Membership.UNKNOWN:
                member.changed_at = self.sim.now
                if name in names:
                    member.membership = Membership.IN
                elif member.lease.lapsed_at is None:
                    member.membership = Membership.OUT

    def _member(self, model: SetModel) -> MemberModel | None:
        found = [each for each in model.members.values() if each.membership is Membership.IN]
        return self.sim.random.choice(found) if found else None

    async def _do_remove(self, client: RenewalClient, model: SetModel) -> None:
        member = self._member(model)
        if member is None:
            return
        landlord = self._landlord_of(member)
        reference = landlord.reference(member.lease.name)
        before, member.membership = member.membership, Membership.UNKNOWN
        done, was_in = await self._try(self.call(client, "remove", model.id, reference))
        member.changed_at = self.sim.now
        if not done:
            await self._resolve(client, model)
        elif was_in:
            member.membership = Membership.OUT
        elif self._must_be_in(member):
            self.oracle.fail(f"{member.lease.name} was not in set {model.id[:4]} any more")
        else:
            member.membership = before

    def _must_be_in(self, member: MemberModel) -> bool:
        """Whether a member cannot have left: it could be renewed for more than a term."""
        now, lease = self.sim.now, member.lease
        is_wanted = member.earliest > now and lease.lapsed_at is None and not lease.is_cancelled
        return is_wanted and now > member.bad_at + lease.most_s + KEEPING_S

    def _landlord_of(self, member: MemberModel) -> SimulatedLandlord:
        return next(each for each in self.landlords if each.host is member.lease.landlord)

    async def _do_replace(self, client: RenewalClient, model: SetModel) -> None:
        member, sim = self._member(model), self.sim
        if member is None or member.lease.end - sim.now < 2.0:
            return
        if member.earliest < sim.now + 5.0:
            return  # it may leave before the call arrives
        desired_s = sim.random.uniform(*self.habits.desired_s)
        reference = self._landlord_of(member).reference(member.lease.name)
        before = member.earliest, member.latest
        member.earliest = min(member.earliest, sim.now + desired_s)
        member.latest = float("inf")
        left_s, term_s = member.lease.end - sim.now, member.lease.most_s
        work = self.call(client, "add", model.id, reference, left_s, term_s, desired_s)
        sent_at = sim.now
        member.adds += 1
        done, _ = await self._try(work)
        member.changed_at = sim.now
        if done:
            member.earliest, member.latest = sent_at + desired_s, sim.now + desired_s
        else:
            member.earliest = min(before[0], sent_at + desired_s)
            member.latest = max(before[1], sim.now + desired_s)

    async def _do_renew(self, client: RenewalClient, model: SetModel) -> None:
        sim = self.sim
        term_s, sent_at = sim.random.choice(SET_TERMS_S), sim.now
        model.terms += 1
        model.latest += UNKNOWN_S + term_s  # it may be executed before its answer arrives
        before = model.earliest
        model.earliest = min(before, sent_at + term_s)
        done, granted_s = await self._try(self.call(client, "renew", model.id, term_s))
        if done and sim.now > model.unknown_until:
            model.earliest, model.latest = sent_at + granted_s, sim.now + granted_s
        elif done:
            model.earliest = min(before, sent_at + granted_s)
        else:
            model.unknown_until = sim.now + UNKNOWN_S
            model.latest = max(model.latest, model.unknown_until + term_s)

    async def _do_cancel(self, client: RenewalClient, model: SetModel) -> None:
        model.is_uncertain = True
        done, _ = await self._try(self.call(client, "cancel", model.id))
        if not done:
            raise Uncertain("cancel")
        model.is_uncertain = False
        model.ended_at = self.sim.now

    async def _do_listen(self, client: RenewalClient, model: SetModel) -> None:
        await self.listen(client, model, self.sim.random.choice(list(SetEvent)))

    async def listen(self, client: RenewalClient, model: SetModel, kind: SetEvent) -> int:
        """Set a listener, with repeated calls until one is answered; return the last number."""
        events, random = model.events[kind], self.sim.random
        while True:
            self._names += 1
            target = EventTarget(random.choice(self.listeners).host.name, f"target{self._names}")
            if client.mailbox and random.random() < 0.3:
                target = EventTarget("", client.mailbox)
            wanted_s = random.choice(self.habits.warnings_s) if kind is WARNING else 0.0
            events.listeners.append(target.id)
            events.most_warning_s = max(events.most_warning_s, wanted_s)
            events.retired.discard(target.id)
            events.registrations += 1
            done, number = await self._try(
                self.call(client, "listen", model.id, kind, target, target.id.encode(), wanted_s)
            )
            if done:
                self._retire(events, target.id)
                return int(number)
            await asyncio.sleep(0.5)

    @staticmethod
    def _retire(events: EventsModel, present: str) -> None:
        events.retired |= set(events.listeners) - {present}
        events.listeners = [present] if present else []

    async def _do_clear(self, client: RenewalClient, model: SetModel) -> None:
        events = model.events[kind := self.sim.random.choice(list(SetEvent))]
        events.is_exact = False
        done, _ = await self._try(self.call(client, "clear", model.id, kind))
        if done:
            self._retire(events, "")
            await asyncio.sleep(self.sim.random.uniform(0.0, 5.0))
        await self.listen(client, model, kind)

    async def _do_vanish(self, client: RenewalClient, model: SetModel) -> None:
        """Let a listener be gone: its registration is cleared at the next event."""
        events = model.events[kind := self.sim.random.choice(list(SetEvent))]
        events.is_exact = False
        for listener in self.listeners:
            listener.gone |= set(events.listeners)
        await asyncio.sleep(self.sim.random.uniform(0.0, 5.0))
        await self.listen(client, model, kind)

    async def _do_end_lease(self, _client: RenewalClient, model: SetModel) -> None:
        """End a lease at its landlord, or have its renewals refused."""
        if (member := self._member(model)) is not None:
            if self.sim.random.random() < 0.5:
                member.lease.is_cancelled = True
            else:
                self._landlord_of(member).refuses.add(member.lease.name)

    async def _read_mailbox(self, client: RenewalClient) -> None:
        while not client.mailbox:
            try:
                client.mailbox = await self.call(client, "create_mailbox", "", 7200.0)
            except (LeaseholdError, OSError, Uncertain):
                await asyncio.sleep(1.0)
        while True:
            await asyncio.sleep(self.sim.random.uniform(0.2, 2.0))
            found = await self.call_until(client, "read", client.mailbox, client.position)
            for position, event in found:
                if position != client.position + 1:
                    self.oracle.fail(f"mailbox: position {position} after {client.position}")
                client.position = position
                self.oracle.received(client.mailbox, [event])
            if found and self.sim.random.random() < 0.5:
                await self._try_acknowledge(client)

    async def _try_acknowledge(self, client: RenewalClient) -> None:
        try:
            await self.call(client, "acknowledge", client.mailbox, client.position)
        except (LeaseholdError, OSError, Uncertain):
            self.counts["not acknowledged"] += 1
