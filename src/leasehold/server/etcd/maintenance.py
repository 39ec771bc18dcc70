"""etcd's Maintenance service: how the server is, its alarms, hashes, snapshots, free space."""

import asyncio
import re
from typing import Final

from leasehold.engine.journal import Journal
from leasehold.engine.slices import Slicer
from leasehold.errors import Compacted, FutureRevision, LeaseholdError, Status
from leasehold.rpc.conversations import Conversation, conversation, only_message
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Exchange, Later, Method
from leasehold.server.etcd.alarms import Alarm, Alarms, check_kind, message_of
from leasehold.server.etcd.desk import Desk, invalid
from leasehold.server.etcd.hashing import NO_KEYS, hash_keys, hash_lease, hash_together
from leasehold.server.etcd.snapshots import send_snapshot
from leasehold.server.version import CLUSTER_VERSION, ETCD_VERSION
from leasehold.wire.maintenance_pb2 import (
    AlarmRequest,
    AlarmResponse,
    DefragmentRequest,
    DowngradeRequest,
    DowngradeResponse,
    HashKVRequest,
    HashKVResponse,
    HashRequest,
    HashResponse,
    MoveLeaderRequest,
    SnapshotRequest,
    StatusRequest,
    StatusResponse,
)

"""The etcd that this server is like."""

_VERSION: Final = re.compile(
    r"([0-9]{1,18})\.([0-9]{1,18})(?:\.[0-9]{1,18})?(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
)
_BEFORE: Final = (3, 4)
"""The one minor version that etcd 3.5 can go back to."""

_parse_alarm = AlarmRequest.FromString
_parse_defragment = DefragmentRequest.FromString
_parse_downgrade = DowngradeRequest.FromString
_parse_hash = HashRequest.FromString
_parse_hash_kv = HashKVRequest.FromString
_parse_move = MoveLeaderRequest.FromString
_parse_snapshot = SnapshotRequest.FromString
_parse_status = StatusRequest.FromString


