"""`leasehold.v1.Leases` on an `Engine`, within its limits: for a server without a store of its own.

Terms are decided by the policies of the server and then rounded up to the engine's unit, and raised
to its minimum. The name of a holder is checked, but not stored. Each lease of a batch is renewed or
ended independently.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from leasehold.basics.durations import to_wire_ms
from leasehold.engine.interface import Engine
from leasehold.errors import CallFailed, LeaseholdError, Status
from leasehold.grpc.error_details import detail_of
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Answer, DeferredAnswer, Exchange, Method
from leasehold.landlord.batch_messages import Outcomes
from leasehold.leases.lease import Outcome
from leasehold.leases.policies import Policies, find_policy
from leasehold.server.leases.request_checks import check_holder, invalid
from leasehold.server.leases.service import PATH, check_terms, ids_of
from leasehold.server.leases.service_leases import Grantors, outcomes_of
from leasehold.wire.leases_pb2 import GrantRequest, GrantResponse, RenewAllRequest, RevokeAllRequest

ANSWER_S: Final = 10.0
"""How long a call waits for the engine: longer than etcd needs to elect a leader."""

BATCH_RATE: Final = 500
"""Leases of a batch for which one second more is waited."""

CONCURRENT_REVOKES: Final = 64
"""Concurrent calls of one batch to the engine: it ends leases one by one."""

_parse_grant = GrantRequest.FromString
_parse_renew_all = RenewAllRequest.FromString
_parse_revoke_all = RevokeAllRequest.FromString


class EngineLeasesService:
    """Grants, renews and revokes leases of an engine. `cluster` names it in errors."""

    def __init__(
        self,
        engine: Engine,
        policies: Policies,
        grantors: Grantors,
        header: Callable[[int], bytes],
        cluster: str,
    ) -> None:
        """`header` encodes the header field of an answer at a revision."""
        self._engine = engine
        self._policies = policies
        self._grantor = f"{engine.cluster_id:016x}"
        self._grantors = grantors
        self._header = header
        self._cluster = cluster
        self.granted = 0
        self.renewed = 0
        self.revoked = 0

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {
            PATH + "Grant": Exchange(self.grant),
            PATH + "RenewAll": Exchange(self.renew_all),
            PATH + "RevokeAll": Exchange(self.revoke_all),
        }

    # Granting.

    def grant(self, message: bytes) -> DeferredAnswer:
        """Grant a lease."""
        request = parse(_parse_grant, message)
        try:
            ttl_ms = find_policy(self._policies, request.policy).term_ms(request.ttl_ms)
        except ValueError as error:
            raise invalid(str(error)) from None
        check_holder(request.holder)
        if request.resource:
            raise invalid("resource must be empty: only a landlord grants leases for a resource")
        return self._grant(request.id, ttl_ms / 1000.0)

    async def _grant(self, lease: int, ttl_s: float) -> Answer:
        async with self._in_time():
            granted = await self._engine.grant(min(ttl_s, self._engine.limits.max_ttl), lease=lease)
        self.granted += 1
        ttl_ms = to_wire_ms(granted.ttl)
        answer = GrantResponse(id=granted.id, ttl_ms=ttl_ms, grantor=self._grantor)
        return self._header(0) + answer.SerializeToString(), 0

    # Batches.

    def renew_all(self, message: bytes) -> Answer | DeferredAnswer:
        """Renew each lease for its full term."""
        request = parse(_parse_renew_all, message)
        if request.cookies:
            return self._renew_of_service(request)
        leases = ids_of(request)
        check_terms(request)
        if request.grantor not in ("", self._grantor):
            return self._header(0) + Outcomes.all_unknown(len(leases)).renewed(), 0
        if not leases:  # clients detect the kind of server by this
            return self._header(0) + Outcomes().renewed(), 0
        return self._renew(leases)

    async def _renew(self, leases: list[int]) -> Answer:
        async with self._in_time(len(leases)):
            terms, failures = await self._engine.renew_all(leases)
        self.renewed += len(terms)
        outcomes = Outcomes()
        outcomes.extend(
            [terms[each] if each in terms else _told(failures[each]) for each in leases]
        )
        return self._header(0) + outcomes.renewed(), 0

    async def _renew_of_service(self, request: RenewAllRequest) -> Answer:
        outcomes = await outcomes_of(self._grantors, request)
        return self._header(0) + outcomes.renewed(), 0

    def revoke_all(self, message: bytes) -> Answer | DeferredAnswer:
        """Revoke each lease, and delete its keys."""
        request = parse(_parse_revoke_all, message)
        if request.cookies:
            return self._revoke_of_service(request)
        leases = ids_of(request)
        if request.grantor not in ("", self._grantor):
            return self._header(0) + Outcomes.all_unknown(len(leases)).revoked(), 0
        return self._revoke(leases)

    async def _revoke(self, leases: Sequence[int]) -> Answer:
        outcomes, revision = Outcomes(), 0
        for start in range(0, len(leases), CONCURRENT_REVOKES):
            part = leases[start : start + CONCURRENT_REVOKES]
            found = await asyncio.gather(*map(self._revoke_one, part))
            revision = max([revision, *(each for each in found if isinstance(each, int))])
            outcomes.extend([0.0 if isinstance(each, int) else each for each in found])
        return self._header(revision) + outcomes.revoked(), 0

    async def _revoke_one(self, lease: int) -> int | BaseException:
        try:
            async with asyncio.timeout(ANSWER_S):
                revision = await self._engine.revoke(lease)
        except (LeaseholdError, TimeoutError) as error:
            return self._late() if isinstance(error, TimeoutError) else error
        self.revoked += 1
        return revision

    async def _revoke_of_service(self, request: RevokeAllRequest) -> Answer:
        outcomes = await outcomes_of(self._grantors, request)
        return self._header(0) + outcomes.revoked(), 0

    # Failures of the engine.

    @asynccontextmanager
    async def _in_time(self, leases: int = 0) -> AsyncIterator[None]:
        """Limit the time of a call to the engine, and turn errors into those for the caller."""
        try:
            async with asyncio.timeout(ANSWER_S + leases / BATCH_RATE):
                yield
        except TimeoutError:
            raise RpcError(Status.UNAVAILABLE, str(self._late())) from None
        except LeaseholdError as error:
            raise RpcError(
                error.status, str(error), detail=detail_of(error, is_whole_call=True)
            ) from error

    def _late(self) -> CallFailed:
        why = f": {self._engine.trouble}" if self._engine.trouble else ""
        return CallFailed(f"{self._cluster} has not answered in time{why}")


def _told(error: Exception) -> Outcome:
    """Return the outcome of one lease: an error that has a status."""
    return CallFailed(str(error)) if isinstance(error, TimeoutError) else error
