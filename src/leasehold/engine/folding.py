"""Folding: old batches become rows of keys and leases, and are gone.

What a compaction lets go of need not be kept change by change; what is left of it is one row for
each key and lease. Batches are folded in order, some changes at a time, each time in one
transaction together with the note of how far that went. So a crash at any moment leaves tables and
batches that fit together: the tables are as of `folded` batches and `folded_changes` of the next.
The last one that has changed a key is kept for watches that begin with the compacted revision.

Everything here is for whoever has the connection, mostly the thread that also commits.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import apsw

from leasehold.core.keyspace import Item
from leasehold.engine import records
from leasehold.engine.journal_format import Progress, is_lease_whole, lease_checksum
from leasehold.errors import DamagedJournal
from leasehold.lease_ids import shown_lease
from leasehold.wire.kv_pb2 import KeyValue

CHANGES_AT_ONCE: Final = 1_000
"""Changes folded in one transaction; commits wait for it, some milliseconds."""

ROWS_PER_READ: Final = 4_096
_LEASE_COLUMNS: Final = 5

_parse_pair = KeyValue.FromString


class StoredLease(NamedTuple):
    """A lease as it is in the tables."""

    id: int
    ttl_s: float
    promised_s: float
    holder: str = ""


class _Folded:
    """What a number of changes comes to."""

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes | None] = {}
        self.leases: dict[int, tuple[float, str] | None] = {}
        """Terms and holders of leases that were granted; None for those that ended."""
        self.promises: dict[int, float] = {}

    def take(self, record: records.Record) -> None:
        """Take one change."""
        match record:
            case records.Put(item):
                self.pairs[item[5]] = item[0]
            case records.Deleted(key, _):
                self.pairs[key] = None
            case records.Granted(lease, ttl_s, holder):
                self.leases[lease] = ttl_s, holder
                self.promises[lease] = ttl_s
            case records.Promised(lease, promised_s):
                self.promises[lease] = promised_s
            case records.Ended(lease):
                self.leases[lease] = None
                self.promises.pop(lease, None)

    def write(self, connection: apsw.Connection) -> None:
        """Bring the tables up to date."""
        pairs = sorted(self.pairs.items())
        gone = [(key,) for key, pair in pairs if pair is None]
        kept = [(key, pair, zlib.crc32(pair)) for key, pair in pairs if pair is not None]
        connection.executemany("DELETE FROM pair WHERE key = ?", gone)
        connection.executemany("REPLACE INTO pair VALUES (?, ?, ?)", kept)
        ended = [(lease,) for lease, terms in self.leases.items() if terms is None]
        connection.executemany("DELETE FROM lease WHERE id = ?", ended)
        for lease, promised_s in self.promises.items():
            ttl_s, holder = self.leases.get(lease) or _terms(connection, lease)
            checksum = lease_checksum(lease, ttl_s, promised_s, holder)
            row = (lease, ttl_s, promised_s, checksum, holder)
            connection.execute("REPLACE INTO lease VALUES (?, ?, ?, ?, ?)", row)


def _terms(connection: apsw.Connection, lease: int) -> tuple[float, str]:
    query = "SELECT ttl_s, holder FROM lease WHERE id = ?"
    found: list[Any] = connection.execute(query, (lease,)).fetchall()
    if not found:
        raise DamagedJournal(f"lease {shown_lease(lease)} was never granted; restore a backup")
    ttl_s, holder = found[0]
    return float(ttl_s), str(holder)


class Unfolded(NamedTuple):
    """The batch that is to be folded next."""

    id: int
    first_revision: int
    last_revision: int
    changes: list[records.Record]

    @property
    def has_revisions(self) -> bool:
        """Whether it has changed any key."""
        return self.first_revision <= self.last_revision


def fold(connection: apsw.Connection, progress: Progress, batches: list[Unfolded]) -> Progress:
    """Fold the next batches, or some changes of the first; return how far that came.

    Within a transaction of the caller, who writes down the progress as well.
    """
    folded = _Folded()
    for batch in batches:
        until = progress.folded_changes + CHANGES_AT_ONCE
        for record in batch.changes[progress.folded_changes : until]:
            folded.take(record)
        if until < len(batch.changes):
            progress = progress._replace(folded_changes=until)
            break
        progress = progress._replace(
            folded=batch.id, folded_changes=0, base_revision=batch.last_revision
        )
    folded.write(connection)
    _delete(connection, [batch for batch in batches if batch.id <= progress.folded])
    return progress


def _delete(connection: apsw.Connection, batches: list[Unfolded]) -> None:
    """Delete batches that are folded, but for the last one that has changed a key.

    A watch may begin with its revision. So the one that was kept before goes if there is another.
    """
    if not batches:
        return
    kept = [batch.id for batch in batches if batch.has_revisions]
    first = 0 if kept else batches[0].id
    connection.execute(
        "DELETE FROM batch WHERE id BETWEEN ? AND ? AND id != ?",
        (first, batches[-1].id, kept[-1] if kept else 0),
    )


def read_pairs(connection: apsw.Connection) -> Iterator[Item]:
    """Give the keys that are in the tables, in order, each checked."""
    query = "SELECT key, pair, checksum FROM pair WHERE key > ? ORDER BY key LIMIT ?"
    last = b""  # no key is empty
    more = True
    while more:
        rows: list[Any] = connection.execute(query, (last, ROWS_PER_READ)).fetchall()
        for row in rows:
            yield _checked(row)
            last = row[0]
        more = bool(rows)


def read_pair(connection: apsw.Connection, key: bytes) -> Item | None:
    """Give one key as it is in the tables."""
    query = "SELECT key, pair, checksum FROM pair WHERE key = ?"
    found = connection.execute(query, (key,)).fetchall()
    return _checked(found[0]) if found else None


def _checked(row: Any) -> Item:
    key, encoded, checksum = row
    # A page that was never written reads as rows of NULL, whatever the table says.
    if not isinstance(encoded, bytes) or zlib.crc32(encoded) != checksum:
        raise DamagedJournal(f"key {key!r} has the wrong checksum")
    pair = _parse_pair(encoded)
    if pair.key != key:
        raise DamagedJournal(f"key {key!r} has what belongs to {pair.key!r}")
    return records.item_of(encoded, pair)


def read_leases(connection: apsw.Connection) -> Iterator[StoredLease]:
    """Give the leases that are in the tables, each checked."""
    found: list[Any] = connection.execute("SELECT * FROM lease").fetchall()
    if found and len(found[0]) < _LEASE_COLUMNS:
        found = [(*row, "") for row in found]  # the first formats had no holders
    for lease, ttl_s, promised_s, checksum, holder in found:
        if not is_lease_whole(lease, ttl_s, promised_s, holder, checksum=checksum):
            raise DamagedJournal(f"lease {shown_lease(lease)} has the wrong checksum")
        yield StoredLease(lease, ttl_s, promised_s, holder)
