"""Files, blocks and replicas, and the rules that need no I/O: names, checksums, recovery. Pure.

Invariants:

- The *stamp* of a file only rises: with each writer, each recovery, and each loss of a store. It is
  part of the names of the objects that a writer or a recovery makes, so an object name is never
  used twice, and what a former writer still writes is in objects that no block names.
- A block's length and checksums are those of its flushed bytes. Every replica of the block has at
  least these bytes; bytes after them are not part of the file.
- The blocks before the last one of an open file, and all blocks of a closed one, are *sealed*:
  their bytes never change, only the places where they are stored.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

ROOT: Final = "0" * 32
"""The id of the root directory, which has neither a record nor an entry."""

CHUNK_BYTES: Final = 1024 * 1024
"""The bytes under one checksum."""

MAX_STORES: Final = 100
"""Replica stores of a keyspace."""

MAX_NAME_BYTES: Final = 255
"""The size of a name in a path, in UTF-8."""

MAX_CHAIN: Final = 1_000
"""Names in a path. Renames can make one longer than `MAX_DEPTH`."""

MAX_DEPTH: Final = 100
"""Names in a path where something is created."""

SOFT_LIMIT_S: Final = 60.0
"""The soft limit by default: how long a holder without renewals has exclusive access."""

MIN_SOFT_LIMIT_S: Final = 0.001
"""The shortest soft limit: it is stored in milliseconds."""

MIN_HARD_LIMIT_S: Final = 1.0
"""The shortest hard limit: TTLs of etcd are whole seconds."""

HARD_LIMIT_S: Final = 1200.0
"""The hard limit by default: when the files of a holder without renewals are released."""

KEEP_S: Final = 3600.0
BLOCK_BYTES: Final = 64 * 1024 * 1024
MAX_BLOCK_BYTES: Final = 16 * BLOCK_BYTES
"""The checksums of a larger block would make its key too long."""

REPLICAS: Final = 3

LATE_S: Final = 600.0
"""How long after its call a transaction without an answer may still be executed."""

_OBJECT: Final = re.compile(
    r"([0-9a-f]{2})/(\1[0-9a-f]{30})-(\d{1,9})-(\d{1,18})(?:-([0-9a-f]{1,32}))?(?:\.(\d{1,9}))?"
)


class FileState(IntEnum):
    """The state of a file; the numbers are those in its record."""

    OPEN = 1
    RECOVERING = 2
    CLOSED = 3


@dataclass(frozen=True)
class FileRecord:
    """A file or a directory."""

    parent: str
    name: str
    is_directory: bool = False
    state: FileState = FileState.CLOSED
    holder: str = ""
    """The id of the holder that has it open, or had it when a recovery began."""
    holder_revision: int = 0
    """The create revision of the holder's key."""
    stamp: int = 0
    blocks: int = 0
    """Sealed blocks. The current block of an open file has this number."""
    length: int = 0
    """The bytes in the sealed blocks."""
    pipeline: tuple[str, ...] = ()
    """The stores of the current block."""
    created_ms: int = 0
    modified_ms: int = 0
    op: str = ""
    """The operation that has written this: an operation that is repeated finds its own id."""
    rename_op: str = ""
    """The rename that has moved it last; apart from `op`, which is that of writer or recovery."""

    def closed(self, now_ms: int, op: str) -> "FileRecord":
        """Return the record of the closed file, with the same blocks."""
        return replace(
            self,
            state=FileState.CLOSED,
            holder="",
            holder_revision=0,
            pipeline=(),
            modified_ms=now_ms,
            op=op,
        )


@dataclass(frozen=True)
class Replica:
    """One copy of a block, in a store."""

    store: str
    name: str
    """The name of the object, or what the names of its pieces begin with."""
    pieces: tuple[int, ...] = ()
    """The lengths of the pieces, in stores that cannot append; otherwise none."""

    def objects(self) -> list[str]:
        """Return the names of its objects."""
        if not self.pieces:
            return [self.name]
        return [piece_name(self.name, number) for number in range(len(self.pieces))]


@dataclass(frozen=True)
class Block:
    """The flushed bytes of a block, and where they are."""

    stamp: int
    length: int = 0
    checksums: bytes = b""
    replicas: tuple[Replica, ...] = ()
    op: str = ""


