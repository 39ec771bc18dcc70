"""The leases of a store: the lease core, wired to the event loop.

A lease's term begins when its grant is answered, which is when it is on disk; until then it does
not age. Lease time is brought up to date by `enter`, which comes first on each entry from the event
loop. Whether a lease expires or is revoked, `on_ended` is called, and the store deletes its keys.

A restart must not cut a term short, nor may leases live for ever because of restarts. So the
journal records for each lease how long it runs at least after a crash (`promised_s`): its whole
term, or after a *checkpoint* what was left then. Renewals touch memory only, unless they promise
more than that: then `on_promise` records it, and the answer waits for the disk. That is so for the
first renewal after a checkpoint, and for the first after a crash (`journal.remaining_terms`).
Leases are checkpointed only after they have gone unrenewed for most of their term, and while enough
of it remains that a slow disk does not end them.
"""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from math import ceil
from operator import itemgetter
from struct import Struct
from typing import Any, Final, NoReturn, TypeVar

from leasehold.basics.durations import FOREVER, NEVER
from leasehold.basics.histogram import Histogram
from leasehold.basics.lease_ids import shown_lease
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import Closed, EndReason, LeaseExists, UnknownLease
from leasehold.journal.remaining_terms import Entry
from leasehold.keyspace.keyspace import Item
from leasehold.keyspace.ranges import SLICE, Wanted, sort_steps
from leasehold.leases.expiry_strategies import exact
from leasehold.leases.lease_clock import LeaseClock
from leasehold.leases.lease_table import LeasedResource, LeaseTable
from leasehold.leases.policies import DurationPolicy
from leasehold.store.lease_record import UNRENEWED, LeaseRecord

MAX_KEYS: Final = 100_000
"""Keys that may be attached to one lease."""

CHECKPOINT_TERM_S: Final = 900.0
"""Leases of shorter terms are not checkpointed."""

CHECKPOINT_PART: Final = 2 / 3
"""A lease is checkpointed when it has gone unrenewed for this part of its term. Holders that renew
in time cause no checkpoint."""

CHECKPOINT_LEFT_S: Final = 270.0
"""Only leases with more than this remaining are checkpointed.

It is less than the rest of the shortest such term, 300 s, because a look comes late: a round of
housekeeping, and more on a busy server.
"""

LATENESS_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
"""Histogram bounds: how long after its deadline a lease ended. etcd looks every half second."""

_REST_PART: Final = 1 - CHECKPOINT_PART

logger = logging.getLogger(__name__)

T = TypeVar("T")

_POSITIVE: Final = (1 << 63) - 1
_IDS_PER_STEP: Final = 256
_IDS: Final = Struct(f"{_IDS_PER_STEP}Q")


class LeaseTally:
    """How often leases of one store were granted, renewed and ended since it was opened."""

    __slots__ = ("granted", "lateness_s", "renewed", "revoked")

    def __init__(self) -> None:
        self.granted = 0
        self.renewed = 0
        self.revoked = 0
        self.lateness_s = Histogram(LATENESS_BOUNDS_S)
        """How long after their deadlines leases expired."""

    @property
    def expired(self) -> int:
        """How many leases have expired."""
        return self.lateness_s.count

    def ended(self, reason: EndReason, late_s: float) -> None:
        """Count an end."""
        if reason is EndReason.EXPIRED:
            self.lateness_s.observe(late_s)
        else:
            self.revoked += 1


