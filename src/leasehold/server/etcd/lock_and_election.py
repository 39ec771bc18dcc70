"""etcd's Lock and Election services: a key under a name for each contender; the oldest one counts.

It holds the lock, or leads the election, and then its value is the leader's. `queued_calls` answers
the others when no older key is left.
"""

from typing import Any, Final

from leasehold.errors import UnknownLease
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import (
    Answer,
    DeferredAnswer,
    Exchange,
    Method,
    ServerStream,
    StreamHandler,
    Subscription,
)
from leasehold.journal import records
from leasehold.keyspace.keyspace import Item
from leasehold.keyspace.operations import (
    Compare,
    Delete,
    Found,
    Grant,
    Outcome,
    Put,
    Range,
    Relation,
    SortBy,
    Step,
    Target,
    Txn,
)
from leasehold.keyspace.transaction_rules import check_key
from leasehold.server.etcd.name_queues import NameQueue, NameQueues, bounds
from leasehold.server.etcd.queued_calls import (
    SESSION_TTL_S,
    Claimed,
    ClaimRequest,
    QueuedCall,
    SingleRequestCall,
    refusing,
    unknown,
)
from leasehold.server.etcd.service_context import ServiceContext, invalid
from leasehold.wire.codec import field
from leasehold.wire.election_pb2 import (
    CampaignRequest,
    LeaderKey,
    LeaderRequest,
    ProclaimRequest,
    ResignRequest,
)
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

    def lock(self, stream: ServerStream) -> StreamHandler:
        """Begin a call that waits for a lock, without limit."""
        return LockCall(self._context, self._queues, stream)

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


NOT_LEADER: Final = "election: not leader"
NO_LEADER: Final = "election: no leader"
NO_LEADER_KEY: Final = '"leader" field must be provided'

_parse_campaign = CampaignRequest.FromString
_parse_proclaim = ProclaimRequest.FromString
_parse_leader = LeaderRequest.FromString
_parse_resign = ResignRequest.FromString


