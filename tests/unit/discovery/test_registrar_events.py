"""Events of the discovery service in a client, and registrars that cannot be decoded."""

from collections.abc import Callable
from typing import Any

import pytest

from leasehold.discovery import registrar_events
from leasehold.discovery.announced import Registrar
from leasehold.discovery.discovery_messages import KIND, found_message
from leasehold.discovery.registrar_events import MarshalledRegistrars, RegistrarEvent
from leasehold.errors import LeaseholdError, LookupUnmarshalError
from leasehold.events.state import RemoteEvent
from leasehold.wire import discovery_pb2 as pb

R = Registrar("R", frozenset({"a", "b"}), 3, ("r:1", "r:2"), "c1")
S = Registrar("S", frozenset(), 0, ("s:1",), "c2")
UNENCODABLE = Registrar("U", endpoints=("\ud800",))
BAD = pb.FoundRegistrar(id="B", groups=["z"], registrar=b"\xff")


def received(*found: pb.FoundRegistrar, discarded: bool = False) -> "RegistrarEvent[str]":
    payload = pb.RegistrarsPayload(discarded=discarded, registrars=found).SerializeToString()
    return RegistrarEvent.of("source", RemoteEvent("c/discovery", "id", KIND, 7, b"h", payload))


def made(registrars: Any, **options: Any) -> "RegistrarEvent[str]":
    return RegistrarEvent("source", 7, b"h", registrars, **options)


@pytest.mark.parametrize("make", [made, lambda found: received(*map(found_message, found))])
def test_an_event_has_registrars_their_groups_and_the_parts_of_the_registration(
    make: Callable[[list[Registrar]], "RegistrarEvent[str]"],
) -> None:
    event = make([R, S])
    assert event.registrars() == [R, S]
    first = event.registrars()[0]
    assert (first.groups, first.endpoints) == (R.groups, R.endpoints)
    assert (first.cluster, first.groups_number) == (R.cluster, R.groups_number)
    assert event.groups == {"R": R.groups, "S": frozenset()}
    assert (event.source, event.kind, event.number, event.handback) == ("source", KIND, 7, b"h")
    assert not event.is_discarded


def test_an_event_is_either_discovered_or_discarded() -> None:
    assert received(found_message(R), discarded=True).is_discarded
    assert made([R], is_discarded=True).is_discarded
    assert "discarded R" in repr(made([R], is_discarded=True))
    assert "discovered R" in repr(made([R]))


def test_an_event_without_registrars_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one registrar"):
        made([])


@pytest.mark.parametrize("registrars", [None, [None], [R, None], ["R"]])
def test_an_event_with_none_is_refused(registrars: Any) -> None:
    with pytest.raises(TypeError):
        made(registrars)


def test_an_event_of_which_no_registrar_can_be_encoded_is_refused() -> None:
    with pytest.raises(ValueError, match="none of the registrars can be encoded"):
        made([UNENCODABLE])


def test_registrars_that_cannot_be_encoded_are_left_out_of_an_event() -> None:
    assert made([UNENCODABLE, R]).registrars() == [R]


def test_registrars_are_a_new_list_at_each_call_without_duplicates() -> None:
    event = made([R, S, R])
    first = event.registrars()
    assert first == [R, S]
    first.clear()
    assert event.registrars() == [R, S]


def test_an_event_of_another_service_is_refused() -> None:
    with pytest.raises(ValueError, match="event 7 cannot be decoded"):
        RegistrarEvent.of("source", RemoteEvent("c/renewal", "id", KIND, 7, b"", b"\xff"))


# Partial decoding.


def test_registrars_that_cannot_be_decoded_come_with_their_reasons_and_the_others_are_usable() -> (
    None
):
    event = received(found_message(R), BAD, found_message(S))
    with pytest.raises(LookupUnmarshalError) as caught:
        event.registrars()
    error = caught.value
    assert error.registrars == [R, S]
    assert error.registrars[0].endpoints == R.endpoints
    assert error.marshalled == [b"\xff"]
    assert [type(each) for each in error.exceptions] == [ValueError]
    assert error.message is None
    assert isinstance(error, LeaseholdError)
    assert event.groups["B"] == {"z"}, "they need not be decoded"


def test_a_registrar_without_an_id_cannot_be_decoded() -> None:
    event = received(pb.FoundRegistrar(id="B", registrar=b""))
    with pytest.raises(LookupUnmarshalError) as caught:
        event.registrars()
    assert "no id" in str(caught.value.exceptions[0])


def test_undecoded_registrars_are_tried_again_at_each_call_and_then_fixed() -> None:
    tried: list[bytes] = []
    broken = {b"\xff"}

    def decode(marshalled: bytes) -> Registrar:
        tried.append(marshalled)
        if marshalled in broken:
            raise ValueError("not yet")
        return S if marshalled == b"\xff" else registrar_events.decode_registrar(marshalled)

    found = MarshalledRegistrars([found_message(R), BAD], decode)
    for _ in range(2):
        with pytest.raises(LookupUnmarshalError) as caught:
            found.registrars()
        assert caught.value.registrars == [R]
    assert tried.count(b"\xff") == 2
    assert len(tried) == 3, "the good one is decoded once"
    broken.clear()
    assert found.registrars() == [R, S]
    tried.clear()
    assert found.registrars() == [R, S]
    assert tried == []


@pytest.mark.parametrize("error", [ImportError("no module"), KeyError("x"), RuntimeError("?")])
def test_any_error_of_decoding_is_a_reason(error: Exception) -> None:
    def decode(marshalled: bytes) -> Registrar:
        raise error

    with pytest.raises(LookupUnmarshalError) as caught:
        MarshalledRegistrars([BAD], decode).registrars()
    assert caught.value.exceptions == [error]


@pytest.mark.parametrize(
    ("marshalled", "exceptions"), [([b"x"], []), ([], [ValueError()]), ([b"x"], [ValueError()] * 2)]
)
def test_bytes_and_reasons_pair_by_index(
    marshalled: list[bytes], exceptions: list[BaseException]
) -> None:
    with pytest.raises(ValueError, match="same length"):
        LookupUnmarshalError([], marshalled, exceptions)


def test_the_attributes_of_the_error_are_the_same_lists_at_each_access() -> None:
    registrars, marshalled, exceptions = [R], [b"x"], [ValueError("bad")]
    error = LookupUnmarshalError(registrars, marshalled, exceptions, "during a lookup")
    assert error.registrars is error.registrars
    assert error.marshalled is error.marshalled
    assert error.exceptions is error.exceptions
    registrars.clear()
    assert error.registrars == [R]
    assert error.message == "during a lookup"
    assert str(error) == "during a lookup: 1 registrars cannot be decoded; the first: bad"
