"""The keys of files, and their values.

All keys are below `leasehold/files/`; ids have 32 hexadecimal digits.

    config                      the configuration (`FilesConfig`)
    record/<id>                 a file or a directory (`FileRecord`)
    dirent/<parent id>/<name>   the id of an entry of a directory
    block/<id>/<number>         a block of a file (`Block`)
    holder/<holder id>          a holder, with its soft limit; under its lease, whose TTL is the
                                hard limit
    open/<holder id>/<id>       a file that a holder has open: its path at that time
    recovery/<id>               a file that is being recovered (`Recovery`)
    worker/<id>                 the process that recovers it, under the lease of its session
    repair/<id>/<number>        a block with too few replicas, or too many pieces
    scanned                     the stores of the last complete look for such blocks
    trash/<id>                  an unlinked file or directory (`Trash`)
    trash/<id>/<number>-<tag>  replaced objects of a block (`Trash`)

Only the keys of holders and workers are under leases: a file outlives its writer.
"""

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from leasehold.errors import FileDamaged
from leasehold.files.state import (
    Block,
    FileRecord,
    FilesConfig,
    FileState,
    Replica,
    StoreEntry,
)
from leasehold.wire import files_pb2 as pb

FILES: Final = b"leasehold/files/"
CONFIG: Final = FILES + b"config"
RECORDS: Final = FILES + b"record/"
DIRENTS: Final = FILES + b"dirent/"
BLOCKS: Final = FILES + b"block/"
HOLDERS: Final = FILES + b"holder/"
OPEN_FILES: Final = FILES + b"open/"
RECOVERIES: Final = FILES + b"recovery/"
WORKERS: Final = FILES + b"worker/"
REPAIRS: Final = FILES + b"repair/"
SCANNED: Final = FILES + b"scanned"
TRASH: Final = FILES + b"trash/"


def record_key(file_id: str) -> bytes:
    """Return the key of a file or directory."""
    return RECORDS + file_id.encode()


def entries_of(directory: str) -> bytes:
    """Return the prefix of the entries of a directory."""
    return DIRENTS + directory.encode() + b"/"


def dirent_key(directory: str, name: str) -> bytes:
    """Return the key of an entry of a directory."""
    return entries_of(directory) + name.encode()


def blocks_of(file_id: str) -> bytes:
    """Return the prefix of the blocks of a file."""
    return BLOCKS + file_id.encode() + b"/"


def block_key(file_id: str, number: int) -> bytes:
    """Return the key of a block."""
    return blocks_of(file_id) + b"%08d" % number


def holder_key(holder: str) -> bytes:
    """Return the key of a holder."""
    return HOLDERS + holder.encode()


def holder_value(soft_limit_s: float) -> bytes:
    """Return the value of a holder's key: the soft limit that the holder renews by, in ms."""
    return b"%d" % round(soft_limit_s * 1000)


def soft_limit_of(value: bytes) -> float:
    """Return the soft limit of a holder, in seconds; 0 if its key has another value."""
    return int(value) / 1000 if value.isdigit() else 0.0


def opened_by(holder: str) -> bytes:
    """Return the prefix of the files that a holder has open."""
    return OPEN_FILES + holder.encode() + b"/"


def open_key(holder: str, file_id: str) -> bytes:
    """Return the key of a file that a holder has open."""
    return opened_by(holder) + file_id.encode()


def recovery_key(file_id: str) -> bytes:
    """Return the key of a recovery."""
    return RECOVERIES + file_id.encode()


def worker_key(file_id: str) -> bytes:
    """Return the key of the process that recovers a file."""
    return WORKERS + file_id.encode()


def repairs_of(file_id: str) -> bytes:
    """Return the prefix of the blocks of a file to be repaired."""
    return REPAIRS + file_id.encode() + b"/"


def repair_key(file_id: str, number: int) -> bytes:
    """Return the key of a block to be repaired."""
    return repairs_of(file_id) + b"%08d" % number


def trash_key(file_id: str) -> bytes:
    """Return the key of an unlinked file or directory."""
    return TRASH + file_id.encode()


def trash_of_block(file_id: str, number: int) -> bytes:
    """Return the prefix of replaced objects of a block."""
    return TRASH + f"{file_id}/{number:08d}-".encode()


def block_trash_key(file_id: str, number: int, tag: str) -> bytes:
    """Return the key of replaced objects of a block; each replacement has a tag of its own."""
    return trash_of_block(file_id, number) + tag.encode()


def id_in(key: bytes, prefix: bytes) -> str:
    """Return the rest of a key after a prefix, as text."""
    return key[len(prefix) :].decode(errors="replace")


@dataclass(frozen=True)
class Recovery:
    """A recovery that is not finished."""

    path: str = ""
    attempts: int = 0
    last_error: str = ""
    begun_ms: int = 0
    retry_ms: int = 0
    """When it is tried again, after a failure."""
    is_locked: bool = False
    """Whether the last attempt failed because no reachable replica has the flushed bytes."""


@dataclass(frozen=True)
class Trash:
    """A trash entry: unlinked or replaced data."""

    since_ms: int = 0
    """When a collector has seen it first, by the clock of its server; 0 if none has."""
    is_directory: bool = False
    replicas: tuple[Replica, ...] = ()
    length: int = 0
    """The bytes of each replica, or of the file."""


