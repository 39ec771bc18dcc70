"""A renewal set in a client: its arguments, what it sends, and its events."""

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    CallFailed,
    LeaseDenied,
    LeaseUnmarshalError,
    RemoteError,
    RemoteLandlord,
    RemoteLease,
    TooBusy,
    UnknownLease,
)
from leasehold.errors import EndReason
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.renewal.arguments import check_leased
from leasehold.renewal.client import RenewalCalls, RenewalSet
from leasehold.renewal.grantors import Grantors
from leasehold.renewal.references import LeaseReference
from leasehold.renewal.set_events import ExpirationWarning, RenewalFailure
from leasehold.testing import current_host, run_virtual
from leasehold.wire import renewal_pb2 as pb

GRANTOR = "0000000000000007/renewal"
MEMBER = LeaseReference("desks", "c", endpoints=("desks.example:1",))


class Engine:
    cluster_id = 7


class Calls(RenewalCalls):
    """The calls of a client, without a connection: they are recorded, and answered as set."""

    def __init__(self) -> None:
        self.clock = current_host().clock
        self.landlord = RemoteLandlord("server.example:1", clock=self.clock)
        engine: Any = Engine()
        self.grantors = Grantors(engine, is_client=True, clock=self.clock)
        self.sent: list[tuple[str, Any, bool]] = []
        self.answers: list[Any] = []
        self.callbacks: Any = Cleared()

    async def call(
        self,
        method: str,
        request: Any,
        kind: Any,
        *,
        timeout: Any = None,  # noqa: ASYNC109  as that of the class
        again: bool = False,
    ) -> Any:
        copy = type(request)()
        copy.CopyFrom(request)
        self.sent.append((method, copy, again))
        return self.answers.pop(0) if self.answers else kind()

    def set(self) -> RenewalSet:
        return RenewalSet(self, self.set_lease(GRANTOR, "s", 60.0, self.clock.boottime()))


class Cleared:
    def __init__(self) -> None:
        self.keys: list[Any] = []

    def clear(self, key: Any) -> None:
        self.keys.append(key)


def scene(test: Callable[[Calls, RenewalSet], Any]) -> None:
    async def main() -> None:
        calls = Calls()
        await test(calls, calls.set())

    run_virtual(main)


# Arguments are checked before anything is sent.


@pytest.mark.parametrize("duration", [0, 0.0, -1, timedelta(0), math.nan, math.inf, -math.inf])
def test_a_set_needs_a_positive_duration(duration: Any) -> None:
    with pytest.raises(ValueError, match="duration"):
        check_leased(duration, None, "set")


@pytest.mark.parametrize("duration", [None, True, "1"])
def test_the_duration_of_a_set_has_a_type(duration: Any) -> None:
    with pytest.raises(TypeError, match="duration"):
        check_leased(duration, None, "set")


def test_a_set_may_be_leased_for_any_time_or_forever() -> None:
    assert check_leased(ANY, None, "set") is ANY
    assert check_leased(FOREVER, None, "set") is FOREVER
    assert check_leased(timedelta(seconds=3), None, "set") == 3.0


def test_a_set_that_is_found_by_its_id_has_no_new_duration() -> None:
    assert check_leased(ANY, "s", "set") is ANY
    with pytest.raises(ValueError, match="renew the lease of an existing one"):
        check_leased(60, "s", "set")
    with pytest.raises(TypeError, match="id must be a str"):
        check_leased(ANY, 7, "set")  # type: ignore[arg-type]


@pytest.mark.parametrize("renew", [0, -1, -0.5, timedelta(seconds=-1), math.nan, math.inf])
def test_a_renew_duration_that_is_not_positive_is_refused(renew: Any) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        with pytest.raises(ValueError, match="renew_duration"):
            await renewals.renew_for(MEMBER, FOREVER, renew)
        assert calls.sent == []

    scene(check)


