"""`LeaseReference`: where a lease is granted and how it is renewed, for a renewal service.

The grantor and the cookie identify the lease: two references with the same ones are equal. The
endpoints and the name of the credentials are only the way there. Secrets are never in a reference:
`credentials` is the name of an entry in the configuration of the renewal service.
"""

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import Final, Self

from google.protobuf.message import DecodeError

from leasehold.basics.addresses import parse_address
from leasehold.engine.interface import Engine
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.landlord.landlord_lease import LandlordLease
from leasehold.landlord.remote_landlord import RemoteLease
from leasehold.leases.lease import Lease
from leasehold.leases.lease_codec import name_from_bytes, name_to_bytes
from leasehold.sessions.held_lease import HeldLease
from leasehold.sessions.kept_lease import KeptLease
from leasehold.wire import renewal_pb2 as pb

MAX_REFERENCE_BYTES: Final = 16 * 1024
"""The limit of a serialized reference."""

MAX_ENDPOINTS: Final = 32
"""Endpoints in one reference."""

ENDPOINTS_KEPT: Final = 256
"""Endpoints that are remembered as valid: most leases of a set have the same ones."""

_IDS: Final = range(-(2**63), 2**63)


class GrantorKind(IntEnum):
    """The protocol that renews a lease."""

    LEASEHOLD = pb.LeaseReference.LEASEHOLD
    """`leasehold.v1.Leases`: Leasehold servers, their services, and landlords that are served."""
    ETCD = pb.LeaseReference.ETCD


