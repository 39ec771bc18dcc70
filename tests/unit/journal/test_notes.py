"""What is noted is there after a restart, and what is damaged is refused."""

from pathlib import Path

import apsw
import pytest

from leasehold.errors import DamagedJournal
from leasehold.journal.journal import FILE_NAME, Journal
from leasehold.store.checking import check_directory


def test_notes_outlive_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.notes == {}
    journal.note("alarms", b"1")
    journal.note("alarms", b"2")
    journal.note("peers", b"")
    assert journal.notes == {"alarms": b"2", "peers": b""}
    journal.close()
    again = Journal(tmp_path)
    assert again.notes == {"alarms": b"2", "peers": b""}
    again.close()


def test_a_note_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note("alarms", b"1")
    journal.close()
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    connection.execute("UPDATE note SET value = x'32'")
    connection.close()
    for look in (Journal, check_directory):
        with pytest.raises(DamagedJournal, match="the note 'alarms' has the wrong checksum"):
            look(tmp_path)
