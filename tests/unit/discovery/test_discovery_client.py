"""The discovery service in a client: its arguments, what it sends, and its handles."""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from leasehold import ANY, FOREVER, CallFailed, CallRefused, RemoteLandlord, UnknownLease
from leasehold.discovery.announced import Registrar
from leasehold.discovery.client import DiscoveryRegistration, RemoteDiscovery
from leasehold.discovery.discovery_messages import KIND, found_message
from leasehold.discovery.locators import Locator
from leasehold.errors import LookupUnmarshalError, NoSuchObject
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.landlord.remote_landlord import RemoteLease
from leasehold.testing import current_host, run_virtual
from leasehold.wire import discovery_pb2 as pb

GRANTOR = "0000000000000007/discovery"
MAILBOX = EventTarget("", "m")
R, S = Registrar("R", frozenset({"a"}), 1, ("r:1",)), Registrar("S")


class FakeCallbacks:
    """The callbacks of a client, without a mailbox."""

    def __init__(self) -> None:
        self.set_to: dict[Any, Any] = {}
        self.is_registering = False

    async def target(self) -> EventTarget:
        return EventTarget("", "callbacks")

    @contextmanager
    def registering(self) -> Iterator[None]:
        self.is_registering = True
        yield
        self.is_registering = False

    def set(self, key: Any, callback: Any) -> None:
        assert self.is_registering, "events that come before it would be lost"
        self.set_to[key] = callback


class Calls(RemoteDiscovery):
    """The calls of a client, without a connection: they are recorded, and answered as set."""

    def __init__(self, cluster: int = 7) -> None:
        self._clock = current_host().clock
        self.id = f"{cluster:016x}/discovery"
        self._landlord = RemoteLandlord("server.example:1", clock=self._clock)
        self.sent: list[tuple[str, Any, bool]] = []
        self.answers: list[Any] = []
        self.fake = FakeCallbacks()
        self._callbacks: Any = lambda: self.fake

    async def call(
        self,
        method: str,
        request: Any,
        kind: Any,
        timeout: Any = None,  # noqa: ASYNC109  as that of the class
        *,
        again: bool = False,
    ) -> Any:
        copy = type(request)()
        copy.CopyFrom(request)
        self.sent.append((method, copy, again))
        answer = self.answers.pop(0) if self.answers else kind()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def handle(self, name: str = "n", number: int = 0) -> DiscoveryRegistration:
        lease = RemoteLease(self._landlord, GRANTOR, name, 60.0, self._clock.boottime())
        return DiscoveryRegistration(self, lease, number)


def scene(test: Callable[[Calls, DiscoveryRegistration], Any]) -> None:
    async def main() -> None:
        calls = Calls()
        await test(calls, calls.handle())

    run_virtual(main)


MADE = pb.RegisterDiscoveryResponse(id="n", ttl_ms=5000, grantor=GRANTOR)

