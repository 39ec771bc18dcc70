"""Leases of the services of a server, renewed and ended by `leasehold.v1.Leases`.

A service that grants leases of its own, such as those of renewal sets, has a grantor name, and its
leases have cookies. A batch that names this grantor is passed to the service.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, Protocol

from leasehold.basics.durations import Requested
from leasehold.errors import CallFailed
from leasehold.landlord.batch_messages import Outcomes, wants_in
from leasehold.leases.lease import Outcome
from leasehold.server.leases.request_checks import invalid
from leasehold.wire.leases_pb2 import RenewAllRequest, RevokeAllRequest

MAX_SHOWN_CHARS: Final = 64
"""Of the name of a grantor in an error."""


class ServiceLeases(Protocol):
    """The leases of one service. Implemented by packages below this one."""

    @property
    def grantor(self) -> str:
        """The name of the grantor, `<cluster id>/<service>`."""
        ...

    async def renew_all(self, wants: Sequence[tuple[Hashable, Requested]]) -> Sequence[Outcome]:
        """Renew each lease for the requested term, or end it for 0.0; return the outcomes in order.

        An outcome is the granted term (of a lease that was ended: any), or an exception, such as
        `UnknownLease`. An exception that is raised fails all of them.
        """
        ...


Grantors = Mapping[str, ServiceLeases]
"""The leases of all services of a server, by grantor."""


async def outcomes_of(grantors: Grantors, request: RenewAllRequest | RevokeAllRequest) -> Outcomes:
    """Pass a batch with cookies to the service of its grantor.

    Raises `RpcError` if there is none, and for an invalid request.
    """
    leases = grantors.get(request.grantor)
    if leases is None:
        raise invalid(
            "cookies must be empty: leases of a server are identified by `ids`, and no service of "
            f"this server is the grantor {request.grantor[:MAX_SHOWN_CHARS]!r}"
        )
    wants = wants_in(request)
    found = await leases.renew_all(wants)
    if len(found) != len(wants):
        raise CallFailed(f"{leases.grantor} returned {len(found)} outcomes for {len(wants)} leases")
    outcomes = Outcomes()
    outcomes.extend(found)
    return outcomes
