"""A landlord on one simulated host, and leases of it on others.

What a remote lease does on the wire is the client's business, later. Here it is as little as can
be: a call that carries cookies and durations, answered by the shipped `Landlord`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from leasehold import Landlord, Lease
from leasehold.basics.durations import Duration, Requested
from leasehold.leases.lease import Outcome
from leasehold.testing import Host, Network

DRIFT_MARGIN = 0.002
"""Covers two clocks that are off by 500 ppm each, in opposite directions, with room to spare."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a holder reaches its landlord."""

    network: Network
    holder: Host
    landlord: Host

    async def call(self, name: str, payload: object) -> Any:
        """Ask the landlord; waits for ever if a message is lost."""
        return await self.network.call(self.holder, self.landlord, name, payload)


class RemoteLease(Lease):
    """A lease whose landlord lives on another host."""

    margin = DRIFT_MARGIN

    def __init__(self, route: Route, cookie: Hashable, granted: Duration, sent_at: float) -> None:
        super().__init__(granted, sent_at=sent_at, clock=route.holder.clock, margin=self.margin)
        self.route = route
        self.sent_at = sent_at
        self._cookie = cookie

    @property
    def grantor(self) -> Hashable:
        return self.route.landlord.name

    @property
    def cookie(self) -> Hashable:
        return self._cookie

    @property
    def batch_key(self) -> object:
        return (self.route.landlord.name, self.route.holder.name)

    async def ask_renew(self, requested: Requested) -> Duration:
        outcome = (await self.route.call("renew", [(self.cookie, requested)]))[0]
        if isinstance(outcome, BaseException):
            raise outcome
        assert isinstance(outcome, float)
        return outcome

    async def ask_cancel(self) -> None:
        await self.ask_renew(0.0)

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        payload = [(lease.cookie, requested) for lease, requested in wants]
        outcomes: Sequence[Outcome] = await self.route.call("renew", payload)
        return outcomes


async def rent(route: Route, resources: Sequence[object], duration: Requested) -> list[RemoteLease]:
    """Lease resources out to this holder, in one call that is repeated until it is answered."""
    while True:
        sent_at = route.holder.clock.boottime()
        try:
            granted = await route.network.call(
                route.holder, route.landlord, "grant", (list(resources), duration), timeout=2.0
            )
        except OSError:
            continue
        return [RemoteLease(route, cookie, term, sent_at) for cookie, term in granted]


def serve(network: Network, host: Host, landlord: "Landlord[Any]", oracle: Any) -> None:
    """Answer `grant` and `renew` on the landlord's host, and let the oracle see each promise."""

    def grant(payload: tuple[list[object], Requested]) -> list[tuple[Hashable, Duration]]:
        resources, duration = payload
        answers: list[tuple[Hashable, Duration]] = []
        for resource in resources:
            lease = landlord.grant((resource, oracle.new_copy()), duration)
            oracle.granted(landlord.resource(lease.cookie))
            answers.append((lease.cookie, lease.term))
        return answers

    def renew(wants: list[tuple[Hashable, Requested]]) -> Sequence[Outcome]:
        outcomes = landlord.renew_all(wants).outcomes
        oracle.batches.append(len(wants))
        for (cookie, _), outcome in zip(wants, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                oracle.promised(cookie, outcome)
        return outcomes

    network.serve(host, "grant", grant)
    network.serve(host, "renew", renew)
