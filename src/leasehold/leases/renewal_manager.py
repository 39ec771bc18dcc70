"""`RenewalManager`: keeps the leases of this process alive until their desired ends.

A thin shell around `leases.renewal_plan`: one alarm on the event loop for all leases, and one task
for each renewal call that is under way. Adding, removing and asking never wait for a grantor.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import (
    ANY,
    FOREVER,
    NEVER,
    DurationLike,
    End,
    Forever,
    Requested,
    check_end,
    check_positive,
    check_requested,
    check_seconds,
    datetime_of,
    seconds_of,
)
from leasehold.basics.event_loop import OwnerLoop
from leasehold.basics.histogram import Histogram
from leasehold.basics.lease_ids import shown_lease
from leasehold.basics.timers import ResettableTimer
from leasehold.clock import SYSTEM_CLOCK, Clock, boottime_of
from leasehold.errors import Closed
from leasehold.leases.lease import Lease, renew_together
from leasehold.leases.renewal_plan import (
    Departure,
    NoticeKind,
    RenewalCall,
    RenewalPlan,
    Terms,
    View,
)
from leasehold.leases.renewal_times import BatchTiming, Timing

logger = logging.getLogger(__name__)

MAX_CALLS: Final = 256
"""Renewal calls under way; further due leases wait until one of them ends, or is slow."""

SLOW_S: Final = 1.0
"""After this time a call without an answer no longer counts for `MAX_CALLS`: grantors that do not
answer must not keep a healthy one from being asked."""

MAX_OPEN_CALLS: Final = 16 * MAX_CALLS
"""Calls under way, including slow ones: each is a task.

If more grantors than that do not answer, all others are held up until those calls time out.
"""

CLOSE_S: Final = 5.0
"""How long leaving an `async with` block waits for calls that do not heed their cancellation."""

LATENESS_S: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0)
"""Bounds of the histogram of late calls."""

SUSPEND_CHECK_S: Final = 1.0
"""How often to read the holder's clock: timers of an event loop stop while the machine sleeps."""


@dataclass(frozen=True, slots=True)
class RenewalNotice:
    """Why a lease is no longer managed; sent once, after it left.

    `expired`: its desired end came, and there is no error. `failed`: it could not be kept alive;
    `error` is that of the last attempt, or None if there was none since the last success.
    """

    manager: "RenewalManager"
    lease: Lease
    kind: NoticeKind
    desired_end: End
    error: BaseException | None


Listener: TypeAlias = Callable[[RenewalNotice], object]
"""A function of the program that receives notices."""

Trouble: TypeAlias = Callable[[Lease, BaseException], object]


@dataclass(frozen=True, slots=True)
class _Tag:
    """The manager's data for a lease, kept with its terms."""

    desired_end: End
    listener: Listener | None


_Failures: TypeAlias = Mapping[Lease, BaseException]
_CallTask: TypeAlias = asyncio.Task[None]


class _CallUnderWay(NamedTuple):
    """A renewal call under way."""

    call: RenewalCall[Lease]
    timer: asyncio.TimerHandle
    began: float


L = TypeVar("L", bound=Lease)


