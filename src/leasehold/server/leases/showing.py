"""One lease: how long it has to run, and which keys it has."""

from functools import partial
from typing import Final

from leasehold.core.ranges import LONG
from leasehold.engine.lease_record import LeaseRecord
from leasehold.errors import UnknownLease
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Later, LongRead
from leasehold.server.etcd.desk import Desk
from leasehold.server.etcd.long_answers import keys_steps
from leasehold.server.leases.listing import encode_listed
from leasehold.server.leases.outcomes import REASONS
from leasehold.wire.encode import field
from leasehold.wire.leases_pb2 import ShowRequest, ShowResponse

KEYS_FIELD: Final = 5
_parse = ShowRequest.FromString


class Showing:
    """Shows leases, each by itself."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store

    def show(self, message: bytes) -> Answer | Later:
        """Show a lease; or say why it is not there."""
        if self._store.is_busy:
            return self._desk.when_idle(self.show, message)
        request = parse(_parse, message)
        try:
            record = self._store.leases.current(request.id)
        except UnknownLease as error:
            if self._store.is_ending(request.id):  # its end has no position yet
                return self._desk.when_idle(self.show, message)
            answer = ShowResponse(reason=REASONS[error.reason]).SerializeToString()
            return self._desk.durable_header() + answer, self._store.lease_position(request.id)
        return self._alive(record, with_keys=request.keys)

    def _alive(self, record: LeaseRecord, *, with_keys: bool) -> Answer | LongRead:
        store = self._store
        revision, position = store.durable_revision, store.lease_position(record.id)
        if store.keys_position(record.id):  # how many keys it has is told in any case
            revision, position = store.revision, store.position
        left_ms = int(store.leases.remaining_s(record.id) * 1000)
        answer = encode_listed(record, left_ms)
        if with_keys and len(record.keys) > LONG:
            self._desk.check_read_room(position)
            steps = keys_steps(answer, list(record.keys))
            return self._desk.long_read(partial(self._desk.in_pieces, revision, steps, position))
        if with_keys:
            answer += b"".join([field(KEYS_FIELD, key) for key in sorted(record.keys)])
        return self._desk.header(revision) + answer, position