# Arguments are checked before anything is sent.


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"listener": None}, TypeError),
        ({"listener": "mailbox"}, TypeError),
        ({"groups": [None]}, TypeError),
        ({"groups": ["a", None]}, TypeError),
        ({"groups": "a"}, TypeError),
        ({"groups": ["g" * 257]}, ValueError),
        ({"locators": [None]}, TypeError),
        ({"locators": "leasehold://r"}, TypeError),
        ({"locators": ["r"]}, ValueError),
        ({"duration": 0}, ValueError),
        ({"duration": -1}, ValueError),
        ({"duration": math.nan}, ValueError),
        ({"duration": None}, TypeError),
        ({"handback": "text"}, TypeError),
    ],
    ids=str,
)
def test_wrong_arguments_of_register_are_refused(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        given: dict[str, Any] = {"groups": ["a"], "listener": MAILBOX} | arguments
        with pytest.raises(error):
            await calls.register(**given)
        assert calls.sent == []

    scene(check)


def test_a_listener_must_be_given() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        with pytest.raises(TypeError):
            await calls.register(["a"])  # type: ignore[call-arg]

    scene(check)


GROUP_CALLS = ("add_groups", "set_groups", "remove_groups")
LOCATOR_CALLS = ("add_locators", "set_locators", "remove_locators")


@pytest.mark.parametrize("name", [*GROUP_CALLS, *LOCATOR_CALLS])
@pytest.mark.parametrize("given", [[None], ["leasehold://r", None], "leasehold://r", 7])
def test_none_elements_are_refused_in_all_six(name: str, given: Any) -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        with pytest.raises(TypeError):
            await getattr(registration, name)(given)
        assert calls.sent == []

    scene(check)


@pytest.mark.parametrize("name", ["add_groups", "remove_groups", *LOCATOR_CALLS])
def test_none_is_refused_except_for_setting_all_groups(name: str) -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        with pytest.raises(TypeError):
            await getattr(registration, name)(None)
        assert calls.sent == []
        await registration.set_groups(None)
        assert calls.sent[0][1].groups.all

    scene(check)


@pytest.mark.parametrize("registrar", [None, "R", 7])
def test_a_discard_of_none_is_refused(registrar: Any) -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        with pytest.raises(TypeError, match="must be a Registrar"):
            await registration.discard(registrar)
        assert calls.sent == []

    scene(check)


def test_the_service_needs_a_server() -> None:
    nothing: Any = object()
    with pytest.raises(CallRefused, match="requires a server"):
        RemoteDiscovery(nothing, nothing, nothing)


# What is sent.


@pytest.mark.parametrize(("duration", "ttl_ms"), [(ANY, -1), (FOREVER, -2), (2.5, 2500)])
def test_a_registration_is_requested_once_with_its_arguments(duration: Any, ttl_ms: int) -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        calls.answers = [MADE]
        made = await calls.register(
            ["b", "a", "b"],
            ["leasehold://R", Locator("r"), "leasehold://s:7"],
            listener=EventTarget("l:1", "x"),
            handback=b"h",
            duration=duration,
        )
        ((method, request, again),) = calls.sent
        assert (method, again) == ("Register", False)
        assert list(request.groups.names) == ["a", "b"]
        assert list(request.locators) == ["leasehold://r:2379", "leasehold://s:7"]
        assert (request.listener.endpoint, request.listener.id) == ("l:1", "x")
        assert (request.handback, request.ttl_ms) == (b"h", ttl_ms)
        assert (made.id, made.lease.cookie, made.lease.remaining) == ("n", "n", 5.0)

    scene(check)


def test_groups_of_none_are_all_groups_and_locators_of_none_are_none() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        calls.answers = [MADE, MADE]
        await calls.register(None, None, listener=MAILBOX)
        await calls.register([], listener=MAILBOX)
        (_, everything, _), (_, nothing, _) = calls.sent
        assert everything.groups.all
        assert list(everything.locators) == []
        assert not nothing.groups.all
        assert list(nothing.groups.names) == []

    scene(check)


def test_the_term_of_the_lease_begins_when_the_request_is_sent() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        original = calls.call

        async def slowly(*args: Any, **named: Any) -> Any:
            await asyncio.sleep(2.0)
            return await original(*args, **named)

        calls.call = slowly  # type: ignore[method-assign]
        calls.answers = [MADE]
        made = await calls.register(["a"], listener=MAILBOX)
        assert made.lease.remaining == 3.0

    scene(check)


def test_an_invalid_answer_is_an_error() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        calls.answers = [pb.RegisterDiscoveryResponse(id="n", ttl_ms=-1, grantor=GRANTOR)]
        with pytest.raises(CallFailed, match="invalid answer"):
            await calls.register(["a"], listener=MAILBOX)

    scene(check)


def test_a_function_is_called_with_the_events_of_its_registration() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        heard: list[Any] = []
        calls.answers = [MADE]
        made = await calls.register(["a"], listener=heard.append)
        assert calls.sent[0][1].listener.id == "callbacks"
        ((key, callback),) = calls.fake.set_to.items()
        assert key == (GRANTOR, "n", KIND)
        payload = pb.RegistrarsPayload(registrars=[found_message(R)]).SerializeToString()
        callback(RemoteEvent(GRANTOR, "n", KIND, 4, b"h", payload))
        (event,) = heard
        assert event.source == made
        assert (event.number, event.handback, event.registrars()) == (4, b"h", [R])

    scene(check)


def test_changes_are_sent_once_and_never_again() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        await registration.add_groups(["b", "a", "b"])
        await registration.set_groups([])
        await registration.remove_groups(["a"])
        await registration.add_locators(["leasehold://R", Locator("r")])
        await registration.set_locators([])
        await registration.remove_locators(["leasehold://r"])
        await registration.discard(R)
        methods = [(method, again) for method, _, again in calls.sent]
        assert methods == [
            *[("ChangeGroups", False)] * 3,
            *[("ChangeLocators", False)] * 3,
            ("Discard", False),
        ]
        requests = [request for _, request, _ in calls.sent]
        assert all(each.registration == "n" for each in requests)
        kinds = [pb.ADD_INTEREST, pb.SET_INTEREST, pb.REMOVE_INTEREST]
        assert [each.change for each in requests[:6]] == kinds * 2
        assert list(requests[0].groups.names) == ["a", "b"]
        assert list(requests[3].locators) == ["leasehold://r:2379"]
        assert requests[6].registrar == "R"

    scene(check)


# What is returned.


def test_groups_are_none_for_all_and_an_empty_list_for_none() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        calls.answers = [
            pb.DiscoveryInfo(groups=pb.GroupNames(all=True)),
            pb.DiscoveryInfo(),
            pb.DiscoveryInfo(groups=pb.GroupNames(names=["b", "a"])),
            pb.DiscoveryInfo(locators=["leasehold://r:7"]),
        ]
        assert await registration.groups() is None
        assert await registration.groups() == []
        assert await registration.groups() == ["a", "b"]
        assert await registration.locators() == [Locator("r", 7)]

    scene(check)


def test_registrars_are_read_page_by_page_each_once() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        calls.answers = [
            pb.RegistrarsResponse(registrars=[found_message(R)], next="R"),
            pb.RegistrarsResponse(registrars=[found_message(R), found_message(S)]),
        ]
        found = await registration.registrars()
        assert found == [R, S]
        assert found[0].groups == R.groups
        assert [request.after for _, request, _ in calls.sent] == ["", "R"]

    scene(check)


def test_registrars_that_cannot_be_decoded_come_with_the_others() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        bad = pb.FoundRegistrar(id="B", registrar=b"\xff")
        calls.answers = [pb.RegistrarsResponse(registrars=[bad, found_message(R)])]
        with pytest.raises(LookupUnmarshalError) as caught:
            await registration.registrars()
        assert caught.value.registrars == [R]
        assert caught.value.marshalled == [b"\xff"]

    scene(check)


def test_the_event_registration_and_the_lease_are_local_and_hold_the_same_lease() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        events = registration.event_registration
        assert events.source is registration
        assert events.lease is registration.lease
        assert (events.kind, events.number) == (KIND, 0)
        assert calls.sent == []

    scene(check)


def test_two_handles_of_one_registration_are_equal() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        calls.answers = [
            pb.DiscoveryInfo(id="n", grantor=GRANTOR, remaining_ms=4000, number=3),
        ]
        found = await calls.registration("n")
        assert found == registration
        assert hash(found) == hash(registration)
        assert found != calls.handle("other")
        assert found != "n"
        assert found.event_registration.number == 3
        assert found.lease.remaining == 4.0

    scene(check)


def test_two_references_to_one_discovery_service_are_equal() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        again, other = Calls(), Calls(8)
        assert calls == again
        assert hash(calls) == hash(again)
        assert calls != other
        assert calls != "service"

    scene(check)


def test_cancelling_a_registration_that_has_ended_raises_no_such_object() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        async def cancel(lease: RemoteLease) -> None:
            raise UnknownLease(lease.cookie)

        with (
            patch.object(RemoteLease, "cancel", cancel),
            pytest.raises(NoSuchObject, match="'n'"),
        ):
            await registration.cancel()

    scene(check)


def test_an_event_of_another_service_is_refused() -> None:
    async def check(calls: Calls, registration: DiscoveryRegistration) -> None:
        with pytest.raises(ValueError, match="event must come from the discovery service"):
            calls.event(RemoteEvent("0000000000000007/renewal", "n", 1, 1, b"", b""))

    scene(check)
