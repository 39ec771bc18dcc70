"""Events, members of renewal sets, and registrars in the output: for people, and as JSON."""

import asyncio
import json
from typing import Any

import pytest

from leasehold.basics.durations import FOREVER
from leasehold.cli.discovery_views import _list_one
from leasehold.cli.discovery_views import event_as_json as discovery_event_as_json
from leasehold.cli.event_watch import event_line
from leasehold.cli.renewal_views import _list_members
from leasehold.discovery.announced import Registrar
from leasehold.discovery.client import DiscoveryInfo
from leasehold.discovery.discovery_messages import found_message
from leasehold.discovery.locators import Locator
from leasehold.errors import LeaseUnmarshalError, LookupUnmarshalError
from leasehold.events.client import event_as_json, register_decoder
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.renewal.client import ListenerInfo, SetInfo
from leasehold.renewal.event_json import payload_as_json, reference_as_json
from leasehold.renewal.references import GrantorKind, LeaseReference
from leasehold.wire import discovery_pb2
from leasehold.wire import renewal_pb2 as pb

SET = "0123456789abcdef0123456789abcdef"
REFERENCE = LeaseReference("00000000000000aa", 0x7A11, GrantorKind.ETCD, ("10.0.0.1:2379",))


def event(kind: int, payload: bytes, service: str = "aa/renewal") -> RemoteEvent:
    return RemoteEvent(service, SET, kind, 3, b"", payload)


def document(given: RemoteEvent) -> dict[str, object]:
    register_decoder("renewal", payload_as_json)
    shown = event_as_json(given)
    json.dumps(shown)
    return shown


def test_a_failure() -> None:
    payload = pb.FailurePayload(reference=REFERENCE.encode(), end_ms=1_777_888_999_000)
    shown = document(event(pb.RENEWAL_FAILURE, payload.SerializeToString()))
    assert shown["payload"] == {
        "event": "renewal_failure",
        "lease": {
            "grantor": "00000000000000aa",
            "id": "0000000000007a11",
            "kind": "etcd",
            "endpoints": ["10.0.0.1:2379"],
            "credentials": None,
        },
        "ended_at": "2026-05-04T10:03:19.000Z",
        "error": None,
    }
    assert event_line(shown) == (
        f"failure 3 of renewal set {SET}: lease 0000000000007a11 of 00000000000000aa has left: "
        "it has expired"
    )
    payload.error.CopyFrom(pb.RenewalError(class_name="TooBusy", status=14, message="\x1bno"))
    shown = document(event(pb.RENEWAL_FAILURE, payload.SerializeToString()))
    assert event_line(shown).endswith("has left: TooBusy: \\x1bno")


def test_a_warning() -> None:
    payload = pb.WarningPayload(remaining_ms=599_500, end_ms=-2)
    shown = document(event(pb.EXPIRATION_WARNING, payload.SerializeToString()))
    assert shown["payload"] == {
        "event": "expiration_warning",
        "remaining": 599.5,
        "ends_at": None,
    }
    assert event_line(shown) == f"warning 3 of renewal set {SET}: it ends in 9m59s"


@pytest.mark.parametrize(
    "given",
    [
        event(pb.RENEWAL_FAILURE, b"\xff"),
        event(77, b""),
        event(1, b"x", service="aa/registry"),
    ],
)
def test_an_event_that_cannot_be_decoded_is_shown_with_its_bytes(given: RemoteEvent) -> None:
    shown = document(given)
    assert "payload" not in shown
    assert "payload_base64" in shown
    assert event_line(shown) == f"event 3 of {given.service} {SET}, kind {given.kind}"


def test_a_failure_of_a_lease_that_cannot_be_decoded() -> None:
    payload = pb.FailurePayload(reference=b"\xff").SerializeToString()
    line = event_line(document(event(pb.RENEWAL_FAILURE, payload)))
    assert line.startswith(f"failure 3 of renewal set {SET}: a lease that cannot be decoded has le")


@pytest.mark.parametrize(
    ("cookie", "shown"),
    [("A1", {"cookie": "A1"}), (b"\xff", {"cookie_base64": "/w=="}), (7, {"id": "0" * 15 + "7"})],
)
def test_names_of_leases(cookie: str | bytes | int, shown: dict[str, str]) -> None:
    found = reference_as_json(LeaseReference("desks", cookie).encode())
    assert shown.items() <= found.items()


class SetOfUndecodable:
    """A set with a member that cannot be decoded."""

    async def info(self) -> SetInfo:
        listener = ListenerInfo(2, 4, "", "ab" * 16, 3, "")
        return SetInfo(SET, FOREVER, 1, (listener,), "no route")

    async def leases(self) -> list[object]:
        raise LeaseUnmarshalError([], [b"\xff"], [ValueError("unknown kind 9")])