@pytest.mark.parametrize("desired", [1.0, 1e300, 0, -5.0, ANY])
def test_any_as_renew_duration_needs_a_desired_duration_of_exactly_forever(desired: Any) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        with pytest.raises(ValueError, match="may be ANY only with a desired_duration of FOREVER"):
            await renewals.renew_for(MEMBER, desired, ANY)
        assert calls.sent == []
        await renewals.renew_for(MEMBER, FOREVER, ANY)
        assert (calls.sent[0][1].desired_ms, calls.sent[0][1].renew_ms) == (-2, -1)

    scene(check)


@pytest.mark.parametrize(
    "desired", [0, -0.0, -1e-9, -1, -1e308, -(10**400), timedelta(days=-999_999_999), ANY]
)
def test_a_negative_desired_duration_however_large_is_sent_as_zero(desired: Any) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        await renewals.renew_for(MEMBER, desired)
        assert calls.sent[0][1].desired_ms == 0

    scene(check)


@pytest.mark.parametrize(
    ("desired", "error"),
    [
        (math.nan, ValueError),
        (math.inf, ValueError),
        (-math.inf, ValueError),
        (10**400, ValueError),
        (True, TypeError),
        (None, TypeError),
        ("1", TypeError),
    ],
)
def test_what_is_not_a_length_of_time_is_refused(desired: Any, error: type[Exception]) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        with pytest.raises(error, match="desired_duration"):
            await renewals.renew_for(MEMBER, desired)
        assert calls.sent == []

    scene(check)


def test_a_short_desired_duration_is_not_sent_as_zero() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        await renewals.renew_for(MEMBER, 1e-9, 1e-9)
        assert (calls.sent[0][1].desired_ms, calls.sent[0][1].renew_ms) == (1, 1)
        await renewals.renew_for(MEMBER, 1e300)
        assert calls.sent[1][1].desired_ms == 2**63 - 1

    scene(check)


@pytest.mark.parametrize("lease", [None, 7, "x"])
def test_a_lease_of_none_is_refused(lease: Any) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        with pytest.raises(TypeError, match="must be a lease or a LeaseReference"):
            await renewals.renew_for(lease, FOREVER)
        with pytest.raises(TypeError, match="must be a lease or a LeaseReference"):
            await renewals.remove(lease)
        assert calls.sent == []

    scene(check)


@pytest.mark.parametrize("warning", [-1.0, -1e308, math.nan, math.inf, ANY, FOREVER])
def test_a_warning_needs_a_time_of_zero_or_more(warning: Any) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        with pytest.raises(ValueError, match="min_warning"):
            await renewals.set_warning_listener(EventTarget("", "m"), warning)
        assert calls.sent == []
        await renewals.set_warning_listener(EventTarget("", "m"), 0)
        assert calls.sent[0][1].min_warning_ms == 0

    scene(check)


@pytest.mark.parametrize("listener", [None, 7, "mailbox"])
def test_a_listener_of_none_is_refused(listener: Any) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        with pytest.raises(TypeError, match="a mailbox or a served listener, not"):
            await renewals.set_failure_listener(listener)
        with pytest.raises(TypeError, match="a mailbox or a served listener, not"):
            await renewals.set_warning_listener(listener, 1.0)
        assert calls.sent == []

    scene(check)


def test_a_handback_is_bytes() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        with pytest.raises(TypeError, match="handback must be bytes"):
            await renewals.set_failure_listener(EventTarget("", "m"), "text")  # type: ignore[arg-type]
        assert calls.sent == []

    scene(check)


# What is sent.


def test_a_lease_is_sent_with_its_remaining_time_and_term() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        clock = calls.clock
        lease = RemoteLease(calls.landlord, "desks", "c", 20.0, clock.boottime())
        await asyncio.sleep(5.0)
        await renewals.renew_for(lease, 100.0, 30.0, credentials="office")
        ((method, request, again),) = calls.sent
        assert method == "RenewFor"
        assert not again
        assert (request.remaining_ms, request.term_ms) == (15_000, 20_000)
        assert (request.desired_ms, request.renew_ms) == (100_000, 30_000)
        reference = LeaseReference.decode(request.reference)
        assert reference == MEMBER
        assert reference.endpoints == ("server.example:1",)
        assert reference.credentials == "office"

    scene(check)


