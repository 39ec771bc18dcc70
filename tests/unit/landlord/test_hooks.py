"""The hooks of a landlord: which are called, in which order, and what they may do."""

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from leasehold import (
    FOREVER,
    Duration,
    DurationPolicy,
    EndReason,
    Landlord,
    LandlordLease,
    Leased,
    LeaseDenied,
    LeasePolicy,
    LeaseView,
    Requested,
    UnknownLease,
    exact,
    lazy,
)
from leasehold.leases.expiry_strategies import SLICE_S
from leasehold.testing import Simulation, VirtualClock

POLICY = DurationPolicy(FOREVER, 30.0)


class Owner:
    """A landlord whose hooks write down their calls, and then do `then` with the event."""

    def __init__(self, then: Callable[[str, Any], object] | None = None, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.events: list[tuple[str, object]] = []
        self.views: list[LeaseView[Any]] = []
        self.then = then
        usual: dict[str, Any] = {
            "policy": POLICY,
            "on_granted": self.on_granted,
            "on_renewed": self.on_renewed,
            "on_ended": self.on_ended,
            "expiry": lazy(),
            "clock": self.clock,
            "cookies": count(1).__next__,
        }
        self.landlord: Landlord[Any] = Landlord(**usual | settings)

    def on_granted(self, resource: object, view: LeaseView[Any]) -> None:
        self.views.append(view)
        self._event("granted", resource)

    def on_renewed(self, resource: object, view: LeaseView[Any]) -> None:
        self.views.append(view)
        self._event("renewed", resource)

    def on_ended(self, resource: object, reason: EndReason) -> None:
        self._event(str(reason), resource)

    def _event(self, event: str, resource: object) -> None:
        self.events.append((event, resource))
        if self.then is not None:
            self.then(event, resource)


def test_a_lease_is_granted_renewed_and_ended_in_this_order() -> None:
    owner = Owner()
    owner.landlord.grant("desk", 10.0)
    owner.landlord.renew(1, 20.0)
    owner.landlord.renew(1)
    owner.landlord.cancel(1)
    assert owner.events == [
        ("granted", "desk"),
        ("renewed", "desk"),
        ("renewed", "desk"),
        ("cancelled", "desk"),
    ]


def test_a_hook_has_been_called_when_the_call_returns_and_gets_the_lease_as_it_was_then() -> None:
    owner = Owner()
    owner.landlord.grant("desk", 10.0)
    assert owner.views == [LeaseView("desk", 1, 10.0, 10.0)]
    owner.clock.advance(4.0)
    owner.landlord.renew(1, 20.0)
    assert owner.views[1:] == [LeaseView("desk", 1, 24.0, 20.0)]
    owner.landlord.renew(1, FOREVER)
    assert owner.views[2:] == [LeaseView("desk", 1, FOREVER, FOREVER)]


def test_events_of_several_leases_come_in_the_order_in_which_they_happened() -> None:
    owner = Owner()
    owner.landlord.grant("a", 5.0)
    owner.landlord.grant("b", 10.0)
    owner.landlord.grant("c", 10.0)
    owner.events.clear()
    owner.landlord.renew_all([(2, 20.0), (3, 0.0), (99, 5.0), (2, 30.0)])
    assert owner.events == [("renewed", "b"), ("cancelled", "c"), ("renewed", "b")]
    owner.events.clear()
    owner.clock.advance(5.0)
    owner.landlord.grant("d")
    assert owner.events == [("expired", "a"), ("granted", "d")]


def test_a_renewal_for_no_time_is_an_end_and_no_renewal() -> None:
    owner = Owner()
    owner.landlord.grant("desk")
    owner.landlord.renew(1, 0)
    assert owner.events == [("granted", "desk"), ("cancelled", "desk")]


def test_a_call_that_fails_calls_no_hook() -> None:
    class Denies(DurationPolicy):
        def grant(self, *_args: object) -> Any:
            raise LeaseDenied("no")

    owner = Owner()
    owner.landlord.grant("desk")
    owner.landlord.policy = Denies(10.0, 10.0)
    owner.events.clear()
    with pytest.raises(LeaseDenied):
        owner.landlord.grant("chair")
    with pytest.raises(LeaseDenied):
        owner.landlord.renew(1)
    with pytest.raises(UnknownLease):
        owner.landlord.renew(99)
    with pytest.raises(ValueError, match="duration"):
        owner.landlord.grant("chair", 0)
    assert owner.events == []


def test_a_grant_whose_lease_cannot_be_made_has_no_events() -> None:
    def factory(*_args: object) -> Any:
        raise KeyError("bug of the factory")

    owner = Owner(lease_factory=factory)
    with pytest.raises(KeyError):
        owner.landlord.grant("desk")
    assert owner.events == []
    assert len(owner.landlord) == 0


def test_a_lease_that_was_reported_before_its_factory_failed_is_reported_as_ended() -> None:
    def factory(landlord: Landlord[Any], cookie: int, *_args: object) -> Any:
        landlord.resource(cookie)  # which calls the hooks of all that has happened
        raise KeyError("bug of the factory")

    owner = Owner(lease_factory=factory)
    with pytest.raises(KeyError):
        owner.landlord.grant("desk")
    assert owner.events == [("granted", "desk"), ("cancelled", "desk")]
    assert len(owner.landlord) == 0


def test_a_factory_may_cancel_the_lease_that_it_makes() -> None:
    def factory(landlord: Landlord[Any], cookie: int, *args: Any) -> Any:
        landlord.cancel(cookie)
        return LandlordLease(landlord, cookie, *args)

    owner = Owner(lease_factory=factory)
    owner.landlord.grant("desk")
    assert owner.events == [("granted", "desk"), ("cancelled", "desk")]


def test_a_hook_that_raises_stops_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: str, _resource: object) -> None:
        raise asyncio.CancelledError if event == "renewed" else KeyError(event)

    owner = Owner(fail)
    owner.landlord.grant("desk")
    assert owner.landlord.renew(1, 10.0) == 10.0
    assert owner.landlord.renew_all([(1, 20.0), (1, 25.0)]).outcomes == [20.0, 25.0]
    owner.landlord.cancel(1)
    assert [event for event, _ in owner.events] == ["granted", *["renewed"] * 3, "cancelled"]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        "lease 0000000000000001: on_granted failed",
        *["lease 0000000000000001: on_renewed failed"] * 3,
        "lease 0000000000000001 (cancelled): on_ended failed",
    ]


