"""The service `leasehold.v1.Leases` on the store of a server, and its batches.

A batch renews or revokes very many leases in one message, each of them separately. The answer has
the common result and the exceptions, by their indexes in the request: the answer to a renewal of
50,000 leases of the same TTL is short. A long batch is executed in slices, between which other work
runs. Renewals change memory only, so only the answer waits for the disk, and only if it includes a
live lease that is not on disk yet.
"""

from typing import Final

from leasehold.basics.durations import WIRE_FOREVER_MS, to_wire_ms
from leasehold.errors import LeaseExists, NoSpace, UnknownLease
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Answer, DeferredAnswer, Exchange, Method, Subscription
from leasehold.keyspace.operations import Grant, Revoke
from leasehold.keyspace.ranges import LONG
from leasehold.landlord.batch_messages import Outcomes
from leasehold.leases.policies import DEFAULT_POLICIES, Policies, find_policy
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.server.leases.lease_watch import Watching
from leasehold.server.leases.listing import LeaseDetails, Listing
from leasehold.server.leases.request_checks import check_holder, check_room, enter, invalid, refuse
from leasehold.server.leases.service_leases import Grantors, outcomes_of
from leasehold.store.slices import Slicer
from leasehold.wire.leases_pb2 import GrantRequest, GrantResponse, RenewAllRequest, RevokeAllRequest

MAX_BATCH: Final = 50_000
"""Leases in one message."""

RENEWALS_PER_CLOCK_READ: Final = LONG
REVOKES_PER_CLOCK_READ: Final = 32
"""Leases between two reads of the clock: about a quarter of a millisecond."""

GUESSES: Final = 100
"""Leases that are examined to guess the most common TTL."""

NONE: Final[Grantors] = {}

_parse_renew_all = RenewAllRequest.FromString
_parse_revoke_all = RevokeAllRequest.FromString


class Batches:
    """Renews and revokes many leases at a time."""

    def __init__(self, context: ServiceContext, grantor: str, grantors: Grantors = NONE) -> None:
        self._context = context
        self._grantor = grantor
        self._grantors = grantors
        self._store = context.store
        self._leases = context.store.leases

    # Renewing.

    def renew_all(self, message: bytes) -> Answer | DeferredAnswer:
        """Renew each lease for its full TTL."""
        request = parse(_parse_renew_all, message)
        if request.cookies:
            return self._renew_of_service(request)
        leases = ids_of(request)
        check_terms(request)
        header = self._context.durable_header()
        if self._is_of_others(request):
            return header + Outcomes.all_unknown(len(leases)).renewed(), 0
        gate = self._context.gate
        if gate.renewals and self._store.leases_position(leases):
            gate.check_renewal_room()
        renewing = Renewing(self._first_ttl_s(leases))
        if len(leases) > RENEWALS_PER_CLOCK_READ:
            return self._renew_slices(header, leases, renewing)
        self._renew(leases, renewing)
        return header + renewing.outcomes.renewed(), renewing.position

    def _is_of_others(self, request: RenewAllRequest | RevokeAllRequest) -> bool:
        return request.grantor not in ("", self._grantor)

    def _first_ttl_s(self, leases: list[int]) -> float:
        """Guess the common TTL: that of the first lease that exists."""
        found = (self._leases.table.find(lease) for lease in leases[:GUESSES])
        return next((leased.resource.ttl_s for leased in found if leased is not None), 0.0)

    async def _renew_slices(self, header: bytes, leases: list[int], renewing: "Renewing") -> Answer:
        slicer = Slicer(self._leases.monotonic)
        for start in range(0, len(leases), RENEWALS_PER_CLOCK_READ):
            self._leases.enter()
            self._renew(leases[start : start + RENEWALS_PER_CLOCK_READ], renewing)
            await slicer.pause()
        return header + renewing.outcomes.renewed(), renewing.position

    def _renew(self, leases: list[int], renewing: "Renewing") -> None:
        """Renew some. The end of a lease need not be on disk to be reported: its holder stops."""
        exceptions = self._leases.renew_all(leases, renewing.ttl_s)
        renewing.take(len(leases), exceptions)
        position = self._store.leases_position(leases)
        if position and exceptions:
            over = {at for at, outcome in exceptions.items() if isinstance(outcome, UnknownLease)}
            position = self._store.leases_position(
                [lease for at, lease in enumerate(leases) if at not in over]
            )
        renewing.position = max(renewing.position, position)

    # Revoking.

    def revoke_all(self, message: bytes) -> Answer | DeferredAnswer:
        """Revoke each lease, and delete its keys."""
        request = parse(_parse_revoke_all, message)
        if request.cookies:
            return self._revoke_of_service(request)
        leases = ids_of(request)
        if self._is_of_others(request):
            return self._context.durable_header() + Outcomes.all_unknown(len(leases)).revoked(), 0
        check_room(self._context, len(message))
        return self._revoke_slices(leases)

    async def _revoke_slices(self, leases: list[int]) -> Answer:
        slicer = Slicer(self._leases.monotonic)
        outcomes = Outcomes()
        for start in range(0, len(leases), REVOKES_PER_CLOCK_READ):
            await self._until_room()
            for place, lease in enumerate(leases[start : start + REVOKES_PER_CLOCK_READ], start):
                if self._store.is_busy:  # the last one had very many keys
                    await enter(self._context)
                try:
                    self._store.apply(Revoke(lease))
                except UnknownLease as error:
                    outcomes.add(place, error)
            await slicer.pause()
        if self._store.is_busy:
            await enter(self._context)
        header = self._context.header(self._store.revision)
        return header + outcomes.revoked(), self._store.position

    # Leases of other services of this server.

    async def _renew_of_service(self, request: RenewAllRequest) -> Answer:
        outcomes = await outcomes_of(self._grantors, request)
        return self._context.durable_header() + outcomes.renewed(), 0

    async def _revoke_of_service(self, request: RevokeAllRequest) -> Answer:
        outcomes = await outcomes_of(self._grantors, request)
        return self._context.durable_header() + outcomes.revoked(), 0

    async def _until_room(self) -> None:
        await enter(self._context)
        while self._store.is_full:
            await self._context.runtime.until_durable(self._store.position)
            await enter(self._context)