def test_members_that_cannot_be_decoded_are_listed_as_such(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    asyncio.run(_list_members(SetOfUndecodable(), is_json=False))  # type: ignore[arg-type]
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert lines[1].split() == ["remaining", "forever"]
    assert lines[4].split(maxsplit=2)[2] == f"mailbox {'ab' * 16} (3 undelivered)"
    assert lines[5].split(maxsplit=2)[2] == "no route"
    assert lines[-1].startswith("(undecodable)")
    assert lines[-1].endswith("unknown kind 9")
    asyncio.run(_list_members(SetOfUndecodable(), is_json=True))  # type: ignore[arg-type]
    shown = json.loads(capsysbinary.readouterr().out)
    assert shown["members"] == [{"reference_base64": "/w==", "undecodable": "unknown kind 9"}]
    assert shown["set"]["remaining"] is None


# The discovery service.

REGISTRAR = Registrar("r1", frozenset({"", "pay"}), 3, ("http://10.0.0.1:2379",), "00aa")
SHOWN_REGISTRAR = {
    "id": "r1",
    "groups": ["", "pay"],
    "groups_number": 3,
    "endpoints": ["http://10.0.0.1:2379"],
    "cluster": "00aa",
}


def registrars_event(*others: discovery_pb2.FoundRegistrar, discarded: bool) -> RemoteEvent:
    payload = discovery_pb2.RegistrarsPayload(
        registrars=[found_message(REGISTRAR), *others], discarded=discarded
    )
    return event(1, payload.SerializeToString(), "aa/discovery")


@pytest.mark.parametrize("discarded", [False, True])
def test_an_event_about_registrars(*, discarded: bool) -> None:
    register_decoder("discovery", discovery_event_as_json)
    what = "discarded" if discarded else "discovered"
    shown = document(registrars_event(discarded=discarded))
    assert shown["payload"] == {"event": what, "registrars": [SHOWN_REGISTRAR]}
    assert event_line(shown) == f"event 3 of discovery registration {SET}: {what} r1"


def test_a_registrar_that_cannot_be_decoded_is_shown_with_its_bytes_beside_the_others() -> None:
    register_decoder("discovery", discovery_event_as_json)
    other = discovery_pb2.FoundRegistrar(id="r2", registrar=b"\xff")
    shown = document(registrars_event(other, discarded=False))
    payload: Any = shown["payload"]
    assert payload["registrars"][0] == SHOWN_REGISTRAR
    assert payload["registrars"][1]["registrar_base64"] == "/w=="
    assert event_line(shown).endswith("discovered r1, one that cannot be decoded")


class RegistrationOfUndecodable:
    """A registration of the discovery service with a registrar that cannot be decoded."""

    async def info(self) -> DiscoveryInfo:
        locators = (Locator("10.0.0.1"),)
        listener = EventTarget("", "ab" * 16)
        return DiscoveryInfo(SET, FOREVER, None, locators, 2, 7, listener, 3, "no route")

    async def registrars(self) -> list[Registrar]:
        raise LookupUnmarshalError([REGISTRAR], [b"\xff"], [ValueError("it has no id")])


def test_registrars_that_cannot_be_decoded_are_listed_as_such(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    asyncio.run(_list_one(RegistrationOfUndecodable(), is_json=False))  # type: ignore[arg-type]
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [line.split(maxsplit=1) for line in lines[:5]] == [
        ["registration", SET],
        ["remaining", "forever"],
        ["registrars", "2"],
        ["groups", "(all)"],
        ["locators", "leasehold://10.0.0.1:2379"],
    ]
    assert lines[5].split(maxsplit=2)[2] == f"mailbox {'ab' * 16} (3 undelivered)"
    assert lines[6].split(maxsplit=2)[2] == "no route"
    assert lines[-2].split() == ["r1", '"",pay', "http://10.0.0.1:2379"]
    assert lines[-1].split(maxsplit=2) == ["(undecodable)", "-", "it has no id"]
    asyncio.run(_list_one(RegistrationOfUndecodable(), is_json=True))  # type: ignore[arg-type]
    shown = json.loads(capsysbinary.readouterr().out)
    assert shown["registrars"] == [
        SHOWN_REGISTRAR,
        {"registrar_base64": "/w==", "undecodable": "it has no id"},
    ]
    assert (shown["registration"]["groups"], shown["registration"]["remaining"]) == (None, None)
