"""Connections to grantors: to the engine of this process, services of this cluster, and servers.

`Grantors` chooses the connection over which a lease is renewed.
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from leasehold.basics.durations import Requested
from leasehold.clock import Clock
from leasehold.engine.interface import Engine
from leasehold.engine.remote.remote_engine import RemoteEngine, lease_channel
from leasehold.engine.values import Renewed
from leasehold.errors import CallFailed, CallRefused, HistoryLost
from leasehold.landlord.remote_landlord import RemoteLandlord
from leasehold.leases.lease import Outcome
from leasehold.renewal.references import GrantorKind, ReferencedLease
from leasehold.services.withdrawn_leases import Withdrawn

MAX_CONNECTIONS: Final = 256
"""Servers and clusters that are connected at the same time."""

IDLE_S: Final = 60.0
"""How long an unused connection stays open."""

START_S: Final = 10.0
"""How long connecting to an etcd cluster may take."""

Wants: TypeAlias = Sequence[tuple[ReferencedLease, Requested]]

RenewOwn: TypeAlias = Callable[
    [str, Sequence[tuple[Hashable, Requested]], Callable[[Hashable], object]],
    Awaitable[Sequence[Outcome]],
]
"""Renews leases of a service of this cluster: its grantor, and cookies with requested terms. The
function is called with a cookie before its lease is renewed, and raises if it must not be."""

CancelOwn: TypeAlias = Callable[[str, Sequence[Hashable]], Awaitable[Sequence[Outcome]]]


class GrantorConnection(ABC):
    """The grantor of some leases, which renews and cancels them."""

    @abstractmethod
    async def renew(self, wants: Wants) -> Sequence[Outcome]:
        """Renew leases of one grantor; raise `Withdrawn` if one may not be sent any more."""

    @abstractmethod
    async def cancel(self, leases: Sequence[ReferencedLease]) -> Sequence[Outcome]:
        """End leases of one grantor."""

    async def close(self) -> None:  # noqa: B027  there may be nothing to close
        """Disconnect."""


class OwnEngine(GrantorConnection):
    """The engine of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def renew(self, wants: Wants) -> Sequence[Outcome]:
        return await _renew_on(self._engine, wants)

    async def cancel(self, leases: Sequence[ReferencedLease]) -> Sequence[Outcome]:
        return await _cancel_on(self._engine, leases)


class OwnServices(GrantorConnection):
    """The services of this cluster."""

    def __init__(self, renew: RenewOwn | None, cancel: CancelOwn | None) -> None:
        self._renew = renew
        self._cancel = cancel

    async def renew(self, wants: Wants) -> Sequence[Outcome]:
        if self._renew is None:
            raise CallRefused(
                "this process does not renew the leases of its cluster's own services"
            )
        named = [(lease.cookie, requested) for lease, requested in wants]
        checks = {lease.cookie: lease.may_send for lease, _ in wants}
        return await self._renew(wants[0][0].grantor, named, lambda cookie: checks[cookie]())

    async def cancel(self, leases: Sequence[ReferencedLease]) -> Sequence[Outcome]:
        if self._cancel is None:
            raise CallRefused(
                "this process does not cancel the leases of its cluster's own services"
            )
        return await self._cancel(leases[0].grantor, [lease.cookie for lease in leases])


class LandlordConnection(GrantorConnection):
    """A Leasehold server, or a landlord that is served with gRPC."""

    def __init__(
        self, endpoints: tuple[str, ...], tls: ssl.SSLContext | None, clock: Clock
    ) -> None:
        self._landlord = RemoteLandlord(endpoints, tls=tls, clock=clock)

    async def renew(self, wants: Wants) -> Sequence[Outcome]:
        async def check_again() -> None:
            _check_all(lease for lease, _ in wants)

        return await self._landlord.renew_all(list(wants), check_again)

    async def cancel(self, leases: Sequence[ReferencedLease]) -> Sequence[Outcome]:
        return await self._landlord.cancel_all(leases)

    async def close(self) -> None:
        await self._landlord.close()


