"""Holders' names over restarts, and journals of the format that had none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from leasehold.errors import DamagedJournal
from leasehold.journal import records
from leasehold.journal.journal import FILE_NAME, Journal
from leasehold.journal.journal_format import FORMAT_VERSION, WITHOUT_HOLDERS
from leasehold.keyspace.operations import Compact, Grant, Put, Revoke
from leasehold.store.backup import back_up_directory
from leasehold.store.checking import check
from leasehold.store.restoring import restore
from leasehold.testing import Simulation
from leasehold.wire import journal_pb2
from leasehold.wire.codec import long_varint
from tests.support.durable_store import DurableStore

HOLDER = "anna at desk 3, ä" * 9
"""Long enough for lengths of two bytes."""

_BACK = """
    ALTER TABLE lease DROP COLUMN holder;
    PRAGMA user_version=2;
"""
_FORTH = """
    BEGIN;
    ALTER TABLE lease ADD COLUMN holder TEXT NOT NULL DEFAULT '';
    PRAGMA user_version=3;
    COMMIT;
"""


@pytest.fixture
def durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DurableStore]:
    monkeypatch.setattr("leasehold.journal.data_dir.os.fsync", lambda fd: None)
    with Simulation(1) as sim:
        yield DurableStore(sim, tmp_path / "data")


def apply(durable: DurableStore, *ops: Any) -> None:
    for op in ops:
        durable.do(durable.store.apply, op)
    durable.commit()


def fold(durable: DurableStore) -> None:
    apply(durable, Put(b"last", b""), Compact(durable.store.revision + 1))
    while durable.journal.fold(durable.store.keyspace.compacted):
        continue


def holders(durable: DurableStore) -> dict[int, tuple[str, float]]:
    leases = (leased.resource for leased in durable.store.leases.table)
    return {record.id: (record.holder, record.ttl_s) for record in leases}


@pytest.mark.parametrize("holder", ["", "a", HOLDER])
@pytest.mark.parametrize("lease", [1, -1, 2**63 - 1])
def test_a_grant_is_recorded_as_protobuf_has_it(holder: str, lease: int) -> None:
    granted = journal_pb2.Granted(id=lease, ttl_s=1.5, holder=holder)
    change = journal_pb2.Changes(changes=[journal_pb2.Change(granted=granted)])
    encoded = records.granted(long_varint(lease), 1.5, holder)
    assert encoded == change.SerializeToString()
    assert list(records.decode(encoded)) == [records.GrantedRecord(lease, 1.5, holder)]


def test_a_holder_is_known_after_a_restart(durable: DurableStore) -> None:
    apply(durable, Grant(1, 10.0, HOLDER), Grant(2, 0.5), Grant(3, 600.0, "bert"))
    durable.crash()
    assert holders(durable) == {1: (HOLDER, 10.0), 2: ("", 0.5), 3: ("bert", 600.0)}


def test_a_holder_is_known_after_folding(durable: DurableStore) -> None:
    apply(durable, Grant(1, 10.0, HOLDER), Grant(2, 10.0), Grant(3, 10.0, "bert"), Revoke(3))
    fold(durable)
    durable.crash()
    assert holders(durable) == {1: (HOLDER, 10.0), 2: ("", 10.0)}


def test_a_promise_keeps_the_holder_of_a_folded_lease(durable: DurableStore) -> None:
    apply(durable, Grant(1, 3600.0, HOLDER))
    fold(durable)
    durable.sim.run_for(600.0)
    durable.checkpoint()
    durable.commit()
    fold(durable)
    durable.crash()
    assert holders(durable) == {1: (HOLDER, 3600.0)}
    assert durable.store.leases.current(1).promised_s < 3100.0


def test_the_next_lease_of_an_id_has_its_own_holder(durable: DurableStore) -> None:
    apply(durable, Grant(1, 10.0, HOLDER), Revoke(1), Grant(1, 20.0))
    fold(durable)
    durable.crash()
    assert holders(durable) == {1: ("", 20.0)}


def test_a_holder_that_was_changed_on_disk_is_found(durable: DurableStore) -> None:
    apply(durable, Grant(1, 10.0, HOLDER))
    fold(durable)
    durable.journal.close()
    _sql(durable, "UPDATE lease SET holder = 'somebody else'")
    with pytest.raises(DamagedJournal, match="lease 0000000000000001 has the wrong checksum"):
        check(_directory(durable))


# The format before


def _directory(durable: DurableStore) -> Path:
    return durable._directory


def _sql(durable: DurableStore, statements: str, *, checkpoint: bool = True) -> None:
    connection = apsw.Connection(str(_directory(durable) / FILE_NAME))
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    if not checkpoint:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute(statements)
    connection.close()


def _first_page_says(directory: Path) -> int:
    return int.from_bytes((directory / FILE_NAME).read_bytes()[60:64], "big")


def _of_old(durable: DurableStore) -> Path:
    """Leave a journal of the last format, with leases in its tables and in its rows."""
    apply(durable, Grant(1, 10.0), Put(b"key", b"value", 1), Grant(2, 600.0))
    fold(durable)
    apply(durable, Grant(3, 20.0), Put(b"more", b"", 3))
    durable.host.call(durable.store.leases.close)
    durable.journal.close()
    _sql(durable, _BACK)
    assert _first_page_says(_directory(durable)) == WITHOUT_HOLDERS
    return _directory(durable)


LEFT = {1: ("", 10.0), 2: ("", 600.0), 3: ("", 20.0)}


def test_a_journal_of_the_last_format_opens_and_is_brought_up_to_date(
    durable: DurableStore,
) -> None:
    directory = _of_old(durable)
    durable.open()
    assert holders(durable) == LEFT
    assert durable.store.keyspace.get(b"key") is not None
    assert _first_page_says(directory) == FORMAT_VERSION, "before anything else is written"
    apply(durable, Grant(4, 10.0, HOLDER), Revoke(1))
    fold(durable)
    durable.crash()
    assert holders(durable) == {2: LEFT[2], 3: LEFT[3], 4: (HOLDER, 10.0)}
    durable.host.call(durable.store.leases.close)
    durable.journal.close()
    assert check(directory).format == FORMAT_VERSION


def test_a_start_that_was_cut_off_on_the_way_to_this_format_is_taken_up(
    durable: DurableStore,
) -> None:
    directory = _of_old(durable)
    _sql(durable, _FORTH, checkpoint=False)
    assert _first_page_says(directory) == WITHOUT_HOLDERS, "only its log says more"
    assert check(directory).format == FORMAT_VERSION
    durable.open()
    assert holders(durable) == LEFT
    assert _first_page_says(directory) == FORMAT_VERSION


def test_a_journal_of_the_last_format_is_checked_and_left_as_it_is(durable: DurableStore) -> None:
    directory = _of_old(durable)
    before = (directory / FILE_NAME).read_bytes()
    report = check(directory)
    assert (report.format, report.leases, report.keys) == (WITHOUT_HOLDERS, 3, 3)
    assert (directory / FILE_NAME).read_bytes() == before


def test_a_damaged_journal_of_the_last_format_is_left_as_it_is(durable: DurableStore) -> None:
    directory = _of_old(durable)
    _sql(durable, "UPDATE lease SET ttl_s = 11 WHERE id = 1")
    before = (directory / FILE_NAME).read_bytes()
    with pytest.raises(DamagedJournal):
        Journal(directory)
    assert (directory / FILE_NAME).read_bytes() == before


def test_a_backup_of_the_last_format_is_restored(durable: DurableStore, tmp_path: Path) -> None:
    directory = _of_old(durable)
    back_up_directory(directory, tmp_path / "backup")
    shutil.rmtree(directory)
    report = restore(tmp_path / "backup", directory)
    assert report.leases == 3
    durable.open()
    assert holders(durable) == LEFT