class ElectionService:
    """Lets candidates lead, one after the other."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._store = context.store
        self._queues = NameQueues(context.runtime)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/v3electionpb.Election/"
        return {
            path + "Campaign": Subscription(self.campaign, reads_context=False),
            path + "Proclaim": Exchange(self.proclaim),
            path + "Leader": Exchange(self.leader, hold=DurabilityGate.hold_read),
            path + "Observe": Subscription(self.observe, reads_context=False),
            path + "Resign": Exchange(self.resign),
        }

    def campaign(self, stream: ServerStream) -> StreamHandler:
        """Begin a call that waits, without limit, until its candidate leads."""
        return CampaignCall(self._context, self._queues, stream)

    def observe(self, stream: ServerStream) -> StreamHandler:
        """Begin a call that reports the leader and its value."""
        return ObserveCall(self._context, self._queues, stream)

    def proclaim(self, message: bytes) -> Answer | DeferredAnswer:
        """Change the value of a candidate."""
        if self._store.is_busy:
            return self._context.when_idle(self.proclaim, message)
        request = parse(_parse_proclaim, message)
        if not request.HasField("leader"):
            raise unknown(NO_LEADER_KEY)
        leader = request.leader
        with refusing(self._context):
            if not self._is_ready(leader, message):
                return self._context.when_idle(self.proclaim, message)
            lease = leader.lease
            if not lease and self._is_current(leader):
                (lease, _), _ = self._store.apply(Grant(0, SESSION_TTL_S))
            outcome, position = self._as_candidate(leader, Put(leader.key, request.value, lease))
        if not outcome.succeeded:
            raise unknown(NOT_LEADER, position)
        return self._context.header(outcome.revision), position

    def resign(self, message: bytes) -> Answer | DeferredAnswer:
        """Resign as leader or candidate; a key that does not exist is not an error."""
        if self._store.is_busy:
            return self._context.when_idle(self.resign, message)
        request = parse(_parse_resign, message)
        if not request.HasField("leader"):
            raise unknown(NO_LEADER_KEY)
        with refusing(self._context):
            if not self._is_ready(request.leader, message):
                return self._context.when_idle(self.resign, message)
            outcome, position = self._as_candidate(request.leader, Delete(request.leader.key))
        return self._context.header(outcome.revision), position

    def _is_ready(self, leader: LeaderKey, message: bytes) -> bool:
        """Do pending cleanup tasks; return False if a lease with very many keys is still ending."""
        check_key(leader.key)
        self._context.check_room(len(message))
        self._queues.cleanup.do_now(leader.key)
        return not self._store.is_busy

    def _is_current(self, leader: LeaderKey) -> bool:
        item = self._store.keyspace.get(leader.key)
        return leader.rev == (0 if item is None else item[1])

    def _as_candidate(self, leader: LeaderKey, step: Step) -> tuple[Outcome, int]:
        """Execute a step if the key is still the one that the candidate was given."""
        condition = Compare(leader.key, Target.CREATE_REVISION, Relation.EQUAL, leader.rev)
        return self._store.apply(Txn([condition], [step]))

    def leader(self, message: bytes) -> Answer | DeferredAnswer:
        """Return the leader."""
        if self._store.is_busy:
            return self._context.when_idle(self.leader, message)
        request = parse(_parse_leader, message)
        query = Range(*bounds(request.name), sort_by=SortBy.CREATE_REVISION, limit=1)
        read = self._store.read(query)
        if read is None:
            return self._leader_of_many(query)
        return self._leader(*read)

    async def _leader_of_many(self, query: Range) -> Answer:
        return self._leader(*await self._context.runtime.reader.scan(query))

    def _leader(self, found: Found, position: int) -> Answer:
        if not found.items:
            raise unknown(NO_LEADER, position)
        return self._context.header(found.revision) + field(2, found.items[0][0]), position


class CampaignCall(QueuedCall):
    """A call that waits until its candidate leads."""

    OUT = NOT_LEADER

    def read(self, message: bytes) -> ClaimRequest:
        """Read the request."""
        request = parse(_parse_campaign, message)
        return ClaimRequest(request.name, request.lease, request.value)

    def reclaim(self, key: bytes, lease: int, item: Item, value: bytes) -> int:
        """Proclaim the value, if the candidate exists with another one."""
        if records.value_of(item) == value:
            return 0
        try:
            _, position = self._store.apply(Put(key, value, lease))
        except UnknownLease:  # it is not attached to this lease, and etcd then deletes it
            if not self._store.is_busy:  # otherwise it is deleted with the lease
                self._store.apply(Delete(key))
            raise
        return position

    def answer(self, claimed: Claimed, revision: int) -> bytes:
        """Return the candidate's key, and the revision from before it had to wait, as etcd does."""
        leader = LeaderKey(
            name=claimed.name, key=claimed.key, rev=claimed.created, lease=claimed.lease
        )
        return self._context.header(claimed.at_revision) + field(2, leader.SerializeToString())


class ObserveCall(SingleRequestCall):
    """A call that reports the leader.

    A client that does not read gets only the latest state once it reads again.
    """

    def __init__(self, *call: Any) -> None:
        super().__init__(*call)
        self._queue: NameQueue | None = None
        self._has_missed = False

    def begin(self, message: bytes) -> None:
        """Start observing."""
        request = parse(_parse_leader, message)
        with refusing(self._context):
            self._queues.check_room(request.name)
        self._queue = self._queues.of(request.name)
        self._queue.observe(self)
        self._tell_now()

    def _tell_now(self) -> None:
        first = self._queue.first if self._queue is not None else None
        if first is not None:
            revision = self._store.revision
            self.leads(first, revision, self._store.position_of(revision))

    def leads(self, first: Item, revision: int, position: int) -> None:
        """Send the leader to the client, or record that it must be sent."""
        if not self._stream.has_room:
            self._has_missed = True
            return
        self._stream.send_message(self._context.header(revision) + field(2, first[0]), position)
        if position <= self._context.gate.released:
            self._stream.flush_soon()

    def relieved(self) -> None:
        """Send the state that the client has missed."""
        if self._has_missed:
            self._has_missed = False
            self._tell_now()

    def gone(self) -> None:
        """Stop observing."""
        super().gone()
        if self._queue is not None:
            self._queue.ignore(self)
