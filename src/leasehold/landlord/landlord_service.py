"""A landlord of any program on the network: `leasehold.v1.Leases` on its own resources.

Everything here runs on the event loop that the landlord belongs to. A holder identifies a lease by
its cookie, and any client that has the cookie can renew and cancel the lease. The default cookies
of a landlord cannot be guessed, but without TLS they can be read on the way.
"""

import inspect
import logging
import ssl
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from leasehold.basics.callbacks import check_callable
from leasehold.basics.durations import (
    Duration,
    Requested,
    check_positive,
    duration_of,
    from_wire_ms,
    seconds_of,
    to_wire_ms,
)
from leasehold.errors import Closed, LeaseDenied, Status, UnknownLease
from leasehold.grpc.health import SERVER, HealthService, ServingStatus
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Answer, DeferredAnswer, Exchange, Method
from leasehold.keyspace.ranges import LONG
from leasehold.landlord.batch_messages import Outcomes, wants_in
from leasehold.landlord.landlord import Landlord
from leasehold.leases.lease import Lease, Outcome
from leasehold.leases.lease_codec import name_to_bytes
from leasehold.serving.grpc_server import GrpcServer, check_local
from leasehold.store.slices import Slicer
from leasehold.wire.leases_pb2 import (
    GrantRequest,
    GrantResponse,
    RenewAllRequest,
    RevokeAllRequest,
)

logger = logging.getLogger(__name__)

PATH: Final = "/leasehold.v1.Leases/"
_IDS: Final = range(-(2**63), 2**63)
_parse_grant = GrantRequest.FromString
_parse_renew_all = RenewAllRequest.FromString
_parse_revoke_all = RevokeAllRequest.FromString


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """The request of a remote holder: the resource, the duration, and the name that it gives."""

    resource: str
    duration: Requested
    holder: str


Grant = Callable[[LeaseRequest], "Lease | Awaitable[Lease]"]
"""Decides on a request: returns a lease of the landlord, or raises `LeaseDenied`."""


class LandlordServer:
    """A landlord on the network; `serve_landlord` makes one.

    Closing it, or leaving its `async with` block, ends no lease: the landlord continues.
    """

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._addresses = [str(address) for address in server.addresses]

    @property
    def address(self) -> str:
        """The address for holders: the one that was bound, with the port that was chosen."""
        return self._addresses[0]

    @property
    def addresses(self) -> list[str]:
        """All addresses that were bound."""
        return list(self._addresses)

    async def close(self) -> None:
        """Refuse further calls, and answer those that are under way."""
        await self._server.close()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


async def serve_landlord(
    landlord: Landlord[Any],
    listen: str | Sequence[str] = "127.0.0.1:0",
    *,
    grant: Grant | None = None,
    tls: ssl.SSLContext | None = None,
    insecure: bool = False,
) -> LandlordServer:
    """Let holders in other processes renew and cancel the leases of `landlord`.

    `listen` is an address, or several, such as `127.0.0.1:7000` or `unix:/run/desks.sock`; port 0
    lets the system choose. Holders connect with `RemoteLandlord`. They get their leases from
    `grant(request)`, if that is given: a plain function or a coroutine function that returns a
    lease of this landlord, or raises `LeaseDenied`. Or they are handed `lease.to_bytes("duration")`
    by any other means.

    Any client that has a lease may renew and cancel it. So without `tls` only this machine is
    served, unless `insecure` is set.
    """
    if not isinstance(landlord, Landlord):
        raise TypeError(f"landlord must be a Landlord, not {landlord!r}")
    check_callable(grant, "grant")
    addresses = [listen] if isinstance(listen, str) else listen
    if tls is None and not insecure:
        check_local(addresses)
    service = LandlordService(landlord, grant)
    health = HealthService()
    health.set(SERVER, ServingStatus.SERVING)
    server = GrpcServer({**service.methods(), **health.methods()})
    await server.start(addresses, tls)
    return LandlordServer(server)


