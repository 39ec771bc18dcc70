"""Leases over restarts: no term is cut short, and none is renewed by restarts without end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.core.ops import Grant, Put, Revoke
from leasehold.engine.leases import CHECKPOINT_EVERY_S, CHECKPOINT_LEFT_S
from leasehold.testing import Simulation
from tests.support.durable_store import DurableStore

HOUR_S = 3600.0
LATE_S = 0.05
LEASE = 7


@pytest.fixture
def durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DurableStore]:
    monkeypatch.setattr("leasehold.engine.data_dir.os.fsync", lambda fd: None)
    with Simulation(1) as sim:
        yield DurableStore(sim, tmp_path)


def grant(durable: DurableStore, ttl_s: float) -> None:
    durable.do(durable.store.apply, Grant(LEASE, ttl_s))
    durable.do(durable.store.apply, Put(b"key", b"value", LEASE))
    durable.commit()


def pass_time(durable: DurableStore, seconds: float) -> None:
    """Let time pass, with checkpoints as often as there may be any."""
    while seconds > 0:
        durable.sim.run_for(min(seconds, CHECKPOINT_EVERY_S))
        seconds -= CHECKPOINT_EVERY_S
        durable.checkpoint()
        durable.commit()


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
    pass_time(durable, HOUR_S / 2)
    durable.crash()
    assert_ends_after(durable, HOUR_S / 2)


def test_the_checkpoint_trap(durable: DurableStore) -> None:
    """A lease is checkpointed, renewed, and its server killed: the renewal holds."""
    grant(durable, HOUR_S)
    pass_time(durable, HOUR_S / 2)
    position = durable.renew(LEASE)
    assert position, "the journal promises less: the answer has to wait for the disk"
    assert durable.renew(LEASE) == position, "and so has the next one"
    durable.commit()
    assert not durable.renew(LEASE), "from now on renewals touch memory only"
    durable.sim.run_for(60.0)
    assert not durable.renew(LEASE)
    durable.crash()
    assert_ends_after(durable, HOUR_S)


def test_a_renewal_that_was_not_answered_may_be_lost(durable: DurableStore) -> None:
    grant(durable, HOUR_S)
    pass_time(durable, HOUR_S / 2)
    assert durable.renew(LEASE)
    durable.crash()
    assert_ends_after(durable, HOUR_S / 2)


def test_a_renewed_lease_is_not_checkpointed(durable: DurableStore) -> None:
    grant(durable, HOUR_S)
    for _ in range(10):
        durable.sim.run_for(CHECKPOINT_EVERY_S - 1)
        durable.renew(LEASE)
        durable.checkpoint()
        assert durable.store.take_batch() is None, "nothing to be written"


def test_a_lease_with_little_left_is_not_checkpointed(durable: DurableStore) -> None:
    grant(durable, CHECKPOINT_LEFT_S + 2 * CHECKPOINT_EVERY_S)
    pass_time(durable, 2 * CHECKPOINT_EVERY_S + 1)
    assert not durable.renew(LEASE) or durable.store.leases.current(LEASE).promised_s
    durable.commit()
    pass_time(durable, 2 * CHECKPOINT_EVERY_S + 1)
    record = durable.store.leases.current(LEASE)
    assert record.promised_s > CHECKPOINT_LEFT_S


def test_a_short_lease_under_the_id_of_a_long_one_is_not_checkpointed(
    durable: DurableStore,
) -> None:
    grant(durable, HOUR_S)
    durable.do(durable.store.apply, Revoke(LEASE))
    grant(durable, 2 * CHECKPOINT_EVERY_S)
    durable.sim.run_for(CHECKPOINT_EVERY_S + 1)
    assert not durable.do(durable.store.leases.checkpoint, 10), "nothing more to look at"
    assert durable.lives(LEASE)


def test_restarts_do_not_keep_a_long_lease_alive_for_ever(durable: DurableStore) -> None:
    grant(durable, HOUR_S)
    lived_s = 0.0
    while durable.lives(LEASE):
        pass_time(durable, 3 * CHECKPOINT_EVERY_S)
        lived_s += 3 * CHECKPOINT_EVERY_S
        durable.crash()
        assert lived_s < 2 * HOUR_S, "renewed by restarts"
        if lived_s > HOUR_S:  # the last minutes are not checkpointed: let them pass
            durable.sim.run_for(CHECKPOINT_LEFT_S + CHECKPOINT_EVERY_S)
            break
    assert not durable.lives(LEASE)
    assert lived_s >= HOUR_S - CHECKPOINT_LEFT_S


def test_a_clean_stop_checkpoints_what_has_aged(durable: DurableStore) -> None:
    grant(durable, HOUR_S)
    durable.sim.run_for(CHECKPOINT_EVERY_S / 2)
    for _ in durable.do(durable.store.leases.checkpoint_all):
        continue
    durable.commit()
    durable.crash()
    assert_ends_after(durable, HOUR_S - CHECKPOINT_EVERY_S / 2)


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
