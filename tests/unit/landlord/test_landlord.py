"""`Landlord`: grants, owners, batches and argument errors, without an event loop.

When leases end is in test_expiry_strategies.py, the rules for a lease are in test_lease_table.py,
and the order of hooks is in test_hooks.py.
"""

import logging
import math
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    BatchResult,
    Closed,
    DurationPolicy,
    EndReason,
    FixedPolicy,
    Landlord,
    LandlordLease,
    Lease,
    LeaseDenied,
    LeaseView,
    LoadPolicy,
    UnknownLease,
    UntilPolicy,
    exact,
    lazy,
)
from leasehold.leases.expiry_strategies import LAZY_BUDGET
from leasehold.testing import VirtualClock

POLICY = DurationPolicy(FOREVER, 30.0)
BAD_DURATIONS = [
    (None, TypeError),
    (True, TypeError),
    ("5", TypeError),
    (-1, ValueError),
    (-1e308, ValueError),
    (math.nan, ValueError),
    (math.inf, ValueError),
]


class Town:
    """A landlord whose owner writes down what it is told."""

    def __init__(self, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.told: list[tuple[str, str]] = []
        usual: dict[str, Any] = {
            "policy": POLICY,
            "on_ended": self.on_ended,
            "expiry": lazy(),
            "clock": self.clock,
            "cookies": count(1).__next__,
        }
        self.landlord: Landlord[str] = Landlord(**usual | settings)

    def on_ended(self, resource: str, reason: EndReason) -> None:
        self.told.append((resource, str(reason)))


@pytest.fixture
def town() -> Town:
    return Town()


def test_a_grant_gives_a_lease_that_renews_and_cancels_at_its_landlord(town: Town) -> None:
    lease = town.landlord.grant("resource", 10.0)
    assert isinstance(lease, LandlordLease)
    assert (lease.grantor, lease.cookie, lease.remaining) == (town.landlord.name, 1, 10.0)
    assert len(town.landlord) == 1


@pytest.mark.parametrize(
    ("requested", "granted"), [(ANY, 30.0), (FOREVER, FOREVER), (10, 10.0), (1e300, 1e300)]
)
def test_any_and_forever_are_granted_and_renewed_as_the_policy_decides(
    town: Town, requested: Any, granted: Any
) -> None:
    lease = town.landlord.grant("resource", requested)
    assert lease.remaining == granted
    assert town.landlord.renew(lease.cookie, requested) == granted
    view = town.landlord.resource(lease.cookie)
    assert view.remaining == granted


def test_a_grant_leaves_the_choice_to_the_policy_unless_told_otherwise(town: Town) -> None:
    lease = town.landlord.grant("resource")
    assert lease.remaining == 30.0
    town.clock.advance(10.0)
    assert town.landlord.renew(lease.cookie) == 30.0


@pytest.mark.parametrize(("bad", "kind"), [*BAD_DURATIONS, (0, ValueError), (0.0, ValueError)])
def test_a_bad_duration_is_refused_before_anything_changes(
    town: Town, bad: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=r"^duration must "):
        town.landlord.grant("resource", bad)
    assert len(town.landlord) == 0
    assert town.landlord.grant("resource").cookie == 1  # not even a cookie was made


@pytest.mark.parametrize(("bad", "kind"), BAD_DURATIONS)
def test_a_renewal_with_a_bad_duration_changes_nothing(
    town: Town, bad: Any, kind: type[Exception]
) -> None:
    lease = town.landlord.grant("resource", 10.0)
    with pytest.raises(kind, match=r"^duration must "):
        town.landlord.renew(lease.cookie, bad)
    with pytest.raises(kind, match=r"^duration must "):
        town.landlord.renew_all([(lease.cookie, 50.0), (lease.cookie, bad)])
    assert town.landlord.resource(lease.cookie).remaining == 10.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": None}, "policy must be a LeasePolicy object, not None"),
        ({"policy": DurationPolicy}, "policy must be a LeasePolicy object"),
        ({"on_ended": "tell me"}, "on_ended must be callable, not 'tell me'"),
        ({"expiry": exact}, "expiry must be a strategy such as"),
        ({"expiry": 5.0}, "expiry must be a strategy such as .*, not 5.0"),
    ],
)
def test_a_landlord_of_wrong_parts_is_refused_by_name(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        Town(**settings)


def test_an_owner_that_is_a_coroutine_function_is_refused_since_nobody_would_await_it() -> None:
    async def on_ended(_resource: str, _reason: EndReason) -> None:
        raise NotImplementedError

    with pytest.raises(TypeError, match="on_ended must be a plain function"):
        Landlord(POLICY, on_ended=on_ended)


def test_cookies_are_unguessable_unless_chosen() -> None:
    landlord: Landlord[str] = Landlord(POLICY, expiry=lazy(), clock=VirtualClock())
    cookies = {landlord.grant("resource").cookie for _ in range(100)}
    assert len(cookies) == 100
    for cookie in cookies:
        assert isinstance(cookie, str)
        assert len(bytes.fromhex(cookie)) == 16


def test_landlords_have_names_of_their_own() -> None:
    names = {Landlord[str](POLICY, expiry=lazy()).name for _ in range(10)}
    assert len(names) == 10
    assert Landlord[str](POLICY, expiry=lazy(), name="here").name == "here"


def test_looking_at_a_lease_shows_resource_cookie_and_end(town: Town) -> None:
    town.clock.advance(5.0)
    lease = town.landlord.grant("resource", 10.0)
    town.clock.advance(4.0)
    view = town.landlord.resource(lease.cookie)
    assert view == LeaseView("resource", 1, 15.0, 6.0)
    assert town.landlord.now == 9.0


def test_a_lease_without_end_shows_none(town: Town) -> None:
    lease = town.landlord.grant("resource", FOREVER)
    view = town.landlord.resource(lease.cookie)
    assert (view.end, view.remaining) == (FOREVER, FOREVER)


@pytest.mark.parametrize("verb", ["renew", "cancel", "resource", "answer"])
def test_a_lease_is_unknown_from_its_deadline_on(town: Town, verb: str) -> None:
    lease = town.landlord.grant("resource", 10.0)
    town.clock.advance(10.0)
    with pytest.raises(UnknownLease) as caught:
        getattr(town.landlord, verb)(lease.cookie)
    assert (caught.value.lease, caught.value.reason) == (1, EndReason.EXPIRED)
    assert town.told == [("resource", "expired")]


@pytest.mark.parametrize("verb", ["renew", "cancel", "resource", "answer"])
@pytest.mark.parametrize("cookie", [-1, "never", 1.5, ("a",)])
def test_an_unknown_cookie_raises_and_does_not_return_minus_one(
    town: Town, verb: str, cookie: Hashable
) -> None:
    with pytest.raises(UnknownLease) as caught:
        getattr(town.landlord, verb)(cookie)
    assert (caught.value.lease, caught.value.reason) == (cookie, EndReason.UNKNOWN)


@pytest.mark.parametrize("verb", ["renew", "cancel", "resource", "answer"])
@pytest.mark.parametrize("cookie", [None, [], {}])
def test_what_cannot_be_a_cookie_is_a_type_error(town: Town, verb: str, cookie: Any) -> None:
    with pytest.raises(TypeError):
        getattr(town.landlord, verb)(cookie)


def test_cancelling_tells_the_owner_once_and_a_second_time_is_unknown(town: Town) -> None:
    lease = town.landlord.grant("resource")
    town.landlord.cancel(lease.cookie)
    assert town.told == [("resource", "cancelled")]
    with pytest.raises(UnknownLease, match="cancelled"):
        town.landlord.cancel(lease.cookie)
    assert len(town.told) == 1


def test_renewing_for_zero_ends_the_lease_now(town: Town) -> None:
    lease = town.landlord.grant("resource")
    assert town.landlord.renew(lease.cookie, 0) == 0.0
    assert town.told == [("resource", "cancelled")]


def test_in_a_batch_each_entry_succeeds_or_fails_by_itself(town: Town) -> None:
    leases = [town.landlord.grant(f"resource {number}", 10.0) for number in range(3)]
    town.landlord.cancel(leases[1].cookie)
    wants: list[tuple[Any, Any]] = [
        (leases[0].cookie, 50.0),
        (leases[1].cookie, 50.0),
        ("never", 50.0),
        (None, 50.0),
        ([], 50.0),
        (leases[2].cookie, FOREVER),
        (leases[0].cookie, 0),
    ]
    result = town.landlord.renew_all(iter(wants))
    assert isinstance(result, BatchResult)
    assert result.cookies == [cookie for cookie, _ in wants]
    assert [result.outcomes[index] for index in (0, 5, 6)] == [50.0, FOREVER, 0.0]
    assert [(cookie, type(error)) for cookie, error in result.failures] == [
        (leases[1].cookie, UnknownLease),
        ("never", UnknownLease),
        (None, TypeError),
        ([], TypeError),
    ]
    assert town.told == [("resource 1", "cancelled"), ("resource 0", "cancelled")]


def test_cancelling_many_pairs_every_failure_with_its_lease(town: Town) -> None:
    leases = [town.landlord.grant(f"resource {number}") for number in range(2)]
    result = town.landlord.cancel_all([leases[0].cookie, "never", leases[1].cookie, 1])
    assert (result.outcomes[0], result.outcomes[2]) == (0.0, 0.0)
    failures = [(cookie, getattr(error, "reason", None)) for cookie, error in result.failures]
    assert failures == [("never", EndReason.UNKNOWN), (1, EndReason.CANCELLED)]
    assert (len(town.landlord), len(town.told)) == (0, 2)


def test_a_policy_that_denies_one_entry_denies_that_one_alone() -> None:
    class Picky(DurationPolicy):
        def renew(self, leased: Any, requested: Any, now: float) -> Any:
            if leased.resource == "bad":
                raise LeaseDenied("bad")
            return super().renew(leased, requested, now)

    town = Town(policy=Picky(60.0, 30.0))
    for resource in ("good", "bad", "good"):
        town.landlord.grant(resource, 10.0)
    result = town.landlord.renew_all([(1, 50.0), (2, 50.0), (3, 50.0)])
    assert [cookie for cookie, _ in result.failures] == [2]
    assert [town.landlord.resource(cookie).remaining for cookie in (1, 2, 3)] == [50.0, 10.0, 50.0]


def test_the_owner_is_told_after_the_lease_left_the_table() -> None:
    town: Town
    seen: list[object] = []

    def on_ended(resource: str, _reason: EndReason) -> None:
        seen.append((resource, len(town.landlord)))
        with pytest.raises(UnknownLease, match="cancelled"):
            town.landlord.resource(1)

    town = Town(on_ended=on_ended)
    town.landlord.grant("resource")
    town.landlord.cancel(1)
    assert seen == [("resource", 0)]


def test_an_owner_that_raises_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def on_ended(resource: str, _reason: EndReason) -> None:
        told.append(resource)
        if resource == "bad":
            raise KeyError("bug of the owner")

    town = Town(on_ended=on_ended)
    for resource in ("bad", "good", "bad", "good"):
        town.landlord.grant(resource, 10.0)
    town.clock.advance(10.0)
    assert town.landlord.now == 10.0
    assert told == ["bad", "good", "bad", "good"]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == [
        "lease 0000000000000001 (expired): on_ended failed",
        "lease 0000000000000003 (expired): on_ended failed",
    ]


def test_an_owner_may_call_back_and_what_ends_meanwhile_waits_its_turn() -> None:
    town: Town
    told: list[str] = []

    def on_ended(resource: str, _reason: EndReason) -> None:
        told.append(f"{resource} begins")
        if resource == "first":
            town.landlord.cancel(2)
            town.landlord.grant("new")
        told.append(f"{resource} ends")

    town = Town(on_ended=on_ended)
    town.landlord.grant("first")
    town.landlord.grant("second")
    town.landlord.cancel(1)
    assert told == ["first begins", "first ends", "second begins", "second ends"]
    assert town.landlord.resource(3).resource == "new"


def test_each_lease_is_told_of_exactly_once_whatever_ends_it(town: Town) -> None:
    for number in range(100):
        town.landlord.grant(str(number), 10.0 if number % 2 else 1000.0)
    town.landlord.cancel_all(range(1, 20))
    town.clock.advance(10.0)
    for _ in range(100):
        _ = town.landlord.now
    town.landlord.cancel_all(range(1, 101))
    assert sorted(int(resource) for resource, _ in town.told) == list(range(100))


def test_every_expiry_is_logged_once_with_cookie_and_lateness(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "leasehold")
    town.landlord.grant("resource", 10.0)
    town.landlord.grant("cancelled", 10.0)
    town.landlord.cancel(2)
    town.clock.advance(12.5)
    _ = town.landlord.now
    _ = town.landlord.now
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.DEBUG, "lease 0000000000000001 expired, 2.500000 s late")
    ]


