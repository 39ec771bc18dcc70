"""Leases on a Leasehold server: milliseconds, thousands in one message, and why they ended.

`LeaseholdLeases` has what `RemoteEngine` needs, and what only `leasehold.v1.Leases` can do: holders
and policies, lists with filters, watches of leases. With an etcd, `RemoteEngine.lease_service`
is None.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from leasehold.basics.durations import to_wire_ms
from leasehold.engine.remote.caller import Caller, decoded
from leasehold.engine.remote.error_mapping import CallArguments, refusal_of
from leasehold.engine.values import LeaseInfo, Renewed, by_end
from leasehold.errors import CallFailed, EndReason, LeaseholdError, UnknownLease
from leasehold.grpc.protocol import RpcError
from leasehold.landlord.batch_messages import MAX_BATCH, REASONS, error_of
from leasehold.wire import leases_pb2 as pb

_PATH: Final = "/leasehold.v1.Leases/"

PAGE: Final = 10_000
"""Leases of one page, when all are listed."""


class HolderLease(NamedTuple):
    """A lease, and its holder, if one was given in the grant."""

    info: LeaseInfo
    holder: str


class LeaseEventKind(StrEnum):
    """The kind of an event of a lease."""

    GRANTED = "granted"
    RENEWED = "renewed"
    EXPIRED = "expired"
    REVOKED = "revoked"


class LeaseEvent(NamedTuple):
    """An event of a lease, and the keys that were deleted with it."""

    kind: LeaseEventKind
    id: int
    holder: str
    ttl: float
    keys: tuple[bytes, ...]
    """The deleted keys, in order; the first ones, if there were many."""
    key_count: int
    revision: int


class LeaseEvents(NamedTuple):
    """Events that a watch returns together."""

    revision: int | None
    """In the first message only, which has nothing else: later events will be returned."""
    lagged: int
    """The number of events missing before these, because they were not read in time."""
    events: Sequence[LeaseEvent]


@dataclass(frozen=True, slots=True)
class LeaseFilter:
    """Which leases a watch is about; all of them by default."""

    ids: Sequence[int] = ()
    holder: str = ""
    prefix: bytes = b""
    """Leases that end with a key that begins with this."""
    renewals: bool = False


class LeaseholdLeases:
    """Leases as a Leasehold server has them: those of `Engine`, with holders, pages and events.

    For an engine, `EtcdLeases` has the same methods.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def grant(
        self, ttl_s: float, lease: int = 0, *, holder: str = "", policy: str = ""
    ) -> LeaseInfo:
        """Grant a lease, to a holder, with a term decided by a policy of the server."""
        request = pb.GrantRequest(ttl_ms=to_wire_ms(ttl_s), id=lease, holder=holder, policy=policy)
        granted = await self._caller.ask(
            _PATH + "Grant", request, pb.GrantResponse, about=CallArguments(lease=lease)
        )
        term_s = granted.ttl_ms / 1000
        return LeaseInfo(granted.id, term_s, term_s, None, 0)

    async def renew_all(
        self, leases: Sequence[int], may_send: Callable[[int], object] | None = None
    ) -> Renewed:
        """Renew leases independently; if the call for one part fails, only that part does.

        `may_send(lease)` is called once there is a connection; if it raises, the lease is not sent,
        and that is its failure.
        """
        if may_send is not None:
            return await self._renew_checked(leases, may_send)
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

    async def _renew_checked(
        self, leases: Sequence[int], may_send: Callable[[int], object]
    ) -> Renewed:
        await self._caller.settle_in()
        failures: dict[int, Exception] = {}
        for lease in leases:
            try:
                may_send(lease)
            except Exception as error:  # noqa: BLE001  the failure of this lease
                failures[lease] = error
        wanted = [lease for lease in leases if lease not in failures]
        renewed = await self.renew_all(wanted) if wanted else Renewed({}, {})
        return Renewed(renewed.terms, {**renewed.failures, **failures})

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
            raise CallFailed(f"the response to RenewAll is invalid: {error}") from error
        for lease in failures:
            del terms[lease]
        return Renewed(terms, failures)

    def has_answered_since(self, moment: float) -> bool:
        """Return whether any renewal was answered since then: no, one call has one answer."""
        del moment
        return False

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
        """Return how long a lease has to run."""
        return (await self.show(lease, keys=keys)).info

    async def listed(self) -> Sequence[LeaseInfo]:
        """Return the leases, read page by page."""
        pages = self.pages(page_size=PAGE)
        return by_end([each.info async for page in pages for each in page])

    async def close(self) -> None:
        """Do nothing: all calls under way end on their own."""

    # Beyond `Engine`.

    async def show(self, lease: int, *, keys: bool = True) -> HolderLease:
        """Return how long a lease has to run, its holder and its keys. Raises `UnknownLease`."""
        request = pb.ShowRequest(id=lease, keys=keys)
        found = await self._caller.ask(_PATH + "Show", request, pb.ShowResponse, idempotent=True)
        if not found.HasField("lease"):
            raise UnknownLease(lease, REASONS.get(found.reason, EndReason.UNKNOWN))
        listed = _listed(found.lease)
        shown = tuple(found.keys) if keys else None
        return listed._replace(info=listed.info._replace(keys=shown))

    async def pages(
        self, *, holder: str = "", prefix: bytes = b"", page_size: int = 0
    ) -> AsyncIterator[Sequence[HolderLease]]:
        """Return leases by id, a page at a time: of a holder, or with a key under a prefix."""
        request = pb.ListRequest(page_size=page_size, holder=holder, key_prefix=prefix)
        while True:
            page = await self._caller.ask(_PATH + "List", request, pb.ListResponse, idempotent=True)
            yield [_listed(each) for each in page.leases]
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch(self, which: LeaseFilter) -> AsyncIterator[LeaseEvents]:
        """Return the events of leases from now on. There is no history.

        So it ends with the connection, with `ConnectionLost`. A caller that must not miss anything
        lists the leases again.
        """
        request = pb.WatchLeasesRequest(
            ids=which.ids, holder=which.holder, key_prefix=which.prefix, renewals=which.renewals
        )
        method = _PATH + "Watch"
        try:
            async with self._caller.channel.stream(method, wait_for_ready=True) as call:
                await call.send(request.SerializeToString())
                call.end()
                while (message := await call.receive()) is not None:
                    yield _events(decoded(pb.WatchLeasesResponse, message, method))
        except RpcError as error:
            raise refusal_of(error) from error
        raise CallFailed("the server ended the watch")


def _listed(lease: pb.ListedLease) -> HolderLease:
    ttl_s, remaining_s = lease.ttl_ms / 1000, lease.remaining_ms / 1000
    return HolderLease(LeaseInfo(lease.id, ttl_s, remaining_s, None, lease.keys), lease.holder)


def _events(response: pb.WatchLeasesResponse) -> LeaseEvents:
    revision = response.header.revision if response.created else None
    return LeaseEvents(revision, response.lagged, [_event(each) for each in response.events])


def _event(event: pb.LeaseEvent) -> LeaseEvent:
    kind = LeaseEventKind[pb.LeaseEvent.Kind.Name(event.kind)]
    keys = tuple(event.keys)
    return LeaseEvent(
        kind, event.id, event.holder, event.ttl_ms / 1000, keys, event.keys_count, event.revision
    )


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
