"""The file format of a journal: one SQLite database with four tables.

`batch` has a row for each batch of changes since (about) the last compaction: the history. Earlier
changes have been folded into `pair`, a row for each key, and `lease`. `identity` has one row: the
ids of the journal, and its progress. Each row carries a checksum of its own, because SQLite checks
what it writes to its log but not what it later reads back. The number of batches as of the last
checkpoint is recorded, so that a missing one at the end is detected.

The file is created whole, as bytes, and only then renamed. So the application id and the version of
the format are in the first page of every journal, and a file that is not ours is recognised by
reading that page, without SQLite, which might change the file just by opening it. A later format
that is converted from this one has to be checkpointed before anything else is written. The first
page also declares that the database has a write-ahead log, so that SQLite never converts it: the
rollback journal of that one change might come back after a power cut, and undo later changes.
"""

import secrets
import struct
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from leasehold.errors import ForeignJournal
from leasehold.journal.database_file import HEADER_BYTES
from leasehold.keyspace.keyspace import FIRST_REVISION, NEVER_COMPACTED

APPLICATION_ID: Final = 0x4C454153  # "LEAS"
FORMAT_VERSION: Final = 3
WITHOUT_HOLDERS: Final = 2
"""A format that is still read, and converted when a journal is opened for writing."""
PAGE_BYTES: Final = 4096

AUTO_VACUUM: Final = 2
"""Incrementally: SQLite records the owner of each page, so that a file can be shrunk."""

FULL_SYNCS: Final = "PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON"
"""On macOS SQLite then syncs through the cache of the drive (`data_dir.sync_file`)."""

_MAGIC: Final = b"SQLite format 3\x00"
_FILE_FORMAT_AT: Final = 18
_WITH_LOG: Final = b"\x02\x02"  # to be written, and to be read, with a write-ahead log
_USER_VERSION_AT: Final = 60
_APPLICATION_ID_AT: Final = 68

_pack_terms: Final = struct.Struct("<qdd").pack

SCHEMA: Final = """
    CREATE TABLE batch (
        id INTEGER PRIMARY KEY,
        first_revision INTEGER NOT NULL,
        last_revision INTEGER NOT NULL,
        changes BLOB NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE pair (
        key BLOB PRIMARY KEY,
        pair BLOB NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE lease (
        id INTEGER PRIMARY KEY,
        ttl_s REAL NOT NULL,
        promised_s REAL NOT NULL,
        checksum INTEGER NOT NULL,
        holder TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE TABLE identity (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        cluster_id BLOB NOT NULL,
        member_id BLOB NOT NULL,
        term INTEGER NOT NULL,
        batches INTEGER NOT NULL,
        folded INTEGER NOT NULL,
        folded_changes INTEGER NOT NULL,
        base_revision INTEGER NOT NULL,
        compacted INTEGER NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT;
"""


READ_IDENTITY: Final = (
    "SELECT cluster_id, member_id, term, batches, folded, folded_changes, base_revision, compacted,"
    " checksum FROM identity"
)
WRITE_IDENTITY: Final = "REPLACE INTO identity VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Identity(NamedTuple):
    """The ids of a journal, and how often it was opened."""

    cluster_id: int
    member_id: int
    term: int


class Progress(NamedTuple):
    """The progress of a journal."""

    batches: int = 0
    """The last batch that certainly exists."""
    folded: int = 0
    """The last batch that was folded into the tables of keys and leases, and deleted."""
    folded_changes: int = 0
    """How many changes of the next one are folded in already."""
    base_revision: int = FIRST_REVISION
    """The revision of the last batch that was folded in."""
    compacted: int = NEVER_COMPACTED
    """The compaction up to which batches were folded in."""


def new_identity() -> Identity:
    """Return random ids for a journal that was never opened."""
    return Identity(_random_id(), _random_id(), 0)


def _random_id() -> int:
    return secrets.randbelow(2**64 - 1) + 1


def batch_checksum(first_revision: int, last_revision: int, changes: bytes) -> int:
    """Return the checksum of a batch."""
    return zlib.crc32(changes, zlib.crc32(struct.pack("<qq", first_revision, last_revision)))


def lease_checksum(lease: int, ttl_s: float, promised_s: float, holder: str = "") -> int:
    """Return the checksum of a lease; without a holder it is that of the format before holders."""
    checksum = zlib.crc32(_pack_terms(lease, ttl_s, promised_s))
    return checksum if holder == "" else zlib.crc32(holder.encode(), checksum)


