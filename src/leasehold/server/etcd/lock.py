"""etcd's Lock service: a key for each contender; the oldest one holds the lock."""

from typing import Final

from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import (
    Answer,
    DeferredAnswer,
    Exchange,
    Listener,
    Method,
    Speaker,
    Subscription,
)
from leasehold.keyspace.operations import Delete
from leasehold.server.etcd.name_queues import NameQueues
from leasehold.server.etcd.queued_calls import Claimed, ClaimRequest, QueuedCall, refusing
from leasehold.server.etcd.service_context import ServiceContext, invalid
from leasehold.wire.codec import field
from leasehold.wire.lock_pb2 import LockRequest, UnlockRequest

EXPIRED: Final = "mutex: session is expired"

_parse_lock = LockRequest.FromString
_parse_unlock = UnlockRequest.FromString


class LockService:
    """Grants locks to one contender after the other."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._store = context.store
        self._queues = NameQueues(context.runtime)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/v3lockpb.Lock/"
        return {
            path + "Lock": Subscription(self.lock, reads_context=False),
            path + "Unlock": Exchange(self.unlock),
        }

    def lock(self, speaker: Speaker) -> Listener:
        """Begin a call that waits for a lock, without limit."""
        return LockCall(self._context, self._queues, speaker)

    def unlock(self, message: bytes) -> Answer | DeferredAnswer:
        """Delete the key that holds a lock; a key that does not exist is not an error."""
        if self._store.is_busy:
            return self._context.when_idle(self.unlock, message)
        request = parse(_parse_unlock, message)
        with refusing(self._context):
            if not request.key:
                raise invalid("key is not provided")
            self._context.check_room(len(message))
            deleted, position = self._store.apply(Delete(request.key))
        return self._context.header(deleted.revision), position


class LockCall(QueuedCall):
    """A call that waits for a lock."""

    OUT = EXPIRED

    def read(self, message: bytes) -> ClaimRequest:
        """Read the request."""
        request = parse(_parse_lock, message)
        return ClaimRequest(request.name, request.lease)

    def answer(self, claimed: Claimed, revision: int) -> bytes:
        """Return the caller's key."""
        return self._context.header(revision) + field(2, claimed.key)
