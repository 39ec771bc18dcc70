"""etcd's Lease service: grant, keep alive, revoke, list, and time to live."""

from functools import partial
from typing import Final

from leasehold.errors import LeaseExists, NoSpace, Status, UnknownLease
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Answer, DeferredAnswer, Exchange, LongRead, Method, Pieces
from leasehold.keyspace.operations import Grant, Revoke
from leasehold.keyspace.ranges import LONG
from leasehold.server.etcd.long_answers import keys_steps, leases_steps
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.store.lease_record import LeaseRecord
from leasehold.wire.codec import field, short_lease, varint
from leasehold.wire.rpc_pb2 import (
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseLeasesRequest,
    LeaseRevokeRequest,
    LeaseTimeToLiveRequest,
)

MIN_TTL_S: Final = 2
"""Shorter TTLs are raised to this by default, as etcd does with its default timing."""

MAX_TTL_S: Final = 9_000_000_000

MAX_IDS: Final = 65_536
"""Messages whose lease id is cached; when it is full, the cache is cleared."""

MAX_REMEMBERED_BYTES: Final = 11
"""Of such a message: a tag, and ten bytes for the longest id."""

_MINUS_ONE: Final = varint(-1)
_parse_grant = LeaseGrantRequest.FromString
_parse_keep_alive = LeaseKeepAliveRequest.FromString
_parse_leases = LeaseLeasesRequest.FromString
_parse_revoke = LeaseRevokeRequest.FromString
_parse_time_to_live = LeaseTimeToLiveRequest.FromString


