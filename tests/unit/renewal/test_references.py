"""`LeaseReference`: equality, bytes, and which leases have one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import DurationPolicy, Landlord, Lease, RemoteLandlord, RemoteLease, lazy
from leasehold.leases.lease_codec import name_to_bytes
from leasehold.renewal.references import (
    MAX_ENDPOINTS,
    MAX_REFERENCE_BYTES,
    GrantorKind,
    LeaseReference,
    identity_of,
    reference_of,
)
from leasehold.wire import renewal_pb2 as pb

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
COOKIES = st.binary(max_size=20) | NAMES | st.integers(-(2**70), 2**70)
REFERENCES = st.builds(
    LeaseReference,
    NAMES,
    COOKIES,
    st.sampled_from(GrantorKind),
    st.lists(
        st.sampled_from(["a.example:1", "https://b.example:2", "unix:/x"]), max_size=MAX_ENDPOINTS
    ).map(tuple),
    NAMES,
)


@given(REFERENCES)
def test_a_reference_comes_back_from_bytes(reference: LeaseReference) -> None:
    decoded = LeaseReference.decode(reference.encode())
    assert decoded == reference
    assert (decoded.kind, decoded.endpoints, decoded.credentials) == (
        reference.kind,
        reference.endpoints,
        reference.credentials,
    )
    assert type(decoded.cookie) is type(reference.cookie)
    assert decoded.digest == reference.digest


def test_only_grantor_and_lease_make_two_references_equal() -> None:
    one = LeaseReference("g", 7, GrantorKind.ETCD, ("a.example:1",), "x")
    other = LeaseReference("g", 7, GrantorKind.LEASEHOLD, ("b.example:1",), "y")
    assert one == other
    assert hash(one) == hash(other)
    assert one.digest == other.digest
    assert len(one.digest) == 32


@given(st.lists(st.tuples(NAMES, COOKIES), min_size=2, max_size=2, unique_by=repr))
def test_other_leases_have_other_digests(names: list[tuple[str, Any]]) -> None:
    one, other = (LeaseReference(*each) for each in names)
    assert one != other
    assert one.digest != other.digest


def test_a_number_as_a_cookie_is_the_same_lease_as_the_id() -> None:
    as_id = pb.LeaseReference(kind=pb.LeaseReference.ETCD, grantor="g", id=7)
    as_cookie = pb.LeaseReference(kind=pb.LeaseReference.ETCD, grantor="g")
    as_cookie.cookie = LeaseReference("g", 2**64 + 7).to_message().cookie
    assert LeaseReference.from_message(as_cookie) != LeaseReference.from_message(as_id)
    as_cookie.cookie = name_to_bytes(7)
    assert LeaseReference.from_message(as_cookie) == LeaseReference.from_message(as_id)


def message(**fields: Any) -> bytes:
    made = pb.LeaseReference(kind="LEASEHOLD", grantor="g")
    for name, value in fields.items():
        if name == "endpoints":
            made.endpoints.extend(value)
        else:
            setattr(made, name, value)
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (message(kind=0, id=1), "unknown kind 0"),
        (message(kind=99, id=1), "unknown kind 99"),
        (message(grantor="", id=1), "grantor of a lease reference must not be empty"),
        (message(id=1, cookie=b"x"), "not both"),
        (message(cookie=b"x"), "truncated"),
        (message(id=1, endpoints=["a@b:1"]), "not a host name"),
        (message(id=1, endpoints=["a:1"] * (MAX_ENDPOINTS + 1)), "at most 32 endpoints"),
    ],
)
def test_a_message_that_this_version_cannot_read_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LeaseReference.decode(data)


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(ValueError, match="lease reference cannot be decoded"):
        LeaseReference.decode(b"\xff\xff")


def test_a_reference_has_a_maximum_size() -> None:
    reference = LeaseReference("g", b"x" * MAX_REFERENCE_BYTES)
    with pytest.raises(ValueError, match="at most 16384 bytes"):
        reference.encode()
    with pytest.raises(ValueError, match="at most 16384 bytes"):
        LeaseReference.decode(b"x" * (MAX_REFERENCE_BYTES + 1))


class Local(Lease):
    """A class of a program."""

    @property
    def grantor(self) -> str:
        return "mine"

    @property
    def cookie(self) -> str:
        return "c"

    async def ask_renew(self, requested: Any) -> Any:
        raise NotImplementedError

    async def ask_cancel(self) -> None:
        raise NotImplementedError


def test_a_lease_of_a_class_of_a_program_has_no_reference() -> None:
    with pytest.raises(ValueError, match="has no reference, so a renewal service cannot renew it"):
        reference_of(Local(1.0))


@pytest.mark.parametrize("lease", [None, 7, "x"])
def test_what_is_not_a_lease_is_refused(lease: Any) -> None:
    with pytest.raises(TypeError, match="must be a lease or a LeaseReference, not"):
        reference_of(lease)


def test_a_lease_of_a_landlord_needs_the_endpoints_at_which_it_is_served() -> None:
    policy = DurationPolicy(60.0, 30.0)
    landlord: Landlord[str] = Landlord(policy, expiry=lazy(), name="desks", cookies=lambda: "c")
    lease = landlord.grant("desk", 10.0)
    with pytest.raises(ValueError, match="pass `endpoints`"):
        reference_of(lease)
    reference = reference_of(lease, endpoints="desks.example:1", credentials="office")
    assert reference == LeaseReference("desks", "c")
    assert reference.endpoints == ("desks.example:1",)
    assert reference.credentials == "office"
    assert identity_of(lease) == reference


def test_a_remote_lease_has_the_endpoints_of_its_landlord() -> None:
    landlord = RemoteLandlord(["a.example:1", "https://b.example:2"])
    lease = RemoteLease(landlord, "desks", "c", 10.0, 0.0)
    assert reference_of(lease).endpoints == ("a.example:1", "https://b.example:2")
    assert reference_of(lease, endpoints=["c.example:3"]).endpoints == ("c.example:3",)


def test_a_reference_is_its_own_reference() -> None:
    reference = LeaseReference("g", 7, GrantorKind.ETCD, ("a.example:1",), "x")
    assert reference_of(reference) is reference
    changed = reference_of(reference, endpoints="b.example:1", credentials="y")
    assert (changed.endpoints, changed.credentials) == (("b.example:1",), "y")
    assert reference_of(LeaseReference("g", 7)).endpoints == ()


def test_references_with_equal_endpoints_share_them() -> None:
    made = [
        LeaseReference.decode(LeaseReference("a", lease, endpoints=("127.0.0.1:1",)).encode())
        for lease in (1, 2)
    ]
    assert made[0].endpoints is made[1].endpoints
    with pytest.raises(ValueError, match="not HOST:PORT"):
        LeaseReference("a", 1, endpoints=("127.0.0.1:x",))
