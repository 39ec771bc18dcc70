"""When leases end: each of the four strategies, in virtual time."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from itertools import count, pairwise
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    DurationPolicy,
    EndReason,
    ExpiryStrategy,
    Landlord,
    Lease,
    UnknownLease,
    exact,
    lazy,
    per_lease,
    polling,
)
from leasehold.leases.expiry_strategies import LAZY_BUDGET, SLICE
from leasehold.leases.lease_clock import GRACE_S, IDLE_TICK_S, MAX_STEP_S
from leasehold.testing import Host, Simulation, VirtualClock, current_host, run_virtual

POLICY = DurationPolicy(FOREVER, 30.0)
TIMELY: list[ExpiryStrategy] = [exact(), per_lease()]
"""Strategies that end a lease at its deadline."""
WITH_TIMERS: list[ExpiryStrategy] = [*TIMELY, polling(0.05)]

LATE_S = 0.02
"""How late a timely strategy may be without a stall: a per-lease timer looks again after 10 ms."""


class House:
    """A landlord on the current host, whose owner writes down when it was told what."""

    def __init__(self, expiry: ExpiryStrategy | None, **settings: Any) -> None:
        self.clock = current_host().clock
        self.start = self.clock.monotonic()
        self.told: list[tuple[str, str, float]] = []
        usual: dict[str, Any] = {
            "policy": POLICY,
            "on_ended": self.on_ended,
            "expiry": expiry,
            "clock": self.clock,
            "cookies": count(1).__next__,
        }
        self.landlord: Landlord[str] = Landlord(**usual | settings)

    def at(self) -> float:
        """Seconds since the house was built."""
        return self.clock.monotonic() - self.start

    def on_ended(self, resource: str, reason: EndReason) -> None:
        self.told.append((resource, str(reason), self.at()))

    @property
    def names(self) -> list[str]:
        return [resource for resource, _, _ in self.told]


def _named(strategy: ExpiryStrategy) -> str:
    return type(strategy).__name__


timely = pytest.mark.parametrize("expiry", TIMELY, ids=_named)
with_timers = pytest.mark.parametrize("expiry", WITH_TIMERS, ids=_named)


def test_exact_is_the_default() -> None:
    async def main() -> None:
        house = House(None)
        house.landlord.grant("resource", 10.0)
        await asyncio.sleep(10.001)
        assert house.names == ["resource"]

    run_virtual(main)


@timely
@pytest.mark.parametrize("term", [0.05, 0.099, 0.1, 0.35, 1.0, 10.0, 3600.0])
def test_a_lease_ends_at_its_deadline_by_itself(expiry: ExpiryStrategy, term: float) -> None:
    async def main() -> None:
        house = House(expiry)
        house.landlord.grant("resource", term)
        await asyncio.sleep(term + 1.0)
        [(resource, reason, at)] = house.told
        assert (resource, reason) == ("resource", "expired")
        assert term <= at + 1e-9
        assert at <= term + LATE_S
        assert len(house.landlord) == 0

    run_virtual(main)


@timely
def test_a_renewed_lease_ends_at_its_new_deadline(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        lease = house.landlord.grant("resource", 1.0)
        for _ in range(20):
            await asyncio.sleep(0.5)
            await lease.renew(1.0)
        assert house.told == []
        await asyncio.sleep(2.0)
        assert house.names == ["resource"]
        assert house.told[0][2] == pytest.approx(11.0, abs=LATE_S)

    run_virtual(main)


@timely
def test_a_shortened_lease_ends_at_its_earlier_deadline(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        leases = [
            house.landlord.grant(str(number), FOREVER if number else 60.0) for number in (0, 1)
        ]
        await asyncio.sleep(1.0)
        for lease in leases:
            await lease.renew(0.5)
        await asyncio.sleep(1.0)
        assert sorted(house.names) == ["0", "1"]
        assert [at for _, _, at in house.told] == pytest.approx([1.5, 1.5], abs=LATE_S)

    run_virtual(main)


@timely
def test_a_sleeper_is_woken_when_an_earlier_end_arrives(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        for name, term in (("late", 5.0), ("early", 1.0), ("first", 0.02)):
            house.landlord.grant(name, term)
        await asyncio.sleep(6.0)
        assert house.names == ["first", "early", "late"]

    run_virtual(main)


@with_timers
def test_the_owner_is_told_of_a_cancel_at_once_and_never_again(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        lease = house.landlord.grant("resource", 1.0)
        await lease.cancel()
        assert house.told == [("resource", "cancelled", 0.0)]
        await asyncio.sleep(5.0)
        assert len(house.told) == 1

    run_virtual(main)


@pytest.mark.parametrize("interval", [0.5, 2.0, timedelta(seconds=3)])
def test_polling_ends_leases_at_most_an_interval_late(interval: float | timedelta) -> None:
    async def main() -> None:
        house = House(polling(interval))
        seconds = interval.total_seconds() if isinstance(interval, timedelta) else interval
        for number in range(20):
            house.landlord.grant(str(number), 0.1 + number * 0.7)
        await asyncio.sleep(30.0)
        lateness = [at - (0.1 + int(name) * 0.7) for name, _, at in house.told]
        assert len(lateness) == 20
        assert min(lateness) >= -1e-9
        assert seconds / 2 < max(lateness) <= seconds + LATE_S

    run_virtual(main)


def test_polling_refuses_a_lease_between_its_looks_all_the_same() -> None:
    async def main() -> None:
        house = House(polling(60.0))
        lease = house.landlord.grant("resource", 1.0)
        await asyncio.sleep(1.5)
        assert house.told == []
        with pytest.raises(UnknownLease, match="expired"):
            house.landlord.resource(lease.cookie)
        assert house.names == ["resource"]

    run_virtual(main)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (0, ValueError),
        (-1.0, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (ANY, ValueError),
        (FOREVER, ValueError),
        (None, TypeError),
        (True, TypeError),
        ("5", TypeError),
    ],
)
def test_a_bad_interval_is_refused_by_name(bad: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^interval must "):
        polling(bad)


def test_a_lazy_landlord_ends_nothing_until_somebody_calls() -> None:
    async def main() -> None:
        house = House(lazy())
        house.landlord.grant("resource", 1.0)
        await asyncio.sleep(100.0)
        assert house.told == []
        _ = house.landlord.now
        assert house.told == [("resource", "expired", 100.0)]

    run_virtual(main)


@pytest.mark.parametrize(
    "call",
    [
        lambda landlord: landlord.grant("new"),
        lambda landlord: landlord.now,
        lambda landlord: landlord.renew_all([]),
        lambda landlord: landlord.cancel_all([]),
        lambda landlord: landlord.renew(1000),
        lambda landlord: landlord.resource(1000),
    ],
)
def test_every_call_to_a_lazy_landlord_first_retires_a_bounded_number(
    call: Callable[[Landlord[str]], object],
) -> None:
    clock, told, cookies = VirtualClock(), [], iter([*range(40), *range(1000, 1100)])

    def on_ended(resource: str, _reason: EndReason) -> None:
        told.append(resource)

    landlord: Landlord[str] = Landlord(
        POLICY, expiry=lazy(), on_ended=on_ended, clock=clock, cookies=cookies.__next__
    )
    for number in range(40):
        landlord.grant(str(number), 1.0)
    landlord.grant("stays", FOREVER)
    clock.advance(1.0)
    call(landlord)
    assert len(told) == LAZY_BUDGET
    for _ in range(3):
        call(landlord)
    assert len(told) == 40


def test_for_a_lazy_landlord_all_time_counts_since_a_stall_looks_like_a_quiet_hour() -> None:
    clock = VirtualClock()
    landlord: Landlord[str] = Landlord(POLICY, expiry=lazy(), clock=clock)
    lease = landlord.grant("resource", 3600.0)
    clock.advance(3599.0)
    assert landlord.resource(lease.cookie).remaining == 1.0
    clock.advance(1.0)
    with pytest.raises(UnknownLease, match="expired"):
        landlord.resource(lease.cookie)
    assert landlord.lag_s == 0.0


@with_timers
def test_a_grant_without_a_running_loop_is_refused_and_changes_nothing(
    expiry: ExpiryStrategy,
) -> None:
    landlord: Landlord[str] = Landlord(POLICY, expiry=expiry, clock=VirtualClock())
    with pytest.raises(RuntimeError, match="expiry needs a running event loop") as caught:
        landlord.grant("resource", 10.0)
    assert "expiry=lazy()" in str(caught.value)
    assert len(landlord) == 0


@with_timers
def test_nothing_runs_while_no_lease_can_end(expiry: ExpiryStrategy) -> None:
    with Simulation(0) as sim:
        host = sim.host("main")
        house = host.call(House, expiry)
        lease = host.call(house.landlord.grant, "forever", FOREVER)
        host.call(house.landlord.grant, "short", 0.1)
        sim.run_for(5.0)
        assert house.names == ["short"]
        before = sim.turns
        sim.run_for(100_000.0)
        assert sim.turns - before <= 1
        host.call(house.landlord.renew, lease.cookie, 1.0)
        sim.run_for(5.0)
        assert house.names == ["short", "forever"]


@with_timers
def test_time_in_which_no_lease_could_end_is_no_stall(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        lease = house.landlord.grant("forever", FOREVER)
        await asyncio.sleep(100.0)
        await lease.renew(FOREVER)
        assert house.landlord.lag_s == 0.0
        assert house.landlord.now == pytest.approx(100.0)

    run_virtual(main)


@with_timers
def test_an_idle_loop_keeps_lease_time_going(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        house.landlord.grant("resource", 1000.0)
        await asyncio.sleep(60.0)
        assert house.landlord.lag_s == 0.0
        assert house.landlord.now == pytest.approx(60.0)

    run_virtual(main)


@with_timers
def test_an_idle_loop_reads_the_clock_every_tenth_of_a_second(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        house.landlord.grant("resource", 1000.0)
        reads: list[float] = []
        for _ in range(1000):
            await asyncio.sleep(0.01)
            reads.append(house.landlord.table.clock.now)
        assert max(later - sooner for sooner, later in pairwise(reads)) <= IDLE_TICK_S + 1e-6
        assert reads[-1] == pytest.approx(10.0, abs=IDLE_TICK_S)

    run_virtual(main)


@with_timers
@pytest.mark.parametrize("stall", [0.3, 1.0, 10.0, 3600.0])
def test_a_stall_ages_no_lease_by_more_than_a_quarter_second(
    expiry: ExpiryStrategy, stall: float
) -> None:
    async def main() -> None:
        house = House(expiry)
        lease = house.landlord.grant("resource", 60.0)
        await asyncio.sleep(1.0)
        current_host().stall(stall)
        await asyncio.sleep(0)
        remaining = house.landlord.resource(lease.cookie).remaining
        assert isinstance(remaining, float)
        assert 59.0 - MAX_STEP_S - IDLE_TICK_S <= remaining <= 59.0
        assert house.landlord.lag_s >= stall - MAX_STEP_S - IDLE_TICK_S - 1e-6

    run_virtual(main)


@with_timers
@pytest.mark.parametrize("seed", range(5))
def test_a_renewal_that_waits_in_a_socket_while_the_server_is_stopped_is_heard(
    expiry: ExpiryStrategy, seed: int
) -> None:
    with Simulation(seed) as sim:
        host = sim.host("server")
        house = host.call(House, expiry)
        lease = host.call(house.landlord.grant, "resource", 0.2)
        host.stop(0.9)
        renewed: list[object] = []
        sim.at(
            0.15,
            lambda: host.deliver(lambda: renewed.append(house.landlord.renew(lease.cookie, 5.0))),
        )
        sim.run_for(3.0)
        assert renewed == [5.0]
        assert house.told == []


@with_timers
@pytest.mark.parametrize("seed", range(5))
def test_nothing_ends_before_one_full_poll_after_a_cut(expiry: ExpiryStrategy, seed: int) -> None:
    async def main() -> None:
        house = House(expiry)
        lease = house.landlord.grant("resource", 0.1)
        current_host().stall(0.6)
        # The stall is seen in the call below; whatever the loop serves first, this turn ends none.
        assert house.landlord.resource(lease.cookie).remaining == 0.0
        assert house.told == []
        heard: list[object] = []
        current_host().deliver(lambda: heard.append(house.landlord.renew(lease.cookie, 5.0)))
        await asyncio.sleep(1.0)
        assert heard == [5.0]
        assert house.told == []

    run_virtual(main, seed=seed)


@timely
def test_after_a_short_cut_a_due_lease_ends_as_soon_as_the_sockets_were_polled(
    expiry: ExpiryStrategy,
) -> None:
    async def main() -> None:
        house = House(expiry)
        house.landlord.grant("resource", 0.2)
        await asyncio.sleep(0.1)
        current_host().stall(0.8)
        await asyncio.sleep(0.2)
        assert house.names == ["resource"]
        assert house.told[0][2] <= 0.9 + LATE_S

    run_virtual(main)


@timely
@pytest.mark.parametrize(("term", "grace"), [(0.5, 0.5), (2.0, 2.0), (60.0, GRACE_S)])
def test_after_a_long_cut_no_lease_ends_for_the_shorter_of_its_term_and_five_seconds(
    expiry: ExpiryStrategy, term: float, grace: float
) -> None:
    async def main() -> None:
        house = House(expiry)
        house.landlord.grant("resource", term)
        await asyncio.sleep(term - 0.05)
        current_host().stall(30.0)
        await asyncio.sleep(0)
        back_at = house.at()
        await asyncio.sleep(10.0)
        [(_, _, ended_at)] = house.told
        assert back_at + grace - 1e-6 <= ended_at <= back_at + grace + 0.5

    run_virtual(main)


@timely
@pytest.mark.parametrize("free_s", [0.02, 0.001])
def test_under_overload_leases_end_late_but_do_end(expiry: ExpiryStrategy, free_s: float) -> None:
    async def main() -> None:
        house = House(expiry)
        house.landlord.grant("resource", 2.0)
        for _ in range(20):  # half a second at a time, of which a quarter counts
            current_host().stall(0.5)
            await asyncio.sleep(free_s)
        [(_, _, ended_at)] = house.told
        assert 3.5 <= ended_at <= 5.0
        assert house.landlord.lag_s > 1.0

    run_virtual(main)


@with_timers
def test_the_machine_may_sleep_without_ageing_any_lease(expiry: ExpiryStrategy) -> None:
    with Simulation(0) as sim:
        host = sim.host("main")
        house = host.call(House, expiry)
        host.call(house.landlord.grant, "resource", 10.0)
        sim.run_for(1.0)
        host.suspend(3600.0)
        sim.run_for(3608.0)
        assert house.told == []
        sim.run_for(3.0)
        assert house.names == ["resource"]


@with_timers
def test_many_leases_that_are_due_at_once_all_end(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        for number in range(4 * SLICE):
            house.landlord.grant(str(number), 1.0)
        await asyncio.sleep(1.2)
        assert sorted(house.names, key=int) == [str(number) for number in range(4 * SLICE)]
        assert len(house.landlord) == 0

    run_virtual(main)


def test_ending_many_leases_lets_others_run_in_between() -> None:
    async def main() -> None:
        turns: list[int] = []

        def on_ended(_resource: str, _reason: EndReason) -> None:
            current_host().stall(0.0001)  # an owner that takes a tenth of a millisecond

        house = House(exact(), on_ended=on_ended)
        for number in range(8 * SLICE):
            house.landlord.grant(str(number), 1.0)
        await asyncio.sleep(1.0)
        while len(house.landlord):
            turns.append(len(house.landlord))
            await asyncio.sleep(0)
        assert len(set(turns)) >= 4  # seen at work, slice by slice

    run_virtual(main)


@with_timers
def test_an_owner_that_raises_stops_neither_the_others_nor_the_timers(
    expiry: ExpiryStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        told: list[str] = []

        def on_ended(resource: str, _reason: EndReason) -> None:
            told.append(resource)
            raise KeyError(resource)

        house = House(expiry, on_ended=on_ended)
        for name, term in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
            house.landlord.grant(name, term)
        await asyncio.sleep(3.0)
        assert sorted(told) == ["a", "b", "c"]

    run_virtual(main)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 3


@with_timers
def test_an_owner_may_grant_renew_and_cancel_while_it_is_told(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        told: list[tuple[str, float]] = []

        def on_ended(resource: str, _reason: EndReason) -> None:
            told.append((resource, house.at()))
            if resource == "first":
                house.landlord.grant("heir", 1.0)
                house.landlord.renew(2, 5.0)
                house.landlord.cancel(3)

        house = House(expiry, on_ended=on_ended)
        for name, term in (("first", 1.0), ("renewed", 2.0), ("cancelled", 3.0)):
            house.landlord.grant(name, term)
        await asyncio.sleep(10.0)
        assert [resource for resource, _ in told] == ["first", "cancelled", "heir", "renewed"]
        assert [at for _, at in told] == pytest.approx([1.0, 1.0, 2.0, 6.0], abs=0.15)

    run_virtual(main)


class Moody(DurationPolicy):
    """Fails, or keeps leases, as a test says."""

    def __init__(self) -> None:
        super().__init__(FOREVER, 30.0)
        self.verdict: bool | Exception | None = None

    def is_current(self, leased: Any, now: float) -> bool:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return super().is_current(leased, now) if self.verdict is None else self.verdict


@with_timers
def test_a_policy_that_raises_in_is_current_keeps_its_leases_until_it_is_well_again(
    expiry: ExpiryStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        policy = Moody()
        house = House(expiry, policy=policy, name="here")
        house.landlord.grant("resource", 1.0)
        policy.verdict = KeyError("bug")
        await asyncio.sleep(3.0)
        assert house.told == []
        policy.verdict = None
        await asyncio.sleep(0.5)
        assert house.names == ["resource"]

    run_virtual(main)
    assert "the policy of landlord 'here' failed in is_current" in caplog.messages


@with_timers
def test_a_policy_may_keep_a_lease_beyond_its_deadline(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        policy = Moody()
        house = House(expiry, policy=policy)
        house.landlord.grant("resource", 1.0)
        policy.verdict = True
        await asyncio.sleep(3.0)
        assert house.told == []
        policy.verdict = False
        await asyncio.sleep(0.5)
        assert house.names == ["resource"]

    run_virtual(main)


@with_timers
def test_a_lease_factory_that_raises_leaves_no_timer_behind(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        def factory(*_args: object) -> Lease:
            raise KeyError("bug")

        house = House(expiry, lease_factory=factory)
        with pytest.raises(KeyError, match="bug"):
            house.landlord.grant("resource", 1.0)
        await asyncio.sleep(5.0)
        assert (house.told, len(house.landlord)) == ([], 0)

    run_virtual(main)


@with_timers
def test_a_cookie_that_is_used_again_does_not_end_with_the_old_lease(
    expiry: ExpiryStrategy,
) -> None:
    async def main() -> None:
        house = House(expiry, cookies=lambda: "same")
        house.landlord.grant("first", 1.0)
        house.landlord.cancel("same")
        house.landlord.grant("second", 3.0)
        await asyncio.sleep(2.0)
        assert house.names == ["first"]
        await asyncio.sleep(2.0)
        assert [(name, reason) for name, reason, _ in house.told] == [
            ("first", "cancelled"),
            ("second", "expired"),
        ]

    run_virtual(main)


@with_timers
def test_a_pending_lease_does_not_age_and_ends_a_term_after_its_answer(
    expiry: ExpiryStrategy,
) -> None:
    async def main() -> None:
        house = House(expiry)
        lease = house.landlord.grant("resource", 1.0, pending=True)
        await asyncio.sleep(30.0)
        assert house.told == []
        house.landlord.answer(lease.cookie)
        await asyncio.sleep(2.0)
        assert house.names == ["resource"]
        assert house.told[0][2] == pytest.approx(31.0, abs=0.1)

    run_virtual(main)


@with_timers
def test_a_closed_landlord_ends_no_lease(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        house.landlord.grant("resource", 1.0)
        current_host().stall(0.5)
        _ = house.landlord.now  # a poll is awaited now
        house.landlord.close()
        await asyncio.sleep(10.0)
        assert house.told == []

    run_virtual(main)


@with_timers
def test_an_owner_may_close_the_landlord_and_then_no_lease_ends(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        told: list[str] = []

        def on_ended(resource: str, _reason: EndReason) -> None:
            told.append(resource)
            house.landlord.close()

        house = House(expiry, on_ended=on_ended)
        house.landlord.grant("first", 1.0)
        house.landlord.grant("second", 2.0)
        await asyncio.sleep(10.0)
        assert told == ["first"]

    run_virtual(main)


def _restarted(host: Host) -> None:
    """Give the host another event loop, on the same clock."""
    host.crash()
    host.restart()


@with_timers
def test_a_grant_in_another_event_loop_moves_all_leases_there(expiry: ExpiryStrategy) -> None:
    with Simulation(0) as sim:
        host = sim.host("main")
        house = host.call(House, expiry)
        host.call(house.landlord.grant, "old", 8.0)
        sim.run_for(1.0)
        _restarted(host)
        host.call(house.landlord.grant, "new", 1.0)
        sim.run_for(1.5)
        assert house.names == ["new"]
        sim.run_for(10.0)
        assert house.names == ["new", "old"]


@with_timers
def test_any_call_in_another_event_loop_moves_all_leases_there(expiry: ExpiryStrategy) -> None:
    with Simulation(0) as sim:
        host = sim.host("main")
        house = host.call(House, expiry)
        lease = host.call(house.landlord.grant, "renewed", FOREVER)
        host.call(house.landlord.grant, "old", 8.0)
        _restarted(host)
        assert host.call(house.landlord.renew, lease.cookie, 3.0) == 3.0
        sim.run_for(3.5)
        assert house.names == ["renewed"]
        sim.run_for(5.0)
        assert house.names == ["renewed", "old"]


@with_timers
def test_when_its_event_loop_is_closed_a_landlord_still_answers(expiry: ExpiryStrategy) -> None:
    clock = VirtualClock()
    landlord: Landlord[str] = Landlord(
        POLICY, expiry=expiry, clock=clock, cookies=count(1).__next__
    )

    async def grant() -> None:
        landlord.grant("one", FOREVER)

    asyncio.run(grant())
    assert landlord.renew(1, 10.0) == 10.0
    clock.advance(9.0)
    assert landlord.resource(1).remaining == pytest.approx(1.0)
    clock.advance(2.0)
    with pytest.raises(UnknownLease):
        landlord.resource(1)


@with_timers
def test_after_a_while_without_a_loop_leases_have_their_grace_in_the_next_one(
    expiry: ExpiryStrategy,
) -> None:
    with Simulation(0) as sim:
        host = sim.host("main")
        house = host.call(House, expiry)
        host.call(house.landlord.grant, "old", 8.0)
        sim.run_for(1.0)
        _restarted(host)
        sim.run_for(100.0)
        host.call(house.landlord.grant, "new", 60.0)
        sim.run_for(GRACE_S - 0.1)
        assert house.told == []
        sim.run_for(5.0)
        assert house.names == ["old"]


@with_timers
def test_a_poll_that_a_dead_loop_awaited_is_awaited_again_in_the_next_one(
    expiry: ExpiryStrategy,
) -> None:
    with Simulation(0) as sim:
        host = sim.host("main")
        house = host.call(House, expiry)
        host.call(house.landlord.grant, "old", 0.1)

        def see_a_stall() -> None:
            host.stall(0.5)
            assert house.landlord.now == pytest.approx(MAX_STEP_S)

        host.call(see_a_stall)
        _restarted(host)
        sim.run_for(0.5)
        host.call(house.landlord.grant, "new", 60.0)
        sim.run_for(1.0)
        assert house.names == ["old"]


@with_timers
def test_lease_time_lags_behind_by_what_was_cut_and_says_so(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        house = House(expiry)
        house.landlord.grant("resource", 1000.0)
        for _ in range(3):
            await asyncio.sleep(1.0)
            current_host().stall(2.0)
            await asyncio.sleep(0)
        await asyncio.sleep(1.0)
        assert house.landlord.now + house.landlord.lag_s == pytest.approx(house.at())
        assert house.landlord.lag_s == pytest.approx(6.0 - 3 * MAX_STEP_S, abs=3 * IDLE_TICK_S)

    run_virtual(main)


@pytest.mark.parametrize("make", [exact, lazy, per_lease, lambda: polling(5.0)])
def test_a_strategy_is_a_description_that_can_be_compared(
    make: Callable[[], ExpiryStrategy],
) -> None:
    assert make() == make()
    assert len({make(), make()}) == 1
    assert make() != polling(7.0)


@with_timers
def test_nothing_ticks_for_a_lease_that_got_no_end_later_on(expiry: ExpiryStrategy) -> None:
    with Simulation(0) as sim:
        host = sim.host("main")
        house = host.call(House, expiry)
        lease = host.call(house.landlord.grant, "resource", 2.0)
        host.call(house.landlord.renew, lease.cookie, FOREVER)
        sim.run_for(5.0)
        turns = sim.turns
        sim.run_for(100.0)
        assert sim.turns == turns