class EtcdConnection(GrantorConnection):
    """An etcd cluster, which must be the grantor of the leases that are renewed there."""

    def __init__(
        self, endpoints: tuple[str, ...], tls: ssl.SSLContext | None, clock: Clock
    ) -> None:
        self._endpoints = endpoints
        self._tls = tls
        self._clock = clock
        self._engine: RemoteEngine | None = None
        self._starting = asyncio.Lock()

    async def renew(self, wants: Wants) -> Sequence[Outcome]:
        grantor = wants[0][0].grantor
        engine = await self._start(grantor)
        try:
            return await _renew_on(engine, wants)
        except HistoryLost as error:
            raise self._another_cluster(str(error), grantor) from error

    async def cancel(self, leases: Sequence[ReferencedLease]) -> Sequence[Outcome]:
        return await _cancel_on(await self._start(leases[0].grantor), leases)

    async def _start(self, grantor: str) -> RemoteEngine:
        """Connect, unless there is a connection; raise if the cluster is not the grantor."""
        async with self._starting:
            if self._engine is not None and not self._engine.is_open:
                await self._stop(self._engine)
            engine = self._engine = self._engine or await self._connect()
        found = f"{engine.cluster_id:016x}"
        if found != grantor:
            raise self._another_cluster(f"found cluster {found}", grantor)
        return engine

    async def _connect(self) -> RemoteEngine:
        engine = RemoteEngine(lease_channel(self._endpoints, self._tls), clock=self._clock)
        try:
            async with asyncio.timeout(START_S):
                await engine.start()
        except BaseException:
            await engine.close()
            raise
        return engine

    def _another_cluster(self, why: str, grantor: str) -> CallFailed:
        where = ", ".join(self._endpoints)
        return CallFailed(
            f"nothing was renewed at {where}: the lease is of cluster {grantor}; {why}"
        )

    async def _stop(self, engine: RemoteEngine) -> None:
        if self._engine is engine:
            self._engine = None
        await engine.close()

    async def close(self) -> None:
        if self._engine is not None:
            await self._stop(self._engine)


async def _renew_on(engine: Engine, wants: Wants) -> Sequence[Outcome]:
    by_id: dict[int, list[ReferencedLease]] = {}
    for lease, _ in wants:
        by_id.setdefault(_number(lease), []).append(lease)
    if isinstance(engine, RemoteEngine):
        renewed = await engine.renew_all(by_id, lambda number: _check_any(by_id[number]))
    else:
        renewed = await engine.renew_all(by_id)
    return [_outcome(renewed, _number(lease)) for lease, _ in wants]


def _outcome(renewed: Renewed, number: int) -> Outcome:
    failure = renewed.failures.get(number)
    return failure if failure is not None else renewed.terms[number]


async def _cancel_on(engine: Engine, leases: Sequence[ReferencedLease]) -> Sequence[Outcome]:
    calls = (engine.revoke(_number(lease)) for lease in leases)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    return [each if isinstance(each, BaseException) else 0.0 for each in outcomes]


def _number(lease: ReferencedLease) -> int:
    assert isinstance(lease.reference.cookie, int), "it was checked when the lease was made"
    return lease.reference.cookie


def _check_any(leases: Iterable[ReferencedLease]) -> None:
    """Raise the error of the last of the leases, unless one of them may be sent."""
    for lease in leases:
        try:
            lease.may_send()
        except Exception as error:  # noqa: BLE001  raised below
            failure = error
        else:
            return
    raise failure


def _check_all(leases: Iterable[ReferencedLease]) -> None:
    for lease in leases:
        try:
            lease.may_send()
        except Exception as error:
            raise Withdrawn from error


@dataclass(frozen=True, slots=True)
class ConnectionKey:
    """The protocol, the endpoints in their normal form, and the name of the credentials."""

    kind: GrantorKind
    endpoints: tuple[str, ...]
    credentials: str
