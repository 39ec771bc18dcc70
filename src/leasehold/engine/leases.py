"""The leases of a store: the lease core, wired to the event loop.

A lease's term begins when its grant is answered, which is when it is on disk; until then it does
not age. Lease time is brought up to date by `enter`, which comes first on each entry from the event
loop. Whether a lease expires or is revoked, the store learns of its end in the same way, through
`on_ended`, and takes the keys with it.

A restart must not cut a term short, nor may leases live for ever because of restarts. So the
journal knows of each lease how long it has to run at least, counted from the next start
(`promised_s`): its whole term, or after a *checkpoint* what was left then. Renewals touch memory
only, unless they promise more than the journal knows: then `on_promise` has it written down, and
the answer waits for that. Only leases with a good while left are checkpointed, so such a wait costs
nobody a lease.
"""

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from operator import itemgetter
from struct import Struct
from typing import Final, TypeVar

from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core.duration import FOREVER, NEVER
from leasehold.core.keyspace import Item
from leasehold.core.lease_clock import LeaseClock
from leasehold.core.ordering import in_order
from leasehold.core.policy import DurationPolicy
from leasehold.core.ranges import SLICE, Wanted, pausing
from leasehold.core.table import LeasedResource, LeaseTable
from leasehold.engine.lease_record import LeaseRecord
from leasehold.engine.lease_tally import LeaseTally
from leasehold.errors import EndReason, LeaseExists, UnknownLease
from leasehold.expiry import exact

MAX_KEYS: Final = 100_000
"""Keys that one lease may take with it."""

CHECKPOINT_LEFT_S: Final = 300.0
"""A lease is checkpointed only while it has more than this to run."""

CHECKPOINT_EVERY_S: Final = 60.0
"""And when so much of what the journal promises has gone by."""

T = TypeVar("T")

_POSITIVE: Final = (1 << 63) - 1
_IDS_AT_ONCE: Final = 256
_IDS: Final = Struct(f"{_IDS_AT_ONCE}Q")


