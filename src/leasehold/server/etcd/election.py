"""etcd's Election service: a key for each candidate; the oldest one leads, and has the say."""

from typing import Any, Final

from leasehold.core.keyspace import Item
from leasehold.core.ops import (
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
from leasehold.core.txn import check_key
from leasehold.engine import records
from leasehold.errors import UnknownLease
from leasehold.rpc.gate import Gate
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Exchange, Later, Listener, Method, Speaker, Subscription
from leasehold.server.etcd.claims import (
    SESSION_TTL_S,
    Claim,
    Claimed,
    OneRequest,
    Wanted,
    refusing,
    unknown,
)
from leasehold.server.etcd.desk import Desk
from leasehold.server.etcd.lines import Line, Lines, bounds
from leasehold.wire.election_pb2 import (
    CampaignRequest,
    LeaderKey,
    LeaderRequest,
    ProclaimRequest,
    ResignRequest,
)
from leasehold.wire.encode import field

NOT_LEADER: Final = "election: not leader"
NO_LEADER: Final = "election: no leader"
NO_LEADER_KEY: Final = '"leader" field must be provided'

_parse_campaign = CampaignRequest.FromString
_parse_proclaim = ProclaimRequest.FromString
_parse_leader = LeaderRequest.FromString
_parse_resign = ResignRequest.FromString


class Election:
    """Lets candidates lead, one after the other."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store
        self._lines = Lines(desk.runtime)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/v3electionpb.Election/"
        return {
            path + "Campaign": Subscription(self.campaign, reads_metadata=False),
            path + "Proclaim": Exchange(self.proclaim),
            path + "Leader": Exchange(self.leader, hold=Gate.hold_read),
            path + "Observe": Subscription(self.observe, reads_metadata=False),
            path + "Resign": Exchange(self.resign),
        }

    def campaign(self, speaker: Speaker) -> Listener:
        """Begin a call that waits until its candidate leads, for as long as it takes."""
        return CampaignCall(self._desk, self._lines, speaker)

    def observe(self, speaker: Speaker) -> Listener:
        """Begin a call that tells who leads, and what that one says."""
        return Observation(self._desk, self._lines, speaker)

    def proclaim(self, message: bytes) -> Answer | Later:
        """Say something else, as a candidate."""
        if self._store.is_busy:
            return self._desk.when_idle(self.proclaim, message)
        request = parse(_parse_proclaim, message)
        if not request.HasField("leader"):
            raise unknown(NO_LEADER_KEY)
        leader = request.leader
        with refusing(self._desk):
            if not self._is_ready(leader, message):
                return self._desk.when_idle(self.proclaim, message)
            lease = leader.lease
            if not lease and self._is_current(leader):
                (lease, _), _ = self._store.apply(Grant(0, SESSION_TTL_S))
            outcome, position = self._as_candidate(leader, Put(leader.key, request.value, lease))
        if not outcome.succeeded:
            raise unknown(NOT_LEADER, position)
        return self._desk.header(outcome.revision), position

    def resign(self, message: bytes) -> Answer | Later:
        """Give up leading, or being a candidate; it is no error if one is none."""
        if self._store.is_busy:
            return self._desk.when_idle(self.resign, message)
        request = parse(_parse_resign, message)
        if not request.HasField("leader"):
            raise unknown(NO_LEADER_KEY)
        with refusing(self._desk):
            if not self._is_ready(request.leader, message):
                return self._desk.when_idle(self.resign, message)
            outcome, position = self._as_candidate(request.leader, Delete(request.leader.key))
        return self._desk.header(outcome.revision), position

    def _is_ready(self, leader: LeaderKey, message: bytes) -> bool:
        """Do what comes first; False if a lease goes with very many keys, which takes a while."""
        check_key(leader.key)
        self._desk.check_room(len(message))
        self._lines.chores.do_now(leader.key)
        return not self._store.is_busy

    def _is_current(self, leader: LeaderKey) -> bool:
        item = self._store.keyspace.get(leader.key)
        return leader.rev == (0 if item is None else item[1])

    def _as_candidate(self, leader: LeaderKey, step: Step) -> tuple[Outcome, int]:
        """Do something if the key is still the one that the candidate was told of."""
        condition = Compare(leader.key, Target.CREATE_REVISION, Relation.EQUAL, leader.rev)
        return self._store.apply(Txn([condition], [step]))

    def leader(self, message: bytes) -> Answer | Later:
        """Tell who leads."""
        if self._store.is_busy:
            return self._desk.when_idle(self.leader, message)
        request = parse(_parse_leader, message)
        query = Range(*bounds(request.name), sort_by=SortBy.CREATE_REVISION, limit=1)
        read = self._store.read(query)
        if read is None:
            return self._leader_of_many(query)
        return self._leader(*read)

    async def _leader_of_many(self, query: Range) -> Answer:
        return self._leader(*await self._desk.runtime.reader.scan(query))

    def _leader(self, found: Found, position: int) -> Answer:
        if not found.items:
            raise unknown(NO_LEADER, position)
        return self._desk.header(found.revision) + field(2, found.items[0][0]), position


class CampaignCall(Claim):
    """A call that waits until its candidate leads."""

    OUT = NOT_LEADER

    def read(self, message: bytes) -> Wanted:
        """Read the request."""
        request = parse(_parse_campaign, message)
        return Wanted(request.name, request.lease, request.value)

    def reclaim(self, key: bytes, lease: int, item: Item, value: bytes) -> int:
        """Proclaim the value, if the candidate is there with another one."""
        if records.value_of(item) == value:
            return 0
        try:
            _, position = self._store.apply(Put(key, value, lease))
        except UnknownLease:  # it is none of this lease's, and etcd deletes it then
            if not self._store.is_busy:  # else it goes with the lease
                self._store.apply(Delete(key))
            raise
        return position

    def answer(self, claimed: Claimed, revision: int) -> bytes:
        """Tell the candidate its key, and the revision from before it had to wait, as etcd does."""
        leader = LeaderKey(
            name=claimed.name, key=claimed.key, rev=claimed.created, lease=claimed.lease
        )
        return self._desk.header(claimed.at_revision) + field(2, leader.SerializeToString())


class Observation(OneRequest):
    """A call that tells who leads.

    A client that does not take what it is told is told the latest when it does.
    """

    def __init__(self, *call: Any) -> None:
        super().__init__(*call)
        self._line: Line | None = None
        self._has_missed = False

    def begin(self, message: bytes) -> None:
        """Look on."""
        request = parse(_parse_leader, message)
        with refusing(self._desk):
            self._lines.check_room(request.name)
        self._line = self._lines.of(request.name)
        self._line.observe(self)
        self._tell_now()

    def _tell_now(self) -> None:
        first = self._line.first if self._line is not None else None
        if first is not None:
            revision = self._store.revision
            self.leads(first, revision, self._store.position_of(revision))

    def leads(self, first: Item, revision: int, position: int) -> None:
        """Tell the client, or remember that it has to be told."""
        if not self._speaker.has_room:
            self._has_missed = True
            return
        self._speaker.say(self._desk.header(revision) + field(2, first[0]), position)
        if position <= self._desk.gate.released:
            self._speaker.flush_soon()

    def relieved(self) -> None:
        """Tell the client what it has missed."""
        if self._has_missed:
            self._has_missed = False
            self._tell_now()

    def gone(self) -> None:
        """Look on no longer."""
        super().gone()
        if self._line is not None:
            self._line.ignore(self)
