"""A clean stop keeps what every lease has left; a crash, a restore and an older release do not."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from leasehold.basics.addresses import TcpAddress
from leasehold.engine.embedded import EmbeddedEngine, open_engine
from leasehold.errors import Closed, DamagedJournal
from leasehold.journal import remaining_terms
from leasehold.journal.journal import FILE_NAME, Journal
from leasehold.journal.journal_format import WRITE_IDENTITY, pack_identity
from leasehold.journal.journal_rows import read_identity
from leasehold.server.app import LeaseholdServer
from leasehold.store.backup import back_up_directory
from leasehold.store.checking import check_directory
from leasehold.store.restoring import restore

LEASE: Final = 77
TTL_S: Final = 60.0
AGED_S: Final = 0.3
"""How long a lease ages here, at least."""


async def remaining_s(engine: EmbeddedEngine) -> float:
    return (await engine.time_to_live(LEASE)).remaining


async def age(engine: EmbeddedEngine) -> None:
    async with asyncio.timeout(30):
        while await remaining_s(engine) > TTL_S - AGED_S:  # noqa: ASYNC110  it is polled
            await asyncio.sleep(0.01)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def stopped(directory: Path) -> None:
    """Leave a directory behind after a clean stop, with a lease that has aged."""

    async def main() -> None:
        async with open_engine(directory) as engine:
            await engine.grant(TTL_S, lease=LEASE)
            await age(engine)

    run(main())


def has_aged(directory: Path) -> bool:
    """Start, and say whether the lease goes on with what it had left.

    What has passed since lease time started, at 0, does not count: a start may take `AGED_S`.
    """

    async def main() -> bool:
        async with open_engine(directory) as engine:
            leases = engine._store.leases
            return leases.remaining_s(LEASE) + leases.table.clock.now <= TTL_S - AGED_S

    return asyncio.run(main())


def writes_to_renew(directory: Path) -> list[int]:
    """Start, renew twice, and say how many batches each renewal wrote."""

    async def main() -> list[int]:
        async with open_engine(directory) as engine:
            journal, written = engine._runtime.journal, []
            for _ in range(2):
                before = journal.index
                await engine.renew(LEASE)
                written.append(journal.index - before)
            return written

    return asyncio.run(main())


def test_after_a_clean_stop_a_lease_has_what_it_had_left(tmp_path: Path) -> None:
    stopped(tmp_path)
    assert has_aged(tmp_path)
    assert has_aged(tmp_path), "and after another one, too"


def test_after_a_clean_stop_renewals_touch_memory_only(tmp_path: Path) -> None:
    stopped(tmp_path)
    assert writes_to_renew(tmp_path) == [0, 0]
    assert not has_aged(tmp_path)


def test_after_a_crash_a_lease_has_its_term_and_the_first_renewal_is_recorded(
    tmp_path: Path,
) -> None:
    crashed = tmp_path / "crashed"

    async def main() -> None:
        async with open_engine(tmp_path / "data") as engine:
            await engine.grant(TTL_S, lease=LEASE)
            await age(engine)
            shutil.copytree(tmp_path / "data", crashed, ignore=lambda *_: ["CONTROL"])

    run(main())
    assert writes_to_renew(crashed) == [1, 0]


def test_a_crash_after_a_clean_start_gives_the_full_term(tmp_path: Path) -> None:
    stopped(tmp_path / "data")
    crashed = tmp_path / "crashed"

    async def main() -> None:
        async with open_engine(tmp_path / "data"):
            shutil.copytree(tmp_path / "data", crashed, ignore=lambda *_: ["CONTROL"])

    run(main())
    assert not has_aged(crashed)


@pytest.mark.parametrize("parts", [0, 1])
def test_a_stop_that_did_not_write_everything_is_not_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    def given_up(self: Journal, entries: Any, unrenewed: int) -> Any:
        for name, value in list(remaining_terms.parts(entries, is_clean=True))[:parts]:
            self._note_in_list(name, value)
            yield

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "note_remaining", given_up)
        stopped(tmp_path)
    check_directory(tmp_path)
    assert not has_aged(tmp_path)


def test_a_server_that_could_not_serve_leaves_the_directory_as_clean_as_it_was(
    tmp_path: Path,
) -> None:
    stopped(tmp_path)

    async def main() -> None:
        async with LeaseholdServer(tmp_path) as server:
            with pytest.raises(OSError, match="cannot listen"):
                await server.start_on([TcpAddress("192.0.2.1", 0)])

    run(main())
    assert has_aged(tmp_path)


def test_an_older_release_in_between_makes_the_list_invalid(tmp_path: Path) -> None:
    stopped(tmp_path)
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    identity, progress = read_identity(connection, tmp_path)
    served = identity._replace(term=identity.term + 1)  # it does not look at notes
    connection.execute(WRITE_IDENTITY, pack_identity(served, progress))
    connection.close()
    assert not has_aged(tmp_path)


def test_a_restored_backup_inherits_no_clean_mark(tmp_path: Path) -> None:
    stopped(tmp_path / "data")
    back_up_directory(tmp_path / "data", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert not has_aged(tmp_path / "restored")


def _drop_part(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM note WHERE name GLOB 'leases/stop/*'")


def _cut_header(connection: apsw.Connection) -> None:
    from leasehold.journal.journal_rows import write_note  # noqa: PLC0415

    write_note(connection, remaining_terms.NAME, b"short")


@pytest.mark.parametrize("damage", [_drop_part, _cut_header])
def test_a_damaged_list_is_refused_and_found_by_check(
    tmp_path: Path, damage: Callable[[apsw.Connection], None]
) -> None:
    stopped(tmp_path)
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    damage(connection)
    connection.close()
    for look in (check_directory, Journal):
        with pytest.raises(DamagedJournal, match="list of remaining lease times"):
            look(tmp_path)


def test_nothing_is_renewed_once_the_list_may_have_been_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with LeaseholdServer(tmp_path) as server:
            await server.start("127.0.0.1", 0)
        with pytest.raises(Closed):
            server.store.leases.renew(LEASE)
        with pytest.raises(Closed):
            server.store.leases.renew_all([LEASE], TTL_S)

    run(main())
