"""A renewal set that this server serves: its state in memory, and the changes of its keys.

The methods that return steps change nothing: the service writes them first, and changes the state
after that.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from leasehold.basics.durations import NEVER
from leasehold.basics.timers import ResettableTimer
from leasehold.clock import Clock
from leasehold.events.state import EventQueue, EventTarget
from leasehold.keyspace.operations import Delete, Put, Step
from leasehold.leases.lease import Lease
from leasehold.renewal import stored
from leasehold.renewal.state import Leaving, Member, SetEvent, SetState, WarningState
from leasehold.services.leased_record import LeasedRecord


@dataclass(eq=False, slots=True)
class LiveSet:
    """A set that this server serves."""

    record: "LeasedRecord[LiveSet]"
    state: SetState
    queues: dict[SetEvent, EventQueue]
    leases: dict[str, Lease] = field(default_factory=dict)
    """The lease of each member, by digest."""
    warning_timer: ResettableTimer | None = None
    writer: "asyncio.Task[None] | None" = None
    """Writes members that have left."""
    last_error: str = ""
    """The last error of a renewal."""
    is_stopped: bool = False
    """Whether it is not served in this form any more: the set has ended, its shard was lost, or its
    keys were read again. Then nothing may be written from this object: its numbers may be old."""
    unconfirmed: set[str] = field(default_factory=set)
    """Members that were not renewed since a restart, by digest: their stored ends are lower bounds,
    and the ends of their leases here are only how long to wait for an answer."""

    @classmethod
    def load(
        cls,
        record: "LeasedRecord[LiveSet]",
        rows: Mapping[bytes, bytes],
        service: str,
        max_events: Mapping[SetEvent, int],
    ) -> "LiveSet":
        """Make a set from its keys."""
        state = SetState()
        for member in sorted(stored.members_of(rows), key=lambda member: member.order):
            state.restore(member)
        queues = {}
        for kind, most in max_events.items():
            queues[kind], warning = stored.queue_of(rows, service, record.id, kind, most)
            state.warning = state.warning or warning
        return cls(record, state, queues)

    def current(self, member: Member, clock: Clock) -> Member:
        """Return a copy of a member with its present end, by the wall clock."""
        lease = self.leases.get(member.digest)
        if lease is None or not self.is_confirmed(member):
            return replace(member)
        end = lease.holding.end
        wall_end = NEVER if end == NEVER else clock.wall() + end - clock.boottime()
        return replace(member, end=wall_end, term_s=lease.holding.term_s)

    def record_end(self, member: Member, clock: Clock) -> None:
        """Record the present end of a member that leaves, or whose end was stored."""
        current = self.current(member, clock)
        member.end, member.term_s = current.end, current.term_s

    def is_confirmed(self, member: Member) -> bool:
        """Return whether the end of a member's lease is known: as it was added, or by a renewal."""
        if member.digest in self.unconfirmed and self.leases[member.digest].holding.is_answered:
            self.unconfirmed.discard(member.digest)
        return member.digest not in self.unconfirmed

    # Changes of its keys.

    def _key(self, suffix: bytes) -> bytes:
        return self.record.key + b"/" + suffix

    def put_member(self, member: Member) -> Put:
        """Write a member."""
        return Put(self._key(stored.member_suffix(member.digest)), stored.member_value(member), 0)

    def delete_member(self, member: Member) -> Delete:
        """Delete a member."""
        return Delete(self._key(stored.member_suffix(member.digest)))

    def put_registration(
        self,
        queue: EventQueue,
        target: EventTarget | None,
        handback: bytes,
        warning: WarningState | None,
        *,
        number: int | None = None,
        dropped: int = 0,
    ) -> Put:
        """Write a registration; by default with the number that its queue has."""
        value = stored.registration_value(
            queue.number if number is None else number, target, handback, warning, dropped
        )
        return Put(self._key(stored.registration_suffix(SetEvent(queue.kind))), value, 0)

    def delete_events(self, queue: EventQueue, up_to: int) -> Delete:
        """Delete the stored events of a queue, up to a number."""
        kind = SetEvent(queue.kind)
        first = self._key(stored.event_suffix(kind, 0))
        return Delete(first, self._key(stored.event_suffix(kind, up_to + 1)))

    def append_event(
        self, queue: EventQueue, payloads: Sequence[bytes], warning: WarningState | None
    ) -> list[Step]:
        """Number events, and store those that the queue will keep."""
        number = queue.number + len(payloads)
        steps: list[Step] = [
            self.put_registration(queue, queue.target, queue.handback, warning, number=number)
        ]
        # A limit that was lowered may be less than what is stored.
        room = 0 if queue.target is None else max(0, queue.max_events - len(queue))
        for place, payload in enumerate(payloads[:room], queue.number + 1):
            suffix = stored.event_suffix(SetEvent(queue.kind), place)
            steps.append(Put(self._key(suffix), stored.event_value(payload), 0))
        return steps

    def departures(self, batch: Sequence[Leaving]) -> tuple[list[Step], list[bytes]]:
        """Delete members that have left; number and store the failures among them."""
        steps: list[Step] = [self.delete_member(member) for member, _, _ in batch]
        payloads = [
            stored.failure_payload(member, error)
            for member, is_failure, error in batch
            if is_failure
        ]
        if payloads:
            steps += self.append_event(self.queues[SetEvent.RENEWAL_FAILURE], payloads, None)
        return steps, payloads
