"""The service `leasehold.v1.Leases` on the store of a server."""

from typing import Final

from leasehold.errors import LeaseExists, NoSpace
from leasehold.grpc.durability_gate import Gate
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Answer, Exchange, Method, Subscription
from leasehold.keyspace.operations import Grant
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.server.leases.batches import Batches
from leasehold.server.leases.lease_watch import Watching
from leasehold.server.leases.listing import Listing, Showing
from leasehold.server.leases.request_checks import check_holder, check_room, invalid, refuse
from leasehold.server.term_policies import DEFAULT_POLICIES, Policies, find_policy
from leasehold.wire.leases_pb2 import GrantRequest, GrantResponse

PATH: Final = "/leasehold.v1.Leases/"

_parse_grant = GrantRequest.FromString


class LeasesService:
    """Grants, renews, revokes, lists and watches leases."""

    def __init__(self, context: ServiceContext, policies: Policies = DEFAULT_POLICIES) -> None:
        self._context = context
        self._store = context.store
        self._policies = policies
        self._grantor = f"{context.runtime.journal.identity.cluster_id:016x}"
        self._batches = Batches(context, self._grantor)
        self._listing = Listing(context)
        self._watching = Watching(context)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {
            PATH + "Grant": Exchange(self.grant),
            PATH + "RenewAll": Exchange(self._batches.renew_all, hold=Gate.hold_renewal),
            PATH + "RevokeAll": Exchange(self._batches.revoke_all),
            PATH + "Show": Exchange(Showing(self._context).show, hold=Gate.hold_read),
            PATH + "List": Exchange(self._listing.page, hold=Gate.hold_read),
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
            raise invalid("resource must be empty: leases of a server are for keys")
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