def test_a_landlord_needs_no_owner() -> None:
    town = Town(on_ended=None)
    town.landlord.grant("resource", 10.0)
    town.landlord.cancel(1)
    assert len(town.landlord) == 0


def test_a_lease_factory_makes_the_lease_object() -> None:
    made: list[tuple[object, ...]] = []

    class MyLease(LandlordLease):
        pass

    def factory(landlord: Any, cookie: Hashable, granted: Any, sent_at: float) -> Lease:
        made.append((landlord, cookie, granted, sent_at))
        return MyLease(landlord, cookie, granted, sent_at)

    town = Town(lease_factory=factory)
    town.clock.suspend(100.0)
    lease = town.landlord.grant("resource", 10.0)
    assert type(lease) is MyLease
    assert made == [(town.landlord, 1, 10.0, 100.0)]


def test_a_lease_factory_that_raises_leaves_no_lease_behind() -> None:
    def factory(*_args: object) -> Lease:
        raise KeyError("bug")

    town = Town(lease_factory=factory)
    with pytest.raises(KeyError, match="bug"):
        town.landlord.grant("resource", 10.0)
    assert (len(town.landlord), town.told) == (0, [])
    with pytest.raises(UnknownLease) as caught:
        town.landlord.resource(1)
    assert caught.value.reason is EndReason.UNKNOWN