class RenewalManager:
    """Renews a set of leases, each until its own desired end."""

    def __init__(
        self,
        leases: Mapping[L, End] | None = None,
        renew_duration: DurationLike = FOREVER,
        listener: Listener | None = None,
        *,
        rtt: float | timedelta = 1.0,
        batch_window: float | timedelta = 300.0,
        timing: Timing | None = None,
        on_trouble: "Trouble | None" = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Manage `leases`, a mapping of leases to their desired ends; by default none.

        `renew_duration` and `listener` are for these leases, as in `renew_until`. `rtt` is the time
        to allow for a renewal's round trip. A lease that is due is renewed together with those of
        the same landlord that will be due within `batch_window`. A `timing` replaces these two.

        `on_trouble(lease, error)` is called for each renewal that has failed and is retried.
        """
        if not isinstance(leases, Mapping | None):
            raise TypeError(f"leases must be a mapping of leases to desired ends, not {leases!r}")
        self._clock = clock
        default = BatchTiming(
            check_seconds(rtt, "rtt"), check_seconds(batch_window, "batch_window")
        )
        self._plan: RenewalPlan[Lease] = RenewalPlan(_view, timing or default)
        check_plain_callback(on_trouble, "on_trouble")
        self._on_trouble = on_trouble
        self._owner = OwnerLoop("renewal manager")
        self._alarm = ResettableTimer(self._wake)
        self._calls: dict[_CallTask, _CallUnderWay] = {}
        self._given_up: dict[_CallTask, None] = {}
        self._watcher = self._end_moved
        self.lateness_s = Histogram(LATENESS_S)
        """How late renewal calls were."""
        self._closed = False
        try:
            for lease, desired_end in (leases or {}).items():
                self.renew_until(lease, desired_end, renew_duration, listener)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._plan)

    def __contains__(self, lease: object) -> bool:
        return lease in self._plan

    def __repr__(self) -> str:
        return f"<RenewalManager of {len(self)} leases, {len(self._calls)} calls under way>"

    def leases(self) -> list[Lease]:
        """Return all leases that are managed now."""
        return self._plan.leases()

    def renew_until(
        self,
        lease: Lease,
        desired_end: End,
        renew_duration: DurationLike = FOREVER,
        listener: Listener | None = None,
        *,
        due_at: float | None = None,
    ) -> None:
        """Keep `lease` alive until `desired_end`, requesting `renew_duration` at a time.

        Adding a lease again replaces the terms. `renew_duration` may be ANY only if the desired end
        is FOREVER. `listener` is called once, after the lease has left, unless it was removed.

        `due_at`, a reading of `Clock.boottime`, is when to renew it for the first time, unless that
        is due earlier: for a lease whose end is not known for certain.
        """
        end = boottime_of(check_end(desired_end, "desired_end"), self._clock)
        self._add(lease, end, _Tag(desired_end, listener), renew_duration, due_at)

    def renew_for(
        self,
        lease: Lease,
        desired_duration: float | timedelta | Forever,
        renew_duration: DurationLike = FOREVER,
        listener: Listener | None = None,
    ) -> None:
        """Like `renew_until`, for `desired_duration` from now."""
        desired = check_requested(desired_duration, "desired_duration")
        if desired is ANY:
            raise ValueError("desired_duration must be a length of time or FOREVER, not ANY")
        seconds = seconds_of(desired)
        tag = _Tag(datetime_of(self._clock.wall() + seconds), listener)
        self._add(lease, self._clock.boottime() + seconds, tag, renew_duration)

    def remove(self, lease: Lease) -> None:
        """Stop managing `lease`; it is not cancelled. `UnknownLease`: not managed."""
        self._let_go(_check_lease(lease))

    async def cancel(self, lease: Lease) -> None:
        """Remove `lease` immediately, then cancel it. `UnknownLease`: not managed, or ended."""
        self._let_go(_check_lease(lease))
        await lease.cancel()

    def clear(self) -> None:
        """Stop managing all leases."""
        for lease in self._plan.leases():
            self._let_go(lease)

    def expiration(self, lease: Lease) -> End:
        """Return the desired end of `lease`. `UnknownLease`: not managed."""
        tag = self._plan.terms(_check_lease(lease)).tag
        assert isinstance(tag, _Tag)
        return tag.desired_end

    def set_expiration(self, lease: Lease, desired_end: End) -> None:
        """Change the desired end of `lease`. `UnknownLease`: not managed."""
        terms = self._plan.terms(_check_lease(lease))
        self.renew_until(lease, desired_end, terms.renew_duration, terms.tag.listener)

    def close(self) -> None:
        """Stop managing all leases, and abort the renewals under way."""
        self._closed = True
        self.clear()
        self._alarm.cancel()
        for task in self._calls:
            task.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()
        unfinished = [*self._calls, *self._given_up]
        if unfinished:
            await asyncio.wait(unfinished, timeout=CLOSE_S)

    def _add(
        self,
        lease: Lease,
        end: float,
        tag: _Tag,
        renew_duration: DurationLike,
        due_at: float | None = None,
    ) -> None:
        _check_lease(lease)
        check_plain_callback(tag.listener, "listener")
        requested = check_positive(renew_duration, "renew_duration")
        if requested is ANY and end != NEVER:
            raise ValueError("renew_duration may be ANY only with a desired end of FOREVER")
        if self._closed:
            raise Closed("this renewal manager was closed")
        loop = asyncio._get_running_loop()  # noqa: SLF001  the public one raises without a loop
        if loop is None:
            raise RuntimeError("a renewal manager needs a running event loop; add from async code")
        self._owner.check()
        terms, now = Terms(end, requested, tag), self._clock.boottime()
        if lease in self._plan:
            self._plan.managed(lease).unwatch(self._watcher)
        self._plan.add(lease, lease.batch_key, terms, now, lease.call_limit_key, due_at)
        lease.watch(self._watcher)
        self._arm(loop)

    def _let_go(self, lease: Lease) -> None:
        """Stop managing a lease."""
        self._plan.managed(lease).unwatch(self._watcher)
        self._plan.remove(lease)

    def _end_moved(self, lease: Lease) -> None:
        """Called when a lease ends earlier than it did."""
        self._plan.look_again(lease, self._clock.boottime())
        loop = asyncio._get_running_loop()  # noqa: SLF001  the public one raises without a loop
        if loop is not None:
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the alarm for the plan's next step, or the next reading of the clock."""
        next_at = self._plan.next_at(self._room())
        if next_at != NEVER:
            self._alarm.set(loop, min(next_at - self._clock.boottime(), SUSPEND_CHECK_S))

    def _room(self) -> int:
        """Return how many calls may begin: those that are not answered do not count for long."""
        room = MAX_CALLS - len(self._calls)
        if room > 0:
            return room
        slow_at = self._clock.boottime() - SLOW_S
        recent = takewhile(lambda each: each.began > slow_at, reversed(self._calls.values()))
        room = MAX_CALLS - sum(1 for _ in recent)
        return max(0, min(room, MAX_OPEN_CALLS - len(self._calls)))

    def _wake(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            step = self._plan.step(self._clock.boottime(), self._room())
            for call in step.calls:
                self._start(loop, call)
            for departure in step.departures:
                departure.lease.unwatch(self._watcher)
            self._notify_all(step.departures)
        finally:
            if not self._closed:
                self._arm(loop)

    def _start(self, loop: asyncio.AbstractEventLoop, call: RenewalCall[Lease]) -> None:
        self.lateness_s.observe(call.late_s)
        task = loop.create_task(self._renew(call.wants))
        timer = loop.call_later(call.timeout_s, self._give_up, task)
        self._calls[task] = _CallUnderWay(call, timer, self._clock.boottime())
        task.add_done_callback(self._call_ended)

    async def _renew(self, wants: list[tuple[Lease, Requested]]) -> None:
        """Make a renewal call, and settle it immediately.

        A lease that has ended moves its end, which sets the alarm. Some event loops run a timer
        before the callback of a task that is done: then the lease would leave without its error.
        """
        task = asyncio.current_task()
        assert task is not None
        try:
            failures = await _ask(wants)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._settle(task, {}, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            self._settle(task, failures, None)

    def _give_up(self, task: "_CallTask") -> None:
        """Stop waiting for an answer; the lease may be renewed again."""
        self._given_up[task] = None
        task.cancel()
        # The message omits the timeout, which is this attempt's and not one that a user has set.
        self._settle(task, {}, TimeoutError("the renewal request was not answered"))

    def _call_ended(self, task: "_CallTask") -> None:
        self._given_up.pop(task, None)
        if task.cancelled():  # perhaps before it began
            self._settle(task, {}, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._settle(task, {}, error)

    def _settle(
        self, task: "_CallTask", failures: "_Failures", failure: BaseException | None
    ) -> None:
        """Pass the outcome of each lease of a call to the plan, once."""
        ended = self._calls.pop(task, None)
        if ended is None:
            return  # it was settled, or given up
        ended.timer.cancel()
        now = self._clock.boottime()
        departures: list[Departure[Lease]] = []
        troubles: list[tuple[Lease, BaseException]] = []
        for lease, _ in ended.call.wants:
            error = failure or failures.get(lease)
            departure = self._plan.settled(lease, error, now)
            if departure is not None:
                departure.lease.unwatch(self._watcher)
                departures.append(departure)
            elif error is not None:
                troubles.append((lease, error))
        if not self._closed:
            self._arm(task.get_loop())
        for lease, error in troubles:
            self._report_trouble(lease, error)
        self._notify_all(departures)

    def _report_trouble(self, lease: Lease, error: BaseException) -> None:
        if self._on_trouble is None or self._closed or lease not in self._plan:
            return
        try:
            self._on_trouble(lease, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a CancelledError, too: it is not this task that was cancelled
            logger.exception("the on_trouble callback for %r has failed", lease)

    def _notify_all(self, departures: Iterable[Departure[Lease]]) -> None:
        """Notify listeners, and log, that leases have left; one that raises stops no other."""
        for departure in departures:
            tag = departure.terms.tag
            assert isinstance(tag, _Tag)
            if departure.kind is NoticeKind.FAILED:
                shown = (
                    f"lease {shown_lease(departure.lease.cookie)} of {departure.lease.grantor!r}"
                )
                error = departure.error
                why = "it ended early" if error is None else repr(error)
                logger.warning("%s is no longer renewed: %s", shown, why)
            if tag.listener is None:
                continue
            notice = RenewalNotice(
                self, departure.lease, departure.kind, tag.desired_end, departure.error
            )
            try:
                tag.listener(notice)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # a CancelledError, too: it is not this task that was cancelled
                logger.exception("the listener for %r failed", departure.lease)


async def _ask(wants: list[tuple[Lease, Requested]]) -> _Failures:
    if len(wants) > 1:
        return await renew_together(wants)
    lease, requested = wants[0]
    await lease.renew(requested)
    return {}


def _view(lease: Lease, _now: float) -> View:
    holding = lease.holding
    return View(holding.end, holding.term_s, lease.lasts_until, holding.last_sent_at)


def _check_lease(lease: Lease) -> Lease:
    if not isinstance(lease, Lease):
        raise TypeError(f"lease must be a Lease, not {lease!r}")
    return lease
