"""What grantors, leases and listeners may do to a renewal manager without breaking a promise."""

import asyncio
import copy
import logging
import random
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    DurationPolicy,
    FixedPolicy,
    Landlord,
    Lease,
    LeaseBatch,
    LeaseDenied,
    LeaseholdError,
    LoadPolicy,
    NoticeKind,
    RenewalManager,
    RenewalNotice,
    Status,
    UntilPolicy,
    is_definite,
)
from leasehold.basics.durations import Requested
from leasehold.leases import renewal_plan
from leasehold.leases.lease import Outcome
from leasehold.leases.renewal_manager import CLOSE_S, MAX_CALLS
from leasehold.testing import Simulation, VirtualClock, current_host, run_virtual


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


class Held(Lease):
    """A lease of a grantor that answers at once, or never, or with an error."""

    def __init__(
        self,
        cookie: Hashable = "lease",
        term_s: float = 20.0,
        *,
        grantor: str = "grantor",
        **more: Any,
    ) -> None:
        super().__init__(term_s, clock=current_host().clock, margin=more.pop("margin", 0.0))
        self._names = (grantor, cookie)
        self.term_s = term_s
        self.asked: list[float] = []
        self.hangs: bool = more.pop("hangs", False)
        self.heeds: bool = more.pop("heeds", True)
        self.error: BaseException | None = more.pop("error", None)
        assert not more

    @property
    def grantor(self) -> Hashable:
        return self._names[0]

    @property
    def cookie(self) -> Hashable:
        return self._names[1]

    async def ask_renew(self, requested: Requested) -> float:
        self.asked.append(self._clock.boottime())
        while self.hangs:
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                if self.heeds:
                    raise
        if self.error is not None:
            raise self.error
        return min(requested, self.term_s) if isinstance(requested, float) else self.term_s

    async def ask_cancel(self) -> None:
        return


class Together(Held):
    """The same, for a grantor that takes batches."""

    calls: list[int]
    down = False

    @property
    def batch_key(self) -> Hashable:
        return "together"

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        self.calls.append(len(wants))
        if type(self).down:
            raise ConnectionRefusedError
        return [requested if isinstance(requested, float) else 20.0 for _, requested in wants]

    async def ask_renew(self, requested: Requested) -> float:
        (outcome,) = await self.ask_renew_all([(self, requested)])
        assert isinstance(outcome, float)
        return outcome


def manager(**settings: Any) -> RenewalManager:
    return RenewalManager(clock=current_host().clock, **settings)


def test_leases_that_failed_together_stay_together() -> None:
    async def main() -> None:
        draw, calls = random.Random(1), list[int]()
        Together.calls, Together.down = calls, False
        ours = manager()
        for number in range(300):
            term_s = draw.uniform(200.0, 600.0)
            ours.renew_until(Together(number, term_s), FOREVER, term_s)
        await asyncio.sleep(1200.0)
        calls.clear()
        Together.down = True
        await asyncio.sleep(120.0)
        assert len(calls) < 300, "a grantor that is down is stormed"
        Together.down = False
        calls.clear()
        await asyncio.sleep(120.0)
        assert len(calls) < 60, "a grantor that comes back is stormed"
        ours.close()

    run_virtual(main)


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, KeyError])
def test_a_listener_that_raises_anything_stops_no_other_and_costs_no_lease(
    error: type[BaseException],
) -> None:
    async def main() -> None:
        clock, heard = current_host().clock, list[RenewalNotice]()
        landlord: Landlord[int] = Landlord(FixedPolicy(20.0), clock=clock)
        leases = [landlord.grant(number) for number in range(6)]

        def bad(notice: RenewalNotice) -> None:
            heard.append(notice)
            raise error

        ours = manager()
        for lease in leases:
            ours.renew_until(lease, FOREVER, 20.0, bad)
        landlord.cancel_all([lease.cookie for lease in leases[:2]])
        await asyncio.sleep(100.0)
        assert len(ours) == len(landlord) == 4
        assert len(heard) == 2
        for lease in leases[2:]:
            ours.set_expiration(lease, datetime.fromtimestamp(clock.wall() + 5.0, UTC))
        await asyncio.sleep(30.0)
        assert len(heard) == 6

    run_virtual(main)