def test_the_landlord_keeps_the_resource_and_not_the_lease_object(town: Town) -> None:
    lease = town.landlord.grant("resource", 10.0)
    again = LandlordLease(town.landlord, lease.cookie, 5.0, 0.0)
    assert again == lease
    town.landlord.cancel(again.cookie)
    assert town.told == [("resource", "cancelled")]


def test_a_cookie_that_names_a_live_lease_is_refused() -> None:
    town = Town(cookies=lambda: "same")
    town.landlord.grant("first", 10.0)
    with pytest.raises(ValueError, match="cookie 'same' is already used by a live lease"):
        town.landlord.grant("second", 99.0)
    assert town.landlord.resource("same").resource == "first"


def test_a_cookie_can_be_used_again_after_its_lease_ended_however_many_others_are_due() -> None:
    names = iter([*range(LAZY_BUDGET * 3), "same", "same"])
    town = Town(cookies=names.__next__)
    for _ in range(LAZY_BUDGET * 3):
        town.landlord.grant("other", 5.0)
    town.landlord.grant("first", 10.0)
    town.clock.advance(10.0)
    town.landlord.grant("second", 10.0)
    assert town.landlord.resource("same").resource == "second"
    assert ("first", "expired") in town.told


def test_the_owner_is_told_of_a_lease_that_made_room_even_if_the_grant_is_denied() -> None:
    class Once(DurationPolicy):
        def grant(self, leased: Any, requested: Any, now: float) -> Any:
            if now > 0.0:
                raise LeaseDenied("full")
            return super().grant(leased, requested, now)

    names = iter([*range(LAZY_BUDGET), "same", "same"])
    town = Town(cookies=names.__next__, policy=Once(60.0, 30.0))
    for _ in range(LAZY_BUDGET):
        town.landlord.grant("other", 5.0)
    town.landlord.grant("first", 10.0)
    town.clock.advance(10.0)
    with pytest.raises(LeaseDenied):
        town.landlord.grant("second", 10.0)
    assert ("first", "expired") in town.told


