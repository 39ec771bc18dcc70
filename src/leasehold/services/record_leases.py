"""The leases of a service's records, wherever these are served.

`leasehold.v1.Leases` of any server takes a renewal of a set or mailbox. Records whose shards this
server owns are renewed here; for the others one call is made for each server that owns some of
them, with `leasehold.v1.Records`, which is never passed on again.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError

from leasehold.basics.callbacks import ignore
from leasehold.basics.durations import Requested
from leasehold.basics.lease_ids import shown_lease
from leasehold.errors import (
    CallFailed,
    ConnectionLost,
    LeaseholdError,
    Status,
    UnknownLease,
    fresh,
)
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError, parse
from leasehold.landlord.batch_messages import Outcomes, outcomes_in, put_terms, terms_of, wants_in
from leasehold.leases.lease import Outcome
from leasehold.leases.lease_codec import name_to_bytes
from leasehold.services.forwarding import Forwarder
from leasehold.services.leased_records import LeasedRecords
from leasehold.services.withdrawn_leases import Withdrawn, send_permitted
from leasehold.wire import leases_pb2 as pb

logger = logging.getLogger(__name__)

SERVICE: Final = "leasehold.v1.Records"
RENEW_ALL: Final = f"/{SERVICE}/RenewAll"

CONCURRENT_RENEWALS: Final = 64
"""Records of a batch that are renewed at the same time: each is a transaction."""

Wants = Sequence[tuple[Hashable, Requested]]
Check = Callable[[Hashable], object]


class RecordLeases:
    """Renews and ends the records of one service by their leases."""

    def __init__(self, records: LeasedRecords[Any], forwarder: Forwarder) -> None:
        self._records = records
        self._forwarder = forwarder

    @property
    def grantor(self) -> str:
        """The name of their grantor."""
        return self._records.grantor

    async def renew_all(self, wants: Wants, check: Check = ignore) -> Sequence[Outcome]:
        """Renew each record for the requested term, or end it for 0.0; return the outcomes.

        `check` is called with the cookie of each record right before it is renewed or sent.
        """
        places: dict[str, list[int]] = {}
        outcomes: list[Outcome] = [0.0] * len(wants)
        for place, (cookie, _) in enumerate(wants):
            try:
                address = self._forwarder.server_of(cookie) if isinstance(cookie, str) else ""
            except LeaseholdError as error:
                outcomes[place] = error
            else:
                places.setdefault(address, []).append(place)
        parts = [[wants[place] for place in part] for part in places.values()]
        renewals = (self._renew_at(*each, check) for each in zip(places, parts, strict=True))
        answers = await asyncio.gather(*renewals)
        for part, answer in zip(places.values(), answers, strict=True):
            for place, outcome in zip(part, answer, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def _renew_at(self, address: str, wants: Wants, check: Check) -> Sequence[Outcome]:
        """Renew records of one server; its address is empty for this one."""
        if not address:
            return await self.renew_here(wants, check)
        return await send_permitted(
            wants,
            lambda want: check(want[0]),
            lambda permitted: self._ask(address, permitted, check),
        )

    async def _ask(self, address: str, wants: Wants, check: Check) -> Sequence[Outcome]:
        """Make one call; raise `Withdrawn` if one of the records may not be sent any more."""

        async def prepare() -> None:
            try:
                for cookie, _ in wants:
                    check(cookie)
            except LeaseholdError as error:
                raise Withdrawn from error

        request = pb.RenewAllRequest(grantor=self.grantor)
        request.cookies.extend(name_to_bytes(cookie) for cookie, _ in wants)
        put_terms(request, [requested for _, requested in wants])
        message = request.SerializeToString()
        try:
            answer = await self._forwarder.call_at(address, RENEW_ALL, message, prepare=prepare)
        except RpcError as error:
            return [_error_of(error, len(message)) for _ in wants]
        except LeaseholdError as error:
            return [fresh(error) for _ in wants]
        try:
            return _outcomes_in(pb.RenewAllResponse.FromString(answer), wants)
        except (DecodeError, ValueError, IndexError) as error:
            return [CallFailed(f"invalid answer from {address}: {error}") for _ in wants]

    async def renew_here(self, wants: Wants, check: Check = ignore) -> Sequence[Outcome]:
        """Renew records that are served here, each independently."""
        turns = asyncio.Semaphore(CONCURRENT_RENEWALS)
        return await asyncio.gather(*(self._renew(turns, *want, check) for want in wants))

    async def _renew(
        self, turns: asyncio.Semaphore, cookie: Hashable, requested: Requested, check: Check
    ) -> Outcome:
        if not isinstance(cookie, str):
            return UnknownLease(cookie)
        async with turns:
            try:
                return await self._records.renew(cookie, requested, partial(check, cookie))
            except LeaseholdError as error:
                return error
            except Exception as error:
                shown = shown_lease(cookie)
                logger.exception("the renewal of lease %s of %s failed", shown, self.grantor)
                return error


def _outcomes_in(answer: pb.RenewAllResponse, wants: Wants) -> list[Outcome]:
    outcomes = outcomes_in(answer, terms_of(answer, len(wants)), wants)
    for failure in answer.failures:
        if failure.status == Status.UNAVAILABLE:
            outcomes[failure.place] = ConnectionLost(failure.message)
    return outcomes


def _error_of(error: RpcError, request_bytes: int) -> Exception:
    """Return the error of a record, which has the status of the call also for the client."""
    ours = as_ours(error, request_bytes)
    if error.status is Status.UNAVAILABLE and isinstance(ours, CallFailed):
        lost = ConnectionLost(error.message)
        lost.not_executed = ours.not_executed
        return lost
    return ours


class RecordsRpc:
    """The method that servers call for leases of records that they do not serve."""

    def __init__(self, leases: Sequence[RecordLeases]) -> None:
        self._leases: Mapping[str, RecordLeases] = {each.grantor: each for each in leases}

    async def renew_all(self, message: bytes, _context: CallContext) -> bytes:
        """Renew or end records that are served here; the others fail."""
        request = parse(pb.RenewAllRequest.FromString, message)
        leases = self._leases.get(request.grantor)
        if leases is None:
            raise RpcError(
                Status.INVALID_ARGUMENT,
                f"no service of this server is the grantor {request.grantor!r}",
            )
        outcomes = Outcomes()
        outcomes.extend(await leases.renew_here(wants_in(request)))
        return outcomes.renewed()
