"""Permits in virtual time: until when a check may be answered from what was asked before."""

import asyncio
from functools import partial

import pytest

from leasehold.errors import HistoryLost, UnknownLease
from leasehold.leases.holder_view import session_margin_s
from leasehold.locks import permits as permits_module
from leasehold.locks.permit import SKEW_ALLOWANCE_S, names_of
from leasehold.locks.permits import Permits
from leasehold.testing import Faults, seeds
from tests.simulation.far_server import EtcdLikeServer, KeyspaceServer
from tests.simulation.permit_stage import GRAIN_S, NAMES, Stage, User

pytestmark = pytest.mark.filterwarnings("ignore:lease .* was garbage-collected:ResourceWarning")

TTL_S = 10.0
MARGIN_S = 1.0
HOUR_S = 3600.0
MAX_TTL_S = 8.0
STEP_S = 0.25

OUT_OF_TOUCH = (TimeoutError, ConnectionError)


def yes_until(stage: Stage, user: User, at_most_s: float = 100.0) -> float:
    """Ask until nobody answers; give how long the last yes came after now, in the user's time."""
    began_at, last = user.now, 0.0
    while user.now < began_at + at_most_s:
        try:
            if not stage.asks(user, timeout=0.01):
                pytest.fail("a client that is cut off has said no by itself")
        except OUT_OF_TOUCH:
            return last
        last = user.now - began_at
        stage.run_for(STEP_S / 10)
    return last


def end_of_trust(user: User) -> float:
    """Give the trusted end of what a client has cached, in its own time."""
    return user.permits.cache._kept[NAMES].end


def is_watching(user: User) -> bool:
    return user.permits.cache.is_watching


# What is cached.


@pytest.mark.parametrize("kind", [KeyspaceServer, EtcdLikeServer])
def test_what_was_asked_once_is_answered_without_a_message(kind: type[KeyspaceServer]) -> None:
    with Stage(kind=kind) as stage:
        stage.grants(TTL_S)
        assert stage.asks(stage.gate)
        before = stage.gate.line.messages
        for _ in range(20):
            assert stage.asks(stage.gate)
            assert not stage.asks(stage.gate, "dance"), "a right that it does not give"
        assert stage.gate.line.messages == before


def test_trust_is_counted_from_when_the_question_was_sent_less_the_margin() -> None:
    with Stage() as stage:
        stage.grants(TTL_S)
        stage.gate.line.answers_late["time_to_live"] = 3.0
        asked_at = stage.gate.now
        assert stage.asks(stage.gate)
        assert stage.gate.now >= asked_at + 3.0
        left_s = end_of_trust(stage.gate) - asked_at
        assert left_s == pytest.approx(TTL_S - MARGIN_S, abs=GRAIN_S)
        assert session_margin_s(TTL_S) == MARGIN_S


@pytest.mark.parametrize("kind", [KeyspaceServer, EtcdLikeServer])
def test_a_check_is_never_answered_from_the_cache_past_the_trusted_end(
    kind: type[KeyspaceServer],
) -> None:
    with Stage(kind=kind) as stage:
        stage.grants(TTL_S)
        granted_at = stage.gate.now
        stage.run_for(2.0)
        assert stage.asks(stage.gate)
        end = end_of_trust(stage.gate)
        assert end <= granted_at + TTL_S - session_margin_s(TTL_S - 3.0)
        stage.cut(stage.gate)
        last = stage.gate.now + yes_until(stage, stage.gate)
        assert end - STEP_S <= last < end


def test_past_the_trusted_end_the_server_is_asked_again() -> None:
    with Stage() as stage:
        lease = stage.grants(TTL_S)
        stage.keeps(stage.subject, lease)
        for _ in range(10):
            before = stage.gate.line.messages
            assert stage.asks(stage.gate)
            assert stage.gate.line.messages == before + 2
            stage.sim.run_until(
                lambda: stage.gate.now >= end_of_trust(stage.gate), within=2 * TTL_S
            )