def pack_identity(identity: Identity, progress: Progress) -> tuple[Any, ...]:
    """Return the row of an identity."""
    cluster_id, member_id, term = identity
    checksum = zlib.crc32(struct.pack("<QQq5q", cluster_id, member_id, term, *progress))
    # As bytes, because SQLite's integers are signed.
    ids = cluster_id.to_bytes(8, "big"), member_id.to_bytes(8, "big")
    return *ids, term, *progress, checksum


def unpack_identity(row: tuple[Any, ...]) -> tuple[Identity, Progress] | None:
    """Return the identity and the progress in a row, or None if its checksum is wrong."""
    try:
        cluster_id, member_id, term, *rest, _ = row
        ids = int.from_bytes(cluster_id, "big"), int.from_bytes(member_id, "big")
        identity, progress = Identity(*ids, term), Progress(*rest)
        as_written = pack_identity(identity, progress)
    except (TypeError, ValueError, OverflowError, struct.error):  # damage may raise any of these
        return None
    return (identity, progress) if row == as_written else None


def is_whole(first_revision: Any, last_revision: Any, changes: Any, checksum: Any) -> bool:
    """Return whether a batch is as it was written."""
    try:
        expected = batch_checksum(first_revision, last_revision, changes)
    except (TypeError, struct.error):  # damage may raise any of these
        return False
    return bool(expected == checksum)


def is_lease_whole(lease: Any, ttl_s: Any, promised_s: Any, holder: Any, *, checksum: Any) -> bool:
    """Return whether a lease is as it was written."""
    try:
        expected = lease_checksum(lease, ttl_s, promised_s, holder)
    except (AttributeError, TypeError, UnicodeError, struct.error):  # damage may raise any
        return False
    return bool(expected == checksum)


def empty_journal() -> bytes:
    """Return the content of a journal that was never opened, with ids of its own."""
    connection = apsw.Connection(":memory:")
    try:
        make_tables(connection)
        content = connection.serialize("main")
    finally:
        connection.close()
    return content[:_FILE_FORMAT_AT] + _WITH_LOG + content[_FILE_FORMAT_AT + len(_WITH_LOG) :]


def make_tables(connection: apsw.Connection) -> None:
    """Turn an empty database into a journal that was never opened."""
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute(f"PRAGMA auto_vacuum={AUTO_VACUUM}")  # before there is any table
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
    connection.execute(SCHEMA)
    connection.execute(WRITE_IDENTITY, pack_identity(new_identity(), Progress()))


def bring_up_to_date(connection: apsw.Connection, header_version: int) -> None:
    """Convert a journal of an older format to this format, its first page included.

    `header_version` is what `check_header` returned before SQLite opened the file. An earlier start
    may have converted the journal in the log only: then the first page still has the old version.
    """
    if header_version == FORMAT_VERSION:
        return
    if read_version(connection) == WITHOUT_HOLDERS:
        with connection:
            connection.execute("ALTER TABLE lease ADD COLUMN holder TEXT NOT NULL DEFAULT ''")
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def read_version(connection: apsw.Connection) -> int:
    """Return the format of an open journal: its log may be newer than its first page."""
    return int(connection.pragma("user_version"))


def check_header(path: Path, header: bytes) -> int:
    """Return the format version in the header of a file; raise if it is not a journal of ours."""
    if len(header) < HEADER_BYTES or not header.startswith(_MAGIC):
        raise ForeignJournal(
            f"{path} is not a journal, because it is not a SQLite database: "
            "move it away, or choose another directory"
        )
    application_id, version = (
        int.from_bytes(header[at : at + 4], "big") for at in (_APPLICATION_ID_AT, _USER_VERSION_AT)
    )
    if application_id != APPLICATION_ID:
        raise ForeignJournal(
            f"{path} belongs to another program (its application id is {application_id:#010x}, "
            f"ours is {APPLICATION_ID:#010x}): choose another directory"
        )
    if version not in (WITHOUT_HOLDERS, FORMAT_VERSION):
        raise ForeignJournal(
            f"{path} has format {version}, this release reads format {FORMAT_VERSION}: "
            "use the release that wrote it, or a newer one"
        )
    return version