def test_an_interrupt_in_a_hook_is_raised_and_the_other_events_are_delivered_later() -> None:
    def interrupt(event: str, resource: object) -> None:
        if (event, resource) == ("renewed", "a"):
            raise KeyboardInterrupt

    owner = Owner(interrupt)
    owner.landlord.grant("a")
    owner.landlord.grant("b")
    with pytest.raises(KeyboardInterrupt):
        owner.landlord.renew_all([(1, 10.0), (2, 10.0)])
    owner.landlord.cancel(1)
    assert owner.events[2:] == [("renewed", "a"), ("renewed", "b"), ("cancelled", "a")]


def test_a_hook_may_call_the_landlord_and_events_of_that_call_wait_for_their_turn() -> None:
    order: list[str] = []

    def then(event: str, resource: object) -> None:
        order.append(f"{event} {resource}")
        if (event, resource) == ("granted", "a"):
            owner.landlord.renew(1, 50.0)
            owner.landlord.grant("b")
            owner.landlord.cancel(1)
        order.append("returned")

    owner = Owner(then)
    lease = owner.landlord.grant("a")
    assert order[::2] == ["granted a", "renewed a", "granted b", "cancelled a"]
    assert order[1::2] == ["returned"] * 4
    with pytest.raises(UnknownLease):
        owner.landlord.renew(lease.cookie)


def test_hooks_are_called_after_close_for_what_happened_before() -> None:
    def then(event: str, resource: object) -> None:
        if (event, resource) == ("granted", "a"):
            owner.landlord.grant("b")
            owner.landlord.cancel(2)
            owner.landlord.close()

    owner = Owner(then)
    owner.landlord.grant("a")
    assert owner.events == [("granted", "a"), ("granted", "b"), ("cancelled", "b")]