class Renewing:
    """A renewal of many leases that is in progress."""

    __slots__ = ("outcomes", "position", "ttl_s")

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.outcomes = Outcomes(to_wire_ms(ttl_s))
        self.position = 0

    def take(self, count: int, exceptions: dict[int, float | UnknownLease]) -> None:
        """Add the results of the next ones."""
        for place, outcome in exceptions.items():
            self.outcomes.add(self.outcomes.count + place, outcome)
        self.outcomes.count += count


def ids_of(request: RenewAllRequest | RevokeAllRequest) -> list[int]:
    """Return the leases of a batch without cookies."""
    if len(request.ids) > MAX_BATCH:
        raise invalid(f"ids must have at most {MAX_BATCH:,} leases, got {len(request.ids):,}")
    return list(request.ids)


def check_terms(request: RenewAllRequest) -> None:
    """Refuse terms that are not valid; a server ignores them otherwise."""
    if request.ttls_ms and len(request.ttls_ms) != len(request.ids):
        raise invalid(
            f"ttls_ms must have one term per lease or none, got {len(request.ttls_ms):,} for "
            f"{len(request.ids):,} leases"
        )
    terms_ms = [*request.ttls_ms, *([request.ttl_ms] if request.HasField("ttl_ms") else ())]
    if 0 in terms_ms:
        raise invalid("a term must not be 0, which would end the lease; use RevokeAll for that")
    if (least := min(terms_ms, default=1)) < WIRE_FOREVER_MS:
        raise invalid(f"a term must be at least 1 ms, or -1 (any) or -2 (no end), got {least}")


PATH: Final = "/leasehold.v1.Leases/"

_parse_grant = GrantRequest.FromString


class LeasesService:
    """Grants, renews, revokes, lists and watches leases."""

    def __init__(
        self,
        context: ServiceContext,
        policies: Policies = DEFAULT_POLICIES,
        grantors: Grantors = NONE,
    ) -> None:
        self._context = context
        self._store = context.store
        self._policies = policies
        self._grantor = f"{context.runtime.journal.identity.cluster_id:016x}"
        self._batches = Batches(context, self._grantor, grantors)
        self._listing = Listing(context)
        self._watching = Watching(context)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {
            PATH + "Grant": Exchange(self.grant),
            PATH + "RenewAll": Exchange(self._batches.renew_all, hold=DurabilityGate.hold_renewal),
            PATH + "RevokeAll": Exchange(self._batches.revoke_all),
            PATH + "Show": Exchange(
                LeaseDetails(self._context).show, hold=DurabilityGate.hold_read
            ),
            PATH + "List": Exchange(self._listing.page, hold=DurabilityGate.hold_read),
            PATH + "Watch": Subscription(
                self._watching.open, waits_for_room=True, reads_context=False
            ),
        }

    def grant(self, message: bytes) -> Answer:
        """Grant a lease."""
        request = parse(_parse_grant, message)
        ttl_ms = self._term_ms(request)
        check_holder(request.holder)
        if request.resource:
            raise invalid("resource must be empty: only a landlord grants leases for a resource")
        check_room(self._context, len(message))
        try:
            op = Grant(request.id, ttl_ms / 1000.0, request.holder)
            (lease, _), position = self._store.apply(op)
        except (LeaseExists, NoSpace) as error:
            refuse(self._context, error)
        answer = GrantResponse(id=lease, ttl_ms=ttl_ms, grantor=self._grantor)
        header = self._context.header(self._store.revision)
        return header + answer.SerializeToString(), position

    def _term_ms(self, request: GrantRequest) -> int:
        try:
            return find_policy(self._policies, request.policy).term_ms(request.ttl_ms)
        except ValueError as error:
            raise invalid(str(error)) from None
