"""`RenewalManager`: each rule of the contract, in virtual time."""

import asyncio
import functools
import inspect
import logging
import math
from collections.abc import Callable, Coroutine, Hashable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    Closed,
    ConnectionLost,
    DurationPolicy,
    Landlord,
    Lease,
    LeaseDenied,
    NoticeKind,
    RenewalManager,
    RenewalNotice,
    UnknownLease,
    lazy,
)
from leasehold.leases.renewal_manager import MAX_CALLS, SUSPEND_CHECK_S
from leasehold.leases.renewal_plan import MAX_CALLS_PER_GRANTOR
from leasehold.testing import Simulation, VirtualClock, current_host, run_virtual


class Grantor:
    """Answers renewals as a test says, and writes down when it was asked for what."""

    def __init__(self, term: Any = 80.0) -> None:
        self.clock = current_host().clock
        self.start = self.clock.boottime()
        self.term: Any = term
        self.error: BaseException | None = None
        self.takes_s = 0.0
        self.calls: list[tuple[float, list[tuple[Hashable, Any]]]] = []
        self.flying = 0
        self.most_outstanding = 0
        self.cancelled: list[Hashable] = []

    def lease(self, name: Hashable = "lease", term: Any = None, *, batches: bool = True) -> "Held":
        return Held(self, name, self.term if term is None else term, batches=batches)

    def at(self) -> float:
        return self.clock.boottime() - self.start

    async def ask(self, wants: list[tuple[Hashable, Any]]) -> Any:
        self.calls.append((self.at(), wants))
        self.flying += 1
        self.most_outstanding = max(self.most_outstanding, self.flying)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.flying -= 1
        if self.error is not None:
            raise self.error
        return self.term

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.calls]

    @property
    def asked(self) -> list[Any]:
        return [requested for _, wants in self.calls for _, requested in wants]


class Held(Lease):
    """A lease of a `Grantor`."""

    def __init__(self, at: Grantor, name: Hashable, term: Any, *, batches: bool) -> None:
        super().__init__(term, clock=at.clock)
        self.at = at
        self._name = name
        self._batches = batches

    @property
    def grantor(self) -> Hashable:
        return "grantor"

    @property
    def cookie(self) -> Hashable:
        return self._name

    @property
    def batch_key(self) -> object:
        return self.at if self._batches else super().batch_key

    async def ask_renew(self, requested: object) -> Any:
        return await self.at.ask([(self._name, requested)])

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, object]]) -> Any:
        answer = await self.at.ask([(lease.cookie, requested) for lease, requested in wants])
        return answer if isinstance(answer, list) else [answer] * len(wants)

    async def ask_cancel(self) -> None:
        self.at.cancelled.append(self._name)