def test_of_a_reference_the_remaining_time_is_unknown() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        await renewals.renew_for(MEMBER, FOREVER)
        request = calls.sent[0][1]
        assert (request.remaining_ms, request.term_ms) == (-1, 0)
        assert (request.desired_ms, request.renew_ms) == (-2, -2)

    scene(check)


def test_a_new_set_is_never_requested_twice() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        calls.answers = [pb.CreateSetResponse(id="n", ttl_ms=5000, grantor=GRANTOR)]
        made = await calls.create(60.0)
        assert calls.sent == [("CreateSet", pb.CreateSetRequest(ttl_ms=60_000), False)]
        assert (made.id, made.lease.term, made.lease.cookie) == ("n", 5.0, "n")
        calls.answers = [pb.CreateSetResponse(id="n", ttl_ms=-1, grantor=GRANTOR)]
        with pytest.raises(CallFailed, match="invalid answer"):
            await calls.create(60.0)

    scene(check)


def test_the_members_are_read_page_by_page() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        calls.answers = [
            pb.MembersResponse(members=[_member("a", 10_000)], next_page_token=b"t"),
            pb.MembersResponse(members=[_member("b", -2), _member("c", -5000)]),
        ]
        leases = await renewals.leases()
        assert [each.cookie for each in leases] == ["a", "b", "c"]
        assert [each.remaining for each in leases] == [10.0, FOREVER, 0.0]
        assert [request.page_token for _, request, _ in calls.sent] == [b"", b"t"]

    scene(check)


def _member(cookie: str, remaining_ms: int) -> pb.SetMember:
    reference = LeaseReference("desks", cookie, endpoints=("desks.example:1",)).encode()
    return pb.SetMember(reference=reference, remaining_ms=remaining_ms, term_ms=20_000)


def test_members_that_cannot_be_decoded_come_with_their_reasons_and_the_good_ones_are_usable() -> (
    None
):
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        bad = [pb.SetMember(reference=b"\xff"), pb.SetMember(reference=b"")]
        calls.answers = [pb.MembersResponse(members=[bad[0], _member("a", 10_000), bad[1]])]
        with pytest.raises(LeaseUnmarshalError) as caught:
            await renewals.leases()
        assert [each.cookie for each in caught.value.leases] == ["a"]
        assert caught.value.marshalled == [b"\xff", b""]
        assert [type(each) for each in caught.value.exceptions] == [ValueError, ValueError]

    scene(check)


def test_bytes_and_reasons_of_undecodable_leases_pair_by_index() -> None:
    with pytest.raises(ValueError, match="same length"):
        LeaseUnmarshalError([], [b"x"], [])


def test_a_listener_that_replaces_a_callback_ends_it() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        calls.answers = [pb.SetListenerResponse(number=3, remaining_ms=9000)]
        registration = await renewals.set_failure_listener(EventTarget("a:1", "l"), b"h")
        assert registration.source is renewals
        assert (registration.kind, registration.number) == (2, 3)
        assert registration.lease == renewals.lease
        assert registration.lease.remaining == 9.0
        request = calls.sent[0][1]
        assert (request.listener.endpoint, request.listener.id) == ("a:1", "l")
        assert request.handback == b"h"
        await renewals.clear_warning_listener()
        assert calls.callbacks.keys == [(GRANTOR, "s", 2), (GRANTOR, "s", 1)]

    scene(check)


# Events.


def _event(kind: int, payload: Any) -> RemoteEvent:
    data = payload if isinstance(payload, bytes) else payload.SerializeToString()
    return RemoteEvent(GRANTOR, "s", kind, 4, b"h", data)


