"""The service `leasehold.v1.Leases` on the store of a server."""

from typing import Final

from leasehold.core.ops import Grant
from leasehold.errors import LeaseExists, NoSpace
from leasehold.rpc.gate import Gate
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Exchange, Method, Subscription
from leasehold.server.etcd.desk import Desk
from leasehold.server.leases.batches import Batches
from leasehold.server.leases.listing import Listing
from leasehold.server.leases.refusals import check_holder, check_room, invalid, refuse
from leasehold.server.leases.showing import Showing
from leasehold.server.leases.watching import Watching
from leasehold.server.policies import DEFAULT_POLICIES, Policies, find_policy
from leasehold.wire.leases_pb2 import GrantRequest, GrantResponse

PATH: Final = "/leasehold.v1.Leases/"

_parse_grant = GrantRequest.FromString


class Leases:
    """Grants, renews, revokes, lists and watches leases."""

    def __init__(self, desk: Desk, policies: Policies = DEFAULT_POLICIES) -> None:
        self._desk = desk
        self._store = desk.store
        self._policies = policies
        self._grantor = f"{desk.runtime.journal.identity.cluster_id:016x}"
        self._batches = Batches(desk, self._grantor)
        self._listing = Listing(desk)
        self._watching = Watching(desk)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {
            PATH + "Grant": Exchange(self.grant),
            PATH + "RenewAll": Exchange(self._batches.renew_all, hold=Gate.hold_renewal),
            PATH + "RevokeAll": Exchange(self._batches.revoke_all),
            PATH + "Show": Exchange(Showing(self._desk).show, hold=Gate.hold_read),
            PATH + "List": Exchange(self._listing.page, hold=Gate.hold_read),
            PATH + "Watch": Subscription(
                self._watching.open, waits_for_room=True, reads_metadata=False
            ),
        }

    def grant(self, message: bytes) -> Answer:
        """Begin a lease."""
        request = parse(_parse_grant, message)
        ttl_ms = self._term_ms(request)
        check_holder(request.holder)
        if request.resource:
            raise invalid("a server leases no resources: put keys under the lease instead")
        check_room(self._desk, len(message))
        try:
            op = Grant(request.id, ttl_ms / 1000.0, request.holder)
            (lease, _), position = self._store.apply(op)
        except (LeaseExists, NoSpace) as error:
            refuse(self._desk, error)
        answer = GrantResponse(id=lease, ttl_ms=ttl_ms, grantor=self._grantor)
        header = self._desk.header(self._store.revision)
        return header + answer.SerializeToString(), position

    def _term_ms(self, request: GrantRequest) -> int:
        try:
            return find_policy(self._policies, request.policy).term_ms(request.ttl_ms)
        except ValueError as error:
            raise invalid(str(error)) from None