class Unspeakable(LeaseholdError):
    """An error that nobody can print, with a status that is none."""

    status = Status.OK

    def __repr__(self) -> str:
        raise RuntimeError("no words")


def test_an_odd_error_of_one_lease_costs_the_others_of_its_call_nothing() -> None:
    class Odd(Together):
        async def ask_renew_all(
            self, wants: Sequence[tuple[Lease, Requested]]
        ) -> Sequence[Outcome]:
            return [Unspeakable() if lease.cookie == 0 else 20.0 for lease, _ in wants]

    async def main() -> None:
        ours = manager()
        for number in range(5):
            ours.renew_until(Odd(number), FOREVER, 20.0)
        await asyncio.sleep(100.0)
        assert sorted(int(str(lease.cookie)) for lease in ours.leases()) == [1, 2, 3, 4]

    run_virtual(main)


@pytest.mark.parametrize("heeds", [True, False])
def test_a_grantor_that_hangs_starves_no_other(heeds: bool) -> None:
    async def main() -> None:
        ours, lost = manager(), list[RenewalNotice]()
        for number in range(2 * MAX_CALLS):
            ours.renew_until(
                Held(number, 60.0, grantor="dead", hangs=True, heeds=heeds), FOREVER, ANY
            )
        for number in range(50):
            ours.renew_until(Held(number, 60.0, grantor="fine"), FOREVER, ANY, lost.append)
        await asyncio.sleep(300.0)
        assert not lost
        assert len(ours) == 50
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            assert heeds is False, f"{task} is still there"
        ours.close()

    with Simulation(0) as sim:
        host = sim.host("main")
        task = host.start(main)
        sim.run_until(task.done, within=1000.0)
        task.result()
        host.crash()  # tasks that heed nothing end with their process


def test_many_silent_grantors_starve_no_other() -> None:
    """Each of them has one call under way, and all together more than `MAX_CALLS`."""

    async def main() -> None:
        ours, lost = manager(), list[RenewalNotice]()
        for number in range(2 * MAX_CALLS):
            ours.renew_until(
                Held(number, 600.0, grantor=f"silent {number}", hangs=True), FOREVER, ANY
            )
        await asyncio.sleep(400.0)
        for number in range(50):
            ours.renew_until(Held(number, 20.0, grantor="fine"), FOREVER, ANY, lost.append)
        await asyncio.sleep(150.0)
        assert not lost
        ours.close()

    run_virtual(main)


def test_leaving_the_block_waits_for_nobody_who_does_not_heed_cancellation() -> None:
    async def main() -> None:
        before = current_host().clock.monotonic()
        async with manager() as ours:
            ours.renew_until(Held("deaf", 20.0, hangs=True, heeds=False), FOREVER, ANY)
            await asyncio.sleep(19.0)
        assert current_host().clock.monotonic() - before <= 19.0 + CLOSE_S + 0.1

    with Simulation(0) as sim:
        host = sim.host("main")
        task = host.start(main)
        sim.run_until(task.done, within=100.0)
        task.result()
        host.crash()


def test_a_call_that_is_cancelled_before_it_began_is_made_again() -> None:
    async def main() -> None:
        lease, ours = Held(term_s=20.0), manager()
        ours.renew_until(lease, FOREVER, ANY)
        await asyncio.sleep(17.4)
        current_host().stall(0.2)
        ours._wake()  # as its alarm would next
        (task,) = ours._calls
        task.cancel()
        await asyncio.sleep(60.0)
        assert lease in ours
        assert len(lease.asked) >= 3
        ours.close()

    run_virtual(main)