def test_a_warning_has_the_lease_of_the_set_with_its_end_at_the_time_of_the_event() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        end_ms = round((calls.clock.wall() + 7.0) * 1000)
        payload = pb.WarningPayload(remaining_ms=10_000, end_ms=end_ms)
        event = calls.event(_event(1, payload))  # it arrives three seconds late
        assert isinstance(event, ExpirationWarning)
        assert event.source == renewals
        assert hash(event.source) == hash(renewals)
        assert (event.kind, event.number, event.handback) == (1, 4, b"h")
        assert event.lease == renewals.lease
        assert event.lease is event.lease
        assert event.lease.remaining == pytest.approx(7.0, abs=0.01)

    scene(check)


def _failure(error: pb.RenewalError | None, reference: bytes = b"") -> pb.FailurePayload:
    return pb.FailurePayload(reference=reference or MEMBER.encode(), end_ms=0, error=error)


def test_a_failure_has_the_lease_and_the_error() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        error = pb.RenewalError(class_name="TooBusy", status=8, message="later")
        event = calls.event(_event(2, _failure(error)))
        assert isinstance(event, RenewalFailure)
        assert (event.lease.grantor, event.lease.cookie) == ("desks", "c")
        assert event.lease.remaining == 0.0
        assert event.lease is event.lease
        assert type(event.error) is TooBusy
        assert str(event.error) == "later"
        assert event.error is event.error

    scene(check)


def test_a_failure_without_an_attempt_has_no_error() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        event = calls.event(_event(2, _failure(None)))
        assert isinstance(event, RenewalFailure)
        assert event.error is None

    scene(check)


@pytest.mark.parametrize("reason", EndReason)
def test_an_unknown_lease_comes_back_with_its_reason(reason: EndReason) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        text = str(UnknownLease("c", reason))
        error = pb.RenewalError(class_name="UnknownLease", status=5, message=text)
        found = calls.event(_event(2, _failure(error)))
        assert isinstance(found, RenewalFailure)
        assert isinstance(found.error, UnknownLease)
        assert (found.error.lease, found.error.reason, str(found.error)) == ("c", reason, text)

    scene(check)


def test_an_error_with_arguments_that_are_not_known_has_its_class_and_text() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        error = pb.RenewalError(class_name="LeaseDenied", status=9, message="the office is closed")
        found = calls.event(_event(2, _failure(error)))
        assert isinstance(found, RenewalFailure)
        assert isinstance(found.error, LeaseDenied)
        assert str(found.error) == "the office is closed"

    scene(check)


@pytest.mark.parametrize("name", ["OSError", "Missing", "", "Status", "is_definite", "Mapping"])
def test_an_error_of_another_class_is_a_remote_error(name: str) -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        error = pb.RenewalError(class_name=name, status=14, message="no route")
        found = calls.event(_event(2, _failure(error)))
        assert isinstance(found, RenewalFailure)
        assert isinstance(found.error, RemoteError)
        assert found.error.class_name == name
        assert (found.error.remote_status, found.error.message) == (14, "no route")

    scene(check)


def test_what_cannot_be_decoded_raises_on_use_and_again_and_leaves_the_rest_usable() -> None:
    async def check(calls: Calls, renewals: RenewalSet) -> None:
        error = pb.RenewalError(class_name="TooBusy", status=8, message="later")
        event = calls.event(_event(2, _failure(error, b"\xff")))
        for _ in range(2):
            with pytest.raises(ValueError, match="lease reference cannot be decoded"):
                _ = event.lease
        assert isinstance(event, RenewalFailure)
        assert isinstance(event.error, TooBusy)
        assert event.number == 4
        broken = calls.event(_event(1, b"\xff"))
        with pytest.raises(ValueError, match="event 4 cannot be decoded"):
            _ = broken.lease
        assert broken.source == renewals
        with pytest.raises(ValueError, match="event kind must be 1 "):
            calls.event(_event(9, b""))

    scene(check)
