"""Very many leases in one message: renewed, or revoked, each by itself.

The answer is what they have in common plus the exceptions, by their places in the request: to renew
50,000 leases of the same term is a short answer. A long batch is done in slices, between which
others have their turn. Renewals touch memory only, so nothing of a batch waits for the disk but the
answer, and that only if it tells of a lease that is not on disk yet.
"""

from collections import Counter
from typing import Final

from leasehold.core.duration import to_wire_ms
from leasehold.core.ops import Revoke
from leasehold.core.ranges import LONG
from leasehold.engine.slices import Slicer
from leasehold.errors import EndReason, UnknownLease
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Later
from leasehold.server.etcd.desk import Desk
from leasehold.server.leases.refusals import check_room, enter, invalid
from leasehold.wire import leases_pb2
from leasehold.wire.leases_pb2 import (
    RenewAllRequest,
    RenewAllResponse,
    RevokeAllRequest,
    RevokeAllResponse,
)

MAX_BATCH: Final = 50_000
"""Leases in one message."""

RENEWED_AT_ONCE: Final = LONG
REVOKED_AT_ONCE: Final = 32
"""Leases between two looks at the clock: about a quarter of a millisecond."""

GUESSES: Final = 100
"""Leases that are looked at to find out which term most of them have."""

REASONS: Final = {
    EndReason.UNKNOWN: leases_pb2.UNKNOWN,
    EndReason.EXPIRED: leases_pb2.EXPIRED,
    EndReason.CANCELLED: leases_pb2.REVOKED,
}

_parse_renew_all = RenewAllRequest.FromString
_parse_revoke_all = RevokeAllRequest.FromString


class Batches:
    """Renews and revokes many leases at a time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store
        self._leases = desk.store.leases

    # Renewing.

    def renew_all(self, message: bytes) -> Answer | Later:
        """Begin a new full term of each lease."""
        request = parse(_parse_renew_all, message)
        leases = _ids_of(request)
        _check_terms(request)
        header = self._desk.durable_header()
        renewed = Renewed(self._first_ttl_s(leases))
        if len(leases) > RENEWED_AT_ONCE:
            return self._renew_slices(header, leases, renewed)
        self._renew(leases, renewed)
        if renewed.ending:
            return self._renewed(header, renewed)
        return header + renewed.encode(), renewed.position

    def _first_ttl_s(self, leases: list[int]) -> float:
        """Guess which term they have in common: that of the first one that is there."""
        found = (self._leases.table.find(lease) for lease in leases[:GUESSES])
        return next((leased.resource.ttl_s for leased in found if leased is not None), 0.0)

    async def _renew_slices(self, header: bytes, leases: list[int], renewed: "Renewed") -> Answer:
        slicer = Slicer(self._leases.monotonic)
        for start in range(0, len(leases), RENEWED_AT_ONCE):
            self._leases.enter()
            self._renew(leases[start : start + RENEWED_AT_ONCE], renewed)
            await slicer.pause()
        return await self._renewed(header, renewed)

    def _renew(self, leases: list[int], renewed: "Renewed") -> None:
        renewed.take(len(leases), self._leases.renew_all(leases, renewed.ttl_s))
        renewed.position = max(renewed.position, self._store.leases_position(leases))
        if renewed.unknown and self._store.ends:
            renewed.ending += [lease for lease in leases if self._store.is_ending(lease)]

    async def _renewed(self, header: bytes, renewed: "Renewed") -> Answer:
        """Answer once those leases are gone that go with very many keys: not before."""
        while any(map(self._store.is_ending, renewed.ending)):
            await enter(self._desk)
        position = self._store.leases_position(renewed.ending)
        return header + renewed.encode(), max(renewed.position, position)

    # Revoking.

    def revoke_all(self, message: bytes) -> Later:
        """End each lease, and its keys with it."""
        request = parse(_parse_revoke_all, message)
        leases = _ids_of(request)
        check_room(self._desk, len(message))
        return self._revoke_slices(leases)

    async def _revoke_slices(self, leases: list[int]) -> Answer:
        slicer = Slicer(self._leases.monotonic)
        response = RevokeAllResponse()
        position = 0
        for start in range(0, len(leases), REVOKED_AT_ONCE):
            await self._until_room()
            for place, lease in enumerate(leases[start : start + REVOKED_AT_ONCE], start):
                if self._store.is_busy:  # the last one went with very many keys
                    await enter(self._desk)
                try:
                    self._store.apply(Revoke(lease))
                except UnknownLease as error:
                    response.unknown.append(place)
                    response.unknown_reasons.append(REASONS[error.reason])
                position = max(position, self._store.lease_position(lease))
            await slicer.pause()
        if self._store.is_busy:
            await enter(self._desk)
            position = self._store.position
        header = self._desk.header(self._store.revision)
        return header + response.SerializeToString(), max(position, self._store.position)

    async def _until_room(self) -> None:
        await enter(self._desk)
        while self._store.is_full:
            await self._desk.runtime.until_durable(self._store.position)
            await enter(self._desk)


class Renewed:
    """What has become of the leases of a batch so far."""

    __slots__ = ("_count", "_others", "ending", "position", "ttl_s", "unknown")

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        """The term that most of them have, if the guess was right."""
        self._count = 0
        self._others: dict[int, float] = {}
        self.unknown: dict[int, EndReason] = {}
        self.ending: list[int] = []
        """Leases that have ended, but whose keys have yet to go."""
        self.position = 0

    def take(self, count: int, exceptions: dict[int, float | UnknownLease]) -> None:
        """Take what has become of the next ones."""
        for place, outcome in exceptions.items():
            if isinstance(outcome, UnknownLease):
                self.unknown[self._count + place] = outcome.reason
            else:
                self._others[self._count + place] = outcome
        self._count += count

    def encode(self) -> bytes:
        """Give the answer, but for its header."""
        self._choose_common()
        return RenewAllResponse(
            ttl_ms=to_wire_ms(self.ttl_s),
            others=self._others.keys(),
            others_ttl_ms=map(to_wire_ms, self._others.values()),
            unknown=self.unknown.keys(),
            unknown_reasons=[REASONS[reason] for reason in self.unknown.values()],
        ).SerializeToString()

    def _choose_common(self) -> None:
        """Have the most frequent term in common, if that of the first lease is not."""
        known = self._count - len(self.unknown)
        if 2 * len(self._others) <= known:
            return
        ((ttl_s, count),) = Counter(self._others.values()).most_common(1)
        if count > known - len(self._others):
            places = set(range(self._count)) - self._others.keys() - self.unknown.keys()
            firsts = dict.fromkeys(places, self.ttl_s)
            others = {place: each for place, each in self._others.items() if each != ttl_s}
            self._others = dict(sorted({**others, **firsts}.items()))
            self.ttl_s = ttl_s


def _ids_of(request: RenewAllRequest | RevokeAllRequest) -> list[int]:
    if request.cookies:
        raise invalid("the leases of a server have numbers: name them by `ids`, not by `cookies`")
    if len(request.ids) > MAX_BATCH:
        raise invalid(
            f"{len(request.ids):,} leases in one message; send at most {MAX_BATCH:,} at a time"
        )
    return list(request.ids)


def _check_terms(request: RenewAllRequest) -> None:
    if (request.HasField("ttl_ms") and request.ttl_ms == 0) or 0 in request.ttls_ms:
        raise invalid("a term of 0 would end the lease: that is what RevokeAll is for")
    if request.ttls_ms and len(request.ttls_ms) != len(request.ids):
        raise invalid(
            f"{len(request.ttls_ms):,} terms for {len(request.ids):,} leases; one for each, or none"
        )
