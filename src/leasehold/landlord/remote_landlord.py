"""`RemoteLandlord`: a landlord in another process, and its leases as their holders have them.

Its leases are renewed, cancelled and batched over gRPC: any number of leases in one message. A term
counts from the moment of the request. So whatever a network does, a holder never relies on a lease
for longer than its landlord does.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Final, Self, TypeVar

from google.protobuf.message import DecodeError, Message

from leasehold.basics.durations import (
    ANY,
    Duration,
    DurationLike,
    Requested,
    check_positive,
    duration_of,
    from_wire_ms,
    to_wire_ms,
)
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import (
    CallFailed,
    LeaseDenied,
    Status,
)
from leasehold.grpc.channel import Channel
from leasehold.grpc.endpoints import Endpoints
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.retries import Prepare
from leasehold.landlord.batch_messages import (
    Batch,
    numbers_first,
    paired,
    parts,
    put_names,
    renewal_of,
    terms_of,
)
from leasehold.leases import lease_codec
from leasehold.leases.lease import BatchedLease, Lease, Outcome, check_answer, remaining_s_of
from leasehold.wire import leases_pb2 as pb

TIMEOUT_S: Final = 10.0
"""The default timeout of a call."""

_PATH: Final = "/leasehold.v1.Leases/"
M = TypeVar("M", bound=Message)
_Ask = Callable[[Batch], Awaitable[list[tuple[Lease, Outcome]]]]


class RemoteLandlord:
    """A client of a landlord that another process serves with `serve_landlord`.

    `endpoints`, `tls` and the rest are those of a channel: nothing is connected until the first
    call, and a lost connection is made again. Failures of a call are errors of the library. After
    `ConnectFailed`, `ConnectionLost` and `TimeoutError` the state of a lease is unknown, and a
    renewal manager retries.
    """

    def __init__(
        self,
        endpoints: Endpoints | Channel,
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT_S,
        margin: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create a client; `timeout` in seconds is for each call, `margin` as for `Lease`.

        A channel that is passed as `endpoints` is shared, and not closed.
        """
        self._is_own_channel = not isinstance(endpoints, Channel)
        self._channel = (
            endpoints
            if isinstance(endpoints, Channel)
            else Channel(endpoints, tls=tls, default_timeout=timeout)
        )
        self._timeout_s = timeout
        self._margin = margin
        self.clock = clock

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of the landlord, with `https://` where TLS is used."""
        return self._channel.dial_addresses

    async def grant(
        self, resource: str = "", duration: DurationLike = ANY, *, holder: str = ""
    ) -> "RemoteLease":
        """Request a lease on `resource`, which is any text that the landlord understands.

        `holder` is the name that we give ourselves. Raise `LeaseDenied` if the landlord refuses.
        After any other error there may be a lease without a holder; it expires.
        """
        requested = check_positive(duration)
        request = pb.GrantRequest(ttl_ms=to_wire_ms(requested), holder=holder, resource=resource)
        sent_at = self.clock.boottime()
        try:
            granted = await self._call("Grant", request, pb.GrantResponse)
        except RpcError as error:
            if error.status is Status.FAILED_PRECONDITION:
                raise LeaseDenied(error.message, requested=requested) from None
            raise as_ours(error, request.ByteSize()) from error
        try:
            cookie = lease_codec.name_from_bytes(granted.cookie) if granted.cookie else granted.id
        except ValueError as error:
            raise CallFailed(f"invalid answer from the landlord: {error}") from error
        return granted_lease(self, granted.grantor, cookie, granted.ttl_ms, sent_at, self._margin)

    def lease_from_bytes(self, data: bytes) -> "RemoteLease":
        """Return a lease from `Lease.to_bytes`, made here or in the landlord's process."""
        record = lease_codec.decode(data)
        if not isinstance(record.grantor, str):
            raise ValueError(f"grantor of a remote lease must be a str, got {record.grantor!r}")
        remaining = duration_of(remaining_s_of(record, self.clock.wall()))
        now = self.clock.boottime()
        return RemoteLease(self, record.grantor, record.cookie, remaining, now, self._margin)

    async def close(self) -> None:
        """Abort the calls that are under way, and close the connection. No lease is ended."""
        if self._is_own_channel:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # Calls of leases.

    async def renew_all(self, wants: Batch, prepare: Prepare | None = None) -> list[Outcome]:
        """Request new terms for leases of one landlord; for `RemoteLease`.

        `prepare` is that of `Channel.unary`.
        """
        return await _in_parts(wants, partial(self._renew_part, prepare))

    async def cancel_all(self, leases: Sequence[Lease]) -> list[Outcome]:
        """Request the end of leases of one landlord; for `RemoteLease`."""
        return await _in_parts([(lease, 0.0) for lease in leases], self._cancel_part)

    async def _renew_part(
        self, prepare: Prepare | None, ordered: Batch
    ) -> list[tuple[Lease, Outcome]]:
        request = renewal_of(ordered, str(ordered[0][0].grantor))
        ends_some = any(requested == 0.0 for _, requested in ordered)
        answer = await self._ask(
            "RenewAll", request, pb.RenewAllResponse, again=not ends_some, prepare=prepare
        )
        return paired(ordered, terms_of(answer, len(ordered)), answer)

    async def _cancel_part(self, ordered: Batch) -> list[tuple[Lease, Outcome]]:
        request = pb.RevokeAllRequest(grantor=str(ordered[0][0].grantor))
        put_names(request, ordered)
        answer = await self._ask("RevokeAll", request, pb.RevokeAllResponse, again=False)
        return paired(ordered, [0.0] * len(ordered), answer)

    async def _ask(
        self,
        method: str,
        request: Message,
        kind: type[M],
        *,
        again: bool,
        prepare: Prepare | None = None,
    ) -> M:
        try:
            return await self._call(method, request, kind, idempotent=again, prepare=prepare)
        except RpcError as error:
            raise as_ours(error, request.ByteSize()) from error

    async def _call(
        self,
        method: str,
        request: Message,
        kind: type[M],
        *,
        idempotent: bool = False,
        prepare: Prepare | None = None,
    ) -> M:
        answer = await self._channel.unary(
            _PATH + method,
            request.SerializeToString(),
            timeout=self._timeout_s,
            idempotent=idempotent,
            prepare=prepare,
        )
        try:
            return kind.FromString(answer)
        except DecodeError as error:
            raise CallFailed(f"invalid answer to {method}: {error}") from error


