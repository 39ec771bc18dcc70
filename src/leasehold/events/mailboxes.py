"""Mailboxes: leased queues of events, for listeners that read them later.

A mailbox is a leased record with an id. Events arrive in deliveries, each of which is stored in one
transaction, and get *positions* in the order of their arrival. Positions rise by 1, and are never
reused, not even after a restart. Reading drops nothing; `acknowledge` drops all events up to a
position.

Keys below that of the record:

    e/<position as 16 hex digits>   StoredMail
    n                               the last position that was acknowledged, as decimal text

A sender repeats a delivery whose outcome is unknown. Events that are still in the mailbox are
not stored twice. A delivery for which there is no room is refused as a whole, and the sender
retries; an empty mailbox accepts any delivery, so that none waits forever.
"""

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from leasehold.basics.durations import Duration, Requested
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.errors import EndReason, TooBusy, TooLarge
from leasehold.events.listeners import event_message, event_of
from leasehold.events.state import MAX_NOTIFY_EVENTS, RemoteEvent
from leasehold.keyspace.operations import Delete, Put, Step
from leasehold.leases.policies import LeasePolicy
from leasehold.services.forwarding import completed
from leasehold.services.leased_record import LeasedRecord
from leasehold.services.leased_records import LeasedRecords
from leasehold.services.shards import Shards
from leasehold.wire.services_pb2 import StoredMail

logger = logging.getLogger(__name__)

T = TypeVar("T")

NAME: Final = "mailboxes"
"""The name of the service: a part of its keys and of its grantor."""

MAX_DELIVERY_BYTES: Final = 1024 * 1024
"""Events of one delivery together: it is one transaction, which an etcd server limits, too."""

_EVENTS: Final = b"e/"
_ACKNOWLEDGED: Final = b"n"


@dataclass(frozen=True, slots=True)
class MailboxLimits:
    """The limits of the mailboxes of a server."""

    mailboxes: int = 10_000
    events: int = 10_000
    """Events in a mailbox."""
    bytes: int = 16 * 1024 * 1024
    """Events in a mailbox, as they are stored."""
    readers: int = 16
    """Calls that wait for events of one mailbox."""
    all_readers: int = 10_000
    """Calls that wait for events of any mailbox."""
    wait_s: float = 60.0
    """How long a call waits for events at most; longer waits are cut to this."""
    read_events: int = 1_000
    """Events in an answer."""
    read_bytes: int = 1024 * 1024
    """The size of an answer, unless a single event is larger."""


class Mail(NamedTuple):
    """An event in a mailbox."""

    position: int
    key: tuple[str, str, int, int]
    """Identifies the event."""
    value: bytes
    """The event as it is stored."""

    @property
    def event(self) -> RemoteEvent:
        """The event."""
        return event_of(StoredMail.FromString(self.value).event)


class MailboxState:
    """The events of a mailbox, and the calls that wait for more."""

    def __init__(self, mails: Sequence[Mail] = (), last: int = 0) -> None:
        self._mails = deque(mails)
        self._keys = {mail.key for mail in mails}
        self.bytes = sum(len(mail.value) for mail in mails)
        self.last = last
        """The highest position that was ever given to an event."""
        self.readers: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._mails)

    def __bool__(self) -> bool:
        return True

    def new(self, events: Sequence[RemoteEvent]) -> list[Mail]:
        """Return events that are not in the mailbox yet, with their positions."""
        unique = {event.key: event for event in events if event.key not in self._keys}
        return [
            Mail(position, key, StoredMail(event=event_message(event)).SerializeToString())
            for position, (key, event) in enumerate(unique.items(), self.last + 1)
        ]

    def add(self, mails: Sequence[Mail]) -> None:
        """Add events that were stored, and wake the calls that wait for them."""
        self._mails.extend(mails)
        self._keys.update(mail.key for mail in mails)
        self.bytes += sum(len(mail.value) for mail in mails)
        self.last = mails[-1].position
        self.wake()

    def drop(self, position: int) -> None:
        """Drop the events up to a position."""
        while self._mails and self._mails[0].position <= position:
            mail = self._mails.popleft()
            self._keys.discard(mail.key)
            self.bytes -= len(mail.value)

    def has_up_to(self, position: int) -> bool:
        """Return whether there are events up to a position."""
        return bool(self._mails) and self._mails[0].position <= position

    def after(self, position: int, limit: int, max_bytes: int) -> list[Mail]:
        """Return events with a higher position, in order."""
        first = bisect_right(self._mails, position, key=lambda mail: mail.position)
        found: list[Mail] = []
        size_bytes = 0
        for mail in islice(self._mails, first, first + limit):
            size_bytes += len(mail.value)
            if found and size_bytes > max_bytes:
                break
            found.append(mail)
        return found

    def wake(self) -> None:
        """Wake all calls that wait."""
        for reader in self.readers:
            if not reader.done():
                reader.set_result(None)


