"""Who is to be told what happens to leases: granted, renewed, expired, revoked.

There is no history of leases: a watcher is told from now on, and one that takes nothing more misses
what happens meanwhile. It costs nothing to be told of what nobody watches, and those who watch some
leases, or those of a holder, cost the others nothing.

Renewals are far too many to be told of each. They are told of only if somebody wants to know, and
of each lease one in `RENEWED_EVERY_S` at most, the same one to all who want to know.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from enum import IntEnum
from typing import Final, Protocol

from leasehold.engine.lease_record import LeaseRecord
from leasehold.engine.leases import Leases
from leasehold.errors import EndReason

RENEWED_EVERY_S: Final = 10.0
"""How often a watcher is told of the renewals of a lease, at most."""


class Kind(IntEnum):
    """What has happened; the numbers are those of our wire."""

    GRANTED = 0
    RENEWED = 1
    EXPIRED = 2
    REVOKED = 3


class LeaseEvent:
    """Something that has happened to a lease."""

    __slots__ = ("encoded", "keys", "kind", "lease", "revision")

    def __init__(
        self, kind: Kind, lease: LeaseRecord, revision: int, keys: Sequence[bytes] = ()
    ) -> None:
        self.kind = kind
        self.lease = lease
        self.revision = revision
        self.keys = keys
        """Those that went with it, in order."""
        self.encoded = b""
        """As a message, once somebody needed it."""

    def concerns_key_under(self, prefix: bytes) -> bool:
        """Say whether the lease has, or had at its end, a key that begins like this."""
        if self.kind is Kind.RENEWED:
            return any(key.startswith(prefix) for key in self.lease.keys)
        at = bisect_left(self.keys, prefix)
        return at < len(self.keys) and self.keys[at].startswith(prefix)


class LeaseWatcher(Hashable, Protocol):
    """One who watches leases: those named, or those of a holder, or all."""

    leases: frozenset[int]
    holder: str
    key_prefix: bytes
    wants_renewals: bool

    def notify(self, event: LeaseEvent, position: int) -> None:
        """Take an event, or count it as missed; it may be seen when `position` is durable."""
        ...


class _Place(Protocol):
    """What is known of the store that the leases are in."""

    leases: Leases
    durable_revision: int

    @property
    def revision(self) -> int: ...

    def lease_position(self, lease: int) -> int: ...


class LeaseWatchers:
    """All who watch the leases of a store."""

    __slots__ = ("_by_holder", "_by_lease", "_of_all", "_renewals", "_store", "any")

    def __init__(self, store: _Place) -> None:
        self._store = store
        self._by_lease: dict[int, dict[LeaseWatcher, None]] = {}
        self._by_holder: dict[str, dict[LeaseWatcher, None]] = {}
        self._of_all: dict[LeaseWatcher, None] = {}
        self._renewals: dict[LeaseWatcher, None] = {}
        self.any = False
        """Whether anybody watches."""

    def join(self, watcher: LeaseWatcher) -> None:
        """Tell a watcher from now on."""
        for index in self._places(watcher):
            index[watcher] = None
        if watcher.wants_renewals:
            self._renewals[watcher] = None
        self._changed()

    def discard(self, watcher: LeaseWatcher) -> None:
        """Tell a watcher nothing more."""
        for index in self._places(watcher):
            index.pop(watcher, None)
        self._renewals.pop(watcher, None)
        for lease in watcher.leases:
            if not self._by_lease[lease]:
                del self._by_lease[lease]
        if watcher.holder in self._by_holder and not self._by_holder[watcher.holder]:
            del self._by_holder[watcher.holder]
        self._changed()

    def _places(self, watcher: LeaseWatcher) -> list[dict[LeaseWatcher, None]]:
        """Where a watcher is looked up: at the first that it names of leases and holder."""
        if watcher.leases:
            return [self._by_lease.setdefault(lease, {}) for lease in watcher.leases]
        if watcher.holder:
            return [self._by_holder.setdefault(watcher.holder, {})]
        return [self._of_all]

    def _changed(self) -> None:
        self.any = bool(self._by_lease or self._by_holder or self._of_all)
        self._store.leases.on_renewed = self._renewed if self._renewals else None

    # What happens.

    def granted(self, record: LeaseRecord, position: int) -> None:
        """Tell of a new lease."""
        self._publish(LeaseEvent(Kind.GRANTED, record, self._store.revision), position)

    def ended(
        self, record: LeaseRecord, reason: EndReason, keys: Sequence[bytes], position: int
    ) -> None:
        """Tell of a lease that has ended, and of the keys, in order, that went with it."""
        kind = Kind.EXPIRED if reason is EndReason.EXPIRED else Kind.REVOKED
        self._publish(LeaseEvent(kind, record, self._store.revision, keys), position)

    def _renewed(self, record: LeaseRecord) -> None:
        now = self._store.leases.table.clock.now
        if now < record.told_at + RENEWED_EVERY_S:
            return
        watchers = [each for each in self._watching(record) if each.wants_renewals]
        if watchers:
            record.told_at = now
            event = LeaseEvent(Kind.RENEWED, record, self._store.durable_revision)
            self._tell(watchers, event, self._store.lease_position(record.id))

    def _publish(self, event: LeaseEvent, position: int) -> None:
        self._tell(list(self._watching(event.lease)), event, position)

    def _tell(self, watchers: list[LeaseWatcher], event: LeaseEvent, position: int) -> None:
        for watcher in watchers:
            prefix = watcher.key_prefix
            if not prefix or event.concerns_key_under(prefix):
                watcher.notify(event, position)

    def _watching(self, record: LeaseRecord) -> Iterator[LeaseWatcher]:
        yield from self._of_all
        if self._by_holder:
            yield from self._by_holder.get(record.holder, ())
        if self._by_lease:
            for watcher in self._by_lease.get(record.id, ()):
                if not watcher.holder or watcher.holder == record.holder:
                    yield watcher
