"""etcd's Maintenance service: status, alarms, hashes, snapshots, defragmentation.

Hashes show whether two stores have the same content. The values are not those of etcd: other bytes
are hashed. Equal content gives equal hashes, before and after a restart, a compaction or a backup.

A snapshot is a backup as a stream, which `etcdctl snapshot save` writes to a file. The stream is
what `leasehold backup` would have written: a journal, and the SHA-256 of all its bytes. It is first
copied to a file beside the journal, because a copy that is made during writes may change until its
last page is there; then it is sent, as fast as the client reads. A client that is too slow gets an
error: the copy takes room on the disk of the journal.
"""

import asyncio
import hashlib
import re
from collections.abc import Generator
from itertools import islice
from struct import Struct
from typing import Final
from zlib import crc32

from leasehold.errors import Compacted, FutureRevision, LeaseholdError, Status
from leasehold.grpc.coroutine_handlers import Conversation, conversation, only_message
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Answer, DeferredAnswer, Exchange, Method
from leasehold.journal.journal import Journal
from leasehold.keyspace.keyspace import FROM_KEY, Item, Keyspace
from leasehold.keyspace.ranges import Wanted, look_up, together
from leasehold.server.etcd.alarms import Alarms, EtcdAlarm, check_kind, message_of
from leasehold.server.etcd.service_context import ServiceContext, invalid
from leasehold.store.backup import Backups
from leasehold.store.backup_file import UnlinkedFile
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.slices import Slicer
from leasehold.wire.codec import varint
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
    SnapshotResponse,
    StatusRequest,
    StatusResponse,
)

"""The version of etcd that this server corresponds to."""

_VERSION: Final = re.compile(
    r"([0-9]{1,18})\.([0-9]{1,18})(?:\.[0-9]{1,18})?(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
)
_BEFORE: Final = (3, 4)
"""The one minor version that etcd 3.5 can be downgraded to."""

_parse_alarm = AlarmRequest.FromString
_parse_defragment = DefragmentRequest.FromString
_parse_downgrade = DowngradeRequest.FromString
_parse_hash = HashRequest.FromString
_parse_hash_kv = HashKVRequest.FromString
_parse_move = MoveLeaderRequest.FromString
_parse_snapshot = SnapshotRequest.FromString
_parse_status = StatusRequest.FromString

KEYS_PER_SLICE: Final = 64
"""Keys hashed between two pauses; their old values are in memory together."""

PAUSE_BYTES: Final = 256 * 1024
"""Bytes hashed between two pauses: values may be long."""

NO_KEYS: Final = crc32(b"keys")
_LEASE: Final = Struct("<qd")

Hashing = Generator[Wanted, list[Item], int]

BLOB_BYTES: Final = 64 * 1024
"""Of one message; a client in Python accepts up to 4 MiB by default."""

READ_BYTES: Final = 16 * BLOB_BYTES
"""Read and hashed together, in a thread: about the memory of a snapshot."""


PATIENCE_S: Final = 60
"""How long a client may read nothing at all."""

MIN_BYTES_PER_S: Final = 256 * 1024
"""The minimum rate of a client that reads continuously: 2 GiB in somewhat over two hours."""

ETCD_VERSION: Final = "3.5.1"
CLUSTER_VERSION: Final = "3.5.0"