def test_a_constructor_that_refuses_one_lease_keeps_none() -> None:
    async def main() -> None:
        first, second = Held("first"), Held("second")
        with pytest.raises(ValueError, match="has no time zone"):
            RenewalManager(
                {first: FOREVER, second: datetime(2030, 1, 1)},  # noqa: DTZ001
                clock=current_host().clock,
            )
        await asyncio.sleep(1000.0)
        assert first.asked == []

    run_virtual(main)


@pytest.mark.parametrize("how", ["shortened", "cancelled"])
def test_an_end_that_somebody_else_moved_is_seen_at_once(how: str) -> None:
    async def main() -> None:
        clock, heard = current_host().clock, list[float]()
        start = clock.boottime()
        landlord: Landlord[str] = Landlord(DurationPolicy(3600, 600), clock=clock)
        lease = landlord.grant("desk", 600)
        ours = manager()
        ours.renew_until(lease, FOREVER, 600, lambda _n: heard.append(clock.boottime() - start))
        await asyncio.sleep(1.0)
        if how == "cancelled":
            await lease.cancel()
            await asyncio.sleep(1.0)
            assert heard == pytest.approx([1.0], abs=0.01)
        else:
            await lease.renew(20)
            await asyncio.sleep(100.0)
            assert lease in ours
            assert len(landlord) == 1
        ours.close()
        assert not list(lease._watchers)

    run_virtual(main)


def test_a_lease_that_leaves_is_no_longer_watched() -> None:
    async def main() -> None:
        ours = manager()
        for leave in ("remove", "end", "error", "replace"):
            lease = Held(leave, 20.0)
            ours.renew_for(lease, 5.0 if leave == "end" else 500.0, 20.0)
            assert list(lease._watchers) == [ours._watcher]
            if leave == "remove":
                ours.remove(lease)
            elif leave == "error":
                lease.error = LeaseDenied("no")
            elif leave == "replace":
                ours.renew_for(lease, 30.0, 20.0)
                assert list(lease._watchers) == [ours._watcher]
            await asyncio.sleep(40.0)
            assert not list(lease._watchers), leave
        ours.close()

    run_virtual(main)


@pytest.mark.parametrize("margin", [0.0, 0.01, 0.1, 0.5])
def test_a_margin_makes_no_flurry_of_renewals_before_the_desired_end(margin: float) -> None:
    async def main() -> None:
        lease, heard = Held(term_s=1000.0, margin=margin), list[RenewalNotice]()
        ours = manager()
        ours.renew_for(lease, 1500.0, FOREVER, heard.append)
        await asyncio.sleep(1600.0)
        assert 1 <= len(lease.asked) <= 3
        assert [notice.kind for notice in heard] == [NoticeKind.EXPIRED]

    run_virtual(main)


def test_a_hiccup_between_two_readings_of_the_clock_moves_no_renewal() -> None:
    async def main() -> None:
        host = current_host()
        lease, ours = Held(term_s=300.0), manager()
        start = host.clock.boottime()
        ours.renew_until(lease, FOREVER, ANY)
        host.stall(0.02)
        await asyncio.sleep(290.0)
        assert lease.asked[0] - start == pytest.approx(300.0 * 7 / 8, abs=0.1)
        ours.close()

    run_virtual(main)


def test_the_time_for_a_call_is_that_of_its_most_urgent_lease() -> None:
    class Silent(Together):
        async def ask_renew_all(
            self, wants: Sequence[tuple[Lease, Requested]]
        ) -> Sequence[Outcome]:
            self.calls.append(len(wants))
            await asyncio.sleep(1e6)
            raise AssertionError("unreachable")

    async def main() -> None:
        Silent.calls = calls = list[int]()
        ours = manager()
        ours.renew_until(Silent("short", 40.0), FOREVER, ANY)
        ours.renew_until(Silent("long", 66.0), FOREVER, ANY)
        await asyncio.sleep(39.9)
        assert len(calls) >= 3, "one lost answer took all the time that was left"
        ours.close()

    run_virtual(main)


