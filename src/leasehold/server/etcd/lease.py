"""etcd's Lease service: grant, keep alive, revoke, list, and how long is left."""

from functools import partial
from typing import Final

from leasehold.core.ops import Grant, Revoke
from leasehold.core.ranges import LONG
from leasehold.engine.lease_record import LeaseRecord
from leasehold.errors import LeaseExists, NoSpace, Status, UnknownLease
from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Exchange, Later, LongRead, Method, Pieces
from leasehold.server.etcd.desk import Desk
from leasehold.server.etcd.long_answers import keys_steps, leases_steps
from leasehold.wire.encode import field, varint
from leasehold.wire.rpc_pb2 import (
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseLeasesRequest,
    LeaseRevokeRequest,
    LeaseTimeToLiveRequest,
)
from leasehold.wire.short import short_lease

MIN_TTL_S: Final = 2
"""What a shorter term is raised to unless told otherwise, as etcd does with its default timing."""

MAX_TTL_S: Final = 9_000_000_000

MAX_IDS: Final = 65_536
"""Messages whose lease is remembered; beyond it all are forgotten, and read again."""

MAX_REMEMBERED_BYTES: Final = 11
"""Of such a message: a tag, and ten octets for the longest id."""

_MINUS_ONE: Final = varint(-1)
_parse_grant = LeaseGrantRequest.FromString
_parse_keep_alive = LeaseKeepAliveRequest.FromString
_parse_leases = LeaseLeasesRequest.FromString
_parse_revoke = LeaseRevokeRequest.FromString
_parse_time_to_live = LeaseTimeToLiveRequest.FromString


class Lease:
    """Grants leases, and keeps them alive."""

    def __init__(self, desk: Desk, min_ttl_s: int = MIN_TTL_S) -> None:
        self._desk = desk
        self._gate = desk.gate
        self._store = desk.store
        self._leases = desk.store.leases
        self._min_ttl_s = min_ttl_s
        self._ids: dict[bytes, int] = {}

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/etcdserverpb.Lease/"
        return {
            path + "LeaseGrant": Exchange(self.grant),
            path + "LeaseRevoke": Exchange(self.revoke),
            path + "LeaseKeepAlive": Exchange(self.keep_alive, False, Gate.hold_renewal),
            path + "LeaseTimeToLive": Exchange(self.time_to_live, hold=Gate.hold_read),
            path + "LeaseLeases": Exchange(self.leases, hold=Gate.hold_read),
        }

    def grant(self, message: bytes) -> Answer:
        """Begin a lease."""
        lease, ttl_s = short_lease(message) or self._wanted(message)
        if ttl_s > MAX_TTL_S:
            raise RpcError(Status.OUT_OF_RANGE, "etcdserver: too large lease TTL")
        if ttl_s < self._min_ttl_s:
            ttl_s = self._min_ttl_s
        self._desk.check_room(len(message))
        try:
            (_, encoded), position = self._store.apply(Grant(lease, float(ttl_s)))
        except (LeaseExists, NoSpace) as error:
            self._desk.refuse(error)
        header = self._desk.header(self._store.revision)
        return b"%b\x10%b\x18%b" % (header, encoded, varint(ttl_s)), position

    def _wanted(self, message: bytes) -> tuple[int, int]:
        request = parse(_parse_grant, message)
        return request.ID, request.TTL

    def revoke(self, message: bytes) -> Answer | Later:
        """End a lease, and its keys with it."""
        if self._store.is_busy:
            return self._desk.when_idle(self.revoke, message)
        request = parse(_parse_revoke, message)
        self._desk.check_room(len(message))
        try:
            revision, position = self._store.apply(Revoke(request.ID))
        except UnknownLease as error:
            self._desk.refuse(error)
        if self._store.ends:
            return self._revoked()
        return self._desk.header(revision), position

    async def _revoked(self) -> Answer:
        """Wait until a lease's very many keys are gone."""
        await self._desk.runtime.housekeeping.until_idle()
        return self._desk.header(self._store.revision), self._store.position

    def keep_alive(self, message: bytes) -> Answer:
        """Begin a new full term: in memory only, so it waits for no disk."""
        lease = self._ids.get(message)
        if lease is None:
            lease = self._remember(message)
        header = self._desk.durable_header()
        if self._gate.renewals and self._store.lease_position(lease):
            self._gate.check_renewal_room()
        try:
            record = self._leases.renew(lease)
        except UnknownLease:  # at once, even if its end is not on disk yet: its holder stops
            return header + b"\x10" + varint(lease), 0
        if record.answer_header is not header:
            ttl_s = varint(_shown_s(record.ttl_s))
            record.answer = b"%b\x10%b\x18%b" % (header, record.encoded_id, ttl_s)
            record.answer_header = header
        return record.answer, self._store.lease_position(lease)

    def _remember(self, message: bytes) -> int:
        """Read whose renewal a message asks for: the same message will come again and again."""
        lease = parse(_parse_keep_alive, message, is_streamed=True).ID
        if len(message) <= MAX_REMEMBERED_BYTES:  # whatever is longer has more in it than an id
            if len(self._ids) >= MAX_IDS:
                self._ids.clear()
            self._ids[message] = lease
        return lease

    def time_to_live(self, message: bytes) -> Answer | Later:
        """Return how long a lease has to run, and which keys it has.

        Without its keys that does not depend on operations that are under way in steps.
        """
        request = parse(_parse_time_to_live, message)
        lease = request.ID
        if self._store.is_busy and request.keys:
            return self._desk.when_idle(self.time_to_live, message)
        try:
            record = self._leases.current(lease)
        except UnknownLease:
            if self._store.is_ending(lease):  # its end has no position yet
                return self._desk.when_idle(self.time_to_live, message)
            header = self._desk.durable_header()
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
            self._desk.check_read_room(position)
            steps = keys_steps(answer, list(record.keys))
            return self._desk.long_read(partial(self._desk.in_pieces, revision, steps, position))
        if with_keys:
            answer += b"".join([field(5, key) for key in sorted(record.keys)])
        return self._desk.header(revision) + answer, position

    def leases(self, message: bytes) -> Later:
        """List all leases, those first that end first."""
        if self._store.is_busy:
            return self._desk.when_idle(self.leases, message)
        parse(_parse_leases, message)
        return self._desk.long_read(self._list)

    async def _list(self) -> Pieces:
        await self._desk.enter()
        steps = leases_steps(self._leases.listed(_encoded))
        position = self._store.listing_position(with_keys=False)
        self._desk.check_read_room(position)
        return await self._desk.in_pieces(self._store.durable_revision, steps, position)


def _encoded(record: LeaseRecord, _left_s: float) -> bytes:
    return field(2, b"\x08" + record.encoded_id)


def _shown_s(ttl_s: float) -> int:
    """A term in whole seconds, rounded down as what remains of it; 0 would say that it is over."""
    return max(1, int(ttl_s))