def test_a_long_lease_is_asked_about_again_after_a_while() -> None:
    with Stage() as stage:
        stage.grants(HOUR_S)
        assert stage.asks(stage.gate)
        stage.cut(stage.gate)
        assert yes_until(stage, stage.gate) == pytest.approx(permits_module.MAX_AGE_S, abs=STEP_S)


def test_no_permit_is_not_cached() -> None:
    with Stage() as stage:
        for _ in range(3):
            before = stage.gate.line.messages
            assert not stage.asks(stage.gate)
            assert stage.gate.line.messages == before + 1
        stage.grants(TTL_S)
        assert stage.asks(stage.gate), "whatever was asked before"


def test_the_cache_has_a_limit_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits_module, "MAX_CACHED", 3)
    with Stage() as stage:
        gate = stage.gate
        for number in range(5):
            stage.do(gate, partial(_grant_and_check, admin=gate, subject=str(number)))
        assert len(gate.permits.cache) == 3
        kept = [str(n) for n in range(5) if gate.permits.cache.get(names_of(str(n), "x"))]
        assert kept == ["2", "3", "4"]


def test_news_that_is_older_than_an_answer_does_not_spoil_it() -> None:
    with Stage() as stage:
        stage.grants(60.0)
        assert stage.asks(stage.gate)
        for number in range(20):
            work = partial(_grant_and_check, admin=stage.gate, subject=str(number))
            stage.do(stage.gate, work)
            stage.run_for(GRAIN_S)  # of the grant the gate is told at any time until now
            assert stage.gate.permits.cache.get(names_of(str(number), "x"))
        kept = stage.gate.permits.cache._kept[NAMES]
        for revision, is_left in ((kept.revision, True), (kept.revision + 1, False)):
            stage.gate.permits.cache.drop(NAMES, revision)
            assert (NAMES in stage.gate.permits.cache._kept) == is_left


async def _grant_and_check(permits: Permits, admin: User, subject: str) -> None:
    await admin.permits.grant(subject, "x", ["in"], 60.0)
    assert await permits.check(subject, "x", "in")


# The wall-clock end.


def held_by_its_lease(stage: Stage, lease: int, seconds: float) -> None:
    """Let time pass while the server keeps the lease, as one that restarts does."""
    end = stage.sim.now + seconds
    while stage.sim.now < end:
        stage.renews(lease)
        stage.run_for(min(STEP_S, end - stage.sim.now))


@pytest.mark.parametrize("kind", [KeyspaceServer, EtcdLikeServer])
@pytest.mark.parametrize("cached", [False, True])
def test_a_permit_ends_by_the_wall_clock_though_its_lease_goes_on(
    kind: type[KeyspaceServer], *, cached: bool
) -> None:
    with Stage(kind=kind) as stage:
        lease = stage.grants(TTL_S)
        held_by_its_lease(stage, lease, TTL_S - STEP_S)
        if cached:
            assert stage.asks(stage.gate)
        held_by_its_lease(stage, lease, SKEW_ALLOWANCE_S + 2 * STEP_S)
        assert stage.is_there(), "the lease goes on"
        assert not stage.asks(stage.gate)
        with pytest.raises(UnknownLease, match="expired"):
            stage.keeps(stage.subject, lease)
        assert stage.do(stage.admin, lambda permits: permits.revoke(*NAMES))


def test_a_permit_under_a_given_lease_has_no_end_but_the_lease() -> None:
    with Stage() as stage:
        admin = stage.admin
        lease = stage.wait(admin.host.start(admin.client.engine.grant, TTL_S)).id
        stage.do(admin, lambda permits: permits.grant(*NAMES, ["in"], lease=lease))
        held_by_its_lease(stage, lease, 5 * TTL_S)
        assert stage.asks(stage.gate)


def test_new_rights_under_the_same_lease_leave_the_end_as_it_is() -> None:
    with Stage() as stage:
        first = stage.do(stage.admin, lambda permits: permits.grant(*NAMES, ["in"], TTL_S))
        stage.run_for(5.0)
        second = stage.do(
            stage.admin, lambda permits: permits.grant(*NAMES, ["out"], lease=first.lease)
        )
        assert first.ends_at is not None
        assert second.ends_at == first.ends_at