class MaintenanceService:
    """Operations for operators."""

    def __init__(self, context: ServiceContext, alarms: Alarms) -> None:
        self._context = context
        self._store = context.store
        self._runtime = context.runtime
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
        """Return the server's status, of durable state only.

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
        return self._context.durable_header() + answer.SerializeToString(), 0

    # Alarms.

    def alarm(self, message: bytes) -> Answer | DeferredAnswer:
        """List alarms, raise one, or clear one."""
        request = parse(_parse_alarm, message)
        check_kind(request.alarm)
        match request.action:
            case AlarmRequest.GET:
                return self._listed(self._alarms.of_kind(request.alarm))
            case AlarmRequest.ACTIVATE | AlarmRequest.DEACTIVATE:
                return self._change_alarm(request)
        raise invalid(f"unknown action {request.action}; use GET, ACTIVATE or DEACTIVATE")

    async def _change_alarm(self, request: AlarmRequest) -> Answer:
        alarm = EtcdAlarm(request.memberID, request.alarm)
        if request.action == AlarmRequest.ACTIVATE:
            return self._listed(await self._alarms.activate(alarm))
        return self._listed(await self._alarms.deactivate(alarm))

    def _listed(self, alarms: list[EtcdAlarm]) -> Answer:
        answer = AlarmResponse(alarms=[message_of(alarm) for alarm in alarms])
        return self._context.durable_header() + answer.SerializeToString(), 0

    # Hashes.

    def hash(self, message: bytes) -> DeferredAnswer:
        """Hash the current content: keys, leases, and the compacted revision."""
        parse(_parse_hash, message)
        return self._hash()

    async def _hash(self) -> Answer:
        await self._context.enter()
        store = self._store
        revision, position = store.revision, store.position
        compacted = store.keyspace.compacted
        listed = store.leases.listed(hash_lease)
        slicer = Slicer(store.leases.monotonic)
        leases = [each for _, each in await slicer.run(listed, self._runtime.reader.load)]
        keys = await self._runtime.reader.at(revision, hash_keys(store.keyspace, revision))
        answer = HashResponse(hash=hash_together(keys, leases, compacted))
        return self._context.header(revision) + answer.SerializeToString(), position

    def hash_kv(self, message: bytes) -> DeferredAnswer:
        """Hash the keys as they were at a revision; 0 is now."""
        return self._hash_kv(parse(_parse_hash_kv, message).revision)

    async def _hash_kv(self, wanted: int) -> Answer:
        await self._context.enter()
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
            self._context.refuse(error)
        answer = HashKVResponse(hash=keys, compact_revision=compacted)
        return self._context.header(revision) + answer.SerializeToString(), position

    # Files.

    async def snapshot(self, call: Conversation) -> None:
        """Send a backup."""
        parse(_parse_snapshot, await only_message(call))
        await send_snapshot(self._runtime.backups, call)

    def defragment(self, message: bytes) -> DeferredAnswer:
        """Release free space to the file system."""
        parse(_parse_defragment, message)
        return self._defragment()

    async def _defragment(self) -> Answer:
        """Wait for the running defragmentation, or start one; it continues without a waiter."""
        if self._defragmenting is None:
            loop = asyncio.get_running_loop()
            self._defragmenting = loop.create_task(self._shrink())
            self._defragmenting.add_done_callback(self._defragmented)
        await asyncio.shield(self._defragmenting)
        return b"", 0  # as in etcd, this answer has no header

    async def _shrink(self) -> None:
        while await self._context.do(Journal.shrink):
            continue

    def _defragmented(self, task: asyncio.Task[None]) -> None:
        self._defragmenting = None
        if not task.cancelled():
            task.exception()  # the waiters get it

    # Operations that need a cluster.

    def move_leader(self, message: bytes) -> Answer:
        """Refuse another member as leader; accept the current leader."""
        target = parse(_parse_move, message).targetID
        if target != self._runtime.journal.identity.member_id:
            raise RpcError(Status.FAILED_PRECONDITION, "etcdserver: bad leader transferee")
        return b"", 0

    def downgrade(self, message: bytes) -> Answer:
        """Answer as etcd would to a downgrade; none is ever started."""
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
        return self._context.durable_header() + answer.SerializeToString(), 0


def hash_keys(keyspace: Keyspace, revision: int) -> Hashing:
    """Hash the keys as they were at a revision, with all their fields, in slices."""
    found = NO_KEYS
    hashed_bytes = 0
    last: bytes | None = None
    while names := list(islice(keyspace.all_names(b"\0", FROM_KEY, last), KEYS_PER_SLICE)):
        last = names[-1]
        here, wanted = look_up(keyspace, names, revision)
        for encoded, *_ in together(here, (yield wanted)):
            found = crc32(encoded, crc32(varint(len(encoded)), found))
            hashed_bytes += len(encoded)
            if hashed_bytes >= PAUSE_BYTES:
                hashed_bytes = 0
                yield []
    return found


def hash_lease(record: LeaseRecord, _left_s: float) -> int:
    """Hash the fields of a lease that do not change with time."""
    return crc32(_LEASE.pack(record.id, record.ttl_s))


def hash_together(keys: int, leases: list[int], compacted: int) -> int:
    """Combine the hashes of keys and leases, independent of the order of the leases."""
    return crc32(b"%d %d %d" % (keys, sum(leases), compacted))


async def send_snapshot(backups: Backups, call: Conversation) -> None:
    """Make a snapshot, and send it. The copy is deleted, also if the client or server goes away."""
    async with backups.snapshot() as file:
        digest, allowance = hashlib.sha256(), Allowance()
        total, sent = file.size_bytes, 0
        while sent < total:
            piece = await asyncio.to_thread(_read, file, sent, digest)
            for start in range(0, len(piece), BLOB_BYTES):
                blob = piece[start : start + BLOB_BYTES]
                sent += len(blob)
                answer = SnapshotResponse(remaining_bytes=total - sent, blob=blob)
                await _send(call, answer, allowance)
        await _send(call, SnapshotResponse(blob=digest.digest()), allowance)


def _read(file: UnlinkedFile, at: int, digest: "hashlib._Hash") -> bytes:
    piece = file.read(at, READ_BYTES)
    assert piece, "the file was truncated"
    digest.update(piece)
    return piece


class Allowance:
    """The time that a client may take: an initial period, extended by the amount that it reads."""

    def __init__(self) -> None:
        self.left_s = float(PATIENCE_S)

    def took(self, size_bytes: int, elapsed_s: float) -> None:
        """Count the bytes that a client has read, and the time spent waiting for it."""
        left_s = self.left_s - elapsed_s + size_bytes / MIN_BYTES_PER_S
        self.left_s = max(0.0, min(left_s, PATIENCE_S))


async def _send(call: Conversation, answer: SnapshotResponse, allowance: Allowance) -> None:
    message = answer.SerializeToString()
    now = asyncio.get_running_loop().time
    began = now()
    try:
        async with asyncio.timeout(allowance.left_s):
            await call.send(message)
    except TimeoutError:
        raise RpcError(
            Status.DEADLINE_EXCEEDED,
            f"snapshot aborted: the client is {PATIENCE_S:g} s behind the minimum rate of "
            f"{MIN_BYTES_PER_S:,} bytes per second; use `leasehold backup` on the server's machine",
        ) from None
    allowance.took(len(message), now() - began)