def test_the_term_of_a_pending_lease_begins_when_it_is_answered(town: Town) -> None:
    lease = town.landlord.grant("resource", 10.0, pending=True)
    town.clock.advance(100.0)
    assert town.landlord.resource(lease.cookie).resource == "resource"
    town.landlord.answer(lease.cookie)
    assert town.landlord.resource(lease.cookie).remaining == 10.0
    with pytest.raises(ValueError, match="is not pending: its term has already begun"):
        town.landlord.answer(lease.cookie)


def test_the_holder_of_a_pending_lease_counts_from_its_send(town: Town) -> None:
    lease = town.landlord.grant("resource", 10.0, pending=True)
    town.clock.advance(4.0)
    town.landlord.answer(lease.cookie)
    assert lease.remaining == 6.0
    assert town.landlord.resource(lease.cookie).remaining == 10.0


def _calls(landlord: Landlord[str]) -> list[Callable[[], object]]:
    data = landlord.grant("resource").to_bytes("duration")
    return [
        lambda: landlord.grant("resource"),
        lambda: landlord.renew(1),
        lambda: landlord.cancel(1),
        lambda: landlord.resource(1),
        lambda: landlord.answer(1),
        lambda: landlord.renew_all([(1, 5.0)]),
        lambda: landlord.cancel_all([1]),
        lambda: landlord.lease_from_bytes(data),
    ]