class RemoteLease(BatchedLease):
    """A lease of a landlord in another process."""

    __slots__ = ("landlord",)

    def __init__(
        self,
        landlord: RemoteLandlord,
        grantor: str,
        cookie: Hashable,
        granted: Duration,
        sent_at: float,
        margin: float = 0.0,
    ) -> None:
        clock = landlord.clock
        super().__init__(grantor, cookie, granted, sent_at=sent_at, clock=clock, margin=margin)
        self.landlord = landlord

    @property
    def batch_key(self) -> Hashable:
        return (self.landlord, self.grantor)

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        return await self.landlord.renew_all(list(wants))

    async def ask_cancel_all(self, leases: Sequence[Lease]) -> Sequence[Outcome]:
        return await self.landlord.cancel_all(leases)


def granted_lease(
    landlord: RemoteLandlord,
    grantor: str,
    cookie: Hashable,
    ttl_ms: int,
    sent_at: float,
    margin: float = 0.0,
) -> RemoteLease:
    """Return a lease that an answer has granted. Raises `CallFailed` if its term is invalid."""
    try:
        term = check_answer(from_wire_ms(ttl_ms))
    except ValueError as error:
        raise CallFailed(f"invalid answer from grantor {grantor!r}: {error}") from error
    return RemoteLease(landlord, grantor, cookie, term, sent_at, margin)


async def _in_parts(wants: Batch, ask: _Ask) -> list[Outcome]:
    """Send as many messages as needed; if all of them fail, raise the failure."""
    cut = [numbers_first(part) for part in parts(wants)]
    if len(cut) == 1:
        found = {id(lease): outcome for lease, outcome in await _sensible(ask, cut[0])}
        return [found[id(lease)] for lease, _ in wants]
    answers = await asyncio.gather(*(_sensible(ask, part) for part in cut), return_exceptions=True)
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    if failures and len(failures) == len(answers):
        raise failures[0]
    found = {}
    for part, answer in zip(cut, answers, strict=True):
        if isinstance(answer, BaseException):
            found.update((id(lease), answer) for lease, _ in part)
        else:
            found.update((id(lease), outcome) for lease, outcome in answer)
    return [found[id(lease)] for lease, _ in wants]


async def _sensible(ask: _Ask, part: Batch) -> list[tuple[Lease, Outcome]]:
    try:
        return await ask(part)
    except (IndexError, TypeError, ValueError) as error:
        raise CallFailed(f"invalid answer from the landlord: {error}") from error