@dataclass(frozen=True)
class StoreEntry:
    """A replica store, as it is configured."""

    id: str
    url: str
    is_leaving: bool = False
    """Whether it is being removed. It is read, and its blocks are copied to other stores."""


def store_id(url: str) -> str:
    """Return the id of a store: the same if it is removed and added again."""
    return hashlib.blake2b(url.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True)
class FilesConfig:
    """The configuration of all files in a keyspace."""

    stores: tuple[StoreEntry, ...] = ()
    replicas: int = REPLICAS
    """Copies of each block; fewer if there are fewer stores."""
    min_replicas: int = 0
    """Copies that a flush needs; 0 for a majority."""
    soft_limit_s: float = SOFT_LIMIT_S
    """How long a holder that does not renew has exclusive access."""
    hard_limit_s: float = HARD_LIMIT_S
    """How long a lease lasts after its last renewal."""
    keep_s: float = KEEP_S
    """How long replaced and deleted data stays for readers that have opened it before."""
    block_bytes: int = BLOCK_BYTES
    keyspace: str = ""
    """An id of the keyspace, drawn at random: etcd clusters may have the same cluster id."""
    revision: int = field(default=0, compare=False)
    """The revision at which it was written; 0 if it never was."""

    def __post_init__(self) -> None:
        ids = [store.id for store in self.stores]
        if len(set(ids)) != len(ids):
            raise ValueError(f"store ids must be different, got {', '.join(ids)}")
        for name in ("replicas", "min_replicas", "block_bytes"):
            if type(value := getattr(self, name)) is not int:
                raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        if not 1 <= self.replicas <= MAX_STORES:
            raise ValueError(f"replicas must be from 1 to {MAX_STORES}, got {self.replicas}")
        if not 0 <= self.min_replicas <= self.replicas:
            raise ValueError(
                "min_replicas must be from 0 (a majority) to replicas, "
                f"got {self.min_replicas} and {self.replicas}"
            )
        if self.hard_limit_s < MIN_HARD_LIMIT_S:
            raise ValueError(
                f"hard_limit must be at least {MIN_HARD_LIMIT_S:g} s, got {self.hard_limit_s:g} s"
            )
        if not MIN_SOFT_LIMIT_S <= self.soft_limit_s <= self.hard_limit_s:
            raise ValueError(
                f"soft_limit must be at least {MIN_SOFT_LIMIT_S:g} s and at most hard_limit, "
                f"got {self.soft_limit_s:g} s and {self.hard_limit_s:g} s"
            )
        if self.keep_s < 0:
            raise ValueError(f"keep must be at least 0 s, got {self.keep_s:g} s")
        if not 1 <= self.block_bytes <= MAX_BLOCK_BYTES:
            raise ValueError(
                f"block_bytes must be from 1 to {MAX_BLOCK_BYTES:,}, got {self.block_bytes:,}"
            )

    @property
    def staying(self) -> frozenset[str]:
        """The ids of the stores that are not being removed."""
        return frozenset(store.id for store in self.stores if not store.is_leaving)

    @property
    def leaving(self) -> frozenset[str]:
        """The ids of the stores that are being removed."""
        return frozenset(store.id for store in self.stores if store.is_leaving)

    def stores_after(
        self, added: Iterable[str], removed: AbstractSet[str], dropped: AbstractSet[str]
    ) -> tuple[StoreEntry, ...]:
        """Return the stores after a change, given by URLs. Raises `ValueError` if none is left."""
        entries = {store.url: store for store in self.stores if store.url not in dropped}
        for url in removed - dropped:
            entries[url] = replace(entries[url], is_leaving=True)
        for url in added:
            entry = entries.get(url, StoreEntry(store_id(url), url))
            entries[url] = replace(entry, is_leaving=False)
        if len(entries) > MAX_STORES:
            raise ValueError(f"at most {MAX_STORES} stores are allowed, got {len(entries)}")
        if self.staying and all(entry.is_leaving for entry in entries.values()):
            raise ValueError(
                "the last store cannot be removed: files need one, so add another one first"
            )
        return tuple(entries.values())

    @property
    def wanted(self) -> int:
        """Copies that each block should have, with the present stores."""
        return max(1, min(self.replicas, len(self.staying)))

    @property
    def needed(self) -> int:
        """Copies that a flush needs."""
        return self.min_replicas or self.wanted // 2 + 1

    @property
    def orphan_s(self) -> float:
        """The age from which objects that no key names are deleted."""
        return self.hard_limit_s + self.keep_s + LATE_S