def test_who_keeps_the_lease_extends_the_permit_and_its_cached_answers_stay() -> None:
    with Stage() as stage:
        lease = stage.grants(TTL_S)
        stage.keeps(stage.subject, lease)
        assert stage.asks(stage.gate)
        before = stage.gate.line.messages
        stage.run_for(TTL_S / 2)
        assert stage.asks(stage.gate)
        assert stage.gate.line.messages == before
        stage.run_for(5 * TTL_S)
        permit = stage.do(stage.gate, lambda permits: permits.get(*NAMES))
        assert permit is not None
        assert permit.ends_at is not None
        left_s = permit.ends_at.timestamp() - stage.gate.host.clock.wall()
        assert TTL_S / 2 <= left_s <= TTL_S + GRAIN_S


@pytest.mark.parametrize("way", ["revoked", "replaced"])
def test_an_extension_revives_no_permit(way: str) -> None:
    with Stage() as stage:
        stage.keeps(stage.subject, stage.grants(TTL_S))
        other = stage.wait(stage.admin.host.start(stage.admin.client.engine.grant, HOUR_S)).id
        if way == "revoked":
            stage.do(stage.admin, lambda permits: permits.revoke(*NAMES))
        else:
            stage.do(stage.admin, lambda permits: permits.grant(*NAMES, ["dance"], lease=other))
        stage.run_for(2 * TTL_S)
        assert not stage.asks(stage.gate)
        assert stage.asks(stage.gate, "dance") == (way == "replaced")


def test_an_extension_without_an_answer_is_made_again() -> None:
    with Stage() as stage:
        stage.keeps(stage.subject, stage.grants(TTL_S))
        for befalls in ("unsent", "unanswered", "late"):
            stage.subject.line.befalls = befalls
            stage.subject.line.befalls_in = 1
            stage.run_for(2 * TTL_S)
            assert not stage.subject.line.befalls_in, "it has befallen an extension"
            assert stage.asks(stage.gate)


def test_clocks_that_differ_by_the_allowance_deny_no_permit_before_its_end() -> None:
    with Stage() as stage:
        stage.gate.host.clock.jump_wall(SKEW_ALLOWANCE_S)
        stage.grants(TTL_S)
        granted_at = stage.sim.now
        while stage.sim.now < granted_at + TTL_S - MARGIN_S - STEP_S:
            assert stage.do(stage.gate, lambda permits: permits.check(*NAMES, "in", cache=False))
            stage.run_for(STEP_S)


# What ends it before.


def test_a_subject_that_lost_contact_has_lost_its_rights() -> None:
    with Stage() as stage:
        stage.keeps(stage.subject, stage.grants(TTL_S))
        stage.run_for(5 * TTL_S)
        assert stage.asks(stage.gate)
        stage.cut(stage.subject)
        cut_at = stage.sim.now
        while stage.asks(stage.gate):
            stage.run_for(STEP_S)
        assert stage.sim.now - cut_at <= TTL_S + STEP_S


@pytest.mark.parametrize("way", ["revoked", "replaced", "lease ended"])
def test_a_revocation_by_another_client_takes_effect_at_once(way: str) -> None:
    with Stage() as stage:
        lease = stage.grants(HOUR_S)
        assert stage.asks(stage.gate)
        if way == "revoked":
            assert stage.do(stage.admin, lambda permits: permits.revoke(*NAMES))
        elif way == "replaced":
            stage.grants(HOUR_S, "dance")
        else:
            stage.wait(stage.admin.host.start(stage.admin.client.revoke, lease))
        stage.run_for(GRAIN_S)
        assert not stage.asks(stage.gate)
        assert stage.asks(stage.gate, "dance") == (way == "replaced")


def test_a_client_that_is_cut_off_believes_what_it_has_asked_and_then_raises() -> None:
    with Stage() as stage:
        stage.grants(TTL_S)
        assert stage.asks(stage.gate)
        stage.cut(stage.gate)
        assert stage.do(stage.admin, lambda permits: permits.revoke(*NAMES))
        assert yes_until(stage, stage.gate) == pytest.approx(TTL_S - MARGIN_S, abs=STEP_S)
        with pytest.raises(OUT_OF_TOUCH):
            stage.asks(stage.gate)
        stage.network.heal()
        assert not stage.asks(stage.gate, timeout=60.0)


