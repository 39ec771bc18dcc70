"""Very many leases in one message: renewed, or revoked, each by itself.

The answer is what they have in common plus the exceptions, by their places in the request: to renew
50,000 leases of the same term is a short answer. A long batch is done in slices, between which
others have their turn. Renewals touch memory only, so nothing of a batch waits for the disk but the
answer, and that only if it tells of a live lease that is not on disk yet.
"""

from typing import Final

from leasehold.core.duration import WIRE_FOREVER_MS, to_wire_ms
from leasehold.core.ops import Revoke
from leasehold.core.ranges import LONG
from leasehold.engine.slices import Slicer
from leasehold.errors import EndReason, UnknownLease
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Later
from leasehold.server.etcd.desk import Desk
from leasehold.server.leases.outcomes import Outcomes
from leasehold.server.leases.refusals import check_room, enter, invalid
from leasehold.wire.leases_pb2 import RenewAllRequest, RevokeAllRequest

MAX_BATCH: Final = 50_000
"""Leases in one message."""

RENEWED_AT_ONCE: Final = LONG
REVOKED_AT_ONCE: Final = 32
"""Leases between two looks at the clock: about a quarter of a millisecond."""

GUESSES: Final = 100
"""Leases that are looked at to find out which term most of them have."""

_parse_renew_all = RenewAllRequest.FromString
_parse_revoke_all = RevokeAllRequest.FromString


class Batches:
    """Renews and revokes many leases at a time."""

    def __init__(self, desk: Desk, grantor: str) -> None:
        self._desk = desk
        self._grantor = grantor
        self._store = desk.store
        self._leases = desk.store.leases

    # Renewing.

    def renew_all(self, message: bytes) -> Answer | Later:
        """Begin a new full term of each lease."""
        request = parse(_parse_renew_all, message)
        leases = _ids_of(request)
        _check_terms(request)
        header = self._desk.durable_header()
        if self._is_of_others(request):
            return header + _all_unknown(leases).renewed(), 0
        gate = self._desk.gate
        if gate.renewals and self._store.leases_position(leases):
            gate.check_renewal_room()
        renewing = Renewing(self._first_ttl_s(leases))
        if len(leases) > RENEWED_AT_ONCE:
            return self._renew_slices(header, leases, renewing)
        self._renew(leases, renewing)
        return header + renewing.outcomes.renewed(), renewing.position

    def _is_of_others(self, request: RenewAllRequest | RevokeAllRequest) -> bool:
        return request.grantor not in ("", self._grantor)

    def _first_ttl_s(self, leases: list[int]) -> float:
        """Guess which term they have in common: that of the first one that is there."""
        found = (self._leases.table.find(lease) for lease in leases[:GUESSES])
        return next((leased.resource.ttl_s for leased in found if leased is not None), 0.0)

    async def _renew_slices(self, header: bytes, leases: list[int], renewing: "Renewing") -> Answer:
        slicer = Slicer(self._leases.monotonic)
        for start in range(0, len(leases), RENEWED_AT_ONCE):
            self._leases.enter()
            self._renew(leases[start : start + RENEWED_AT_ONCE], renewing)
            await slicer.pause()
        return header + renewing.outcomes.renewed(), renewing.position

    def _renew(self, leases: list[int], renewing: "Renewing") -> None:
        """Renew some. What is said of those that have ended need not be on disk: holders stop."""
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

    def revoke_all(self, message: bytes) -> Answer | Later:
        """End each lease, and its keys with it."""
        request = parse(_parse_revoke_all, message)
        leases = _ids_of(request)
        if self._is_of_others(request):
            return self._desk.durable_header() + _all_unknown(leases).revoked(), 0
        check_room(self._desk, len(message))
        return self._revoke_slices(leases)

    async def _revoke_slices(self, leases: list[int]) -> Answer:
        slicer = Slicer(self._leases.monotonic)
        outcomes = Outcomes()
        for start in range(0, len(leases), REVOKED_AT_ONCE):
            await self._until_room()
            for place, lease in enumerate(leases[start : start + REVOKED_AT_ONCE], start):
                if self._store.is_busy:  # the last one went with very many keys
                    await enter(self._desk)
                try:
                    self._store.apply(Revoke(lease))
                except UnknownLease as error:
                    outcomes.add(place, error)
            await slicer.pause()
        if self._store.is_busy:
            await enter(self._desk)
        header = self._desk.header(self._store.revision)
        return header + outcomes.revoked(), self._store.position

    async def _until_room(self) -> None:
        await enter(self._desk)
        while self._store.is_full:
            await self._desk.runtime.until_durable(self._store.position)
            await enter(self._desk)


class Renewing:
    """A renewal of many leases that is under way."""

    __slots__ = ("outcomes", "position", "ttl_s")

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.outcomes = Outcomes(to_wire_ms(ttl_s))
        self.position = 0

    def take(self, count: int, exceptions: dict[int, float | UnknownLease]) -> None:
        """Take what has become of the next ones."""
        for place, outcome in exceptions.items():
            self.outcomes.add(self.outcomes.count + place, outcome)
        self.outcomes.count += count


def _all_unknown(leases: list[int]) -> Outcomes:
    outcomes = Outcomes()
    outcomes.count = len(leases)
    outcomes.unknown = dict.fromkeys(range(len(leases)), EndReason.UNKNOWN)
    return outcomes


def _ids_of(request: RenewAllRequest | RevokeAllRequest) -> list[int]:
    if request.cookies:
        raise invalid("the leases of a server have numbers: name them by `ids`, not by `cookies`")
    if len(request.ids) > MAX_BATCH:
        raise invalid(
            f"{len(request.ids):,} leases in one message; send at most {MAX_BATCH:,} at a time"
        )
    return list(request.ids)


def _check_terms(request: RenewAllRequest) -> None:
    if request.ttls_ms and len(request.ttls_ms) != len(request.ids):
        raise invalid(
            f"{len(request.ttls_ms):,} terms for {len(request.ids):,} leases; one for each, or none"
        )
    terms_ms = [*request.ttls_ms, *([request.ttl_ms] if request.HasField("ttl_ms") else ())]
    if 0 in terms_ms:
        raise invalid("a term of 0 would end the lease: that is what RevokeAll is for")
    if (least := min(terms_ms, default=1)) < WIRE_FOREVER_MS:
        raise invalid(f"a term is from 1 ms on, -1 (any) or -2 (no end), not {least}")
