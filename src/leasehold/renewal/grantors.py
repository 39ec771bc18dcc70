"""`Grantors`: makes leases out of references, and renews them wherever they are granted.

    grantor of the lease             renewed
    the engine of this process       with the engine
    a service of this cluster        by a function that the owner passes
    another Leasehold, a landlord    with a `RemoteLandlord` per endpoints and credentials
    an etcd cluster                  with a `RemoteEngine` per endpoints and credentials

Leases of one connection and one grantor share a batch. Connections are opened when a lease is
renewed over them, and closed when they were not used for a while.

A lease of a renewal set must not be renewed once its set has ended or belongs to another server. So
`may_send` of each lease is called immediately before a message is sent, also before one that had to
wait for a connection: a message with a lease that may not be sent any more is composed again
without it.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from leasehold.basics.addresses import Address
from leasehold.basics.callbacks import ignore
from leasehold.basics.durations import ANY, FOREVER, Duration, Requested
from leasehold.basics.endpoint_list import EndpointList, normal_endpoint
from leasehold.basics.tls import client_tls
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.errors import (
    CallFailed,
    Closed,
    Forked,
    HistoryLost,
    PermissionDenied,
    is_definite,
)
from leasehold.leases.holder_view import Send
from leasehold.leases.lease import Lease, Outcome
from leasehold.renewal.grantor_connections import (
    IDLE_S,
    MAX_CONNECTIONS,
    CancelOwn,
    ConnectionKey,
    EtcdConnection,
    GrantorConnection,
    LandlordConnection,
    OwnEngine,
    OwnServices,
    RenewOwn,
    Wants,
)
from leasehold.renewal.references import (
    ENDPOINTS_KEPT,
    GrantorKind,
    LeaseReference,
    ReferencedLease,
)
from leasehold.services.connection_pool import ConnectionPool
from leasehold.services.withdrawn_leases import send_permitted

ONE_BY_ONE: Final = 8
"""Concurrent calls for the leases of a batch that has failed as a whole."""

_OF_THIS_PROCESS: Final = (Closed, Forked, HistoryLost)
"""Errors that are final for a connection or an engine of this process, but not for a lease."""

MaySend: TypeAlias = Callable[[], object]
"""Raises if a lease must not be renewed any more."""


class _Begun(NamedTuple):
    """The current term of a lease, and when it was requested."""

    granted: Duration
    sent_at: float


@dataclass(frozen=True, slots=True)
class Credentials:
    """An entry of the server's configuration: TLS files, and the endpoints that they are for."""

    endpoints: EndpointList
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    users: frozenset[str] | None = None
    """The users who may name it; None for all."""
    tls: ssl.SSLContext = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the files. OSError or ValueError: one of them cannot be used."""
        object.__setattr__(self, "tls", client_tls(self.ca, self.cert, self.key))


class GrantorLease(ReferencedLease):
    """A lease made from a reference, equal to any other object for the same lease."""

    __slots__ = ("_gives_full_terms", "_grantors")

    def __init__(
        self,
        grantors: "Grantors",
        reference: LeaseReference,
        holding: _Begun,
    ) -> None:
        super().__init__(holding.granted, sent_at=holding.sent_at, clock=grantors.clock)
        self.reference = reference
        self._grantors = grantors
        self.connection_key = grantors.connection_key(reference)
        self._gives_full_terms = grantors.gives_full_terms(reference)

    @property
    def batch_key(self) -> Hashable:
        return (self.connection_key, self.reference.grantor)

    @property
    def call_limit_key(self) -> Hashable:
        return self.connection_key

    def send(self, requested: Requested) -> Send:
        """Record that a term is being requested now; engines give full terms only."""
        return super().send(ANY if self._gives_full_terms else requested)

    async def ask_renew(self, requested: Requested) -> Duration:
        (outcome,) = await self._grantors.renew_all([(self, requested)])
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        return await self._grantors.renew_all(_ours(wants))

    async def ask_cancel(self) -> None:
        (outcome,) = await self._grantors.cancel_all([self])
        if isinstance(outcome, BaseException):
            raise outcome

    async def ask_cancel_all(self, leases: Sequence[Lease]) -> Sequence[Outcome]:
        ours = _ours([(lease, 0.0) for lease in leases])
        return await self._grantors.cancel_all([lease for lease, _ in ours])


class MemberLease(GrantorLease):
    """A lease in a renewal set. It is equal only to itself: a lease may be in several sets."""

    __slots__ = ("_may_send", "_set_id")

    def __init__(
        self,
        grantors: "Grantors",
        reference: LeaseReference,
        holding: _Begun,
        set_id: str,
        may_send: MaySend,
    ) -> None:
        super().__init__(grantors, reference, holding)
        self._set_id = set_id if grantors.isolate_sets else ""
        self._may_send = may_send

    @property
    def batch_key(self) -> Hashable:
        return (self.connection_key, self.reference.grantor, self._set_id)

    def may_send(self) -> None:
        self._may_send()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class UndecodableLease(Lease):
    """A member whose reference this server cannot use: every renewal fails, and is retried."""

    __slots__ = ("_why", "data")

    def __init__(self, data: bytes, why: BaseException, holding: _Begun, clock: Clock) -> None:
        """Make a member out of the bytes of its reference; `why` is the reason."""
        super().__init__(holding.granted, sent_at=holding.sent_at, clock=clock)
        self.data = data
        self._why = str(why)

    @property
    def grantor(self) -> Hashable:
        return ""

    @property
    def cookie(self) -> Hashable:
        return self.data

    async def ask_renew(self, requested: Requested) -> Duration:
        del requested
        raise CallFailed(f"the lease reference cannot be used on this server: {self._why}")

    async def ask_cancel(self) -> None:
        await self.ask_renew(ANY)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Grantors:
    """The grantors that this process can reach, and the operator's list of them."""

    def __init__(
        self,
        own_engine: Engine,
        *,
        allowed: EndpointList | None = None,
        credentials: Mapping[str, Credentials] | None = None,
        renew_own: RenewOwn | None = None,
        cancel_own: CancelOwn | None = None,
        isolate_sets: bool = False,
        is_client: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create a pool; `allowed` is empty by default.

        `renew_own` and `cancel_own` are for leases of services of this cluster. With `is_client`
        every endpoint is allowed, and names of credentials, which are a server's, are ignored.
        """
        self.clock = clock
        self.isolate_sets = isolate_sets
        self._own = f"{own_engine.cluster_id:016x}"
        self._allowed = allowed or EndpointList()
        self._credentials = credentials or {}
        self._is_client = is_client
        self._connections: ConnectionPool[ConnectionKey, GrantorConnection] = ConnectionPool(
            "grantors", MAX_CONNECTIONS, IDLE_S
        )
        self._own_engine = OwnEngine(own_engine)
        self._own_services = OwnServices(renew_own, cancel_own)

    # References.

    def check(self, reference: LeaseReference, user: str | None = None) -> None:
        """Raise unless a lease may be renewed from here, and `user` may name its credentials.

        `PermissionDenied`: the operator does not allow the endpoint, or the credentials there.
        ValueError: the reference has no endpoints, or invalid ones.
        """
        self._check_way(reference)
        entry = self._credentials.get(reference.credentials)
        if entry is not None and entry.users is not None and user not in entry.users:
            raise PermissionDenied(f"user {user!r} may not use credentials {reference.credentials}")

    def _check_way(self, reference: LeaseReference) -> None:
        if self._is_own_service(reference):
            return
        if self.gives_full_terms(reference) and not isinstance(reference.cookie, int):
            raise ValueError(f"lease of a cluster must have a number, not {reference.cookie!r}")
        if reference.grantor == self._own:
            return
        for text, address in _addresses(reference):
            if self._is_client:
                continue
            if not self._allowed.allows(address):
                raise PermissionDenied(
                    f"leases may not be renewed at {text}: the operator of this server has to "
                    "allow it with --renew-at"
                )
            name = reference.credentials
            if name and address.is_tls is False:
                raise ValueError(f"{text} has no TLS, so credentials {name!r} cannot be used there")
            entry = self._credentials.get(name)
            if name and (entry is None or not entry.endpoints.allows(address)):
                raise PermissionDenied(
                    f"credentials {name!r} may not be used at {text}: the configuration of this "
                    "server has no entry of this name for this endpoint"
                )

    def lease(
        self,
        reference: bytes,
        remaining: Duration,
        term: Duration = 0.0,
        *,
        set_id: str,
        may_send: MaySend = ignore,
    ) -> MemberLease | UndecodableLease:
        """Return the member of a set with an encoded reference.

        It ends after `remaining`, which may be negative. `term` is the length of its current term,
        or 0 if that is unknown. A reference that cannot be decoded, or that the operator does not
        allow any more, gives an `UndecodableLease`.
        """
        holding = self._begun(remaining, term)
        try:
            decoded = LeaseReference.decode(reference)
            self._check_way(decoded)
        except (ValueError, PermissionDenied) as error:
            return UndecodableLease(reference, error, holding, self.clock)
        return MemberLease(self, decoded, holding, set_id, may_send)

    def lease_of(
        self, reference: LeaseReference, remaining: Duration, term: Duration = 0.0
    ) -> GrantorLease:
        """Return a lease for a holder: equal to others for the same lease; it can be cancelled.

        Errors as for `check`.
        """
        self._check_way(reference)
        return GrantorLease(self, reference, self._begun(remaining, term))

    def _begun(self, remaining: Duration, term: Duration) -> _Begun:
        now = self.clock.boottime()
        if remaining is FOREVER:
            return _Begun(FOREVER, now)
        granted = max(0.0 if term is FOREVER else term, remaining, 0.0)
        return _Begun(granted, now + remaining - granted)

    def is_own(self, reference: LeaseReference) -> bool:
        """Return whether a lease is granted by this cluster, or by one of its services."""
        return reference.grantor == self._own or self._is_own_service(reference)

    def connection_key(self, reference: LeaseReference) -> Hashable:
        """Return the key of the connection over which a lease is renewed."""
        if self._is_own_service(reference):
            return _OWN_SERVICES
        if reference.grantor == self._own:
            return _OWN_ENGINE
        name = "" if self._is_client else reference.credentials
        _check_endpoints(reference)
        return _connection_key(reference.kind, reference.endpoints, name)

    def gives_full_terms(self, reference: LeaseReference) -> bool:
        """Return whether renewals of a lease are always for its own TTL."""
        return reference.grantor == self._own or reference.kind is GrantorKind.ETCD

    def _is_own_service(self, reference: LeaseReference) -> bool:
        return reference.grantor.startswith(f"{self._own}/")

    # Calls of leases.

    async def renew_all(self, wants: Wants) -> list[Outcome]:
        """Renew leases of one connection and grantor.

        If a message fails as a whole with a definite error, each of its leases is renewed alone.
        """
        try:
            outcomes = await self._renew(wants)
        except Exception as error:
            if len(wants) == 1 or not is_definite(error):
                raise
            outcomes = [error] * len(wants)
        # The leases of a message that failed have one error in common.
        common = Counter(id(outcome) for outcome in outcomes if isinstance(outcome, BaseException))
        turns = asyncio.Semaphore(ONE_BY_ONE)
        again = [
            place
            for place, outcome in enumerate(outcomes)
            if isinstance(outcome, BaseException)
            and common[id(outcome)] > 1
            and is_definite(outcome)
        ]
        alone = (self._renew_alone(wants[place], turns) for place in again)
        for place, outcome in zip(again, await asyncio.gather(*alone), strict=True):
            outcomes[place] = outcome
        return outcomes

    async def _renew_alone(
        self, want: tuple[ReferencedLease, Requested], turns: asyncio.Semaphore
    ) -> Outcome:
        async with turns:
            try:
                (outcome,) = await self._renew([want])
            except Exception as error:  # noqa: BLE001  the outcome of this lease
                return error
            return outcome

    async def _renew(self, wants: Wants) -> list[Outcome]:
        """Renew leases in one message, and again without those that may not be sent any more."""
        with self._connection(wants[0][0].connection_key) as connection:

            async def send(permitted: Wants) -> list[Outcome]:
                try:
                    found = await connection.renew(permitted)
                except _OF_THIS_PROCESS as error:
                    raise CallFailed(str(error)) from error
                return [
                    CallFailed(str(each)) if isinstance(each, _OF_THIS_PROCESS) else each
                    for each in found
                ]

            return await send_permitted(wants, lambda want: want[0].may_send(), send)

    async def cancel_all(self, leases: Sequence[ReferencedLease]) -> list[Outcome]:
        """End leases of one connection and grantor."""
        with self._connection(leases[0].connection_key) as connection:
            return list(await connection.cancel(leases))

    def _connection(self, key: Hashable) -> AbstractContextManager[GrantorConnection]:
        if isinstance(key, ConnectionKey):
            if self._connections.is_closed:
                raise CallFailed("the connections to grantors were closed")
            return self._connections.use(
                key, lambda: self._connected(key), "the lease is renewed later"
            )
        return nullcontext(self._own_services if key is _OWN_SERVICES else self._own_engine)

    def _connected(self, key: ConnectionKey) -> GrantorConnection:
        tls = self._credentials[key.credentials].tls if key.credentials else None
        kind = EtcdConnection if key.kind is GrantorKind.ETCD else LandlordConnection
        return kind(key.endpoints, tls, self.clock)

    async def close(self) -> None:
        """Disconnect from all of them; calls under way fail. No lease is ended."""
        await self._connections.close()


_OWN_ENGINE: Final = "own engine"
_OWN_SERVICES: Final = "own services"


_Addresses: TypeAlias = tuple[tuple[str, Address], ...]
"""Endpoints, as they were written and in their normal form."""


def _addresses(reference: LeaseReference) -> _Addresses:
    _check_endpoints(reference)
    return _normal(reference.endpoints)


def _check_endpoints(reference: LeaseReference) -> None:
    if not reference.endpoints:
        raise ValueError(
            f"lease reference must have endpoints, because its grantor {reference.grantor!r} is "
            "not the cluster of this renewal service"
        )


# Most leases of a set have the same endpoints.


@lru_cache(ENDPOINTS_KEPT)
def _normal(endpoints: tuple[str, ...]) -> _Addresses:
    return tuple((text, normal_endpoint(text)) for text in endpoints)


@lru_cache(ENDPOINTS_KEPT)
def _connection_key(
    kind: GrantorKind, endpoints: tuple[str, ...], credentials: str
) -> ConnectionKey:
    """Return the key of a connection, which leases of the same endpoints share.

    The order and repetitions of endpoints do not count: otherwise one client could use up all
    connections with spellings of one endpoint.
    """
    addresses = tuple(sorted({str(address) for _, address in _normal(endpoints)}))
    return ConnectionKey(kind, addresses, credentials)


def _ours(wants: Sequence[tuple[Lease, Requested]]) -> list[tuple[GrantorLease, Requested]]:
    ours = [(lease, requested) for lease, requested in wants if isinstance(lease, GrantorLease)]
    assert len(ours) == len(wants), "leases of one batch are of one class"
    return ours