def test_a_short_cut_costs_nothing_and_what_was_revoked_meanwhile_is_heard_of() -> None:
    with Stage() as stage:
        stage.grants(HOUR_S)
        assert stage.asks(stage.gate)
        stage.cut(stage.gate)
        stage.do(stage.admin, lambda permits: permits.revoke(*NAMES))
        stage.run_for(3.0)
        assert stage.asks(stage.gate)
        stage.network.heal()
        stage.run_for(20.0)
        assert len(stage.gate.permits.cache) == 0
        assert not stage.asks(stage.gate)


def test_a_machine_that_was_suspended_finds_its_trust_ended() -> None:
    with Stage() as stage:
        stage.grants(TTL_S)
        assert stage.asks(stage.gate)
        stage.cut(stage.gate)
        stage.gate.host.suspend(TTL_S)
        stage.run_for(TTL_S + GRAIN_S)
        with pytest.raises(OUT_OF_TOUCH):
            stage.asks(stage.gate, timeout=0.01)


def test_a_process_that_was_stopped_finds_its_trust_ended() -> None:
    with Stage() as stage:
        stage.grants(TTL_S)
        assert stage.asks(stage.gate)
        stage.gate.host.stop(2 * TTL_S)
        stage.run_for(2 * TTL_S + GRAIN_S)
        assert not stage.asks(stage.gate)


def test_a_watch_that_cannot_go_on_takes_all_answers_with_it() -> None:
    with Stage() as stage:
        stage.grants(HOUR_S)
        assert stage.asks(stage.gate)
        stage.cut(stage.gate)
        stage.grants(HOUR_S, "dance")
        for number in range(3):
            stage.wait(stage.admin.host.start(stage.admin.client.kv.put, "x", str(number)))
        revision = stage.server.engine._store.revision
        stage.wait(stage.admin.host.start(stage.admin.client.kv.compact, revision))
        stage.network.heal()
        stage.sim.run_until(lambda: not len(stage.gate.permits.cache), within=30.0)
        assert not stage.asks(stage.gate)
        assert stage.asks(stage.gate, "dance")
        assert len(stage.gate.permits.cache) == 1, "another watch has begun"


def test_a_lost_history_takes_all_answers_with_it() -> None:
    with Stage() as stage:
        image = stage.server.backup()
        stage.grants(HOUR_S)
        assert stage.asks(stage.gate)
        stage.server.restore(image, by_the_book=False)
        stage.sim.run_until(lambda: not len(stage.gate.permits.cache), within=30.0)
        with pytest.raises(HistoryLost):
            stage.asks(stage.gate)


def test_who_has_revoked_a_permit_need_not_be_told() -> None:
    with Stage() as stage:

        async def revoke(permits: Permits) -> None:
            for _ in range(50):
                await permits.grant(*NAMES, ["in"], TTL_S)
                asking = asyncio.ensure_future(permits.check(*NAMES, "in"))
                await permits.revoke(*NAMES)
                assert not await permits.check(*NAMES, "in")
                await asking
                assert not await permits.check(*NAMES, "in")

        stage.do(stage.gate, revoke)


def test_what_is_revoked_while_it_is_asked_for_is_not_cached() -> None:
    with Stage() as stage:
        lease = stage.grants(HOUR_S)
        other = names_of("anna", "attic")
        stage.do(stage.admin, lambda permits: permits.grant(*other, ["in"], lease=lease))
        assert stage.do(stage.gate, lambda permits: permits.check(*other, "in")), "so it watches"
        stage.gate.line.answers_late["time_to_live"] = 2.0
        asking = stage.begin(stage.gate, lambda permits: permits.check(*NAMES, "in"))
        stage.run_for(1.0)
        assert stage.do(stage.admin, lambda permits: permits.revoke(*NAMES))
        assert stage.wait(asking), "it was there when it was read"
        assert not stage.asks(stage.gate)


