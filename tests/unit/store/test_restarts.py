"""StoreLeases over restarts: no term is cut short, and none is renewed by restarts without end."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.journal import records
from leasehold.keyspace.operations import Grant, Put, Revoke
from leasehold.store import housekeeping
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.store_leases import (
    CHECKPOINT_LEFT_S,
    CHECKPOINT_PART,
    CHECKPOINT_TERM_S,
    StoreLeases,
)
from leasehold.testing import Simulation
from tests.support.durable_store import DurableStore

HOUR_S = 3600.0
LATE_S = 0.05
ROUND_S = 60.0
"""How often leases are looked at here."""

CHECKPOINT_S = HOUR_S * CHECKPOINT_PART + ROUND_S
"""When a lease of an hour that is not renewed has been checkpointed."""

LEASE = 7


@pytest.fixture
def durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DurableStore]:
    monkeypatch.setattr("leasehold.journal.data_dir.os.fsync", lambda fd: None)
    with Simulation(1) as sim:
        yield DurableStore(sim, tmp_path)


def grant(durable: DurableStore, ttl_s: float) -> None:
    durable.do(durable.store.apply, Grant(LEASE, ttl_s))
    durable.do(durable.store.apply, Put(b"key", b"value", LEASE))
    durable.commit()


def pass_time(durable: DurableStore, seconds: float, round_s: float = ROUND_S) -> None:
    """Let time pass, with looks for what is to be checkpointed."""
    while seconds > 0:
        durable.sim.run_for(min(seconds, round_s))
        seconds -= round_s
        durable.checkpoint()
        durable.commit()
        durable.note_age()


def assert_ends_after(durable: DurableStore, seconds: float) -> None:
    durable.sim.run_for(seconds - LATE_S)
    assert durable.lives(LEASE)
    assert durable.store.keyspace.get(b"key") is not None
    durable.sim.run_for(2 * LATE_S)
    assert not durable.lives(LEASE)
    assert durable.store.keyspace.get(b"key") is None


def test_a_lease_that_was_never_checkpointed_has_its_whole_term_again(
    durable: DurableStore,
) -> None:
    grant(durable, 10.0)
    durable.sim.run_for(9.0)
    durable.crash()
    assert_ends_after(durable, 10.0)


def test_a_checkpointed_lease_goes_on_with_what_was_left(durable: DurableStore) -> None:
    grant(durable, HOUR_S)
    pass_time(durable, CHECKPOINT_S)
    left_s = durable.store.leases.current(LEASE).promised_s
    assert left_s == pytest.approx(HOUR_S * (1 - CHECKPOINT_PART), abs=ROUND_S + 1.0)
    durable.crash()
    assert_ends_after(durable, left_s)


@pytest.mark.slow
def test_the_checkpoint_trap(durable: DurableStore) -> None:
    """A lease is checkpointed, renewed, and its server killed: the renewal holds."""
    grant(durable, HOUR_S)
    pass_time(durable, CHECKPOINT_S)
    position = durable.renew(LEASE)
    assert position, "the journal promises less: the answer has to wait for the disk"
    assert durable.renew(LEASE) == position, "and so has the next one"
    durable.commit()
    assert not durable.renew(LEASE), "from now on renewals touch memory only"
    pass_time(durable, HOUR_S / 2)
    assert not durable.renew(LEASE)
    durable.crash()
    assert_ends_after(durable, HOUR_S)


def test_a_renewal_that_was_not_answered_may_be_lost(durable: DurableStore) -> None:
    grant(durable, HOUR_S)
    pass_time(durable, CHECKPOINT_S)
    left_s = durable.store.leases.current(LEASE).promised_s
    assert durable.renew(LEASE)
    durable.crash()
    assert_ends_after(durable, left_s)


class Day:
    """StoreLeases of an hour, looked at as the server does, in lease time that a test sets."""

    def __init__(self, count: int) -> None:
        self.written_bytes = 0
        self.leases = StoreLeases(lambda record, reason: None, self._promised)
        granted = [self.leases.grant(lease, HOUR_S) for lease in range(1, count + 1)]
        self.leases.answered(granted)

    def _promised(self, record: LeaseRecord) -> None:
        self.written_bytes += len(records.promised(record.encoded_id, record.promised_s))

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / ROUND_S)):
            self.leases.table.clock.now += ROUND_S
            while self.leases.checkpoint(250):
                continue


@pytest.mark.slow
def test_ten_thousand_leases_that_are_renewed_in_time_write_nothing_in_a_day() -> None:
    day = Day(10_000)
    ids = range(1, 10_001)
    for _ in range(24 * 3):
        day.pass_time(HOUR_S / 3)
        assert not day.leases.renew_all(ids, HOUR_S)
    assert day.written_bytes == 0


def test_a_lease_that_goes_unrenewed_is_checkpointed_once() -> None:
    day = Day(1)
    day.pass_time(HOUR_S * CHECKPOINT_PART)
    once = day.written_bytes
    assert once > 0
    day.pass_time(HOUR_S / 4)
    assert day.written_bytes == once
    day.leases.renew(1)
    assert day.written_bytes == 2 * once, "the first renewal after it is recorded"
    day.leases.renew(1)
    assert day.written_bytes == 2 * once


def test_leases_of_long_terms_that_have_ended_leave_nothing_behind() -> None:
    day = Day(0)
    for lease in range(1, 10_001):
        day.leases.answered([day.leases.grant(lease, 1e6)])
        day.leases.revoke(lease)
    assert not day.leases._long
    assert not day.leases._long_by_second


def test_a_checkpointed_lease_that_is_renewed_after_a_clean_stop_is_looked_at_once(
    durable: DurableStore,
) -> None:
    grant(durable, HOUR_S)
    pass_time(durable, HOUR_S * CHECKPOINT_PART + ROUND_S)
    durable.stop()
    durable.open()
    assert durable.renew(LEASE), "the first renewal after a checkpoint is recorded"
    leases = durable.store.leases
    assert list(leases._long_by_second.values()) == [{LEASE}]


@pytest.mark.parametrize("first_s", [0.001, 1.3, 2.6, 4.999])
@pytest.mark.parametrize("longer_s", [0.0, 0.5, 6.0, 12.0, 18.0, 19.0])
def test_the_shortest_leases_with_checkpoints_are_checkpointed(
    durable: DurableStore, first_s: float, longer_s: float
) -> None:
    """A look comes up to a round and a second after two thirds of the term."""
    term_s = CHECKPOINT_TERM_S + longer_s
    durable.sim.run_for(0.7)  # lease time is not in whole seconds
    grant(durable, term_s)
    unrenewed_s = term_s * CHECKPOINT_PART
    before_s = 590.0 + first_s
    durable.sim.run_for(before_s)
    pass_time(durable, unrenewed_s + housekeeping.ROUND_S + 1.0 - before_s, housekeeping.ROUND_S)
    left_s = durable.store.leases.current(LEASE).promised_s
    assert left_s < term_s - unrenewed_s + 0.001
    durable.crash()
    assert_ends_after(durable, left_s)


def test_a_lease_with_little_left_is_not_checkpointed(durable: DurableStore) -> None:
    grant(durable, CHECKPOINT_TERM_S)
    durable.sim.run_for(CHECKPOINT_TERM_S - CHECKPOINT_LEFT_S)
    pass_time(durable, ROUND_S)
    assert not durable.renew(LEASE), "nothing to be written"


def test_a_lease_of_a_short_term_is_not_checkpointed(durable: DurableStore) -> None:
    grant(durable, CHECKPOINT_TERM_S - 1.0)
    pass_time(durable, CHECKPOINT_TERM_S * CHECKPOINT_PART + 1.0, housekeeping.ROUND_S)
    assert not durable.renew(LEASE), "nothing to be written"


def test_a_short_lease_under_the_id_of_a_long_one_is_not_checkpointed(
    durable: DurableStore,
) -> None:
    grant(durable, HOUR_S)
    durable.do(durable.store.apply, Revoke(LEASE))
    grant(durable, CHECKPOINT_LEFT_S)
    durable.sim.run_for(ROUND_S)
    assert not durable.store.leases._long, "nothing to look at"
    assert durable.lives(LEASE)


@pytest.mark.slow
def test_restarts_do_not_keep_a_long_lease_alive_for_ever(durable: DurableStore) -> None:
    grant(durable, HOUR_S)
    lived_s = 0.0
    while durable.lives(LEASE):
        pass_time(durable, 3 * ROUND_S)
        lived_s += 3 * ROUND_S
        durable.crash()
        assert lived_s < 2 * HOUR_S, "renewed by restarts"
    assert lived_s >= HOUR_S


@pytest.mark.slow
def test_after_a_clean_stop_a_long_lease_has_what_it_had_left(durable: DurableStore) -> None:
    grant(durable, HOUR_S)
    durable.sim.run_for(ROUND_S / 2)
    durable.stop()
    durable.open()
    assert_ends_after(durable, HOUR_S - ROUND_S / 2)


def test_no_lease_ages_between_reading_the_journal_and_serving(durable: DurableStore) -> None:
    grant(durable, 10.0)
    durable.crash(serves_after_s=HOUR_S)
    assert durable.store.revision == durable.store.durable_revision == 2
    assert_ends_after(durable, 10.0)


def test_an_entry_from_the_event_loop_before_the_start_lets_no_lease_time_pass(
    durable: DurableStore,
) -> None:
    grant(durable, 10.0)
    durable.close()
    durable.read()
    for _ in range(100):
        durable.sim.run_for(1.0)
        durable.do(bool)
    durable.serve()
    assert_ends_after(durable, 10.0)


def test_a_change_between_reading_the_journal_and_serving_is_not_dropped(
    durable: DurableStore,
) -> None:
    grant(durable, 10.0)
    durable.close()
    durable.read()
    durable.store.leases.revoke(LEASE)
    with pytest.raises(AssertionError, match="changed before the start"):
        durable.serve()


def test_every_expiry_is_logged_once_with_id_and_lateness(
    durable: DurableStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "leasehold.store.store_leases")
    durable.do(durable.store.apply, Grant(0x4D, 2.0))
    durable.do(durable.store.apply, Grant(LEASE, 2.0))
    durable.commit()
    durable.do(durable.store.apply, Revoke(LEASE))
    durable.sim.run_for(10.0)
    [line] = caplog.messages
    assert re.fullmatch(r"lease 000000000000004d expired, 0\.\d{3} s after its deadline", line)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("when", ["before", "in the middle", "over a restart"])
def test_no_jump_of_the_wall_clock_ends_a_lease_early_or_late(
    durable: DurableStore, jump_s: float, when: str
) -> None:
    if when == "before":
        durable.host.jump_wall(jump_s)
    grant(durable, 100.0)
    durable.sim.run_for(40.0)
    assert not durable.renew(LEASE)
    durable.sim.run_for(50.0)
    if when == "in the middle":
        durable.host.jump_wall(jump_s)
        assert_ends_after(durable, 50.0)
        return
    if when == "over a restart":
        durable.host.jump_wall(jump_s)
        durable.crash()
        assert_ends_after(durable, 100.0)
        return
    assert_ends_after(durable, 50.0)