def test_hooks_that_take_long_are_called_a_few_at_a_time_and_lose_nothing() -> None:
    with Simulation(1) as sim:
        host = sim.host("owner")
        calls: list[str] = []

        def slow(resource: str, _view: LeaseView[str]) -> None:
            calls.append(resource)
            host.stall(2 * SLICE_S)

        landlord: Landlord[str] = host.call(
            lambda: Landlord(POLICY, on_renewed=slow, expiry=exact(), clock=host.clock)
        )
        leases = [host.call(landlord.grant, str(number), FOREVER) for number in range(5)]
        host.call(landlord.renew_all, [(lease.cookie, FOREVER) for lease in leases])
        assert calls == ["0"]
        sim.run_for(1.0)
        assert calls == [str(number) for number in range(5)]


@pytest.mark.parametrize("hook", ["on_granted", "on_renewed", "on_ended"])
def test_a_hook_must_be_a_plain_function(hook: str) -> None:
    async def awaited(*_args: object) -> None:
        return

    settings: Any = {hook: awaited}
    with pytest.raises(TypeError, match=f"{hook} must be a plain function"):
        Landlord(POLICY, **settings)
    settings = {hook: 5}
    with pytest.raises(TypeError, match=f"{hook} must be callable"):
        Landlord(POLICY, **settings)


class Awkward:
    """A resource that can be kept, and nothing else."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __bool__(self) -> bool:
        raise AssertionError("tested")

    def __repr__(self) -> str:
        raise AssertionError("shown")


@pytest.mark.parametrize("kind", [Awkward, lambda: None, dict, object])
def test_any_object_can_be_leased(kind: Callable[[], object], caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)

    def fail(*_event: object) -> None:
        raise KeyError

    owner = Owner(fail)
    resource = kind()
    owner.landlord.grant(resource, 10.0)
    owner.landlord.grant(resource, 20.0)
    assert owner.landlord.resource(1).resource is resource
    owner.landlord.renew_all([(1, 5.0), (2, 5.0), (2, 0)])
    owner.clock.advance(5.0)
    assert owner.landlord.now == 5.0
    names = [event for event, _ in owner.events]
    assert names == ["granted", "granted", "renewed", "renewed", "cancelled", "expired"]
    assert all(each is resource for _, each in owner.events)


def test_a_policy_may_decide_by_the_resource_of_ones_own_class() -> None:
    class Room:
        def __init__(self, hours: int) -> None:
            self.hours = hours

    class ByRoom(LeasePolicy):
        def grant(self, leased: Leased[Room], requested: Requested, now: float) -> Duration:
            return 3600.0 * leased.resource.hours

    landlord: Landlord[Room] = Landlord(ByRoom(), expiry=lazy(), clock=VirtualClock())
    assert landlord.grant(Room(2)).term == 7200.0


def test_a_resource_of_ones_own_class_can_keep_its_cookie_and_its_end() -> None:
    class Desk:
        def __init__(self) -> None:
            self.cookie: object = None
            self.end: object = None

        def leased(self, view: LeaseView["Desk"]) -> None:
            self.cookie, self.end = view.cookie, view.end

        def free(self, _reason: EndReason) -> None:
            self.cookie = self.end = None

    clock = VirtualClock()
    landlord: Landlord[Desk] = Landlord(
        POLICY,
        on_granted=Desk.leased,
        on_renewed=Desk.leased,
        on_ended=Desk.free,
        expiry=lazy(),
        clock=clock,
    )
    desk = Desk()
    lease = landlord.grant(desk, 10.0)
    assert (desk.cookie, desk.end) == (lease.cookie, 10.0)
    clock.advance(5.0)
    landlord.renew(desk.cookie, 10.0)
    assert desk.end == 15.0
    landlord.cancel(desk.cookie)
    assert desk.cookie is desk.end is None
