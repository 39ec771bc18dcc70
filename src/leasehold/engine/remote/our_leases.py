"""Leases on a Leasehold server: milliseconds, thousands in one message, and why they ended."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from leasehold.engine.remote.caller import Caller
from leasehold.engine.remote.lease_service import LeaseService
from leasehold.engine.remote.leases import RemoteLeases, by_end
from leasehold.engine.values import LeaseInfo, Renewed
from leasehold.errors import CallFailed, EndReason, LeaseholdError, UnknownLease
from leasehold.remote_batch import MAX_BATCH, REASONS, error_of
from leasehold.wire import leases_pb2 as pb

PAGE: Final = 10_000
"""Leases of one page, when all are listed."""

_PATH: Final = "/leasehold.v1.Leases/"


class OurLeases(RemoteLeases):
    """Leases as a Leasehold server has them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._service = LeaseService(caller)

    async def grant(self, ttl_s: float, lease: int) -> LeaseInfo:
        """Begin a lease."""
        return await self._service.grant(ttl_s, lease=lease)

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
        return (await self._service.show(lease, keys=keys)).info

    async def listed(self) -> Sequence[LeaseInfo]:
        """List the leases, page by page."""
        pages = self._service.pages(page_size=PAGE)
        return by_end([each.info async for page in pages for each in page])

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
    error = error_of(failure)
    return error if isinstance(error, LeaseholdError) else CallFailed(str(error))
