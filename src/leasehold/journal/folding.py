"""Compaction of a journal: old batches are folded into tables, and free space is returned.

*Folding* turns old batches into rows of keys and leases, and deletes them.

Changes before a compaction need not be kept one by one; one row for each key and lease remains.
Batches are folded in order, some changes at a time, each time in one transaction together with the
progress. So a crash at any moment leaves tables and batches that fit together: the tables are as of
`folded` batches and `folded_changes` of the next. The last batch that has changed a key is kept for
watches that begin with the compacted revision.

*Shrinking* returns free space to the file system. Folding leaves free pages all over the file,
which later changes use again; the file itself gets no shorter. Shrinking moves pages from its end
to free places, some at a time, with commits in between, and without a second copy of the data. The
file is truncated at the next checkpoint.

All functions here are for the owner of the connection, mostly the thread that also commits.
"""

import time
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import apsw

from leasehold.basics.lease_ids import shown_lease
from leasehold.errors import DamagedJournal
from leasehold.journal import records
from leasehold.journal.journal_format import AUTO_VACUUM, Progress, is_lease_whole, lease_checksum
from leasehold.keyspace.keyspace import Item
from leasehold.wire.kv_pb2 import KeyValue

CHANGES_PER_STEP: Final = 1_000
"""Changes folded in one transaction; commits wait for it, some milliseconds."""

ROWS_PER_READ: Final = 4_096
_LEASE_COLUMNS: Final = 5

PAGES_PER_CLOCK_READ: Final = 64
"""Pages moved between two readings of the clock."""

SHRINK_S: Final = 0.005
"""How long a commit may have to wait for pages that are being moved."""


_parse_pair = KeyValue.FromString


class StoredLease(NamedTuple):
    """A lease as it is in the tables."""

    id: int
    ttl_s: float
    promised_s: float
    holder: str = ""


class _Folded:
    """The combined effect of a number of changes."""

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes | None] = {}
        self.leases: dict[int, tuple[float, str] | None] = {}
        """Terms and holders of leases that were granted; None for those that ended."""
        self.promises: dict[int, float] = {}

    def take(self, record: records.Record) -> None:
        """Add one change."""
        match record:
            case records.PutRecord(item):
                self.pairs[item[5]] = item[0]
            case records.DeletedRecord(key, _):
                self.pairs[key] = None
            case records.GrantedRecord(lease, ttl_s, holder):
                self.leases[lease] = ttl_s, holder
                self.promises[lease] = ttl_s
            case records.PromisedRecord(lease, promised_s):
                self.promises[lease] = promised_s
            case records.EndedRecord(lease):
                self.leases[lease] = None
                self.promises.pop(lease, None)

    def write(self, connection: apsw.Connection) -> None:
        """Update the tables."""
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
        raise DamagedJournal(f"lease {shown_lease(lease)} has no grant; restore a backup")
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
    """Fold the next batches, or some changes of the first; return the new progress.

    Within a transaction of the caller, which writes the progress as well.
    """
    folded = _Folded()
    for batch in batches:
        until = progress.folded_changes + CHANGES_PER_STEP
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
    """Delete batches that are folded, except the last one that has changed a key.

    A watch may begin with its revision. The one kept before is deleted if there is a later one.
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
    """Return the keys in the tables, in order, each checked."""
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
    """Return one key as it is in the tables."""
    query = "SELECT key, pair, checksum FROM pair WHERE key = ?"
    found = connection.execute(query, (key,)).fetchall()
    return _checked(found[0]) if found else None


def _checked(row: Any) -> Item:
    key, encoded, checksum = row
    # A page that was never written reads as rows of NULL, whatever the table's schema.
    if not isinstance(encoded, bytes) or zlib.crc32(encoded) != checksum:
        raise DamagedJournal(f"key {key!r} has the wrong checksum")
    pair = _parse_pair(encoded)
    if pair.key != key:
        raise DamagedJournal(f"the row of key {key!r} contains key {pair.key!r}")
    return records.item_of(encoded, pair)


def read_leases(connection: apsw.Connection) -> Iterator[StoredLease]:
    """Return the leases in the tables, each checked."""
    found: list[Any] = connection.execute("SELECT * FROM lease").fetchall()
    if found and len(found[0]) < _LEASE_COLUMNS:
        found = [(*row, "") for row in found]  # the first formats had no holders
    for lease, ttl_s, promised_s, checksum, holder in found:
        if not is_lease_whole(lease, ttl_s, promised_s, holder, checksum=checksum):
            raise DamagedJournal(f"lease {shown_lease(lease)} has the wrong checksum")
        yield StoredLease(lease, ttl_s, promised_s, holder)


# Shrinking.


def free_pages(connection: apsw.Connection) -> int:
    """Return the number of pages that could be freed; 0 in a file that is not prepared for that."""
    if connection.pragma("auto_vacuum") != AUTO_VACUUM:
        return 0
    return int(connection.pragma("freelist_count"))


def shrink(connection: apsw.Connection) -> int | None:
    """Free some pages, in one transaction; return how many are left.

    None if the record of page owners is damaged: it has no other use, so nothing is lost.
    """
    until = time.perf_counter() + SHRINK_S
    left = free_pages(connection)
    try:
        with connection:
            while left and time.perf_counter() < until:
                # Its rows are the pages: it stops once no more rows are fetched.
                connection.execute(f"PRAGMA incremental_vacuum({PAGES_PER_CLOCK_READ})").fetchall()
                left = free_pages(connection)
    except apsw.CorruptError:
        return None
    return left
