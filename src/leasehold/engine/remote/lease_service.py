"""What a Leasehold server has beyond etcd: holders and policies, lists with filters, watches.

`Engine` has what all engines have in common. This is for whoever wants more, and knows that it is
`leasehold.v1.Leases` that answers: `RemoteEngine.lease_service` is None on an etcd.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from leasehold.core.duration import to_wire_ms
from leasehold.engine.remote.caller import Caller, decoded
from leasehold.engine.remote.refusals import About, refusal_of
from leasehold.engine.values import LeaseInfo
from leasehold.errors import CallFailed, EndReason, UnknownLease
from leasehold.remote_batch import REASONS
from leasehold.rpc.grpc import RpcError
from leasehold.wire import leases_pb2 as pb

_PATH: Final = "/leasehold.v1.Leases/"


class HolderLease(NamedTuple):
    """A lease, and who holds it, if that was said when it was granted."""

    info: LeaseInfo
    holder: str


class LeaseEventKind(StrEnum):
    """What has happened to a lease."""

    GRANTED = "granted"
    RENEWED = "renewed"
    EXPIRED = "expired"
    REVOKED = "revoked"


class LeaseEvent(NamedTuple):
    """What has happened to a lease, and what went with it."""

    kind: LeaseEventKind
    id: int
    holder: str
    ttl: float
    keys: tuple[bytes, ...]
    """Those that went with it, in order; the first ones, if there were many."""
    key_count: int
    revision: int


class LeaseEvents(NamedTuple):
    """What a watch tells at once."""

    revision: int | None
    """In the first one only, which has nothing else: what happens after it is told."""
    lagged: int
    """So many events before these are missing: they were not read in time."""
    events: Sequence[LeaseEvent]


@dataclass(frozen=True, slots=True)
class LeaseFilter:
    """Which leases a watch is about; all of them, unless something is given."""

    ids: Sequence[int] = ()
    holder: str = ""
    prefix: bytes = b""
    """Leases that end with a key that begins with this."""
    renewals: bool = False


class LeaseService:
    """`leasehold.v1.Leases`, as far as it is not behind `Engine`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def grant(
        self, ttl_s: float, *, lease: int = 0, holder: str = "", policy: str = ""
    ) -> LeaseInfo:
        """Begin a lease for a holder, with the term that a policy of the server makes of it."""
        request = pb.GrantRequest(ttl_ms=to_wire_ms(ttl_s), id=lease, holder=holder, policy=policy)
        granted = await self._caller.ask(
            _PATH + "Grant", request, pb.GrantResponse, about=About(lease=lease)
        )
        term_s = granted.ttl_ms / 1000
        return LeaseInfo(granted.id, term_s, term_s, None, 0)

    async def show(self, lease: int, *, keys: bool = True) -> HolderLease:
        """Say how long a lease has to run, who has it, and its keys. Raises `UnknownLease`."""
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
        """List leases by their ids, a page at a time: of a holder, or with a key under a prefix."""
        request = pb.ListRequest(page_size=page_size, holder=holder, key_prefix=prefix)
        while True:
            page = await self._caller.ask(_PATH + "List", request, pb.ListResponse, idempotent=True)
            yield [_listed(each) for each in page.leases]
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch(self, which: LeaseFilter) -> AsyncIterator[LeaseEvents]:
        """Tell what happens to leases from now on. There is no history to go back to.

        So it ends with the connection, with `ConnectionLost`; whoever must know everything lists
        the leases again.
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
        raise CallFailed("the server has ended the watch")


def _listed(lease: pb.ListedLease) -> HolderLease:
    ttl_s, remaining_s = lease.ttl_ms / 1000, lease.remaining_ms / 1000
    return HolderLease(LeaseInfo(lease.id, ttl_s, remaining_s, None, lease.keys), lease.holder)


def _events(told: pb.WatchLeasesResponse) -> LeaseEvents:
    revision = told.header.revision if told.created else None
    return LeaseEvents(revision, told.lagged, [_event(each) for each in told.events])


def _event(event: pb.LeaseEvent) -> LeaseEvent:
    kind = LeaseEventKind[pb.LeaseEvent.Kind.Name(event.kind)]
    keys = tuple(event.keys)
    return LeaseEvent(
        kind, event.id, event.holder, event.ttl_ms / 1000, keys, event.keys_count, event.revision
    )
