"""The discovery service on an engine: it finds registrars for clients that cannot do so themselves.

A registration is a leased record (`services.leased_records`), served by one server at a time.
`cluster_search` finds registrars for all registrations together; `registration` decides which of
them a registration has, and which events result. This module connects the two:

- A registrar that may have changed is noted for each registration that has it or may want it.
  `registration_writer` examines these (`registration_drafts`) and writes the results. An event is
  queued for delivery after it was stored with its number.
- A call on a registration holds the lock of its record, as the writer does. It writes first and
  changes memory after that, so a call that fails has changed nothing.
- The registrars that registrations have are kept in plain keys as well (`known_registrars`), so
  that they can be called after a restart: one that does not answer was lost meanwhile. They are
  written before the registrations.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random, SystemRandom
from typing import Final, TypeAlias

from leasehold.basics.durations import Duration, Requested
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.discovery.announced import Registrar
from leasehold.discovery.cluster_search import ClusterSearch
from leasehold.discovery.interest_index import InterestIndex
from leasehold.discovery.interest_limits import DEFAULT_LIMITS, DiscoveryLimits, InterestAdmission
from leasehold.discovery.known_registrars import KnownRegistrars
from leasehold.discovery.live_registration import (
    SUFFIX,
    Interests,
    LiveRegistration,
    StoredListener,
    new_events,
    stored_value,
)
from leasehold.discovery.locators import InterestChange, Locator, changed_groups, changed_locators
from leasehold.discovery.registrar_search import DiscoveryNetwork
from leasehold.discovery.registration_drafts import Draft, RegistrationDrafts
from leasehold.discovery.registration_writer import RegistrationWriter
from leasehold.discovery.search_exchange import SearchExchange
from leasehold.discovery.state import EventKind, Groups
from leasehold.engine.interface import Engine
from leasehold.errors import (
    EndReason,
    NoSuchObject,
    UnknownLease,
)
from leasehold.events.delivery import EventSender, EventTransport
from leasehold.events.state import EventQueue
from leasehold.keyspace.operations import Put
from leasehold.leases.policies import LeasePolicy
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.leased_record import LeasedRecord
from leasehold.services.leased_records import LeasedRecords
from leasehold.services.shards import ShardOwnership, Shards

logger = logging.getLogger(__name__)

NAME: Final = "discovery"
"""The service in keys, and in the name of its grantor."""

Record: TypeAlias = "LeasedRecord[LiveRegistration | None]"


class DiscoveryService:
    """The registrations that this server serves, and the calls on them. A `ShardListener`."""

    def __init__(
        self,
        engine: Engine,
        shards: Shards,
        network: DiscoveryNetwork,
        transport: EventTransport,
        policy: LeasePolicy,
        limits: DiscoveryLimits = DEFAULT_LIMITS,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self._random = random or SystemRandom()
        self.records: LeasedRecords[LiveRegistration | None] = LeasedRecords(
            engine,
            shards,
            NAME,
            self,
            policy,
            max_records=limits.registrations,
            clock=clock,
            random=random,
        )
        self.sender = EventSender(self, transport, random=random)
        self._search = ClusterSearch(network, self._touched, self._is_by_group_here)
        self._admission = InterestAdmission(limits, self._search.check_groups)
        self._shared = (
            SearchExchange(engine, shards, self._search, self._random)
            if isinstance(shards, ElectedShards)
            else None
        )
        self._known = KnownRegistrars(engine, self._random)
        self._by_queue: dict[EventQueue, LiveRegistration] = {}
        self._index = InterestIndex()
        self._drafts = RegistrationDrafts(self._search, self._known, clock)
        self._writer = RegistrationWriter(
            self.records, self._known, self._drafts, self._search, self.commit, self._random
        )
        self._is_closed = False

    @property
    def registrars(self) -> int:
        """How many registrars the registrations of this server have."""
        return self._index.registrars

    @property
    def dropped(self) -> int:
        """How many events were dropped because too many were not delivered."""
        return self._drafts.dropped

    async def start(self) -> None:
        """Start the background work."""
        self._writer.start()
        if self._shared is not None:
            self._shared.start()

    async def close(self) -> None:
        """Stop searching and sending; the registrations stay, for this server or another one."""
        self._is_closed = True
        if self._shared is not None:
            await self._shared.close()
        await self._writer.close()
        for live in self._by_queue.values():
            live.resolve()
        await self.sender.close()
        await self._search.close()

    # Calls.

    async def register(
        self, interests: Interests, listener: StoredListener, requested: Requested
    ) -> tuple[str, Duration]:
        """Begin to find registrars; return the id of the registration, and its term."""
        value = stored_value(listener, interests, 0, (), 0.0)
        with self._admission.admitted(listener, interests):
            record, granted = await self.records.create(
                requested, lambda key: [Put(key + b"/" + SUFFIX, value)]
            )
        live = LiveRegistration(self.records.grantor, record, listener, interests)
        record.state = live
        self._begin(live)
        return record.id, granted

    def find(self, registration: str) -> LiveRegistration:
        """Return a live registration of this server; `NoSuchObject` if it has ended."""
        live = self.records.find(registration).state
        if live is None:  # it is being created, and its client has no id yet
            raise NoSuchObject(NAME, registration)
        return live

    def registrars_of(self, live: LiveRegistration) -> list[Registrar]:
        """Return the registrars that a registration has."""
        return [self._drafts.describe(each) for each in live.interests.found]

    @asynccontextmanager
    async def _call_on(self, registration: str) -> AsyncIterator[LiveRegistration]:
        """Hold the lock of a registration for a call."""
        record = self.records.find(registration)
        async with record.lock:
            if record.recovery is not None:  # of a write whose caller is gone
                await asyncio.shield(record.recovery)
            yield self.find(registration)

    async def change_groups(
        self, registration: str, change: InterestChange, given: Iterable[str] | None
    ) -> None:
        """Change the wanted groups."""
        async with self._call_on(registration) as live:
            groups = changed_groups(live.interests.groups, change, given)
            await self._set_interests(live, groups, live.interests.locators)

    async def change_locators(
        self, registration: str, change: InterestChange, given: Iterable[Locator]
    ) -> None:
        """Change the wanted locators."""
        async with self._call_on(registration) as live:
            locators = changed_locators(live.interests.locators, change, given)
            await self._set_interests(live, live.interests.groups, locators)

    async def _set_interests(
        self, live: LiveRegistration, groups: Groups, locators: Sequence[Locator]
    ) -> None:
        before = live.interests
        are_same = [str(each) for each in locators] == [str(each) for each in before.locators]
        if groups == before.groups and are_same:
            return
        interests = before.copy()
        interests.groups, interests.locators = groups, tuple(locators)
        with self._admission.admitted(live.listener, interests, before):
            draft = self._drafts.make(live, interests, self._all_registrars(live))
            await self._known.write()
            await self.records.write(live.record, [draft.put(self._drafts.wall_minus_now())])
            if live.is_stopped:
                live.record.check()
                raise NoSuchObject(NAME, live.record.id)
        self._remove_interests(live)
        self.commit(draft)
        self._add_interests(live)
        # Some may have been found during the write, when they did not concern it.
        self._writer.note(live, self._all_registrars(live))

    async def discard(self, registration: str, registrar: str) -> None:
        """Drop a registrar that does not work; one that the registration lacks is ignored.

        It is called again after a wait, and discovered if it answers.
        """
        async with self._call_on(registration) as live:
            interests = live.interests.copy()
            if not interests.discard(registrar, asyncio.get_running_loop().time()):
                return
            event = new_events(EventKind.DISCARDED, [self._drafts.describe(registrar)])
            draft = self._drafts.make(live, interests, (), event)
            await self.records.write(live.record, [draft.put(self._drafts.wall_minus_now())])
            if not live.is_stopped:
                self._search.discarded(registrar)
                self.commit(draft)
                self._drafts.check_again(live, registrar)

    # Registrations in memory.

    def load(self, record: Record, rows: Mapping[bytes, bytes]) -> LiveRegistration | None:
        """Return a registration from its key; None if it is being created."""
        if not rows:
            return None
        service, value = self.records.grantor, rows[SUFFIX]
        return LiveRegistration.load(service, record, value, self._drafts.wall_minus_now())

    def started(self, record: Record) -> None:
        """Serve a registration that was loaded; registrars that it has are called."""
        live = record.state
        if live is None:
            return
        for registrar, cover in live.interests.found.items():
            if cover.by_group and not self._search.is_by_group(registrar):
                known = self._known.get(registrar)
                if known is not None:
                    self._search.adopt(known)
        self._admission.add(live.listener, live.interests)
        self._begin(live)

    def _begin(self, live: LiveRegistration) -> None:
        self._by_queue[live.queue] = live
        for registrar in live.interests.found:
            self._index.add_registrar(live, registrar)
        self._add_interests(live)
        self.sender.offer(live.queue)
        self._writer.note(live, self._all_registrars(live))

    def renewed(self, record: Record) -> None:
        """Do nothing: the records keep the end."""

    def stopped(self, record: Record, reason: EndReason | None) -> None:
        """Send nothing more: the registration has ended, or is served elsewhere."""
        live = record.state
        if live is None or live.is_stopped:
            return
        live.stop()
        self.sender.withdraw(live.queue)
        self._by_queue.pop(live.queue, None)
        self._writer.drop(live)
        self._remove_interests(live)
        self._admission.remove(live.listener, live.interests)
        for registrar in live.interests.found:
            self._remove_registrar(live, registrar, forget=reason is not None)

    def _add_interests(self, live: LiveRegistration) -> None:
        self._index.add_interests(live)
        self._search.add_interest(live.interests.groups, live.interests.locators)

    def _remove_interests(self, live: LiveRegistration) -> None:
        self._index.remove_interests(live)
        self._search.remove_interest(live.interests.groups, live.interests.locators)

    def _remove_registrar(self, live: LiveRegistration, registrar: str, *, forget: bool) -> None:
        is_last = self._index.remove_registrar(live, registrar)
        if is_last and forget and self._search.get(registrar) is None:
            self._known.forget(registrar)
            self._writer.wake()

    # Changes of registrars.

    def _touched(self, registrars: set[str]) -> None:
        """Note registrars for the registrations that have them or may want them."""
        self._drafts.registrars_changed()
        for registrar in registrars:
            reached, is_used = self._search.get(registrar), self._index.is_used(registrar)
            if reached is not None and is_used:
                self._known.set(reached.registrar)
            elif reached is None and not is_used:
                self._known.forget(registrar)
            at = frozenset[Locator]() if reached is None else reached.locators
            for live in self._index.concerned(registrar, reached):
                self._writer.note(live, (registrar, *_found_at(live, at)))
        self._writer.wake()

    def _is_by_group_here(self, registrar: str) -> Registrar | None:
        """Return a registrar that a registration has by group, as it was last described."""
        for live in self._index.registrations_with(registrar):
            if live.interests.found[registrar].by_group:
                return self._known.get(registrar)
        return None

    def _all_registrars(self, live: LiveRegistration) -> set[str]:
        return {*self._search.ids(), *live.interests.found}

    def commit(self, draft: Draft) -> None:
        """Take a change that is stored, and send its events."""
        live, before, after = draft.live, draft.live.interests.found, draft.interests.found
        live.interests = draft.interests
        for registrar in after.keys() - before.keys():
            self._index.add_registrar(live, registrar)
            if not live.interests.is_current(registrar, self._search.get(registrar)):
                self._writer.note(live, (registrar,))  # it has changed during the write
        for registrar in before.keys() - after.keys():
            self._remove_registrar(live, registrar, forget=True)
        live.append(draft.events)
        live.resolve()
        for registrar in draft.examined - after.keys():
            self._drafts.check_again(live, registrar)
        self._writer.wake()

    # Called by the sender.

    async def delivered(self, queue: EventQueue, up_to: int) -> None:
        """Store that events were delivered."""
        del up_to
        live = self._by_queue.get(queue)
        if live is not None and not live.is_stopped and not self._is_closed:
            stored = asyncio.get_running_loop().create_future()
            live.stored.append(stored)
            self._writer.note(live, ())
            await stored

    async def rejected(self, queue: EventQueue, error: BaseException) -> None:
        """End a registration whose listener is unknown, or has refused its events."""
        live = self._by_queue.get(queue)
        if live is not None:
            logger.info("registration %s ends: %s", live.record.id, error)
            try:
                await self.records.cancel(live.record.id)
            except UnknownLease:
                return

    async def expired(self, queue: EventQueue, up_to: int) -> None:
        """Never called: events are kept as long as their registration."""

    # Shards.

    async def shard_gained(self, ownership: ShardOwnership) -> None:
        """Load the registrations of a shard."""
        if self._shared is not None:
            await self._shared.read()
        await self._known.read()
        await self.records.shard_gained(ownership)

    def shard_lost(self, ownership: ShardOwnership) -> None:
        """Stop serving the registrations of a shard."""
        self.records.shard_lost(ownership)


def _found_at(live: LiveRegistration, locators: frozenset[Locator]) -> list[str]:
    """Return the registrars that a registration has by one of these locators."""
    found = live.interests.found.items() if locators else ()
    return [each for each, cover in found if not cover.locators.isdisjoint(locators)]