class Maintenance:
    """What operators ask for."""

    def __init__(self, desk: Desk, alarms: Alarms) -> None:
        self._desk = desk
        self._store = desk.store
        self._runtime = desk.runtime
        self._alarms = alarms
        self._defragmenting: asyncio.Task[None] | None = None

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/etcdserverpb.Maintenance/"
        return {
            path + "Status": Exchange(self.status),
            path + "Alarm": Exchange(self.alarm),
            path + "Defragment": Exchange(self.defragment),
            path + "Hash": Exchange(self.hash),
            path + "HashKV": Exchange(self.hash_kv),
            path + "Snapshot": conversation(self.snapshot, ends_by_itself=True),
            path + "MoveLeader": Exchange(self.move_leader),
            path + "Downgrade": Exchange(self.downgrade),
        }

    def status(self, message: bytes) -> Answer:
        """Say how the server is: all of it durable already.

        A batch stands for an entry of raft's log, and so does each start. The sizes are those that
        the quota is compared with.
        """
        parse(_parse_status, message)
        journal = self._runtime.journal
        index = journal.index
        answer = StatusResponse(
            version=ETCD_VERSION,
            dbSize=max(journal.size_bytes, self._store.used_bytes),
            dbSizeInUse=self._store.used_bytes,
            leader=journal.identity.member_id,
            raftIndex=index,
            raftAppliedIndex=index,
            raftTerm=journal.identity.term,
            errors=[str(alarm) for alarm in self._alarms.raised],
        )
        return self._desk.durable_header() + answer.SerializeToString(), 0

    # Alarms.

    def alarm(self, message: bytes) -> Answer | Later:
        """List alarms, raise one, or switch one off."""
        request = parse(_parse_alarm, message)
        check_kind(request.alarm)
        match request.action:
            case AlarmRequest.GET:
                return self._listed(self._alarms.of_kind(request.alarm))
            case AlarmRequest.ACTIVATE | AlarmRequest.DEACTIVATE:
                return self._change_alarm(request)
        raise invalid(f"there is no action {request.action}, only GET, ACTIVATE and DEACTIVATE")

    async def _change_alarm(self, request: AlarmRequest) -> Answer:
        alarm = Alarm(request.memberID, request.alarm)
        if request.action == AlarmRequest.ACTIVATE:
            return self._listed(await self._alarms.activate(alarm))
        return self._listed(await self._alarms.deactivate(alarm))

    def _listed(self, alarms: list[Alarm]) -> Answer:
        answer = AlarmResponse(alarms=[message_of(alarm) for alarm in alarms])
        return self._desk.durable_header() + answer.SerializeToString(), 0

    # Hashes.

    def hash(self, message: bytes) -> Later:
        """Hash everything that is there now: keys, leases, and how far history is compacted."""
        parse(_parse_hash, message)
        return self._hash()

    async def _hash(self) -> Answer:
        await self._desk.enter()
        store = self._store
        revision, position = store.revision, store.position
        compacted = store.keyspace.compacted
        listed = store.leases.listed(hash_lease)
        slicer = Slicer(store.leases.monotonic)
        leases = [each for _, each in await slicer.run(listed, self._runtime.reader.load)]
        keys = await self._runtime.reader.at(revision, hash_keys(store.keyspace, revision))
        answer = HashResponse(hash=hash_together(keys, leases, compacted))
        return self._desk.header(revision) + answer.SerializeToString(), position

    def hash_kv(self, message: bytes) -> Later:
        """Hash the keys as they were at a revision; 0 is now."""
        return self._hash_kv(parse(_parse_hash_kv, message).revision)

    async def _hash_kv(self, wanted: int) -> Answer:
        await self._desk.enter()
        store = self._store
        revision, position = store.revision, store.position
        compacted = store.keyspace.compacted
        if 0 < wanted <= store.durable_revision and compacted == store.durable_compacted:
            revision, position = store.durable_revision, 0
        try:
            if wanted > store.revision:
                raise FutureRevision(wanted, store.revision)
            if 0 < wanted <= compacted:  # etcd does not hash at the compacted revision itself
                raise Compacted(wanted, compacted)
            keys = NO_KEYS
            if wanted >= 0:
                at = wanted or revision
                keys = await self._runtime.reader.at(at, hash_keys(store.keyspace, at))
        except LeaseholdError as error:
            self._desk.refuse(error)
        answer = HashKVResponse(hash=keys, compact_revision=compacted)
        return self._desk.header(revision) + answer.SerializeToString(), position

    # Files.

    async def snapshot(self, call: Conversation) -> None:
        """Send a backup."""
        parse(_parse_snapshot, await only_message(call))
        await send_snapshot(self._runtime.backups, call)

    def defragment(self, message: bytes) -> Later:
        """Give free space back to the disk."""
        parse(_parse_defragment, message)
        return self._defragment()

    async def _defragment(self) -> Answer:
        """Wait for the defragmentation that is under way, or begin one; it goes on in any case."""
        if self._defragmenting is None:
            loop = asyncio.get_running_loop()
            self._defragmenting = loop.create_task(self._shrink())
            self._defragmenting.add_done_callback(self._defragmented)
        await asyncio.shield(self._defragmenting)
        return b"", 0  # in etcd, too, this answer has no header

    async def _shrink(self) -> None:
        while await self._desk.do(Journal.shrink):
            continue

    def _defragmented(self, task: asyncio.Task[None]) -> None:
        self._defragmenting = None
        if not task.cancelled():
            task.exception()  # whoever waits is told

    # What only a cluster can do.

    def move_leader(self, message: bytes) -> Answer:
        """Refuse to make anybody else the leader; the one who is may become it."""
        target = parse(_parse_move, message).targetID
        if target != self._runtime.journal.identity.member_id:
            raise RpcError(Status.FAILED_PRECONDITION, "etcdserver: bad leader transferee")
        return b"", 0

    def downgrade(self, message: bytes) -> Answer:
        """Say what etcd would say of a downgrade; none is ever begun."""
        request = parse(_parse_downgrade, message)
        if request.action == DowngradeRequest.CANCEL:
            raise RpcError(Status.FAILED_PRECONDITION, "etcdserver: no inflight downgrade job")
        if request.action not in (DowngradeRequest.VALIDATE, DowngradeRequest.ENABLE):
            raise RpcError(Status.UNKNOWN, "etcdserver: unknown method")
        version = _VERSION.fullmatch(request.version)
        if version is None:
            raise invalid("wrong downgrade target version format")
        if (int(version[1]), int(version[2])) != _BEFORE:
            raise invalid("invalid downgrade target version")
        if request.action == DowngradeRequest.ENABLE:
            raise RpcError(Status.UNAVAILABLE, "etcdserver: request timed out")
        answer = DowngradeResponse(version=CLUSTER_VERSION)
        return self._desk.durable_header() + answer.SerializeToString(), 0