class StoreLeases:
    """Grants, renews and ends the leases of one store."""

    def __init__(
        self,
        on_ended: Callable[[LeaseRecord, EndReason], None],
        on_promise: Callable[[LeaseRecord], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._on_ended = on_ended
        self._on_promise = on_promise
        self._long: dict[int, int] = {}
        """Leases of long terms, and the second of lease time at which each is to be looked at."""
        self._long_by_second: dict[int, set[int]] = {}
        """The same leases by that second: a grant costs less than with a heap."""
        self._long_second = 0
        """All earlier seconds have been processed."""
        self.max_keys = MAX_KEYS
        """Keys that may be attached to one lease, from now on."""
        self.monotonic = clock.monotonic
        self.table: LeaseTable[LeaseRecord] = LeaseTable(
            DurationPolicy(maximum=FOREVER, default=FOREVER),
            LeaseClock(NEVER),  # lease time starts with `start`
            self._on_placed,
        )
        self.on_renewed: Callable[[LeaseRecord], None] | None = None
        """Called on each renewal, if there are watchers of renewals."""
        self._reaper = exact().reaper_for(self)
        self._spare_ids: list[int] = []
        self.unrenewed = 0
        """Leases that have not been renewed since a crash."""
        self.tally = LeaseTally()
        self.enter = self._reaper.enter

    def __len__(self) -> int:
        return len(self.table)

    def restore(
        self,
        records: Iterable[LeaseRecord],
        left_s: Mapping[int, float],
        unrenewed: Sequence[Entry],
    ) -> None:
        """Add leases of the last run, with the remaining term that each has from `start` on.

        The first renewal of those that are `unrenewed` is recorded before it is answered.
        """
        found = list(records)
        self.table.restore((record.id, record, record.ttl_s, left_s[record.id]) for record in found)
        for lease, _ in unrenewed:
            leased = self.table.find(lease)
            assert leased is not None
            leased.resource.promised_s = UNRENEWED
        self.unrenewed = len(unrenewed)
        for record in found:
            if record.promised_s != UNRENEWED:
                self._watch_long(record, left_s[record.id])

    def start(self) -> None:
        """Start lease time, on the running event loop: until now it stood still."""
        self.table.clock.start(self.monotonic())
        self._reaper.prepare()
        self.enter()

    def grant(self, lease: int, ttl_s: float, holder: str = "") -> LeasedResource[LeaseRecord]:
        """Grant a lease whose term begins when it is `answered`; for id 0 an id is chosen."""
        if lease == 0:
            lease = self._free_id()
        elif self.is_live(lease):
            raise LeaseExists(lease)
        record = LeaseRecord(lease, ttl_s, holder=holder)
        leased, _ = self.table.grant(lease, record, ttl_s, pending=True)
        self.tally.granted += 1
        self._watch_long(record, ttl_s)
        return leased

    def _watch_long(self, record: LeaseRecord, left_s: float) -> None:
        """Schedule a look at a lease of a long term for when most of it may have gone unrenewed."""
        if CHECKPOINT_TERM_S <= record.ttl_s < NEVER:
            if record.id in self._long:  # since the start: it was checkpointed before
                self._unwatch_long(record.id)
            self._look_at(record.id, self.table.clock.now + left_s - record.ttl_s * _REST_PART)

    def _look_at(self, lease: int, at: float) -> None:
        second = ceil(at)
        if second < self._long_second:
            second = self._long_second
        self._long[lease] = second
        try:
            self._long_by_second[second].add(lease)
        except KeyError:
            self._long_by_second[second] = {lease}

    def _unwatch_long(self, lease: int) -> None:
        second = self._long.pop(lease, None)
        if second is not None:
            leases = self._long_by_second[second]
            leases.remove(lease)
            if not leases:
                del self._long_by_second[second]

    def checkpoint(self, budget: int) -> bool:
        """Look at the leases of long terms that are due for it; return True if there are more.

        Those that have gone unrenewed for most of their term get less promised for the next start,
        and are looked at again once they are renewed.
        """
        now = self.table.clock.now
        while self._long_second <= now:
            leases = self._long_by_second.get(self._long_second)
            if leases is None:
                self._long_second += 1
                continue
            if budget == 0:
                return True
            budget -= 1
            lease = next(iter(leases))
            self._unwatch_long(lease)
            self._checkpoint(lease, now)
        return False

    def _checkpoint(self, lease: int, now: float) -> None:
        leased = self.table.find(lease)
        assert leased is not None, "a lease that has ended is not looked at"
        term_s = leased.resource.ttl_s
        unrenewed_at = leased.deadline - term_s * _REST_PART
        if unrenewed_at <= now:
            self._promise_less(leased)
        elif unrenewed_at < NEVER:
            self._look_at(lease, unrenewed_at)
        else:  # its term has not begun yet
            self._look_at(lease, now + term_s * CHECKPOINT_PART)

    def remaining(self) -> Generator[Wanted, list[Item], tuple[list[Entry], int]]:
        """List, in slices and after `close`, the remaining terms, and count the unrenewed leases.

        The unrenewed ones come first.
        """
        unrenewed: list[Entry] = []
        renewed: list[Entry] = []
        for count, leased in enumerate(list(self.table), 1):
            if leased.deadline != NEVER:
                record = leased.resource
                entry = record.id, self.left_s(leased)
                (unrenewed if record.promised_s == UNRENEWED else renewed).append(entry)
            if not count % SLICE:
                yield []
        return unrenewed + renewed, len(unrenewed)

    def _promise_less(self, leased: LeasedResource[LeaseRecord]) -> None:
        record = leased.resource
        left_s = leased.deadline - self.table.clock.now
        if CHECKPOINT_LEFT_S < left_s < record.promised_s:
            record.promised_s = left_s
            self._on_promise(record)

    def _free_id(self) -> int:
        """Return a random unused id. Ids are drawn many at a time: the system call is slow."""
        while True:
            if not self._spare_ids:
                self._spare_ids = list(_IDS.unpack(os.urandom(_IDS.size)))
            lease = self._spare_ids.pop() & _POSITIVE
            if lease and lease not in self.table:
                return lease

    def is_live(self, lease: int) -> bool:
        """Return whether a lease is alive; the expiry step runs for it first."""
        leased = self.table.find(lease)
        return leased is not None and self.expire_one(leased)

    def answered(self, granted: Iterable[LeasedResource[LeaseRecord]]) -> None:
        """Begin the terms of these leases, except those that have ended already."""
        for leased in granted:
            self.table.begin(leased)

    def current(self, lease: int) -> LeaseRecord:
        """Return a live lease, or raise `UnknownLease`."""
        return self._current(lease).resource

    def taker(self, lease: int, key: bytes) -> LeaseRecord | None:
        """Return the live lease to attach a key to; None if the key is attached to it already."""
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
        journal promises less, `on_promise` is called; then the answer has to wait for the disk.
        """
        leased = self.table.repeat(lease)
        if leased is None:
            leased = self._current(lease)
            if not leased.pending:
                self.table.renew(lease, leased.resource.ttl_s)
        self.tally.renewed += 1
        record = leased.resource
        if record.promised_s < record.ttl_s:
            if record.promised_s == UNRENEWED:
                self.unrenewed -= 1
            record.promised_s = record.ttl_s
            self._on_promise(record)
            self._watch_long(record, record.ttl_s)
        if self.on_renewed is not None:
            self.on_renewed(record)
        return record

    def renew_all(self, leases: Sequence[int], ttl_s: float) -> dict[int, float | UnknownLease]:
        """`renew` for many leases; return, by index, those whose term is not `ttl_s`.

        Their values are their terms, or the errors with which they could not be renewed.
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
        """How long a live lease has to run: its whole term if that has not begun."""
        return self.left_s(self._current(lease))

    def left_s(self, leased: LeasedResource[LeaseRecord]) -> float:
        """How long a lease in the table has to run: its whole term if that has not begun."""
        if leased.deadline == NEVER:
            return leased.term_s
        return max(0.0, leased.deadline - self.table.clock.now)

    def listed(
        self, make: Callable[[LeaseRecord, float], T]
    ) -> Generator[Wanted, list[Item], list[tuple[float, T]]]:
        """Return all present leases in slices, sorted by their ends.

        Each as its remaining time and the result of `make`.
        """
        found: list[tuple[float, T]] = []
        for count, leased in enumerate(list(self.table), 1):
            left_s = self.left_s(leased)
            found.append((left_s, make(leased.resource, left_s)))
            if not count % SLICE:
                yield []
        return (yield from sort_steps(found, itemgetter(0)))

    def revoke(self, lease: int) -> None:
        """End a lease now, or raise `UnknownLease`."""
        try:
            self.table.cancel(lease)
        finally:
            self._deliver()

    def detach(self, key: bytes, lease: int) -> None:
        """Detach a key from a lease, whether that is due to end or not."""
        leased = self.table.find(lease)
        if leased is not None:
            leased.resource.detach(key)

    def close(self) -> None:
        """Stop lease time: from now on no lease ends or is renewed."""
        self._reaper.close()
        self.table.clock.stop()
        self.renew = _refuse  # type: ignore[method-assign,assignment]
        self.renew_all = _refuse  # type: ignore[method-assign,assignment]

    # Called by the reaper.

    def reap(self, budget: int) -> bool:
        """Run the expiry step, bounded; return True if more may be due."""
        more = self.table.expire(budget)
        self._deliver()
        return more

    def expire_one(self, leased: LeasedResource[LeaseRecord]) -> bool:
        """Run the expiry step for one live lease; return True if it stays alive."""
        alive = self.table.settle(leased)
        self._deliver()
        return alive

    def _on_placed(self, leased: LeasedResource[LeaseRecord]) -> None:
        """Notify the reaper, unless it looks in time anyway, on the loop that we never leave."""
        if self._reaper.needs_earlier_timer(leased):
            self._reaper.placed(leased)

    def _deliver(self) -> None:
        ended = self.table.ended
        logs = bool(ended) and logger.isEnabledFor(logging.DEBUG)
        while ended:
            leased, reason, late_s = ended.popleft()
            self.tally.ended(reason, late_s)
            self._reaper.removed(leased)
            record = leased.resource
            if record.promised_s == UNRENEWED:
                self.unrenewed -= 1
            if self._long:
                self._unwatch_long(record.id)
            if logs and reason is EndReason.EXPIRED:
                shown = shown_lease(record.id)
                logger.debug("lease %s expired, %.3f s after its deadline", shown, late_s)
            self._on_ended(record, reason)


def _refuse(*_: Any) -> NoReturn:
    """Refuse to renew after the end: the remaining terms were recorded, and would be extended."""
    raise Closed("the engine was closed")