class Leases:
    """Grants, renews and ends the leases of one store."""

    def __init__(
        self,
        on_ended: Callable[[LeaseRecord, EndReason], None],
        on_promise: Callable[[LeaseRecord], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._on_ended = on_ended
        self._on_promise = on_promise
        self._long: dict[int, float] = {}
        """Leases of long terms, and when they are to be looked at; the next one first."""
        self.max_keys = MAX_KEYS
        """Keys that one lease may take with it, from now on."""
        self.monotonic = clock.monotonic
        self.table: LeaseTable[LeaseRecord] = LeaseTable(
            DurationPolicy(maximum=FOREVER, default=FOREVER),
            LeaseClock(NEVER),  # lease time starts with `start`
            self._on_placed,
        )
        self.on_renewed: Callable[[LeaseRecord], None] | None = None
        """Told of each renewal, if anybody wants to know."""
        self._caretaker = exact().attend(self)
        self._spare_ids: list[int] = []
        self.tally = LeaseTally()
        self.enter = self._caretaker.enter

    def __len__(self) -> int:
        return len(self.table)

    def restore(self, records: Iterable[LeaseRecord]) -> None:
        """Take leases from before; their terms begin with `start`."""
        now, found = self.table.clock.now, list(records)
        self._long = {
            record.id: now + CHECKPOINT_EVERY_S
            for record in found
            if record.ttl_s > CHECKPOINT_LEFT_S
        }
        self.table.restore((record.id, record, record.ttl_s, record.promised_s) for record in found)

    def start(self) -> None:
        """Start lease time, on the running event loop: until now it stood still."""
        self.table.clock.start(self.monotonic())
        self._caretaker.prepare()
        self.enter()

    def grant(self, lease: int, ttl_s: float, holder: str = "") -> LeasedResource[LeaseRecord]:
        """Make a lease whose term begins when it is `answered`; for id 0 one is chosen."""
        if lease == 0:
            lease = self._free_id()
        elif self.is_live(lease):
            raise LeaseExists(lease)
        record = LeaseRecord(lease, ttl_s, holder=holder)
        leased, _ = self.table.grant(lease, record, ttl_s, pending=True)
        self.tally.granted += 1
        self._watch_long(record)
        return leased

    def _watch_long(self, record: LeaseRecord) -> None:
        self._long.pop(record.id, None)  # it may be there from another lease of this id
        if record.ttl_s > CHECKPOINT_LEFT_S:
            self._long[record.id] = self.table.clock.now + CHECKPOINT_EVERY_S

    def checkpoint(self, budget: int) -> bool:
        """Look at the leases of long terms whose time it is; True if there are more of them.

        Those that have aged without a renewal get less promised for the next start.
        """
        now = self.table.clock.now
        for lease in [lease for lease, _ in zip(self._long, range(budget), strict=False)]:
            if self._long[lease] > now:
                return False
            leased = self.table.find(lease)
            if leased is None:
                del self._long[lease]
                continue
            self._watch_long(leased.resource)
            self._promise_less(leased)
        return bool(self._long) and next(iter(self._long.values())) <= now

    def checkpoint_all(self) -> Generator[Wanted, list[Item], None]:
        """Checkpoint all leases of long terms, in slices, before a stop."""
        for count, lease in enumerate(list(self._long), 1):
            leased = self.table.find(lease)
            if leased is not None:
                self._promise_less(leased, least_s=1.0)
            if not count % SLICE:
                yield []

    def _promise_less(
        self, leased: LeasedResource[LeaseRecord], least_s: float = CHECKPOINT_EVERY_S
    ) -> None:
        record = leased.resource
        left_s = leased.deadline - self.table.clock.now
        if leased.deadline == NEVER or left_s <= CHECKPOINT_LEFT_S:
            return
        if record.promised_s - left_s >= least_s:
            record.promised_s = left_s
            self._on_promise(record)

    def _free_id(self) -> int:
        """Choose an id: random ones, drawn many at a time because the system's source is far."""
        while True:
            if not self._spare_ids:
                self._spare_ids = list(_IDS.unpack(os.urandom(_IDS.size)))
            lease = self._spare_ids.pop() & _POSITIVE
            if lease and lease not in self.table:
                return lease

    def is_live(self, lease: int) -> bool:
        """Say whether there is this lease; the expiry step runs for it first."""
        leased = self.table.find(lease)
        return leased is not None and self.look(leased)

    def answered(self, granted: Iterable[LeasedResource[LeaseRecord]]) -> None:
        """Let the terms of these leases begin, as far as they have not ended already."""
        for leased in granted:
            self.table.begin(leased)

    def current(self, lease: int) -> LeaseRecord:
        """Return a live lease, or raise `UnknownLease`."""
        return self._current(lease).resource

    def taker(self, lease: int, key: bytes) -> LeaseRecord | None:
        """Return the live lease that is to take a key; None if it has the key already."""
        record = self._current(lease).resource
        if key in record.keys:
            return None
        record.check_room(key, self.max_keys)
        return record

    def _current(self, lease: int) -> LeasedResource[LeaseRecord]:
        try:
            return self.table.current(lease)
        finally:
            if self.table.ended:
                self._deliver()

    def renew(self, lease: int) -> LeaseRecord:
        """Begin a new full term, or raise `UnknownLease`.

        A lease that is not answered yet stays as it is: its whole term is still to come. If the
        journal promises less, the store is told; then the answer has to wait for the disk.
        """
        leased = self.table.repeat(lease)
        if leased is None:
            leased = self._current(lease)
            if not leased.pending:
                self.table.renew(lease, leased.resource.ttl_s)
        self.tally.renewed += 1
        record = leased.resource
        if record.promised_s < record.ttl_s:
            record.promised_s = record.ttl_s
            self._on_promise(record)
        if self.on_renewed is not None:
            self.on_renewed(record)
        return record

    def renew_all(self, leases: Sequence[int], ttl_s: float) -> dict[int, float | UnknownLease]:
        """`renew` for many leases; say of which ones the term is not `ttl_s`, by their places.

        Those are given with their terms, or with the reason why they could not be renewed.
        """
        exceptions: dict[int, float | UnknownLease] = {}
        is_quiet = self.on_renewed is None
        by_itself = 0
        for place, leased in enumerate(self.table.repeat_all(leases)):
            if leased is not None and is_quiet:
                record = leased.resource
                if record.ttl_s == ttl_s <= record.promised_s:
                    continue  # almost always
            by_itself += 1
            try:
                renewed_s = self.renew(leases[place]).ttl_s
            except UnknownLease as error:
                exceptions[place] = error
                continue
            if renewed_s != ttl_s:
                exceptions[place] = renewed_s
        self.tally.renewed += len(leases) - by_itself
        return exceptions

    def remaining_s(self, lease: int) -> float:
        """How long a live lease has to run: its whole term while that has not begun."""
        return self.left_s(self._current(lease))

    def left_s(self, leased: LeasedResource[LeaseRecord]) -> float:
        """How long a lease in the table has to run: its whole term while that has not begun."""
        if leased.deadline == NEVER:
            return leased.term_s
        return max(0.0, leased.deadline - self.table.clock.now)

    def listed(
        self, make: Callable[[LeaseRecord, float], T]
    ) -> Generator[Wanted, list[Item], list[tuple[float, T]]]:
        """Give all leases that there are now, those first that end first, in slices.

        Each with how long it has to run, and as what `make` makes of it.
        """
        found: list[tuple[float, T]] = []
        for count, leased in enumerate(list(self.table), 1):
            left_s = self.left_s(leased)
            found.append((left_s, make(leased.resource, left_s)))
            if not count % SLICE:
                yield []
        return (yield from pausing(in_order(found, itemgetter(0), SLICE)))

    def revoke(self, lease: int) -> None:
        """End a lease now, or raise `UnknownLease`."""
        try:
            self.table.cancel(lease)
        finally:
            self._deliver()

    def detach(self, key: bytes, lease: int) -> None:
        """Take a key from a lease, whether that is due to end or not."""
        leased = self.table.find(lease)
        if leased is not None:
            leased.resource.detach(key)

    def close(self) -> None:
        """End nothing any more."""
        self._caretaker.close()

    # What the caretaker calls.

    def reap(self, budget: int) -> bool:
        """Run the expiry step, bounded; True if more may be due."""
        more = self.table.expire(budget)
        self._deliver()
        return more

    def look(self, leased: LeasedResource[LeaseRecord]) -> bool:
        """Run the expiry step for one live lease; True if it stays alive."""
        alive = self.table.settle(leased)
        self._deliver()
        return alive

    def _on_placed(self, leased: LeasedResource[LeaseRecord]) -> None:
        """Tell the caretaker, unless it looks in time anyway, on the loop that we never leave."""
        if self._caretaker.must_hear_of(leased):
            self._caretaker.placed(leased)

    def _deliver(self) -> None:
        ended = self.table.ended
        while ended:
            leased, reason, late_s = ended.popleft()
            self.tally.ended(reason, late_s)
            self._caretaker.left(leased)
            self._on_ended(leased.resource, reason)
