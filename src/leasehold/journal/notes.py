"""Notes: small facts about a server that belong to no revision, such as its alarms.

A journal has a table for them from the first note on. An older release without notes ignores that
table, so they do not change the format of a journal.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import apsw

from leasehold.errors import DamagedJournal
from leasehold.journal.journal_rows import damage
from leasehold.journal.remaining_terms import NAME, Entry, Header, Remaining, parts, read_remaining

_IS_THERE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'note'"
_MAKE: Final = """
    CREATE TABLE IF NOT EXISTS note (
        name TEXT PRIMARY KEY,
        value BLOB NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
"""


def read_notes(connection: apsw.Connection, path: Path) -> dict[str, bytes]:
    """Return all notes by name, each checked."""
    if connection.execute(_IS_THERE).get is None:
        return {}
    found: list[Any] = connection.execute("SELECT name, value, checksum FROM note").fetchall()
    for name, value, checksum in found:
        if not isinstance(value, bytes) or _checksum(str(name), value) != checksum:
            raise DamagedJournal(damage(path, f"the note {name!r} has the wrong checksum"))
    return {name: value for name, value, _ in found}


def read_list(notes: dict[str, bytes], term: int, path: Path) -> Remaining | None:
    """Return the valid list of remaining terms, if there is one: see `journal.remaining_terms`."""
    try:
        return read_remaining(notes, term)
    except DamagedJournal as error:
        raise DamagedJournal(damage(path, str(error))) from error


def write_note(connection: apsw.Connection, name: str, value: bytes) -> None:
    """Write a note, replacing the last one of this name; it is on disk when this returns."""
    with connection:
        write_notes(connection, [(name, value)])


def write_notes(connection: apsw.Connection, notes: Iterable[tuple[str, bytes]]) -> None:
    """Write several notes, within a transaction of the caller."""
    for name, value in notes:
        connection.execute(_MAKE)
        row = (name, value, _checksum(name, value))
        connection.execute("REPLACE INTO note VALUES (?, ?, ?)", row)


def delete_notes(connection: apsw.Connection, name: str) -> None:
    """Delete a note and those below it (`name/...`), within a transaction of the caller."""
    if connection.execute(_IS_THERE).get is not None:
        query = "DELETE FROM note WHERE name = ? OR name GLOB ?"
        connection.execute(query, (name, f"{name}/*"))


def begin_list(
    connection: apsw.Connection, entries: list[Entry], term: int, batches: int
) -> Header | None:
    """Replace any list, and a clean mark, by a start's list of unrenewed leases.

    With no entries there is no list. Within a transaction of the caller.
    """
    header = Header(False, term, batches, len(entries), len(entries)) if entries else None
    delete_notes(connection, NAME)
    write_notes(connection, parts(entries, is_clean=False))
    if header is not None:
        write_notes(connection, [(NAME, header.pack())])
    return header


def forget_notes(connection: apsw.Connection) -> None:
    """Delete all notes: the journal becomes that of another cluster."""
    connection.execute("DROP TABLE IF EXISTS note")


def _checksum(name: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(name.encode(errors="replace")))
