"""etcd's Lock service: a key for each who wants a lock; the oldest one has it."""

from typing import Final

from leasehold.core.ops import Delete
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Exchange, Later, Listener, Method, Speaker, Subscription
from leasehold.server.etcd.claims import Claim, Claimed, Wanted, refusing
from leasehold.server.etcd.desk import Desk, invalid
from leasehold.server.etcd.lines import Lines
from leasehold.wire.encode import field
from leasehold.wire.lock_pb2 import LockRequest, UnlockRequest

EXPIRED: Final = "mutex: session is expired"

_parse_lock = LockRequest.FromString
_parse_unlock = UnlockRequest.FromString


class Lock:
    """Gives locks, to one after the other."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store
        self._lines = Lines(desk.runtime)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/v3lockpb.Lock/"
        return {
            path + "Lock": Subscription(self.lock, reads_metadata=False),
            path + "Unlock": Exchange(self.unlock),
        }

    def lock(self, speaker: Speaker) -> Listener:
        """Begin a call that waits for a lock, for as long as it takes."""
        return LockCall(self._desk, self._lines, speaker)

    def unlock(self, message: bytes) -> Answer | Later:
        """Delete the key that has a lock; one that is not there is no error."""
        if self._store.is_busy:
            return self._desk.when_idle(self.unlock, message)
        request = parse(_parse_unlock, message)
        with refusing(self._desk):
            if not request.key:
                raise invalid("key is not provided")
            self._desk.check_room(len(message))
            deleted, position = self._store.apply(Delete(request.key))
        return self._desk.header(deleted.revision), position


class LockCall(Claim):
    """A call that waits for a lock."""

    OUT = EXPIRED

    def read(self, message: bytes) -> Wanted:
        """Read the request."""
        request = parse(_parse_lock, message)
        return Wanted(request.name, request.lease)

    def answer(self, claimed: Claimed, revision: int) -> bytes:
        """Tell the caller its key."""
        return self._desk.header(revision) + field(2, claimed.key)
