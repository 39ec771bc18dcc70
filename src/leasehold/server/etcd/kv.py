"""etcd's KV service, as far as it goes: Put and Range."""

from leasehold.core.keyspace import Item
from leasehold.core.ops import Put
from leasehold.errors import LeaseFull, Status, UnknownKey, UnknownLease
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.routes import Answer, Exchange, Method
from leasehold.server.etcd.desk import Desk, invalid, parse
from leasehold.server.etcd.ranges import select
from leasehold.wire.encode import field, varint
from leasehold.wire.rpc_pb2 import PutRequest, RangeRequest
from leasehold.wire.short import short_key, short_pair

_parse_put = PutRequest.FromString
_parse_range = RangeRequest.FromString


class KV:
    """Reads and writes keys."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {
            "/etcdserverpb.KV/Put": Exchange(self.put),
            "/etcdserverpb.KV/Range": Exchange(self.range),
        }

    def put(self, message: bytes) -> Answer:
        """Set a key.

        Most calls say a short key, a short value and nothing else, which needs no protobuf.
        """
        pair = short_pair(message)
        if pair is None:
            return self._put_any(message)
        desk = self._desk
        desk.check_room(len(message))
        (revision, _), position = self._store.apply(Put(*pair))
        return desk.header(revision), position

    def _put_any(self, message: bytes) -> Answer:
        """Set a key, with any options."""
        request = parse(_parse_put, message)
        key, value, lease = request.key, request.value, request.lease
        if not key:
            raise invalid("key is not provided")
        keeps_value, keeps_lease = request.ignore_value, request.ignore_lease
        if keeps_value and value:
            raise invalid("value is provided")
        if keeps_lease and lease:
            raise invalid("lease is provided")
        desk = self._desk
        desk.check_room(len(message))
        try:
            (revision, previous), position = self._store.apply(
                Put(key, None if keeps_value else value, None if keeps_lease else lease)
            )
        except (UnknownLease, UnknownKey, LeaseFull) as error:
            desk.refuse(error)
        answer = desk.header(revision)
        if previous is not None and request.prev_kv:
            answer += field(2, previous[0])
        return answer, position

    def range(self, message: bytes) -> Answer:
        """Read a key, or a range of keys.

        Most calls ask for one short key and nothing else, which needs no protobuf.
        """
        key = short_key(message)
        if key is not None:
            return self._one(key)
        return self._any(parse(_parse_range, message))

    def _any(self, request: RangeRequest) -> Answer:
        """Read a range, with any options."""
        key, end = request.key, request.range_end
        if not key:
            raise invalid("key is not provided")
        store = self._store
        if request.revision > 0:
            self._check_revision(request.revision)
        if request.revision <= store.durable_revision and store.is_range_durable(key, end):
            revision, position = store.durable_revision, 0
        else:
            revision, position = store.revision, store.position
        chosen = select(request, store.keyspace)
        answer = self._desk.header(revision) + b"".join([field(2, pair) for pair in chosen.pairs])
        if chosen.more:
            answer += b"\x18\x01"
        if chosen.total:
            answer += b"\x20" + varint(chosen.total)
        return answer, position

    def _one(self, key: bytes) -> Answer:
        """Read one key, without any option."""
        store = self._store
        item: Item | None = store.keyspace.get(key)
        if store.is_durable(key):
            header, position = self._desk.durable_header(), 0
        else:
            header, position = self._desk.header(store.revision), store.position
        if item is None:
            return header, position
        pair = item[0]
        return b"%b\x12%b%b\x20\x01" % (header, varint(len(pair)), pair), position

    def _check_revision(self, revision: int) -> None:
        """Refuse what is not there: the future, and (in this version) any past."""
        if revision > self._store.revision:
            what = "required revision is a future revision"
        elif revision < self._store.revision:
            what = "required revision has been compacted"
        else:
            return
        raise RpcError(Status.OUT_OF_RANGE, f"etcdserver: mvcc: {what}", self._store.position)