# Paths and names.


def path_parts(path: str) -> tuple[str, ...]:
    """Return the names in a path; none for the root. A slash at either end has no effect."""
    return _parts(path, MAX_CHAIN)


def new_path_parts(path: str) -> tuple[str, ...]:
    """Return the names in a path where something is to be created."""
    return _parts(path, MAX_DEPTH)


def _parts(path: str, limit: int) -> tuple[str, ...]:
    if not isinstance(path, str):
        raise TypeError(f"path must be a str, not {type(path).__name__}")
    stripped = path.strip("/")
    if not stripped:
        return ()
    parts = tuple(stripped.split("/"))
    if len(parts) > limit:
        raise ValueError(f"path must have at most {limit} names, got {len(parts)}")
    for part in parts:
        _check_name(part, path)
    return parts


def _check_name(name: str, path: str) -> None:
    if not name:
        raise ValueError(f"path must not contain an empty name, got {path!r}")
    if name in {".", ".."}:
        raise ValueError(f"path must not contain {name!r}, got {path!r}")
    if "\0" in name:
        raise ValueError(f"path must not contain a NUL character, got {path!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"path must be valid UTF-8, got {path!r}") from None
    if size > MAX_NAME_BYTES:
        raise ValueError(
            f"a name in a path must have at most {MAX_NAME_BYTES} bytes, got {size}: "
            f"{name[:20]!r}..."
        )


def file_parts(path: str, limit: int = MAX_CHAIN) -> tuple[str, ...]:
    """Return the names in a path that is not the root; `MAX_DEPTH` is the limit for a new one."""
    parts = _parts(path, limit)
    if not parts:
        raise ValueError(f"path must not be the root directory, got {path!r}")
    return parts


def object_name(file_id: str, number: int, stamp: int, tag: str = "") -> str:
    """Return the name of a block's object.

    The tag is drawn at random: a keyspace that was restored from a backup uses stamps again.
    """
    name = f"{file_id[:2]}/{file_id}-{number}-{stamp}"
    return f"{name}-{tag}" if tag else name


def piece_name(name: str, number: int) -> str:
    """Return the name of a piece of a block."""
    return f"{name}.{number}"


@dataclass(frozen=True)
class ObjectName:
    """A parsed object name."""

    file: str
    number: int
    stamp: int
    tag: str = ""
    piece: int | None = None


def parse_object(name: str) -> ObjectName | None:
    """Parse an object name; None for one that was not made here."""
    match = _OBJECT.fullmatch(name)
    if match is None:
        return None
    _, file, number, stamp, tag, piece = match.groups()
    return ObjectName(
        file, int(number), int(stamp), tag or "", None if piece is None else int(piece)
    )


# Checksums.


class Checksums:
    """The checksums of a growing sequence of bytes: CRC-32 of each chunk, and of the rest."""

    __slots__ = ("_chunks", "_tail", "length")

    def __init__(self, checksums: bytes = b"", length: int = 0) -> None:
        """Continue those of `length` bytes."""
        whole = length // CHUNK_BYTES
        self._chunks = bytearray(checksums[: whole * 4])
        self._tail = int.from_bytes(checksums[whole * 4 :]) if length % CHUNK_BYTES else 0
        self.length = length

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Add further bytes."""
        view = memoryview(data)
        while view:
            room = CHUNK_BYTES - self.length % CHUNK_BYTES
            part = view[:room]
            self._tail = zlib.crc32(part, self._tail)
            self.length += len(part)
            view = view[room:]
            if not self.length % CHUNK_BYTES:
                self._chunks += self._tail.to_bytes(4)
                self._tail = 0

    def value(self) -> bytes:
        """Return the checksums, as they are stored in a block."""
        if not self.length % CHUNK_BYTES:
            return bytes(self._chunks)
        return bytes(self._chunks) + self._tail.to_bytes(4)

    def copy(self) -> "Checksums":
        """Return an independent copy."""
        return Checksums(self.value(), self.length)


def chunk_checksum(block: Block, number: int) -> int:
    """Return the checksum of a chunk of a block."""
    return int.from_bytes(block.checksums[number * 4 : number * 4 + 4])