def test_a_closed_landlord_refuses_every_call_and_ends_nothing() -> None:
    town = Town(name="here")
    calls = _calls(town.landlord)
    town.landlord.close()
    town.landlord.close()
    town.clock.advance(1000.0)
    for call in calls:
        with pytest.raises(Closed, match="landlord 'here' was closed"):
            call()
    assert (len(town.landlord), town.told) == (1, [])


def test_a_landlord_is_closed_by_its_with_block(town: Town) -> None:
    with town.landlord as landlord:
        landlord.grant("resource")
    with pytest.raises(Closed):
        landlord.grant("resource")


def test_bytes_of_another_landlord_are_refused_by_name(town: Town) -> None:
    other: Landlord[str] = Landlord(POLICY, expiry=lazy(), name="other", clock=town.clock)
    data = other.grant("resource").to_bytes("absolute")
    with pytest.raises(ValueError, match="lease belongs to landlord 'other', not to"):
        town.landlord.lease_from_bytes(data)


def test_a_landlord_shows_its_name_and_size() -> None:
    town = Town(name="here")
    town.landlord.grant("resource")
    assert repr(town.landlord) == "<Landlord 'here' with 1 leases>"


def test_a_million_grants_and_cancels_leave_nothing_behind(town: Town) -> None:
    for _ in range(20_000):  # a fiftieth of a million shows it as well
        lease = town.landlord.grant("resource", 1e6)
        town.landlord.cancel(lease.cookie)
    assert len(town.landlord) == 0
    assert len(town.landlord.table._queue) < 200
    assert len(town.landlord.table._remembered) <= 1024
    assert not town.landlord.table.ended


def test_a_new_policy_holds_from_the_next_grant_or_renewal_on(town: Town) -> None:
    lease = town.landlord.grant("resource", 60.0)
    town.landlord.policy = FixedPolicy(7.0)
    assert town.landlord.resource(lease.cookie).remaining == 60.0
    assert town.landlord.grant("other", 60.0).term == 7.0
    with pytest.raises(TypeError, match=r"policy must be a LeasePolicy object, not 7\.0"):
        town.landlord.policy = 7.0  # type: ignore[assignment]
    assert town.landlord.policy.__class__ is FixedPolicy


def test_a_load_policy_counts_only_the_landlords_that_it_serves() -> None:
    policy = LoadPolicy(1.0, 1.0, 1000.0)
    town = Town(policy=policy)
    other = Town(policy=UntilPolicy(FOREVER, policy))
    for _ in range(5):
        town.landlord.grant("resource")
        other.landlord.grant("resource")
    assert policy.live == 10
    other.landlord.policy = FixedPolicy(7.0)
    assert policy.live == 5


@pytest.mark.parametrize("name", ["renew", "cancel", "resource"])
def test_a_lease_in_place_of_its_cookie_is_a_type_error(town: Town, name: str) -> None:
    lease = town.landlord.grant("resource")
    with pytest.raises(TypeError, match=r"pass lease\.cookie"):
        getattr(town.landlord, name)(lease)
    assert len(town.landlord) == 1