class UndecodableValue(FileDamaged):
    """The value of a key below `leasehold/files/` cannot be decoded."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(path, why)

    def __str__(self) -> str:
        return super().__str__() if self.path else self.why


# Values. A value that cannot be decoded raises `UndecodableValue`, with the path if it is given.


def encode_record(record: FileRecord) -> bytes:
    """Return the value of a file or directory."""
    return pb.FileRecord(
        parent=record.parent,
        name=record.name,
        is_directory=record.is_directory,
        state=record.state,
        holder=record.holder,
        holder_revision=record.holder_revision,
        stamp=record.stamp,
        blocks=record.blocks,
        length=record.length,
        pipeline=record.pipeline,
        created_ms=record.created_ms,
        modified_ms=record.modified_ms,
        op=record.op,
        rename_op=record.rename_op,
    ).SerializeToString()


def decode_record(value: bytes, path: str = "") -> FileRecord:
    """Return a file or directory."""
    try:
        found = pb.FileRecord.FromString(value)
        return FileRecord(
            found.parent,
            found.name,
            found.is_directory,
            FileState(found.state),
            found.holder,
            found.holder_revision,
            found.stamp,
            found.blocks,
            found.length,
            tuple(found.pipeline),
            found.created_ms,
            found.modified_ms,
            found.op,
            found.rename_op,
        )
    except (DecodeError, ValueError) as error:
        why = f"the record of a file cannot be decoded: {error}"
        raise UndecodableValue(why, path) from None


def encode_block(block: Block) -> bytes:
    """Return the value of a block."""
    return pb.FileBlock(
        stamp=block.stamp,
        length=block.length,
        checksums=block.checksums,
        replicas=map(_replica_message, block.replicas),
        op=block.op,
    ).SerializeToString()


def decode_block(value: bytes, path: str = "") -> Block:
    """Return a block."""
    try:
        found = pb.FileBlock.FromString(value)
    except DecodeError as error:
        raise UndecodableValue(f"a block of a file cannot be decoded: {error}", path) from None
    replicas = tuple(map(_replica_of, found.replicas))
    return Block(found.stamp, found.length, found.checksums, replicas, found.op)


def _replica_message(replica: Replica) -> pb.BlockReplica:
    return pb.BlockReplica(store=replica.store, name=replica.name, pieces=replica.pieces)


def _replica_of(message: pb.BlockReplica) -> Replica:
    return Replica(message.store, message.name, tuple(message.pieces))


def encode_recovery(recovery: Recovery) -> bytes:
    """Return the value of a recovery."""
    return pb.FileRecovery(
        path=recovery.path,
        attempts=recovery.attempts,
        last_error=recovery.last_error,
        begun_ms=recovery.begun_ms,
        retry_ms=recovery.retry_ms,
        is_locked=recovery.is_locked,
    ).SerializeToString()


def decode_recovery(value: bytes) -> Recovery:
    """Return a recovery."""
    try:
        found = pb.FileRecovery.FromString(value)
    except DecodeError as error:
        raise UndecodableValue(f"a recovery cannot be decoded: {error}") from None
    return Recovery(
        found.path,
        found.attempts,
        found.last_error,
        found.begun_ms,
        found.retry_ms,
        found.is_locked,
    )


def encode_trash(trash: Trash) -> bytes:
    """Return the value of something unlinked or replaced."""
    return pb.FileTrash(
        since_ms=trash.since_ms,
        is_directory=trash.is_directory,
        replicas=map(_replica_message, trash.replicas),
        length=trash.length,
    ).SerializeToString()


def decode_trash(value: bytes) -> Trash:
    """Return something unlinked or replaced."""
    try:
        found = pb.FileTrash.FromString(value)
    except DecodeError as error:
        raise UndecodableValue(f"value of a trash entry cannot be decoded: {error}") from None
    replicas = tuple(map(_replica_of, found.replicas))
    return Trash(found.since_ms, found.is_directory, replicas, found.length)


def encode_config(config: FilesConfig) -> bytes:
    """Return the value of the configuration."""
    return pb.FilesConfig(
        stores=[
            pb.FileStore(id=store.id, url=store.url, is_leaving=store.is_leaving)
            for store in config.stores
        ],
        replicas=config.replicas,
        min_replicas=config.min_replicas,
        soft_limit_ms=round(config.soft_limit_s * 1000),
        hard_limit_ms=round(config.hard_limit_s * 1000),
        keep_ms=round(config.keep_s * 1000),
        block_bytes=config.block_bytes,
        keyspace=config.keyspace,
    ).SerializeToString()


def decode_config(value: bytes) -> FilesConfig:
    """Return the configuration. Raises `FileDamaged` if it cannot be decoded."""
    try:
        found = pb.FilesConfig.FromString(value)
        return FilesConfig(
            tuple(StoreEntry(store.id, store.url, store.is_leaving) for store in found.stores),
            found.replicas,
            found.min_replicas,
            found.soft_limit_ms / 1000,
            found.hard_limit_ms / 1000,
            found.keep_ms / 1000,
            found.block_bytes,
            found.keyspace,
        )
    except (DecodeError, ValueError) as error:
        # Not a ValueError: `SharedValue` would return the default, which has no stores, and write
        # it with the next change.
        why = f"the configuration of files cannot be decoded: {error}"
        raise FileDamaged(CONFIG.decode(), why) from None
