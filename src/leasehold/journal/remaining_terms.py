"""The remaining terms of leases over a restart: the lists that a start and a clean stop write.

Durable state. Each lease has a record in the journal with the minimum time it runs after a restart:
its term, or less after a checkpoint. Beside it there is at most one valid list, kept in notes, of
what some leases had left when `batches` batches were on disk, and how much lease time has passed
since (`elapsed_s`). For a lease in the list, a later record takes precedence.

    clean stop  lists every lease and marks the list as clean. The mark is the last write.
    start       finds the clean mark: leases continue with what they had left, and renewals need no
                disk, because the same write that raises the server's term removes the mark, and
                with it the list. Only leases that have not been renewed since an earlier crash
                stay listed.
                finds no mark: every lease has the time of its record or the list, and is listed as
                not renewed since. The first renewal of such a lease is recorded before it is
                answered. From time to time the start's list is charged with the lease time that
                has passed (`elapsed_s`).

Two invariants follow. No lease ends earlier than promised to its holder: every answer since the
list is in a later record, or was given while no list named the lease, so that its record has the
full term. And an abandoned lease gets one further term in all: after the first crash it stays in a
list until it ends, and its time in the list only goes down, whatever crashes and clean stops
follow. How much of the elapsed time a crash may lose is bounded by how often it is noted.

A list carries the server's term at which it was written. Every start raises the term, also that of
an older release, which ignores notes: a list is not valid after another process has served. A
restored backup has no notes, hence no list. No clock but lease time takes part.
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct, error, unpack
from struct import pack as pack_values
from typing import TYPE_CHECKING, Final, NamedTuple

from leasehold.errors import DamagedJournal
from leasehold.journal.records import GrantedRecord, PromisedRecord

if TYPE_CHECKING:
    from leasehold.journal.folding import Unfolded  # at run time it would import apsw for clients

NAME: Final = "leases"
"""The note that describes the valid list. Notes of its parts begin with this name, too."""

PART_LEASES: Final = 50_000
"""Leases in one note: a stop writes them one by one, with other work between."""

_VERSION: Final = 1
_HEADER: Final = Struct("<BBqqqqd")
_ENTRY_BYTES: Final = 16
_PART_NAMES: Final = {True: f"{NAME}/stop/", False: f"{NAME}/start/"}
_RENEWED: Final = f"{NAME}/renewed/"

Entry = tuple[int, float]
"""A lease, and its remaining seconds."""


class Header(NamedTuple):
    """The header of a list."""

    is_clean: bool
    term: int
    batches: int
    """Records in later batches override the list."""
    leases: int
    unrenewed: int
    """How many of the leases, from the first on, have not been renewed since a crash."""
    elapsed_s: float = 0.0

    def pack(self) -> bytes:
        """Return the value of the note."""
        return _HEADER.pack(_VERSION, *self)


class Remaining(NamedTuple):
    """A valid list."""

    header: Header
    entries: list[Entry]
    renewed: frozenset[int]
    """Leases whose later records have been folded."""


def parts(entries: list[Entry], *, is_clean: bool) -> Iterator[tuple[str, bytes]]:
    """Return the notes of a list, one by one, without the note that makes it valid."""
    for at in range(0, len(entries), PART_LEASES):
        ids, left_s = zip(*entries[at : at + PART_LEASES], strict=True)
        value = pack_values(f"<{len(ids)}q{len(ids)}d", *ids, *left_s)
        yield f"{_PART_NAMES[is_clean]}{at // PART_LEASES:06}", value


def renewed_notes(batches: "Iterable[Unfolded]", listed: set[int]) -> Iterator[tuple[str, bytes]]:
    """Return the notes that keep which listed leases batches have records of; unlist those.

    Once folded, a record could not be distinguished from one that is older than the list.
    """
    for batch in batches:
        found = {
            each.lease for each in batch.changes if isinstance(each, GrantedRecord | PromisedRecord)
        }
        ids = sorted(found & listed)
        if ids:
            listed.difference_update(ids)
            yield f"{_RENEWED}{batch.id:020}", pack_values(f"<{len(ids)}q", *ids)


def read_remaining(notes: Mapping[str, bytes], term: int) -> Remaining | None:
    """Return the list that is valid for a journal whose last start had this term, or None."""
    try:
        version, is_clean, *rest = _HEADER.unpack(notes[NAME])
        header = Header(bool(is_clean), *rest)
        if version != _VERSION or header.term != term:
            return None
        entries: list[Entry] = []
        for name in sorted(name for name in notes if name.startswith(_PART_NAMES[is_clean])):
            count = len(notes[name]) // _ENTRY_BYTES
            numbers = unpack(f"<{count}q{count}d", notes[name])
            entries += zip(numbers[:count], numbers[count:], strict=True)
        renewed: set[int] = set()
        for name in notes:
            if name.startswith(_RENEWED):
                renewed.update(unpack(f"<{len(notes[name]) // 8}q", notes[name]))
    except KeyError:
        return None
    except error as wrong:
        raise DamagedJournal(f"the list of remaining lease times is damaged ({wrong})") from wrong
    if len(entries) != header.leases:
        raise DamagedJournal(
            f"the list of remaining lease times has {len(entries)} leases, not {header.leases}"
        )
    return Remaining(header, entries, frozenset(renewed))


def is_ours(name: str) -> bool:
    """Return whether a note belongs to a list."""
    return name == NAME or name.startswith(f"{NAME}/")