class LandlordService:
    """The methods of a landlord: Grant, RenewAll, RevokeAll."""

    def __init__(self, landlord: Landlord[Any], grant: Grant | None) -> None:
        self._landlord = landlord
        self._grant = grant

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {
            PATH + "Grant": Exchange(self.grant),
            PATH + "RenewAll": Exchange(self.renew_all),
            PATH + "RevokeAll": Exchange(self.revoke_all),
        }

    # Granting.

    def grant(self, message: bytes) -> DeferredAnswer:
        """Grant a lease, if the program's `grant` does."""
        arrived_at = self._landlord.clock.boottime()
        request = parse(_parse_grant, message)
        if self._grant is None:
            raise RpcError(
                Status.UNIMPLEMENTED,
                f"landlord {self._landlord.name!r} does not grant leases over the network: get "
                "an encoded lease from its program",
            )
        if request.id or request.policy:
            raise _invalid("a landlord chooses ids and policies: the request must set neither")
        try:
            wanted = check_positive(from_wire_ms(request.ttl_ms), "ttl_ms")
        except ValueError as error:
            raise _invalid(str(error)) from None
        return self._granted(LeaseRequest(request.resource, wanted, request.holder), arrived_at)

    async def _granted(self, request: LeaseRequest, arrived_at: float) -> Answer:
        assert self._grant is not None
        try:
            granted = self._grant(request)
            lease = self._checked(await granted if inspect.isawaitable(granted) else granted)
            term = self._term(lease, arrived_at)
        except LeaseDenied as denied:
            raise RpcError(Status.FAILED_PRECONDITION, denied.why) from denied
        except Closed as error:
            raise _closed(error) from error
        answer = GrantResponse(ttl_ms=to_wire_ms(term), grantor=self._landlord.name)
        if type(lease.cookie) is int and lease.cookie in _IDS:
            answer.id = lease.cookie
        else:
            answer.cookie = name_to_bytes(lease.cookie)
        return answer.SerializeToString(), 0

    def _checked(self, lease: object) -> Lease:
        if not isinstance(lease, Lease) or lease.grantor != self._landlord.name:
            raise TypeError(f"grant must return a lease of {self._landlord!r}, not {lease!r}")
        return lease

    def _term(self, lease: Lease, arrived_at: float) -> Duration:
        """Return the term of a lease as counted from the request; the lease may be an old one.

        The holder counts from when it has sent its request, which was before that arrived.
        """
        waited_s = self._landlord.clock.boottime() - arrived_at
        return duration_of(min(seconds_of(lease.term), seconds_of(lease.remaining) + waited_s))

    # Many leases at a time.

    def renew_all(self, message: bytes) -> Answer | DeferredAnswer:
        """Begin a new term of each lease, as the policy decides."""
        request = parse(_parse_renew_all, message)
        wants = wants_in(request)
        if len(wants) > LONG:
            return self._renew_slices(wants, request.grantor)
        outcomes = Outcomes()
        self._renew(wants, request.grantor, outcomes)
        return outcomes.renewed(), 0

    async def _renew_slices(self, wants: list[tuple[Hashable, Requested]], grantor: str) -> Answer:
        outcomes = Outcomes()
        await self._in_slices(wants, grantor, outcomes)
        return outcomes.renewed(), 0

    def revoke_all(self, message: bytes) -> DeferredAnswer:
        """End each lease."""
        request = parse(_parse_revoke_all, message)
        return self._revoke_slices(wants_in(request), request.grantor)

    async def _revoke_slices(self, wants: list[tuple[Hashable, Requested]], grantor: str) -> Answer:
        outcomes = Outcomes()
        await self._in_slices(wants, grantor, outcomes)
        return outcomes.revoked(), 0

    async def _in_slices(
        self, wants: list[tuple[Hashable, Requested]], grantor: str, outcomes: Outcomes
    ) -> None:
        slicer = Slicer(self._landlord.monotonic)
        for start in range(0, len(wants), LONG):
            self._renew(wants[start : start + LONG], grantor, outcomes)
            await slicer.pause()

    def _renew(
        self, wants: list[tuple[Hashable, Requested]], grantor: str, outcomes: Outcomes
    ) -> None:
        found: Sequence[Outcome]
        if grantor in ("", self._landlord.name):
            try:
                found = self._landlord.renew_all(wants).outcomes
            except Closed as error:
                raise _closed(error) from error
        else:
            found = [UnknownLease(cookie) for cookie, _ in wants]
        outcomes.extend(found)
        for outcome in found:
            if isinstance(outcome, BaseException):
                _log(outcome)


def _log(error: BaseException) -> None:
    if not isinstance(error, UnknownLease | LeaseDenied):
        logger.error("the landlord failed to renew a lease", exc_info=error)


def _invalid(text: str) -> RpcError:
    return RpcError(Status.INVALID_ARGUMENT, text)


def _closed(error: Closed) -> RpcError:
    """Return the error for a closed landlord; another one of this name may take its place."""
    return RpcError(Status.UNAVAILABLE, str(error))