def test_what_was_read_before_the_watch_began_is_not_cached() -> None:
    with Stage() as stage:
        gate, other = stage.gate, names_of("anna", "attic")
        lease = stage.do(stage.admin, lambda permits: permits.grant(*other, ["in"], HOUR_S)).lease
        stage.do(stage.admin, lambda permits: permits.grant(*NAMES, ["in"], lease=lease))
        gate.line.answers_late["range"] = 2.0
        slow = stage.begin(gate, lambda permits: permits.check(*NAMES, "in"))
        stage.run_for(1.0)
        assert stage.do(stage.admin, lambda permits: permits.revoke(*NAMES))
        gate.line.answers_late.clear()
        assert stage.do(gate, lambda permits: permits.check(*other, "in"))
        assert stage.wait(slow), "it was there when it was read"
        assert not stage.asks(gate)


def test_an_answer_that_comes_after_the_trusted_end_is_no() -> None:
    with Stage() as stage:
        stage.grants(3.0)
        stage.gate.line.answers_late["time_to_live"] = 3.5
        assert not stage.asks(stage.gate)


def test_who_checks_no_more_watches_no_more() -> None:
    with Stage() as stage:
        stage.grants(2.0)
        assert stage.asks(stage.gate)
        assert is_watching(stage.gate)
        stage.run_for(3.0)
        assert not is_watching(stage.gate)
        stage.grants(TTL_S)
        assert stage.asks(stage.gate)
        assert is_watching(stage.gate)


# Everything at once.


def _mishap(stage: Stage) -> None:
    random, users = stage.sim.random, [stage.admin, stage.subject, stage.gate]
    user = random.choice(users)
    match random.randrange(6):
        case 0:
            stage.cut(user)
            stage.sim.after(random.uniform(0.1, 15.0), stage.network.heal)
        case 1:
            user.host.stop(random.uniform(0.1, 15.0))
        case 2:
            user.host.suspend(random.uniform(0.1, 15.0))
        case 3:
            user.host.drift_ppm = random.uniform(-20_000, 20_000)
        case 4:
            stage.server.host.stop(random.uniform(0.1, 3.0))
        case _:
            stage.network.heal()


@pytest.mark.parametrize("kind", [KeyspaceServer, EtcdLikeServer])
@pytest.mark.parametrize("seed", seeds(3))
def test_nobody_is_told_yes_after_the_lease_has_ended(
    seed: int, kind: type[KeyspaceServer]
) -> None:
    faults = Faults(loss=0.02, delay=(0.001, 0.1), spike=0.05, spike_delay=(0.1, 3.0))
    with Stage(seed, kind, faults) as stage:
        said = {"yes": 0, "no": 0, "raised": 0}
        random = stage.sim.random

        async def ask(permits: Permits) -> None:
            while True:
                try:
                    yes = await permits.check(*NAMES, "in", timeout=2.0)
                except OUT_OF_TOUCH:
                    said["raised"] += 1
                else:
                    said["yes" if yes else "no"] += 1
                    # Nobody had a turn since it was said: it must be true at this very moment,
                    # unless somebody has ended the lease before its time, which is told later.
                    was_revoked = stage.sim.now - stage.revoked_at < MAX_TTL_S
                    assert not yes or stage.is_there() or was_revoked, f"at {stage.sim.now}"
                await asyncio.sleep(0.05)

        async def grant(permits: Permits) -> None:
            while True:
                try:
                    permit = await permits.grant(*NAMES, ["in"], random.uniform(2.0, MAX_TTL_S))
                    for _ in range(random.randrange(20)):
                        await asyncio.sleep(random.uniform(0.0, 1.0))
                        await stage.admin.line.renew(permit.lease)
                except (*OUT_OF_TOUCH, UnknownLease):
                    pass
                while stage.is_there():  # noqa: ASYNC110  there is no event to await
                    await asyncio.sleep(random.uniform(0.0, 2.0))

        asking = stage.begin(stage.gate, ask)
        granting = stage.begin(stage.admin, grant)
        for _ in range(60):
            stage.run_for(random.uniform(0.5, 8.0))
            _mishap(stage)
            assert not asking.done()
            assert not granting.done()
        assert min(said.values()) > 5, said