class LeaseService:
    """Grants leases, and keeps them alive."""

    def __init__(self, context: ServiceContext, min_ttl_s: int = MIN_TTL_S) -> None:
        self._context = context
        self._gate = context.gate
        self._store = context.store
        self._leases = context.store.leases
        self._min_ttl_s = min_ttl_s
        self._ids: dict[bytes, int] = {}

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/etcdserverpb.Lease/"
        return {
            path + "LeaseGrant": Exchange(self.grant),
            path + "LeaseRevoke": Exchange(self.revoke),
            path + "LeaseKeepAlive": Exchange(self.keep_alive, False, DurabilityGate.hold_renewal),
            path + "LeaseTimeToLive": Exchange(self.time_to_live, hold=DurabilityGate.hold_read),
            path + "LeaseLeases": Exchange(self.leases, hold=DurabilityGate.hold_read),
        }

    def grant(self, message: bytes) -> Answer:
        """Grant a lease."""
        lease, ttl_s = short_lease(message) or self._wanted(message)
        if ttl_s > MAX_TTL_S:
            raise RpcError(Status.OUT_OF_RANGE, "etcdserver: too large lease TTL")
        if ttl_s < self._min_ttl_s:
            ttl_s = self._min_ttl_s
        self._context.check_room(len(message))
        try:
            (_, encoded), position = self._store.apply(Grant(lease, float(ttl_s)))
        except (LeaseExists, NoSpace) as error:
            self._context.refuse(error)
        header = self._context.header(self._store.revision)
        return b"%b\x10%b\x18%b" % (header, encoded, varint(ttl_s)), position

    def _wanted(self, message: bytes) -> tuple[int, int]:
        request = parse(_parse_grant, message)
        return request.ID, request.TTL

    def revoke(self, message: bytes) -> Answer | DeferredAnswer:
        """Revoke a lease, and delete its keys."""
        if self._store.is_busy:
            return self._context.when_idle(self.revoke, message)
        request = parse(_parse_revoke, message)
        self._context.check_room(len(message))
        try:
            revision, position = self._store.apply(Revoke(request.ID))
        except UnknownLease as error:
            self._context.refuse(error)
        if self._store.ends:
            return self._revoked()
        return self._context.header(revision), position

    async def _revoked(self) -> Answer:
        """Wait until the very many keys of a lease are deleted."""
        await self._context.runtime.housekeeping.until_idle()
        return self._context.header(self._store.revision), self._store.position

    def keep_alive(self, message: bytes) -> Answer:
        """Renew a lease for its full TTL: in memory only, so it does not wait for the disk."""
        lease = self._ids.get(message)
        if lease is None:
            lease = self._remember(message)
        header = self._context.durable_header()
        if self._gate.renewals and self._store.lease_position(lease):
            self._gate.check_renewal_room()
        try:
            record = self._leases.renew(lease)
        except UnknownLease:  # immediately, even if its end is not on disk yet: its holder stops
            return header + b"\x10" + varint(lease), 0
        if record.answer_header is not header:
            ttl_s = varint(_shown_s(record.ttl_s))
            record.answer = b"%b\x10%b\x18%b" % (header, record.encoded_id, ttl_s)
            record.answer_header = header
        return record.answer, self._store.lease_position(lease)

    def _remember(self, message: bytes) -> int:
        """Parse the lease id of a renewal and cache it: the same message will come repeatedly."""
        lease = parse(_parse_keep_alive, message, is_streamed=True).ID
        if len(message) <= MAX_REMEMBERED_BYTES:  # a longer one has more than an id
            if len(self._ids) >= MAX_IDS:
                self._ids.clear()
            self._ids[message] = lease
        return lease

    def time_to_live(self, message: bytes) -> Answer | DeferredAnswer:
        """Return the remaining time of a lease, and its keys.

        Without its keys that does not depend on sliced operations in progress.
        """
        request = parse(_parse_time_to_live, message)
        lease = request.ID
        if self._store.is_busy and request.keys:
            return self._context.when_idle(self.time_to_live, message)
        try:
            record = self._leases.current(lease)
        except UnknownLease:
            if self._store.is_ending(lease):  # its end has no position yet
                return self._context.when_idle(self.time_to_live, message)
            header = self._context.durable_header()
            answer = b"%b\x10%b\x18%b" % (header, varint(lease), _MINUS_ONE)
            return answer, self._store.lease_position(lease)
        return self._alive(record, with_keys=request.keys)

    def _alive(self, record: LeaseRecord, *, with_keys: bool) -> Answer | LongRead:
        store, lease = self._store, record.id
        revision, position = store.durable_revision, store.lease_position(lease)
        if with_keys and store.keys_position(lease):
            revision, position = store.revision, store.position
        answer = b"\x10" + varint(lease)
        remaining_s = int(self._leases.remaining_s(lease))
        if remaining_s:
            answer += b"\x18" + varint(remaining_s)
        answer += b"\x20" + varint(_shown_s(record.ttl_s))
        if with_keys and len(record.keys) > LONG:
            self._context.check_read_room(position)
            steps = keys_steps(answer, list(record.keys))
            return self._context.long_read(
                partial(self._context.in_pieces, revision, steps, position)
            )
        if with_keys:
            answer += b"".join([field(5, key) for key in sorted(record.keys)])
        return self._context.header(revision) + answer, position

    def leases(self, message: bytes) -> DeferredAnswer:
        """List all leases, ordered by their ends."""
        if self._store.is_busy:
            return self._context.when_idle(self.leases, message)
        parse(_parse_leases, message)
        return self._context.long_read(self._list)

    async def _list(self) -> Pieces:
        await self._context.enter()
        steps = leases_steps(self._leases.listed(_encoded))
        position = self._store.listing_position(with_keys=False)
        self._context.check_read_room(position)
        return await self._context.in_pieces(self._store.durable_revision, steps, position)


def _encoded(record: LeaseRecord, _left_s: float) -> bytes:
    return field(2, b"\x08" + record.encoded_id)


def _shown_s(ttl_s: float) -> int:
    """Return a TTL in whole seconds, rounded down like the remaining time; 0 would mean ended."""
    return max(1, int(ttl_s))