def test_a_listener_that_adds_its_lease_again_makes_no_tight_loop() -> None:
    async def main() -> None:
        lease, ours = Held(term_s=60.0, error=LeaseDenied("no")), manager()

        def again(notice: RenewalNotice) -> None:
            if lease.remaining:
                ours.renew_until(lease, FOREVER, ANY, again)

        ours.renew_until(lease, FOREVER, ANY, again)
        await asyncio.sleep(59.9)
        assert len(lease.asked) < 40
        ours.close()

    run_virtual(main)


def test_a_lease_that_raises_cancelled_error_fails_alone() -> None:
    class Default(Held):
        @property
        def batch_key(self) -> Hashable:
            return "together"

    async def main() -> None:
        leases = [Default(number) for number in range(4)]
        leases[0].error = asyncio.CancelledError()
        batch = LeaseBatch(dict.fromkeys(leases, 20.0))
        with pytest.raises(LeaseholdError, match="1 of the batch failed"):
            await batch.renew_all()
        assert list(batch) == leases[1:]

    run_virtual(main)


def test_the_default_batch_asks_for_all_at_once() -> None:
    class Slow(Held):
        @property
        def batch_key(self) -> Hashable:
            return "together"

        async def ask_renew(self, requested: Requested) -> float:
            await asyncio.sleep(0.3)
            return 10.0

    async def main() -> None:
        ours = manager()
        for number in range(100):
            ours.renew_until(Slow(number, 10.0), FOREVER, 10.0)
        await asyncio.sleep(60.0)
        assert len(ours) == 100
        ours.close()

    run_virtual(main)


def test_what_is_wanted_for_zero_seconds_leaves_its_batch() -> None:
    async def main() -> None:
        landlord: Landlord[int] = Landlord(FixedPolicy(9.0), clock=current_host().clock)
        one, other = landlord.grant(1), landlord.grant(2)
        batch = LeaseBatch({one: 0.0, other: 5.0})
        await batch.renew_all()
        assert list(batch) == [other]

    run_virtual(main)


@pytest.mark.parametrize("sent_at", [float("nan"), float("inf"), -float("inf")])
def test_a_lease_that_was_sent_at_no_time_is_refused(sent_at: float) -> None:
    class Bare(Lease):
        grantor = "g"
        cookie = "c"

        async def ask_renew(self, requested: Requested) -> float:
            return 1.0

        async def ask_cancel(self) -> None:
            return

    with pytest.raises(ValueError, match="sent_at must be a reading of the clock"):
        Bare(5.0, sent_at=sent_at, clock=VirtualClock())


def test_a_group_of_errors_is_as_definite_as_its_worst_member() -> None:
    assert not is_definite(ExceptionGroup("io", [OSError(), TimeoutError()]))
    assert is_definite(ExceptionGroup("mixed", [OSError(), ValueError()]))


def test_policies_can_be_copied_and_so_pickled() -> None:
    load = LoadPolicy(10.0, 300.0, 7200.0)
    Landlord(load, clock=VirtualClock())
    assert repr(copy.deepcopy(load)) == repr(load)
    until = UntilPolicy(datetime.now(UTC) + timedelta(hours=1), FixedPolicy(5.0))
    assert repr(copy.deepcopy(until)) == repr(until)


def test_leases_that_wait_for_a_busy_grantor_go_in_one_call_when_it_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewal_plan, "MAX_CALLS_PER_GRANTOR", 1)

    async def main() -> None:
        Together.calls, Together.down = calls, False
        ours = manager()
        ours.renew_until(Held("slow", 77.0, hangs=True), FOREVER, ANY)
        for number in range(6):
            ours.renew_until(Together(number, 80.0), FOREVER, 80.0)
        await asyncio.sleep(78.5)  # the slow one is given up after a while, and gone by now
        assert calls == [6]
        ours.close()

    calls = list[int]()
    run_virtual(main)