class Scene:
    """A manager and a grantor on the current host."""

    def __init__(self, term: Any = 80.0, **settings: Any) -> None:
        self.grantor = Grantor(term)
        self.clock = self.grantor.clock
        self.manager = RenewalManager(clock=self.clock, **settings)
        self.notices: list[RenewalNotice] = []
        self.noticed_at: list[float] = []

    def listen(self, notice: RenewalNotice) -> None:
        assert notice.lease not in self.manager  # it leaves before the listener is called
        self.notices.append(notice)
        self.noticed_at.append(self.grantor.at())

    def wall(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(self.clock.wall() + seconds, UTC)


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in virtual time."""

    @functools.wraps(test)
    def run(**kwargs: Any) -> None:
        async def main() -> None:
            await test(**kwargs)

        run_virtual(main)

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


# Keeping leases alive.


@virtual
async def test_a_lease_is_kept_alive_until_its_desired_end() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.manager.renew_for(lease, 1000.0, listener=scene.listen)
    for _ in range(99):
        await asyncio.sleep(10.0)
        assert lease.remaining > 0.0  # type: ignore[operator]
        assert lease in scene.manager
    await asyncio.sleep(15.0)
    [notice] = scene.notices
    assert (notice.kind, notice.error) == (NoticeKind.EXPIRED, None)
    assert scene.noticed_at == pytest.approx([1000.0], abs=0.01)
    assert 10 <= len(scene.grantor.calls) <= 16


@virtual
async def test_a_manager_is_constructed_empty_or_with_leases_and_their_desired_ends() -> None:
    scene = Scene()
    assert (len(scene.manager), scene.manager.leases()) == (0, [])
    one, other = scene.grantor.lease("one"), scene.grantor.lease("other")
    ends: dict[Lease, Any] = {one: FOREVER, other: scene.wall(50.0)}
    manager = RenewalManager(ends, clock=scene.clock)
    assert manager.leases() == [one, other]
    assert {lease: manager.expiration(lease) for lease in manager.leases()} == ends
    manager.close()


@virtual
async def test_leases_given_to_the_constructor_have_its_duration_and_listener() -> None:
    scene = Scene()
    lease, noticed = scene.grantor.lease("one", 80.0), list[RenewalNotice]()
    manager = RenewalManager({lease: FOREVER}, 33.0, noticed.append, clock=scene.clock)
    await asyncio.sleep(75.0)
    scene.grantor.error = LeaseDenied("no more")
    await asyncio.sleep(100.0)
    assert set(scene.grantor.asked) == {33.0}
    assert [notice.lease for notice in noticed] == [lease]
    manager.close()


@pytest.mark.parametrize("name", ["remove", "expiration"])
def test_what_is_no_lease_is_a_type_error(name: str) -> None:
    with pytest.raises(TypeError, match="lease must be a Lease, not None"):
        getattr(RenewalManager(), name)(None)


@pytest.mark.parametrize(
    ("desired", "renew_duration", "asked"),
    [
        (FOREVER, ANY, ANY),
        (FOREVER, FOREVER, FOREVER),
        (FOREVER, 30, 30.0),
        (FOREVER, timedelta(seconds=30), 30.0),
        (100.0, FOREVER, 30.0),
        (100.0, 20.0, 20.0),
        (100.0, 40.0, 30.0),
        (timedelta(seconds=100), FOREVER, 30.0),
    ],
)
@virtual
async def test_asked_for_is_any_or_the_shorter_of_the_renew_duration_and_what_is_wanted(
    desired: Any, renew_duration: Any, asked: Any
) -> None:
    scene = Scene()
    scene.manager.renew_for(scene.grantor.lease(), desired, renew_duration)
    await asyncio.sleep(71.0)
    assert scene.grantor.times == pytest.approx([70.0], abs=0.01)
    [requested] = scene.grantor.asked
    if isinstance(asked, float):
        assert requested == pytest.approx(asked, abs=0.01)
    else:
        assert requested is asked
    scene.manager.close()


@virtual
async def test_unless_told_otherwise_all_is_asked_for_that_is_wanted() -> None:
    scene = Scene()
    scene.manager.renew_until(scene.grantor.lease("a"), FOREVER)
    scene.manager.renew_until(scene.grantor.lease("b"), scene.wall(500.0))
    await asyncio.sleep(71.0)
    assert scene.grantor.asked[0] is FOREVER
    assert scene.grantor.asked[1] == pytest.approx(430.0, abs=0.01)
    scene.manager.close()


@virtual
async def test_a_desired_end_before_the_actual_one_is_never_renewed_and_stays_until_then() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, scene.wall(75.0), listener=scene.listen)
    await asyncio.sleep(74.9)
    assert lease in scene.manager
    await asyncio.sleep(0.2)
    assert scene.grantor.calls == []
    assert [notice.kind for notice in scene.notices] == [NoticeKind.EXPIRED]


@virtual
async def test_a_lease_without_end_is_never_renewed() -> None:
    scene = Scene(FOREVER)
    scene.manager.renew_until(scene.grantor.lease(), FOREVER)
    await asyncio.sleep(1e8)
    assert scene.grantor.calls == []
    assert len(scene.manager) == 1


@pytest.mark.parametrize("form", ["until", "for"])
@virtual
async def test_the_desired_end_runs_on_real_time_that_no_jump_of_the_wall_clock_moves(
    form: str,
) -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    if form == "until":
        scene.manager.renew_until(lease, scene.wall(200.0), listener=scene.listen)
    else:
        scene.manager.renew_for(lease, 200.0, listener=scene.listen)
    current_host().jump_wall(-1e6)
    await asyncio.sleep(199.0)
    assert scene.notices == []
    current_host().jump_wall(3e6)
    await asyncio.sleep(2.0)
    assert scene.noticed_at == pytest.approx([200.0], abs=0.01)


# Leaving.


@virtual
async def test_a_notice_carries_manager_lease_desired_end_and_no_error_if_all_went_well() -> None:
    scene = Scene()
    lease, end = scene.grantor.lease(), scene.wall(100.0)
    scene.manager.renew_until(lease, end, listener=scene.listen)
    await asyncio.sleep(101.0)
    [notice] = scene.notices
    assert notice == RenewalNotice(scene.manager, lease, NoticeKind.EXPIRED, end, None)
    assert notice.lease is lease


@pytest.mark.parametrize(
    "error",
    [LeaseDenied("full"), UnknownLease("lease"), KeyError("bug"), ZeroDivisionError()],
    ids=repr,
)
@virtual
async def test_a_definite_error_makes_a_lease_leave_at_once(error: BaseException) -> None:
    scene = Scene()
    scene.grantor.error = error
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    await asyncio.sleep(200.0)
    assert len(scene.grantor.calls) == 1
    [notice] = scene.notices
    assert notice == RenewalNotice(scene.manager, lease, NoticeKind.FAILED, FOREVER, error)
    assert scene.noticed_at == pytest.approx([70.0], abs=0.01)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("gone"),
        ConnectionResetError(),
        TimeoutError(),
        EOFError(),
        asyncio.CancelledError(),
    ],
    ids=repr,
)
@virtual
async def test_indefinite_errors_are_retried_until_the_actual_end_passes(
    error: BaseException,
) -> None:
    scene = Scene()
    scene.grantor.error = error
    scene.manager.renew_until(scene.grantor.lease(), FOREVER, listener=scene.listen)
    await asyncio.sleep(200.0)
    assert 5 <= len(scene.grantor.calls) <= 30
    assert max(scene.grantor.times) < 80.0
    [notice] = scene.notices
    assert (notice.kind, type(notice.error)) == (NoticeKind.FAILED, type(error))
    assert scene.noticed_at == pytest.approx([80.0], abs=0.01)


@virtual
async def test_a_grantor_that_comes_back_in_time_is_asked_again() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.grantor.error = ConnectionLost("gone")
    scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    await asyncio.sleep(78.0)
    scene.grantor.error = None
    await asyncio.sleep(60.0)
    assert scene.notices == []
    assert lease in scene.manager
    scene.manager.close()


@virtual
async def test_failures_are_logged_even_with_no_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.grantor.error = LeaseDenied("full")
    scene.manager.renew_until(scene.grantor.lease("mine"), FOREVER)
    await asyncio.sleep(71.0)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "'mine'" in record.getMessage()
    assert "full" in record.getMessage()


@virtual
async def test_the_log_of_a_failure_names_the_lease_as_commands_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.grantor.error = LeaseDenied("full")
    lease = scene.grantor.lease("mine")
    scene.manager.renew_until(lease, FOREVER)
    await asyncio.sleep(71.0)
    assert caplog.messages == [
        f"lease 'mine' of 'grantor' is no longer renewed: {scene.grantor.error!r}"
    ]


@pytest.mark.parametrize("verb", ["remove", "clear", "cancel"])
@virtual
async def test_a_lease_that_is_taken_out_is_left_alone_and_nobody_is_told(verb: str) -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    if verb == "remove":
        scene.manager.remove(lease)
    elif verb == "clear":
        scene.manager.clear()
    else:
        await scene.manager.cancel(lease)
    assert lease not in scene.manager
    assert scene.grantor.cancelled == (["lease"] if verb == "cancel" else [])
    await asyncio.sleep(200.0)
    assert (scene.grantor.calls, scene.notices) == ([], [])


@virtual
async def test_cancelling_removes_the_lease_before_the_grantor_answers() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER)
    task = asyncio.create_task(scene.manager.cancel(lease))
    await asyncio.sleep(0)
    assert lease not in scene.manager
    await task
    assert lease.remaining == 0.0


@pytest.mark.parametrize("verb", ["remove", "cancel", "expiration", "set_expiration"])
@virtual
async def test_a_lease_that_is_not_managed_is_unknown(verb: str) -> None:
    scene = Scene()
    lease = scene.grantor.lease()

    async def call() -> None:
        result = getattr(scene.manager, verb)(lease, *([FOREVER] if "set" in verb else []))
        if verb == "cancel":
            await result

    with pytest.raises(UnknownLease) as caught:
        await call()
    assert caught.value.lease is lease
    assert scene.grantor.cancelled == []
    assert len(scene.manager) == 0


@virtual
async def test_clearing_an_empty_manager_does_nothing() -> None:
    scene = Scene()
    scene.manager.clear()
    assert len(scene.manager) == 0


# Terms.


@virtual
async def test_adding_a_managed_lease_again_replaces_its_terms() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    told: list[RenewalNotice] = []
    scene.manager.renew_until(lease, FOREVER, ANY, listener=told.append)
    scene.manager.renew_for(lease, 100.0, 25.0, listener=scene.listen)
    assert len(scene.manager) == 1
    assert scene.manager.expiration(lease) == scene.wall(100.0)
    await asyncio.sleep(101.0)
    assert scene.grantor.asked[0] == 25.0
    assert told == []
    assert len(scene.notices) == 1


@virtual
async def test_the_desired_end_can_be_read_and_changed_and_the_other_terms_stay() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    end = scene.wall(1000.0)
    scene.manager.renew_until(lease, end, 25.0, scene.listen)
    assert scene.manager.expiration(lease) is end
    sooner = scene.wall(90.0)
    scene.manager.set_expiration(lease, sooner)
    assert scene.manager.expiration(lease) is sooner
    await asyncio.sleep(71.0)
    assert scene.grantor.asked == [pytest.approx(20.0, abs=0.01)]
    scene.manager.set_expiration(lease, FOREVER)
    assert scene.manager.expiration(lease) is FOREVER
    await asyncio.sleep(75.0)
    assert scene.grantor.asked[-1] == 25.0
    assert scene.notices == []
    scene.manager.set_expiration(lease, scene.wall(-1.0))
    await asyncio.sleep(0.1)
    assert [notice.kind for notice in scene.notices] == [NoticeKind.EXPIRED]


@virtual
async def test_a_lease_whose_renewals_ask_for_any_cannot_get_a_desired_end() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER, ANY)
    with pytest.raises(ValueError, match="renew_duration may be ANY only with a desired end"):
        scene.manager.set_expiration(lease, scene.wall(100.0))
    assert scene.manager.expiration(lease) is FOREVER
    scene.manager.close()


@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        ({"lease": None}, TypeError, "lease must be a Lease, not None"),
        ({"lease": "lease"}, TypeError, "lease must be a Lease, not 'lease'"),
        ({"desired_end": None}, TypeError, "desired_end must be an aware datetime or FOREVER"),
        ({"desired_end": 100.0}, TypeError, "desired_end must be an aware .*, not 100.0"),
        ({"desired_end": ANY}, TypeError, "desired_end must be an aware .*, not ANY"),
        ({"desired_end": datetime(2030, 1, 1)}, ValueError, "has no time zone"),  # noqa: DTZ001
        ({"renew_duration": 0}, ValueError, "renew_duration must be more than zero"),
        ({"renew_duration": -1.0}, ValueError, "renew_duration must not be negative, got -1.0"),
        ({"renew_duration": math.nan}, ValueError, "renew_duration must .*, not NaN"),
        ({"renew_duration": math.inf}, ValueError, "renew_duration must be finite, not inf"),
        ({"renew_duration": None}, TypeError, "renew_duration must be seconds .*, not None"),
        ({"renew_duration": True}, TypeError, "renew_duration must be seconds .*, not True"),
        (
            {"renew_duration": ANY, "desired_end": datetime(2030, 1, 1, tzinfo=UTC)},
            ValueError,
            "renew_duration may be ANY only with a desired end of FOREVER",
        ),
        ({"listener": "me"}, TypeError, "listener must be callable, not 'me'"),
        ({"listener": asyncio.sleep}, TypeError, "listener must be a plain function"),
    ],
)
@virtual
async def test_a_bad_argument_is_refused_by_name_and_changes_nothing(
    bad: dict[str, Any], kind: type[Exception], message: str
) -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER, 25.0)
    arguments: dict[str, Any] = {"lease": lease, "desired_end": scene.wall(50.0)}
    with pytest.raises(kind, match=message):
        scene.manager.renew_until(**arguments | bad)
    assert scene.manager.leases() == [lease]
    assert scene.manager.expiration(lease) is FOREVER
    scene.manager.close()


@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        (None, TypeError, "desired_duration must be seconds .*, not None"),
        (True, TypeError, "desired_duration must be seconds .*, not True"),
        (-1.0, ValueError, "desired_duration must not be negative, got -1.0"),
        (math.nan, ValueError, "desired_duration must .*, not NaN"),
        (math.inf, ValueError, "desired_duration must be finite, not inf"),
        (ANY, ValueError, "desired_duration must be a length of time or FOREVER, not ANY"),
    ],
)
@virtual
async def test_a_bad_desired_duration_is_refused_by_name(
    bad: Any, kind: type[Exception], message: str
) -> None:
    scene = Scene()
    with pytest.raises(kind, match=message):
        scene.manager.renew_for(scene.grantor.lease(), bad)
    assert len(scene.manager) == 0


@virtual
async def test_a_desired_duration_of_forever_or_beyond_all_datetimes_is_allowed() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.manager.renew_for(lease, FOREVER)
    assert scene.manager.expiration(lease) is FOREVER
    scene.manager.renew_for(lease, 1e300)
    assert scene.manager.expiration(lease) == datetime.max.replace(tzinfo=UTC)
    await asyncio.sleep(71.0)
    assert scene.grantor.asked == [1e300]
    scene.manager.close()


@pytest.mark.parametrize("name", ["rtt", "batch_window"])
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (0, ValueError),
        (-1, ValueError),
        (FOREVER, ValueError),
        (ANY, ValueError),
        (None, TypeError),
    ],
)
def test_a_bad_setting_is_refused_by_name(name: str, bad: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"^{name} must "):
        RenewalManager(**{name: bad})


def test_a_lease_cannot_be_added_without_a_running_loop() -> None:
    clock = VirtualClock()
    landlord: Landlord[str] = Landlord(DurationPolicy(60.0, 30.0), expiry=lazy(), clock=clock)
    manager = RenewalManager(clock=clock)
    with pytest.raises(RuntimeError, match="needs a running event loop"):
        manager.renew_until(landlord.grant("resource"), FOREVER)
    assert len(manager) == 0


# Listeners.


@virtual
async def test_a_listener_that_raises_is_logged_and_disturbs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()

    def listener(_notice: RenewalNotice) -> None:
        raise KeyError("bug of the listener")

    for name in ("a", "b", "c"):
        scene.manager.renew_for(scene.grantor.lease(name), 50.0, listener=listener)
    scene.manager.renew_for(scene.grantor.lease("d"), 60.0, listener=scene.listen)
    await asyncio.sleep(61.0)
    assert [notice.lease.cookie for notice in scene.notices] == ["d"]
    assert len(scene.manager) == 0
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 3
    assert all("the listener for <Held" in record.getMessage() for record in errors)


@pytest.mark.parametrize("cause", ["desired end", "definite error"])
@virtual
async def test_a_listener_may_call_back_into_the_manager(cause: str) -> None:
    scene = Scene()
    lease, other = scene.grantor.lease(), scene.grantor.lease("other", 1000.0)

    def listener(notice: RenewalNotice) -> None:
        scene.listen(notice)
        scene.grantor.error = None
        notice.manager.remove(other)
        notice.manager.renew_for(notice.lease, 100.0, listener=scene.listen)

    scene.manager.renew_until(other, FOREVER)
    if cause == "desired end":
        scene.manager.renew_for(lease, 50.0, listener=listener)
    else:
        scene.grantor.error = LeaseDenied("full")
        scene.manager.renew_until(lease, FOREVER, listener=listener)
    await asyncio.sleep(71.0)
    assert scene.manager.leases() == [lease]
    await asyncio.sleep(200.0)
    assert [notice.kind for notice in scene.notices][1:] == [NoticeKind.EXPIRED]


@virtual
async def test_a_listener_may_close_the_manager() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.manager.renew_for(
            scene.grantor.lease(name), 50.0, listener=lambda notice: notice.manager.close()
        )
    scene.manager.renew_until(scene.grantor.lease("c"), FOREVER, listener=scene.listen)
    await asyncio.sleep(200.0)
    assert (len(scene.manager), scene.grantor.calls, scene.notices) == (0, [], [])


# Calls under way.


@virtual
async def test_no_call_blocks_on_a_remote_call() -> None:
    scene = Scene()
    scene.grantor.takes_s = 5.0
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER)
    await asyncio.sleep(71.0)
    before = scene.grantor.at()
    scene.manager.set_expiration(lease, scene.wall(500.0))
    scene.manager.renew_until(scene.grantor.lease("other"), FOREVER)
    scene.manager.remove(lease)
    scene.manager.clear()
    assert scene.grantor.at() == before
    scene.manager.close()


@virtual
async def test_at_most_one_renewal_of_a_lease_is_outstanding() -> None:
    scene = Scene()
    scene.grantor.takes_s = 2.0
    lease = scene.grantor.lease(batches=False)
    scene.manager.renew_until(lease, FOREVER)
    await asyncio.sleep(70.5)
    scene.manager.remove(lease)
    scene.manager.renew_until(lease, FOREVER)
    scene.manager.renew_until(lease, FOREVER, 50.0)
    await asyncio.sleep(200.0)
    assert scene.grantor.most_outstanding == 1
    assert scene.grantor.asked[:2] == [FOREVER, 50.0]
    scene.manager.close()


@pytest.mark.parametrize("verb", ["removed", "removed and added"])
@virtual
async def test_a_definite_error_is_told_only_if_the_lease_is_managed_when_it_comes(
    verb: str,
) -> None:
    scene = Scene()
    scene.grantor.takes_s = 2.0
    scene.grantor.error = LeaseDenied("full")
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    await asyncio.sleep(71.0)
    scene.manager.remove(lease)
    if verb == "removed and added":
        scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    await asyncio.sleep(2.0)
    assert len(scene.notices) == (0 if verb == "removed" else 1)
    assert lease not in scene.manager


@virtual
async def test_a_call_that_gets_no_answer_is_given_up_in_time_to_try_again() -> None:
    scene = Scene()
    scene.grantor.takes_s = 1e9
    scene.manager.renew_until(scene.grantor.lease(), FOREVER, listener=scene.listen)
    await asyncio.sleep(100.0)
    assert len(scene.grantor.calls) >= 3
    assert scene.grantor.most_outstanding == 1
    [notice] = scene.notices
    assert (notice.kind, type(notice.error)) == (NoticeKind.FAILED, TimeoutError)
    assert scene.noticed_at == pytest.approx([80.0], abs=0.01)
    scene.manager.close()


@virtual
async def test_calls_under_way_are_bounded_and_what_waits_goes_on_as_they_end() -> None:
    scene = Scene()
    scene.grantor.takes_s = 0.5
    for number in range(3 * MAX_CALLS_PER_GRANTOR):
        scene.manager.renew_until(scene.grantor.lease(number, batches=False), FOREVER)
    await asyncio.sleep(75.0)
    assert scene.grantor.most_outstanding == MAX_CALLS_PER_GRANTOR < MAX_CALLS
    assert len(scene.grantor.calls) == 3 * MAX_CALLS_PER_GRANTOR
    scene.manager.close()


# Batches.


@pytest.mark.parametrize("leases", [2, 100])
@virtual
async def test_leases_of_one_landlord_go_in_one_call(leases: int) -> None:
    scene = Scene()
    for number in range(leases):
        scene.manager.renew_until(scene.grantor.lease(number), FOREVER)
        await asyncio.sleep(0.1)
    await asyncio.sleep(75.0 - leases * 0.1)
    [(_, wants)] = scene.grantor.calls
    assert sorted(name for name, _ in wants) == list(range(leases))  # type: ignore[type-var]
    scene.manager.close()


@virtual
async def test_leases_that_do_not_batch_go_one_by_one() -> None:
    scene = Scene()
    for number in range(5):
        scene.manager.renew_until(scene.grantor.lease(number, batches=False), FOREVER)
    await asyncio.sleep(75.0)
    assert [len(wants) for _, wants in scene.grantor.calls] == [1] * 5
    scene.manager.close()


@virtual
async def test_the_batch_window_bounds_what_goes_along() -> None:
    scene = Scene(batch_window=10.0)
    for name, term in (("due", 80.0), ("within", 90.0), ("beyond", 100.0)):
        scene.manager.renew_until(scene.grantor.lease(name, term), FOREVER)
    await asyncio.sleep(70.5)
    [(_, wants)] = scene.grantor.calls
    assert sorted(str(name) for name, _ in wants) == ["due", "within"]
    scene.manager.close()


@virtual
async def test_in_a_batch_each_lease_has_its_own_outcome() -> None:
    scene = Scene()
    good, bad, lost = (scene.grantor.lease(name) for name in ("good", "bad", "lost"))
    for lease in (good, bad, lost):
        scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    denied = LeaseDenied("full")
    answers: dict[Hashable, Any] = {"good": 80.0, "bad": denied, "lost": ConnectionLost("gone")}
    order: list[Hashable] = []

    async def ask(wants: list[tuple[Hashable, Any]]) -> Any:
        order.extend(name for name, _ in wants)
        return [answers[name] for name, _ in wants]

    scene.grantor.ask = ask  # type: ignore[method-assign]
    await asyncio.sleep(71.0)
    assert sorted(str(name) for name in order) == ["bad", "good", "lost"]
    assert [(notice.lease, notice.error) for notice in scene.notices] == [(bad, denied)]
    assert good.remaining == pytest.approx(79.0, abs=0.01)
    assert lost in scene.manager
    scene.manager.close()


@virtual
async def test_a_failure_of_the_whole_call_is_retried_for_all_its_leases() -> None:
    scene = Scene()
    leases = [scene.grantor.lease(number) for number in range(10)]
    for lease in leases:
        scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    scene.grantor.error = ConnectionLost("gone")
    await asyncio.sleep(71.0)
    scene.grantor.error = None
    await asyncio.sleep(5.0)
    assert [len(wants) for _, wants in scene.grantor.calls] == [10, 10]
    assert scene.notices == []
    scene.manager.close()


@virtual
async def test_many_leases_never_drift_into_a_tight_loop() -> None:
    scene = Scene()
    for number in range(200):
        scene.manager.renew_until(scene.grantor.lease(number), FOREVER)
        await asyncio.sleep(0.4)
    scene.grantor.calls.clear()
    await asyncio.sleep(2000.0)
    assert len(scene.grantor.calls) <= 3 * 2000 / 40
    assert len(scene.grantor.asked) <= 200 * (2000 / 40 + 2)
    scene.manager.close()


# The holder's clock.


@pytest.mark.parametrize("nap", [75.0, 3600.0])
def test_a_suspend_of_the_holder_is_noticed_within_a_second(nap: float) -> None:
    with Simulation(0) as sim:
        host = sim.host("holder")
        scene = host.call(Scene)
        lease = host.call(scene.grantor.lease)
        host.call(scene.manager.renew_until, lease, FOREVER, listener=scene.listen)
        sim.run_for(1.0)
        host.suspend(nap)
        sim.run_for(nap + SUSPEND_CHECK_S + 0.01)
        if nap < 79.0:  # the lease still runs: it is renewed as soon as that is seen
            assert len(scene.grantor.calls) == 1
            assert lease in scene.manager
        else:
            assert [notice.kind for notice in scene.notices] == [NoticeKind.FAILED]
        host.call(scene.manager.close)


def test_a_holder_that_slept_through_both_ends_is_told_that_the_lease_failed() -> None:
    with Simulation(0) as sim:
        host = sim.host("holder")
        scene = host.call(Scene)
        lease = host.call(scene.grantor.lease)
        host.call(scene.manager.renew_for, lease, 100.0, listener=scene.listen)
        sim.run_for(1.0)
        host.suspend(1000.0)
        sim.run_for(1002.0)
        assert [notice.kind for notice in scene.notices] == [NoticeKind.FAILED]


@pytest.mark.parametrize("rtt", [0.1, 1.0, 10.0, timedelta(seconds=5)])
@virtual
async def test_the_round_trip_allowance_decides_when_a_short_lease_is_renewed(rtt: Any) -> None:
    seconds = rtt.total_seconds() if isinstance(rtt, timedelta) else rtt
    scene = Scene(6 * seconds, rtt=rtt)
    scene.manager.renew_until(scene.grantor.lease(), FOREVER)
    await asyncio.sleep(3.1 * seconds)
    assert scene.grantor.times == pytest.approx([3 * seconds], abs=0.01)
    scene.manager.close()


@pytest.mark.parametrize("term", [0.02, 0.1, 0.5, 1.0])
@virtual
async def test_a_lease_shorter_than_the_round_trip_is_kept_alive_without_spinning(
    term: float,
) -> None:
    scene = Scene(term)
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    await asyncio.sleep(10.0)
    assert scene.notices == []
    assert 10.0 / term <= len(scene.grantor.calls) <= 10.0 / (term / 3) + 1
    scene.manager.close()


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.3])
@virtual
async def test_a_lease_with_a_margin_reaches_its_desired_end_too(margin: float) -> None:
    class Careful(Held):
        def __init__(self, at: Grantor) -> None:
            Lease.__init__(self, 10.0, clock=at.clock, margin=margin)
            self.at = at
            self._name, self._batches = "careful", False

        async def ask_renew(self, requested: Any) -> Any:
            await self.at.ask([("careful", requested)])
            return min(requested, 10.0)

    scene = Scene(10.0)
    scene.manager.renew_for(Careful(scene.grantor), 33.0, listener=scene.listen)
    await asyncio.sleep(40.0)
    assert [notice.kind for notice in scene.notices] == [NoticeKind.EXPIRED]
    assert scene.noticed_at == pytest.approx([33.0], abs=0.01)
    assert len(scene.grantor.calls) <= 40


# Any lease of any landlord.


@virtual
async def test_leases_of_a_landlord_in_this_process_are_kept_alive() -> None:
    clock = current_host().clock
    ended: list[str] = []

    def on_ended(resource: str, _reason: object) -> None:
        ended.append(resource)

    landlord: Landlord[str] = Landlord(DurationPolicy(10.0, 5.0), on_ended=on_ended, clock=clock)
    manager = RenewalManager(clock=clock)
    for number in range(50):
        manager.renew_for(landlord.grant(str(number), 10.0), 100.0 if number % 2 else 50.0)
    await asyncio.sleep(45.0)
    assert (ended, len(landlord), len(manager)) == ([], 50, 50)
    await asyncio.sleep(16.0)
    assert (len(ended), len(manager)) == (25, 25)
    await asyncio.sleep(60.0)
    assert (len(landlord), len(manager)) == (0, 0)
    landlord.close()


@virtual
async def test_a_lease_that_its_landlord_cancelled_is_a_definite_failure() -> None:
    clock = current_host().clock
    landlord: Landlord[str] = Landlord(DurationPolicy(10.0, 5.0), clock=clock)
    notices: list[RenewalNotice] = []
    manager = RenewalManager(clock=clock)
    lease = landlord.grant("resource", 10.0)
    manager.renew_until(lease, FOREVER, listener=notices.append)
    landlord.cancel(lease.cookie)
    await asyncio.sleep(9.0)
    [notice] = notices
    assert notice.kind is NoticeKind.FAILED
    assert isinstance(notice.error, UnknownLease)
    assert notice.error.reason == "cancelled"
    landlord.close()


# Closing.


@virtual
async def test_a_closed_manager_leaves_all_leases_alone_and_takes_no_more() -> None:
    scene = Scene()
    lease = scene.grantor.lease()
    scene.manager.renew_until(lease, FOREVER, listener=scene.listen)
    scene.manager.close()
    scene.manager.close()
    assert len(scene.manager) == 0
    with pytest.raises(Closed, match="this renewal manager was closed"):
        scene.manager.renew_until(lease, FOREVER)
    await asyncio.sleep(200.0)
    assert (scene.grantor.calls, scene.notices) == ([], [])


@virtual
async def test_closing_gives_up_the_renewals_under_way() -> None:
    scene = Scene()
    scene.grantor.takes_s = 5.0
    async with scene.manager as manager:
        manager.renew_until(scene.grantor.lease(), FOREVER, listener=scene.listen)
        await asyncio.sleep(71.0)
        assert scene.grantor.flying == 1
    assert scene.grantor.flying == 0
    assert scene.grantor.at() == pytest.approx(71.0)  # nobody waited for the answer
    assert scene.notices == []
    with pytest.raises(Closed):
        manager.renew_until(scene.grantor.lease(), FOREVER)


@virtual
async def test_a_manager_shows_its_size() -> None:
    scene = Scene()
    scene.grantor.takes_s = 2.0
    for name in ("a", "b"):
        scene.manager.renew_until(scene.grantor.lease(name), FOREVER)
    await asyncio.sleep(71.0)
    assert repr(scene.manager) == "<RenewalManager of 2 leases, 1 calls under way>"
    assert [lease.cookie for lease in scene.manager.leases()] == ["a", "b"]
    scene.manager.close()


@virtual
async def test_a_lease_with_a_time_for_its_first_renewal_is_renewed_then() -> None:
    scene = Scene()
    lease = scene.grantor.lease(term=80.0)
    now = scene.clock.boottime()
    scene.manager.renew_until(lease, FOREVER, 40.0, due_at=now + 2.0)
    scene.manager.renew_until(lease, FOREVER, 50.0)  # new terms keep that time, and the holding
    await asyncio.sleep(3.0)
    assert scene.grantor.calls == [(2.0, [("lease", 50.0)])]
    await asyncio.sleep(60.0)
    assert len(scene.grantor.calls) == 1