@dataclass(frozen=True, slots=True)
class LeaseReference:
    """A lease, and the way to its grantor."""

    grantor: str
    """The cluster id in 16 hex digits, the name of a service there, or the name of a landlord."""
    cookie: bytes | str | int
    """The name of the lease at its grantor; the id, for a lease of a cluster."""
    kind: GrantorKind = field(default=GrantorKind.LEASEHOLD, compare=False)
    endpoints: tuple[str, ...] = field(default=(), compare=False)
    """Addresses of the grantor; may be empty for leases of the renewal service's own cluster."""
    credentials: str = field(default="", compare=False)
    """The name of an entry in the configuration of the renewal service."""

    def __post_init__(self) -> None:
        if not isinstance(self.grantor, str):
            raise TypeError(f"grantor of a lease reference must be a str, not {self.grantor!r}")
        if not self.grantor:
            raise ValueError("grantor of a lease reference must not be empty")
        if isinstance(self.cookie, bool) or not isinstance(self.cookie, bytes | str | int):
            raise TypeError(
                f"cookie of a lease reference must be bytes, str or int, not {self.cookie!r}"
            )
        if not isinstance(self.credentials, str):
            raise TypeError(f"credentials must be the name of an entry, not {self.credentials!r}")
        if len(self.endpoints) > MAX_ENDPOINTS:
            raise ValueError(
                f"lease reference must have at most {MAX_ENDPOINTS} endpoints, got "
                f"{len(self.endpoints)}"
            )
        object.__setattr__(self, "endpoints", _checked(tuple(self.endpoints)))

    @property
    def digest(self) -> str:
        """32 hex digits that are equal for equal references."""
        name = name_to_bytes(self.grantor) + name_to_bytes(self.cookie)
        return hashlib.blake2b(name, digest_size=16).hexdigest()

    def to_message(self) -> pb.LeaseReference:
        """Return the reference as a message."""
        message = pb.LeaseReference(
            kind=pb.LeaseReference.Kind.Name(self.kind),
            grantor=self.grantor,
            endpoints=self.endpoints,
            credentials=self.credentials,
        )
        if isinstance(self.cookie, int) and self.cookie in _IDS:
            message.id = self.cookie
        else:
            message.cookie = name_to_bytes(self.cookie)
        return message

    @classmethod
    def from_message(cls, message: pb.LeaseReference) -> Self:
        """Return the reference of a message; ValueError if this version cannot read it."""
        try:
            kind = GrantorKind(message.kind)
        except ValueError:
            raise ValueError(f"lease reference has the unknown kind {message.kind}") from None
        if message.cookie and message.id:
            raise ValueError("lease reference must have an id or a cookie, not both")
        cookie = name_from_bytes(message.cookie) if message.cookie else message.id
        return cls(message.grantor, cookie, kind, tuple(message.endpoints), message.credentials)

    def encode(self) -> bytes:
        """Return the reference as bytes; ValueError if it is too large."""
        data = self.to_message().SerializeToString(deterministic=True)
        _check_size(data)
        return data

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the reference of some bytes; ValueError if this version cannot read them."""
        _check_size(data)
        try:
            message = pb.LeaseReference.FromString(data)
        except DecodeError as error:
            raise ValueError(f"lease reference cannot be decoded: {error}") from None
        return cls.from_message(message)


@lru_cache(ENDPOINTS_KEPT)
def _checked(endpoints: tuple[str, ...]) -> tuple[str, ...]:
    """Return valid endpoints; equal ones are one object, of which 100,000 leases need one."""
    for endpoint in endpoints:
        parse_address(endpoint)
    return endpoints


def _check_size(data: bytes) -> None:
    if len(data) > MAX_REFERENCE_BYTES:
        raise ValueError(
            f"lease reference must have at most {MAX_REFERENCE_BYTES} bytes, got {len(data)}"
        )


def reference_of(
    lease: Lease | LeaseReference,
    *,
    endpoints: Iterable[str] | str | None = None,
    credentials: str = "",
) -> LeaseReference:
    """Return the reference of a lease, with which a renewal service can renew it.

    `endpoints` replaces the addresses that this process uses for the grantor, which may be others
    than those for the renewal service. It is required for a lease of an engine or landlord in this
    process, which must be served there. Raises ValueError for a lease without a reference, such as
    one of a class of your own.
    """
    given = (endpoints,) if isinstance(endpoints, str) else tuple(endpoints or ())
    found = _reference_of(lease, given)
    if not found.endpoints and not isinstance(lease, LeaseReference):
        raise ValueError(
            f"{lease!r} is granted in this process and has no endpoint: pass `endpoints`, the "
            "address at which its grantor is served"
        )
    return replace(found, credentials=credentials) if credentials else found


def identity_of(lease: Lease | LeaseReference) -> LeaseReference:
    """Return a reference that need not have endpoints: to find a lease, not to renew it."""
    return _reference_of(lease, ())


def _reference_of(lease: Lease | LeaseReference, endpoints: tuple[str, ...]) -> LeaseReference:
    if not isinstance(lease, Lease | LeaseReference):
        raise TypeError(f"lease must be a lease or a LeaseReference, not {lease!r}")
    match lease:
        case LeaseReference():
            return replace(lease, endpoints=endpoints) if endpoints else lease
        case HeldLease():
            return _of_engine(lease.kept, endpoints)
        case KeptLease():
            return _of_engine(lease, endpoints)
        case RemoteLease():
            return _named(lease, endpoints or lease.landlord.endpoints)
        case LandlordLease():
            return _named(lease, endpoints)
        case ReferencedLease():
            return _reference_of(lease.reference, endpoints)
    raise ValueError(
        f"{lease!r} has no reference, so a renewal service cannot renew it: only leases of a "
        "Leasehold server, an etcd cluster or a landlord served with gRPC have one"
    )


class ReferencedLease(Lease):
    """A lease that was made from a reference; `renewal.grantors` has its subclasses."""

    __slots__ = ("connection_key", "reference")
    reference: LeaseReference
    connection_key: Hashable
    """The key of the connection over which it is renewed."""

    @property
    def grantor(self) -> str:
        return self.reference.grantor

    @property
    def cookie(self) -> Hashable:
        return self.reference.cookie

    def may_send(self) -> None:
        """Raise if it must not be renewed any more; called immediately before each send."""


def _of_engine(lease: KeptLease, endpoints: tuple[str, ...]) -> LeaseReference:
    engine: Engine = lease.engine
    kind = GrantorKind.LEASEHOLD
    if isinstance(engine, RemoteEngine):
        endpoints = endpoints or engine.channel.dial_addresses
        if not engine.server.is_leasehold:
            kind = GrantorKind.ETCD
    return LeaseReference(f"{engine.cluster_id:016x}", lease.id, kind, endpoints)


def _named(lease: Lease, endpoints: tuple[str, ...]) -> LeaseReference:
    grantor, cookie = lease.grantor, lease.cookie
    if not isinstance(grantor, str) or not isinstance(cookie, bytes | str | int):
        raise ValueError(
            f"{lease!r} has no reference: its grantor must be a str, and its cookie bytes, str or "
            "int"
        )
    return LeaseReference(grantor, cookie, GrantorKind.LEASEHOLD, endpoints)
