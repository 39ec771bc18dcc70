"""Leases on a Leasehold server: milliseconds, thousands in one message, and why they ended."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from leasehold.core.duration import to_wire_ms
from leasehold.engine.remote.caller import Caller
from leasehold.engine.remote.leases import RemoteLeases, by_end
from leasehold.engine.remote.refusals import About
from leasehold.engine.values import LeaseInfo, Renewed
from leasehold.errors import CallFailed, EndReason, LeaseholdError, Status, UnknownLease
from leasehold.remote_batch import MAX_BATCH, REASONS
from leasehold.rpc.failures import as_ours
from leasehold.rpc.grpc import RpcError
from leasehold.wire import leases_pb2 as pb

PAGE: Final = 10_000
"""Leases of one page, when all are listed."""

_PATH: Final = "/leasehold.v1.Leases/"


class OurLeases(RemoteLeases):
    """Leases as a Leasehold server has them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def grant(self, ttl_s: float, lease: int) -> LeaseInfo:
        """Begin a lease."""
        request = pb.GrantRequest(ttl_ms=to_wire_ms(ttl_s), id=lease)
        granted = await self._caller.ask(
            _PATH + "Grant", request, pb.GrantResponse, about=About(lease=lease)
        )
        term_s = granted.ttl_ms / 1000
        return LeaseInfo(granted.id, term_s, term_s, None, 0)

    async def renew_all(self, leases: Sequence[int]) -> Renewed:
        """Renew leases, each for itself; a part whose call fails, fails for itself."""
        if len(leases) <= MAX_BATCH:
            return await self._renew_part(leases)  # a task for it would cost as much as the call
        parts = list(_parts(leases))
        answers = await asyncio.gather(*map(self._renew_part, parts), return_exceptions=True)
        terms: dict[int, float] = {}
        failures: dict[int, Exception] = {}
        for part, answer in zip(parts, answers, strict=True):
            if isinstance(answer, Renewed):
                terms.update(answer.terms)
                failures.update(answer.failures)
            elif isinstance(answer, Exception):
                failures.update(dict.fromkeys(part, answer))
            else:
                raise answer
        return Renewed(terms, failures)

    async def _renew_part(self, leases: Sequence[int]) -> Renewed:
        answer = await self._caller.ask(
            _PATH + "RenewAll",
            pb.RenewAllRequest(ids=leases),
            pb.RenewAllResponse,
            idempotent=True,
        )
        terms = dict.fromkeys(leases, answer.ttl_ms / 1000)
        try:
            for place, ttl_ms in zip(answer.others, answer.others_ttl_ms, strict=True):
                terms[leases[place]] = ttl_ms / 1000
            failures = dict(_failures(answer, leases))
        except (IndexError, ValueError) as error:
            raise CallFailed(f"the answer to RenewAll makes no sense: {error}") from error
        for lease in failures:
            del terms[lease]
        return Renewed(terms, failures)

    async def revoke(self, lease: int) -> int:
        """End a lease."""
        answer = await self._caller.ask(
            _PATH + "RevokeAll", pb.RevokeAllRequest(ids=[lease]), pb.RevokeAllResponse
        )
        for _, error in _failures(answer, [lease]):
            raise error
        revision: int = answer.header.revision
        return revision

    async def time_to_live(self, lease: int, *, keys: bool) -> LeaseInfo:
        """Say how long a lease has to run."""
        request = pb.ShowRequest(id=lease, keys=keys)
        found = await self._caller.ask(_PATH + "Show", request, pb.ShowResponse, idempotent=True)
        if not found.HasField("lease"):
            raise UnknownLease(lease, REASONS.get(found.reason, EndReason.UNKNOWN))
        shown = tuple(found.keys) if keys else None
        return _info(found.lease)._replace(keys=shown)

    async def listed(self) -> Sequence[LeaseInfo]:
        """List the leases, page by page."""
        found: list[LeaseInfo] = []
        request = pb.ListRequest(page_size=PAGE)
        while True:
            page = await self._caller.ask(_PATH + "List", request, pb.ListResponse, idempotent=True)
            found += map(_info, page.leases)
            if not page.next_page_token:
                return by_end(found)
            request.page_token = page.next_page_token

    async def close(self) -> None:
        """Nothing is under way that would not end by itself."""


def _parts(leases: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(leases), MAX_BATCH):
        yield leases[at : at + MAX_BATCH]


def _failures(
    answer: pb.RenewAllResponse | pb.RevokeAllResponse, leases: Sequence[int]
) -> Iterator[tuple[int, LeaseholdError]]:
    for place, reason in zip(answer.unknown, answer.unknown_reasons, strict=True):
        why = REASONS.get(reason, EndReason.UNKNOWN)
        yield leases[place], UnknownLease(leases[place], why)
    for failure in answer.failures:
        yield leases[failure.place], _error(failure)


def _error(failure: pb.LeaseFailure) -> LeaseholdError:
    try:
        error = as_ours(RpcError(Status(failure.status), failure.message))
    except ValueError:
        return CallFailed(f"status {failure.status}: {failure.message}")
    return error if isinstance(error, LeaseholdError) else CallFailed(str(error))


def _info(listed: pb.ListedLease) -> LeaseInfo:
    return LeaseInfo(listed.id, listed.ttl_ms / 1000, listed.remaining_ms / 1000, None, listed.keys)
