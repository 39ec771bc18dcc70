"""Free space is given back to the disk, and nothing is lost by that."""

from pathlib import Path

import pytest

from leasehold.errors import DamagedJournal
from leasehold.journal import records
from leasehold.journal.journal import FILE_NAME, Journal
from leasehold.journal.journal_format import PAGE_BYTES
from leasehold.wire.codec import key_value

ROWS = 200
VALUE = b"v" * 8_000


def fill(journal: Journal) -> None:
    """Put one key again and again."""
    for revision in range(2, ROWS + 2):
        pair = key_value(b"key", 2, revision, revision - 1, VALUE, 0)
        journal.append(revision, revision, records.put(pair))


def fold(journal: Journal) -> None:
    """Let all go but the last put."""
    while journal.fold(ROWS + 1):
        continue


def shrink(journal: Journal) -> int:
    """Give everything back; return in how many pieces."""
    pieces = 1
    while journal.shrink():
        pieces += 1
    return pieces


def length(directory: Path) -> int:
    return (directory / FILE_NAME).stat().st_size


def test_space_that_a_compaction_freed_is_given_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    fill(journal)
    journal.checkpoint()
    full = length(tmp_path)
    assert full > ROWS * len(VALUE)
    fold(journal)
    journal.checkpoint()
    assert length(tmp_path) == journal.size_bytes >= full
    shrink(journal)
    assert length(tmp_path) == journal.size_bytes == journal.used_bytes < full / 10
    journal.close()


def test_nothing_is_lost_by_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    fill(journal)
    fold(journal)
    shrink(journal)
    journal.append(ROWS + 2, ROWS + 2, records.deleted(b"key", ROWS + 2))
    rows, item = list(journal.rows()), journal.values([(b"key", ROWS + 1)])[0]
    assert item[2] == ROWS + 1
    journal.close()
    again = Journal(tmp_path)
    assert list(again.rows()) == rows
    assert again.values([(b"key", ROWS + 1)]) == [item]
    again.close()


def test_commits_come_in_between(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    fill(journal)
    fold(journal)
    revision, is_more = ROWS + 2, True
    while is_more:
        is_more = journal.shrink()
        journal.append(revision, revision, records.deleted(b"key", revision))
        revision += 1
    rows = list(journal.rows())
    assert rows[-1].last_revision == revision - 1
    journal.close()
    again = Journal(tmp_path)
    assert list(again.rows()) == rows
    again.close()


def test_a_journal_without_free_space_is_left_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    fill(journal)
    size = journal.size_bytes
    assert not journal.shrink()
    assert journal.size_bytes >= size
    journal.close()


def test_a_journal_in_memory_can_be_shrunk_too() -> None:
    journal = Journal(None)
    fill(journal)
    fold(journal)
    size = journal.size_bytes
    shrink(journal)
    assert journal.size_bytes < size
    journal.close()


def test_a_damaged_account_of_pages_costs_nothing_but_shrinking(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    fill(journal)
    fold(journal)
    journal.close()
    content = bytearray((tmp_path / FILE_NAME).read_bytes())
    content[PAGE_BYTES : 2 * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    (tmp_path / FILE_NAME).write_bytes(content)
    journal = Journal(tmp_path)
    with pytest.raises(DamagedJournal, match="record of page owners is damaged"):
        journal.shrink()
    assert not journal.has_failed
    journal.append(ROWS + 2, ROWS + 2, records.deleted(b"key", ROWS + 2))
    assert journal.values([(b"key", ROWS + 1)])[0][2] == ROWS + 1
    journal.close()
    again = Journal(tmp_path)
    assert [row.last_revision for row in again.rows()][-1:] == [ROWS + 2]
    again.close()