class MailboxService:
    """The mailboxes of a server."""

    def __init__(
        self,
        engine: Engine,
        shards: Shards,
        policy: LeasePolicy,
        *,
        limits: MailboxLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self.limits = limits or MailboxLimits()
        self.records: LeasedRecords[MailboxState] = LeasedRecords(
            engine,
            shards,
            NAME,
            self,
            policy,
            max_records=self.limits.mailboxes,
            clock=clock,
            random=random,
        )
        self.waiting_readers = 0
        """Calls that wait for events."""
        self._running: set[asyncio.Task[Any]] = set()

    # Calls.

    async def create(self, requested: Requested) -> tuple[str, Duration]:
        """Create a mailbox; return its id and the granted term."""
        record, granted = await self.records.create(requested)
        return record.id, granted

    async def deliver(self, mailbox: str, events: Sequence[RemoteEvent]) -> None:
        """Store events in a mailbox, all or none.

        Raises `NoSuchObject` if the mailbox has ended, and `TooBusy` if it is full. If the caller
        is cancelled, the events are stored or refused before that takes effect.
        """
        if len(events) > MAX_NOTIFY_EVENTS:
            raise TooLarge(
                f"a delivery must have at most {MAX_NOTIFY_EVENTS} events, got {len(events)}"
            )
        await completed(self._deliver(mailbox, events), self._running)

    async def _deliver(self, mailbox: str, events: Sequence[RemoteEvent]) -> None:
        async with self.records.find(mailbox).lock:
            record = self.records.find(mailbox)  # it may have ended or moved while we waited
            state = record.state
            mails = state.new(events)
            if not mails:
                return
            self._check_room(record, sum(len(mail.value) for mail in mails), len(mails))
            steps: list[Step] = [
                Put(_key(record, _event_suffix(mail.position)), mail.value) for mail in mails
            ]
            await self.records.write(record, steps)
            state.add(mails)

    def _check_room(self, record: LeasedRecord[MailboxState], size_bytes: int, count: int) -> None:
        if size_bytes > MAX_DELIVERY_BYTES:
            raise TooLarge(
                f"a delivery must have at most {MAX_DELIVERY_BYTES:,} bytes, got {size_bytes:,}"
            )
        state, limits = record.state, self.limits
        if len(state) and (
            len(state) + count > limits.events or state.bytes + size_bytes > limits.bytes
        ):
            raise TooBusy(
                f"mailbox {record.id} is full: it has {len(state):,} of {limits.events:,} events, "
                f"and {state.bytes:,} of {limits.bytes:,} bytes; acknowledge events"
            )

    async def read(
        self, mailbox: str, after: int = 0, limit: int = 0, wait_s: float = 0.0
    ) -> list[Mail]:
        """Return events after a position, in the order of arrival; they stay in the mailbox.

        If there is none, wait for one for `wait_s` seconds; then the list may be empty. A `limit`
        of 0 stands for the limit of the server.
        """
        if after < 0 or limit < 0 or wait_s < 0:
            raise ValueError(
                f"after, limit and wait must not be negative, got {after}, {limit} and {wait_s}"
            )
        limits = self.limits
        limit = min(limit or limits.read_events, limits.read_events)
        loop = asyncio.get_running_loop()
        until = loop.time() + min(wait_s, limits.wait_s)
        while True:
            state = self.records.find(mailbox).state
            found = state.after(after, limit, limits.read_bytes)
            left_s = until - loop.time()
            if found or left_s <= 0:
                return found
            await self._wait(mailbox, state, left_s)

    async def _wait(self, mailbox: str, state: MailboxState, left_s: float) -> None:
        """Wait until events arrive, or the mailbox ends."""
        if len(state.readers) >= self.limits.readers:
            raise TooBusy(
                f"mailbox {mailbox} has {self.limits.readers} waiting calls already, the maximum; "
                "read it from fewer places"
            )
        if self.waiting_readers >= self.limits.all_readers:
            raise TooBusy(
                f"mailboxes of this server have {self.limits.all_readers:,} waiting calls already, "
                "the maximum; read without waiting, or retry later"
            )
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        state.readers.add(reader)
        self.waiting_readers += 1
        try:
            await asyncio.wait((reader,), timeout=left_s)
        finally:
            state.readers.discard(reader)
            self.waiting_readers -= 1

    async def acknowledge(self, mailbox: str, position: int) -> None:
        """Drop the events up to a position; idempotent."""
        if position < 0:
            raise ValueError(f"position must not be negative, got {position}")
        await completed(self._acknowledge(mailbox, position), self._running)

    async def _acknowledge(self, mailbox: str, position: int) -> None:
        async with self.records.find(mailbox).lock:
            record = self.records.find(mailbox)
            state = record.state
            position = min(position, state.last)
            if not state.has_up_to(position):
                return
            steps: list[Step] = [
                Delete(_key(record, _EVENTS), _key(record, _event_suffix(position + 1))),
                # The positions are not used again, even if the mailbox is empty at a restart.
                Put(_key(record, _ACKNOWLEDGED), b"%d" % position),
            ]
            await self.records.write(record, steps)
            state.drop(position)

    # Called by the records.

    def load(self, record: LeasedRecord[MailboxState], rows: Mapping[bytes, bytes]) -> MailboxState:
        """Return the state of a mailbox from its keys."""
        mails = []
        last = int(rows.get(_ACKNOWLEDGED, b"0"))
        for suffix, value in sorted(rows.items()):
            if not suffix.startswith(_EVENTS):
                continue
            last = int(suffix.removeprefix(_EVENTS), 16)
            try:
                event = event_of(StoredMail.FromString(value).event)
            except DecodeError:
                logger.error("an event of mailbox %s cannot be decoded, and is skipped", record.id)
                continue
            mails.append(Mail(last, event.key, value))
        return MailboxState(mails, last)

    def started(self, record: LeasedRecord[MailboxState]) -> None:
        """Do nothing: a mailbox has nothing that runs."""

    def renewed(self, record: LeasedRecord[MailboxState]) -> None:
        """Do nothing: the records keep the end."""

    def stopped(self, record: LeasedRecord[MailboxState], reason: EndReason | None) -> None:
        """Wake the calls that wait: they look for the mailbox again."""
        record.state.wake()


def _key(record: LeasedRecord[MailboxState], suffix: bytes) -> bytes:
    return record.key + b"/" + suffix


def _event_suffix(position: int) -> bytes:
    return b"%b%016x" % (_EVENTS, position)
