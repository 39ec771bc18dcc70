"""Events of the registry: listeners receive the changes of items that match their templates.

A registration for events is a leased record (`services.leased_records`), served by one server at a
time. It has two keys: the request, and its progress (`registry.event_registration`). A registration
that this server serves is in one of two places:

    waiting   changes since its progress have to be replayed    left when the replay has reached the
                                                                index, or has found a gap
    live      each change of the index is examined              left at the end of the registration

- A registration that is loaded, after a restart or by another server, waits. The items are read at
  the lowest revision of all that wait, and the changes are replayed from there, once for all of
  them; each ignores those that it has examined.
- If these changes were compacted, or if the index has missed some, the listener gets a resync event
  immediately. Its number is higher than any that was given to events of these changes.
- If the queue of a listener is full, its events are replaced by a resync event.
- Progress is written `PROGRESS_S` after a delivery at the latest. Without events it is written
  every `IDLE_S` if the revision has moved, so that a later replay is short and not compacted.
- A listener that is unknown or refuses its events ends its registration, and no other.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from random import Random, SystemRandom
from typing import Final, TypeAlias

from leasehold.basics.backoff import Backoff
from leasehold.basics.durations import Duration, Requested
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.errors import Compacted, EndReason, LeaseholdError
from leasehold.events.delivery import EventSender, EventTransport
from leasehold.events.listeners import target_message, target_of
from leasehold.events.state import EventQueue
from leasehold.keyspace.operations import Put, Step
from leasehold.leases.policies import LeasePolicy
from leasehold.registry.event_registration import EventRequest, ListenerRegistration, ReplayProgress
from leasehold.registry.index import TemplateIndex
from leasehold.registry.item_feed import (
    PROGRESS_REQUESTS,
    IndexChange,
    IndexNotReady,
    ItemFeed,
    name_of,
)
from leasehold.registry.messages import ITEMS, template_message, template_of
from leasehold.registry.state import ItemVersion, Transition
from leasehold.registry.storage import scan_items
from leasehold.services.leased_record import LeasedRecord
from leasehold.services.leased_records import MAX_RECORDS, LeasedRecords
from leasehold.services.shards import Shards
from leasehold.sessions.session import OVER, RETRIES
from leasehold.wire import registry_pb2 as pb

logger = logging.getLogger(__name__)

NAME: Final = "registry"
"""The service in keys, and in the name of its grantor."""

PROGRESS_S: Final = 5.0
"""How often the progress of registrations is written, if there were events."""

IDLE_S: Final = 120.0
"""How often it is written otherwise."""

CLOSE_S: Final = 2.0
"""How long closing waits for progress to be written."""

CONCURRENT_WRITES: Final = 32
"""Registrations whose progress is written at the same time."""

VAIN_ANSWERS: Final = 3
"""How often in a row a replay is answered with progress that is not enough, as by an etcd server
whose progress cannot be trusted. After `VAIN_S` it counts as a gap."""

VAIN_S: Final = 5.0
"""How long a replay waits for the next change, however often it is answered with progress that is
not enough: a busy etcd server may answer requests before it sends the changes of the past."""

_REQUEST: Final = b"/r"
_PROGRESS: Final = b"/p"

Record: TypeAlias = "LeasedRecord[ListenerRegistration | None]"


class ItemEvents:
    """The registrations for events that this server serves."""

    def __init__(
        self,
        engine: Engine,
        shards: Shards,
        feed: ItemFeed,
        transport: EventTransport,
        policy: LeasePolicy,
        *,
        max_handback_bytes: int = 64 * 1024,
        max_registrations: int = MAX_RECORDS,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self._engine = engine
        self._feed = feed
        self._max_handback_bytes = max_handback_bytes
        self._random = random or SystemRandom()
        self.records: LeasedRecords[ListenerRegistration | None] = LeasedRecords(
            engine,
            shards,
            NAME,
            self,
            policy,
            max_records=max_registrations,
            clock=clock,
            random=random,
        )
        self.sender = EventSender(self, transport, random=random)
        self.resyncs = 0
        """Resync events."""
        self._by_queue: dict[EventQueue, Record] = {}
        self._live: dict[ListenerRegistration, None] = {}
        self._templates: TemplateIndex[ListenerRegistration] = TemplateIndex()
        """Those that are live."""
        self._waiting: dict[ListenerRegistration, None] = {}
        self._dirty: set[EventQueue] = set()
        """Those whose listeners have received events since their progress was written."""
        self._own_writes = 0
        """Progress that was written: each is a revision."""
        self._replaying: asyncio.Task[None] | None = None
        self._recording: asyncio.Task[None] | None = None
        feed.listeners.append(self._changed)
        feed.on_gap.append(self._missed)

    async def start(self) -> None:
        """Start the background work."""
        self._recording = asyncio.get_running_loop().create_task(self._keep_recording())

    async def close(self) -> None:
        """Stop sending, and write progress; the registrations stay."""
        tasks = [task for task in (self._recording, self._replaying) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.sender.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._record(self._dirty)
        except TimeoutError:
            logger.warning("some progress of listeners is not stored: events will be repeated")

    # Calls.

    async def notify(self, request: EventRequest, requested: Requested) -> tuple[str, Duration]:
        """Register a listener; return the id of the registration, and its term.

        It receives the events of all changes that are executed after this returns, and maybe of
        some that are executed while it runs.
        """
        if len(request.handback) > self._max_handback_bytes:
            raise ValueError(
                f"handback must have at most {self._max_handback_bytes:,} bytes, "
                f"got {len(request.handback):,}"
            )
        await self._feed.fresh()
        index = self._feed.index
        progress = ReplayProgress(0, max(index.revision, index.last_change))
        registration = ListenerRegistration(request, progress, self.records.grantor)
        self._join(registration)  # now: further changes may come before it is stored

        def steps(key: bytes) -> list[Step]:
            return [
                Put(key + _REQUEST, _request_value(request)),
                Put(key + _PROGRESS, _progress_value(progress)),
            ]

        try:
            record, granted = await self.records.create(requested, steps)
        except BaseException:
            self._leave(registration)
            raise
        record.state = registration
        self._serve(record, registration)
        return record.id, granted

    # Changes of the index.

    def _changed(self, change: IndexChange) -> None:
        for registration in self._templates.concerned(change.before, change.after):
            self.resyncs += registration.examine(change)

    def _missed(self, revision: int) -> None:
        """Send a resync event to all that are live: the index has missed changes."""
        for registration in self._live:
            registration.lost(self._examined(registration), revision)
            self.resyncs += 1

    def _examined(self, registration: ListenerRegistration) -> int:
        """Return the revision up to which a live registration has examined changes."""
        return max(registration.since, self._feed.index.revision)

    def _join(self, registration: ListenerRegistration) -> None:
        self._waiting.pop(registration, None)
        self._live[registration] = None
        self._templates.add(registration.request.template, registration)

    def _leave(self, registration: ListenerRegistration) -> None:
        self._waiting.pop(registration, None)
        if registration in self._live:
            del self._live[registration]
            self._templates.remove(registration.request.template, registration)

    # Called by the records.

    def load(self, record: Record, rows: Mapping[bytes, bytes]) -> ListenerRegistration | None:
        """Return a registration from its keys; None if it is being created."""
        if not rows:
            return None
        stored = pb.StoredEventRequest.FromString(rows[_REQUEST[1:]])
        progress = pb.StoredEventProgress.FromString(rows[_PROGRESS[1:]])
        request = EventRequest(
            template_of(stored.template),
            Transition(stored.transitions),
            target_of(stored.listener),
            stored.handback,
        )
        return ListenerRegistration(
            request, ReplayProgress(progress.number, progress.revision), self.records.grantor
        )

    def started(self, record: Record) -> None:
        """Replay the changes since the progress of a registration that was loaded."""
        if record.state is not None:
            self._waiting[record.state] = None
            self._serve(record, record.state)
            if self._replaying is None:
                self._replaying = asyncio.get_running_loop().create_task(self._keep_replaying())

    def _serve(self, record: Record, registration: ListenerRegistration) -> None:
        """Send the events of a registration."""
        queue = registration.queue
        queue.source = record.id
        queue.may_send = lambda: not record.is_over
        self._by_queue[queue] = record
        self.sender.offer(queue)

    def renewed(self, record: Record) -> None:
        """Do nothing: the records keep the end."""

    def stopped(self, record: Record, reason: EndReason | None) -> None:
        """Send nothing more: the registration has ended, or another server serves it."""
        del reason
        if record.state is not None:
            queue = record.state.queue
            self.sender.withdraw(queue)
            self._leave(record.state)
            self._by_queue.pop(queue, None)
            self._dirty.discard(queue)

    # Replaying.

    async def _keep_replaying(self) -> None:
        """Replay changes until no registration waits."""
        backoff = Backoff(RETRIES, self._random)
        try:
            while self._waiting:
                try:
                    await self._feed.fresh()
                    await self._replay()
                    backoff.reset()
                except OVER:
                    return
                except (LeaseholdError, OSError) as error:
                    if not isinstance(error, IndexNotReady):
                        logger.warning("events of the registry are delayed: %s", error)
                    await asyncio.sleep(backoff.next_s())
                except Exception:
                    logger.exception("events of the registry are delayed")
                    await asyncio.sleep(backoff.next_s())
        finally:
            self._replaying = None

    async def _replay(self) -> None:
        """Replay the changes for those that wait now."""
        index = self._feed.index
        restored = [each for each in self._waiting if each.since > index.revision]
        self._resync(restored)  # the engine was restored from a backup that is older
        for registration in list(self._waiting):
            if registration.since >= index.last_change:
                self._join(registration)
        if not self._waiting:
            return
        group = list(self._waiting)
        start = min(registration.since for registration in group)
        try:
            items = await self._items_at(start)
            async with self._engine.watch(ITEMS, prefix_end(ITEMS), start=start + 1) as watch:
                await self._follow(watch, items, group, start)
        except Compacted as error:
            self._resync(each for each in group if each.since < max(error.revision, start + 1))

    async def _items_at(self, revision: int) -> dict[str, ItemVersion]:
        """Return the items as they were at a revision."""
        items = self._feed.own()
        async for _, pairs in scan_items(self._engine, revision):
            for pair in pairs:
                known = self._feed.index.get(name_of(pair.key))
                is_same = known is not None and known.revision == pair.mod_revision
                version = known if is_same else self._feed.read(pair.key, pair)
                if version is not None:
                    items[version.item.id] = version
            await asyncio.sleep(0)
        return items

    async def _follow(
        self,
        watch: Watch,
        items: dict[str, ItemVersion],
        group: list[ListenerRegistration],
        start: int,
    ) -> None:
        """Examine changes for a group until it has all that the index has; then it is live."""
        index = self._feed.index
        templates: TemplateIndex[ListenerRegistration] = TemplateIndex()
        for registration in group:
            templates.add(registration.request.template, registration)
        loop = asyncio.get_running_loop()
        at, vain, wanted, vain_from = start, 0, index.last_change, loop.time()
        requests = loop.create_task(self._request_progress(watch))
        try:
            async for revision, events in watch:
                for event in events:
                    item_id = name_of(event.key)
                    after = self._feed.read(event.key, event.pair)
                    change = IndexChange(item_id, items.pop(item_id, None), after, revision)
                    if after is not None:
                        items[item_id] = after
                    self._examine(change, templates)
                at = max(at, revision)
                if at >= index.last_change:
                    break
                if events:
                    vain, vain_from = 0, loop.time()
                else:
                    vain += at < wanted
                if vain >= VAIN_ANSWERS and loop.time() - vain_from >= VAIN_S:
                    self._resync(group)
                    return
                wanted = index.last_change
        finally:
            requests.cancel()
            for registration in group:
                registration.since = max(registration.since, at)
        for registration in group:
            if registration in self._waiting:
                self._join(registration)

    async def _request_progress(self, watch: Watch) -> None:
        """Request progress of a replay repeatedly, until it is over."""
        backoff = Backoff(PROGRESS_REQUESTS, self._random)
        while True:
            watch.request_progress()
            await asyncio.sleep(backoff.next_s())

    def _examine(self, change: IndexChange, templates: TemplateIndex[ListenerRegistration]) -> None:
        for registration in templates.concerned(change.before, change.after):
            if registration in self._waiting:
                self.resyncs += registration.examine(change)

    def _resync(self, group: Iterable[ListenerRegistration]) -> None:
        """Send a resync event: changes cannot be replayed. Those that follow are live."""
        index = self._feed.index
        for registration in list(group):
            if registration in self._waiting:
                registration.lost(registration.since, max(index.revision, index.last_change))
                self.resyncs += 1
                self._join(registration)

    # Called by the sender of events.

    async def delivered(self, queue: EventQueue, up_to: int) -> None:
        """Record that a listener has received events; that is written later."""
        record = self._by_queue.get(queue)
        if record is not None and record.state is not None:
            record.state.received(up_to)
            self._dirty.add(queue)

    async def expired(self, queue: EventQueue, up_to: int) -> None:
        """Do nothing: events are not given up."""

    async def rejected(self, queue: EventQueue, error: BaseException) -> None:
        """End a registration whose listener is unknown or refuses its events."""
        record = self._by_queue.get(queue)
        if record is not None:
            logger.warning(
                "registration %s for events ends, because its listener refused them: %s",
                record.id,
                error,
            )
            await self.records.cancel(record.id)

    # Progress.

    async def _keep_recording(self) -> None:
        """Write progress from time to time."""
        loop = asyncio.get_running_loop()
        idle_at = loop.time() + IDLE_S
        while True:
            await asyncio.sleep(PROGRESS_S)
            due = set(self._dirty)
            if loop.time() >= idle_at:
                idle_at = loop.time() + IDLE_S
                due |= await self._idle()
            await self._record(due)

    async def _idle(self) -> set[EventQueue]:
        """Return those whose progress has moved, by more than by writing progress."""
        if not self._live:
            return set()
        try:
            await self._feed.fresh()
        except (LeaseholdError, OSError) as error:
            logger.info("progress of listeners is not stored yet: %s", error)
            return set()
        return {
            registration.queue
            for registration in self._live
            if self._progress(registration).revision - registration.stored.revision
            > self._own_writes - registration.writes_before
        }

    def _progress(self, registration: ListenerRegistration) -> ReplayProgress:
        return registration.progress(self._examined(registration))

    async def _record(self, queues: Iterable[EventQueue]) -> None:
        """Write the progress of registrations, each in a transaction of its own."""
        turns = asyncio.Semaphore(CONCURRENT_WRITES)

        async def write(queue: EventQueue) -> None:
            record = self._by_queue.get(queue)
            if record is None or record.state is None or record.state not in self._live:
                return
            async with turns, record.lock:
                registration = record.state
                self._dirty.discard(queue)
                progress = self._progress(registration)
                if progress != registration.stored:
                    await self._write(record, registration, progress)

        outcomes = await asyncio.gather(*map(write, list(queues)), return_exceptions=True)
        for error in outcomes:
            if isinstance(error, Exception):
                logger.info("progress of a listener is not stored yet: %s", error)

    async def _write(
        self, record: Record, registration: ListenerRegistration, progress: ReplayProgress
    ) -> None:
        writes_before = self._own_writes
        try:
            await self.records.write(
                record, [Put(record.key + _PROGRESS, _progress_value(progress))]
            )
        except BaseException:
            self._dirty.add(registration.queue)
            raise
        self._own_writes += 1
        registration.stored, registration.writes_before = progress, writes_before


def _request_value(request: EventRequest) -> bytes:
    return pb.StoredEventRequest(
        template=template_message(request.template),
        transitions=int(request.transitions),
        listener=target_message(request.target),
        handback=request.handback,
    ).SerializeToString()


def _progress_value(progress: ReplayProgress) -> bytes:
    return pb.StoredEventProgress(
        number=progress.number, revision=progress.revision
    ).SerializeToString()
