"""The namespace of files: paths, chains of entries, records, listings.

An entry of a directory leads to an id, and a record knows its directory: renaming a directory is
one transaction, however much is below it. A *chain* is the entries from the root to a file. Each
change compares the whole chain, so nothing is created or flushed in a tree that was unlinked.

A transaction whose answer was lost is repeated. Each one compares what it replaces, and writes the
id of the operation, so a repeated one fails, finds its own id, and has succeeded.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, TypeVar

from leasehold.basics.backoff import Backoff, exponential
from leasehold.clock import Clock
from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue, RangeResult, TxnResult
from leasehold.errors import (
    Compacted,
    FileNotFound,
    IsADirectory,
    NotADirectory,
    TooBusy,
)
from leasehold.files.file_keys import (
    Recovery,
    UndecodableValue,
    block_key,
    decode_block,
    decode_record,
    decode_recovery,
    dirent_key,
    entries_of,
    record_key,
    recovery_key,
)
from leasehold.files.state import (
    MAX_CHAIN,
    ROOT,
    FileRecord,
    FileState,
    path_parts,
)
from leasehold.keyspace.operations import Compare, Range, Relation, Step, Target
from leasehold.sessions.lease_keeper import retry_until_answered

T = TypeVar("T")


def conflicted(name: str, change: str) -> TooBusy:
    """Return the error of an operation that came second `MAX_CONFLICTS` times."""
    return TooBusy(f"{name} was {change} during each of {MAX_CONFLICTS} attempts")


CALL_S: Final = 10.0
"""The timeout of one call to the engine."""

ANSWER_S: Final = 30.0
"""How long a call without an answer is repeated."""

RETRIES: Final = exponential(0.05, 2.0)
"""The waits between these attempts."""

MAX_CONFLICTS: Final = 100
"""How often an operation is repeated because another one came first."""

MAX_LINKS: Final = 120
"""Entries that a transaction compares: etcd allows 128 conditions."""

PAGE: Final = 1_000
"""Entries of a directory that are read together."""

READS: Final = 100
"""Records that one transaction reads."""


class Link(NamedTuple):
    """An entry of a directory."""

    parent: str
    name: str
    id: str
    is_directory: bool

    @property
    def value(self) -> bytes:
        """The value of its key."""
        return (b"d" if self.is_directory else b"f") + self.id.encode()


class Chain(NamedTuple):
    """The entries from the root to a file or directory."""

    links: tuple[Link, ...]

    @property
    def id(self) -> str:
        """The id of what it leads to."""
        return self.links[-1].id if self.links else ROOT

    @property
    def path(self) -> str:
        """The path."""
        return "/".join(link.name for link in self.links)

    def compares(self) -> list[Compare]:
        """Return the conditions that all entries are as they were.

        A rename can make a path longer than `MAX_DEPTH`. If it has too many entries for one
        transaction, those next to the file are compared; the others were read just before.
        """
        return [entry_is(link) for link in self.links[-MAX_LINKS:]]


class Walk(NamedTuple):
    """How far a path exists."""

    chain: Chain
    missing: tuple[str, ...]
    revision: int


class FoundFile(NamedTuple):
    """A file or directory: where it is, its record, and the revision of that."""

    chain: Chain
    record: FileRecord
    revision: int
    """The mod revision of the record; 0 for the root."""
    read_at: int
    """The revision at which everything was read."""

    @property
    def id(self) -> str:
        """The id of the file."""
        return self.chain.id


@dataclass(frozen=True)
class FileInfo:
    """A file or directory, as it is listed."""

    path: str
    id: str
    is_directory: bool
    size_bytes: int
    """The flushed bytes."""
    state: FileState
    holder: str
    """The holder that has it open; otherwise empty."""
    created_ms: int
    modified_ms: int

    @property
    def is_open(self) -> bool:
        """Whether a writer has it open, or it is being recovered."""
        return self.state != FileState.CLOSED


def entry_is(link: Link) -> Compare:
    """Return the condition that an entry is as it was."""
    return Compare(dirent_key(link.parent, link.name), Target.VALUE, Relation.EQUAL, link.value)


def absent(key: bytes, end: bytes = b"") -> Compare:
    """Return the condition that a key, or every key of a range, does not exist."""
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0, end)


def exists(key: bytes) -> Compare:
    """Return the condition that a key exists."""
    return Compare(key, Target.CREATE_REVISION, Relation.GREATER, 0)


def unchanged(key: bytes, revision: int) -> Compare:
    """Return the condition that a key was written last at a revision; 0 if it did not exist."""
    return Compare(key, Target.MOD_REVISION, Relation.EQUAL, revision)


def link_of(parent: str, name: str, value: bytes) -> Link:
    """Return an entry of a directory, from the value of its key."""
    return Link(parent, name, value[1:].decode(errors="replace"), value[:1] == b"d")


class Namespace:
    """Paths, directories and records on an engine."""

    def __init__(self, engine: Engine, clock: Clock, random: Random) -> None:
        self.engine = engine
        self.clock = clock
        self.random = random

    def new_id(self) -> str:
        """Draw an id of a file, or of an operation."""
        return f"{self.random.getrandbits(128):032x}"

    def new_tag(self) -> str:
        """Draw the tag of an object name."""
        return f"{self.random.getrandbits(64):016x}"

    @property
    def now_ms(self) -> int:
        """The wall time."""
        return round(self.clock.wall() * 1000)

    async def answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that can be repeated, until it is answered or `ANSWER_S` have passed."""

        async def attempt() -> T:
            async with time_limit(CALL_S, self.engine):
                return await call()

        async with time_limit(ANSWER_S, self.engine):
            return await retry_until_answered(attempt, Backoff(RETRIES, self.random))

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Step], failure: Sequence[Step] = ()
    ) -> TxnResult:
        """Execute a transaction that can be repeated."""
        return await self.answered(lambda: self.engine.txn(compares, success, failure))

    async def range(
        self, key: bytes, end: bytes = b"", *, revision: int = 0, limit: int = 0
    ) -> RangeResult:
        """Read keys."""
        return await self.answered(
            lambda: self.engine.range(key, end, revision=revision, limit=limit)
        )

    async def pages(self, prefix: bytes, limit: int = PAGE) -> AsyncGenerator[Sequence[KeyValue]]:
        """Yield the keys with a prefix in pages, each as it is when it is read."""
        after, end = prefix, prefix_end(prefix)
        while True:
            found = await self.range(after, end, limit=limit)
            if found.pairs:
                yield found.pairs
            if not found.more:
                return
            after = found.pairs[-1].key + b"\0"

    # Reading.

    async def consistent(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read several keys at one revision, again if that is compacted meanwhile."""
        for _ in range(MAX_CONFLICTS):
            try:
                return await read()
            except Compacted:
                continue
        raise conflicted("the history", "compacted")

    async def walk(self, parts: Sequence[str]) -> Walk:
        """Follow a path as far as it exists, at one revision."""
        return await self.consistent(lambda: self._walk(tuple(parts)))

    async def _walk(self, parts: tuple[str, ...]) -> Walk:
        links: list[Link] = []
        parent, revision = ROOT, 0
        for depth, name in enumerate(parts):
            found = await self.range(dirent_key(parent, name), revision=revision)
            revision = found.revision
            if not found.pairs:
                return Walk(Chain(tuple(links)), parts[depth:], revision)
            link = link_of(parent, name, found.pairs[0].value)
            links.append(link)
            if not link.is_directory and depth + 1 < len(parts):
                raise NotADirectory("/".join(parts[: depth + 1]))
            parent = link.id
        return Walk(Chain(tuple(links)), (), revision)

    async def find(self, path: str) -> FoundFile:
        """Return the file or directory with a path. Raises `FileNotFound`, `NotADirectory`."""
        parts = path_parts(path)
        for _ in range(MAX_CONFLICTS):
            walk = await self.walk(parts)
            if walk.missing:
                raise FileNotFound(path)
            if not parts:
                return FoundFile(walk.chain, FileRecord("", "", True), 0, walk.revision)
            key = record_key(walk.chain.id)
            done = await self.txn(walk.chain.compares(), [Range(key)])
            if done.succeeded and done.results[0].pairs:
                pair = done.results[0].pairs[0]
                record = decode_record(pair.value, path)
                return FoundFile(walk.chain, record, pair.mod_revision, done.revision)
        raise conflicted(repr(path), "renamed by other clients")

    async def find_file(self, path: str) -> FoundFile:
        """Return a file; raises `IsADirectory` for a directory."""
        found = await self.find(path)
        if found.record.is_directory:
            raise IsADirectory(path)
        return found

    async def recovery(self, file_id: str) -> Recovery:
        """Return what is recorded of the recovery of a file; an empty one if that is nothing."""
        found = await self.range(recovery_key(file_id))
        try:
            return decode_recovery(found.pairs[0].value) if found.pairs else Recovery()
        except UndecodableValue as error:
            return Recovery(last_error=str(error))

    async def chain_of(self, file_id: str) -> Chain | None:
        """Return where a file or directory is now; None if it was unlinked."""
        return await self.consistent(lambda: self._chain_of(file_id))

    async def _chain_of(self, file_id: str) -> Chain | None:
        links: list[Link] = []
        revision, each = 0, file_id
        while each != ROOT:
            found = await self.range(record_key(each), revision=revision)
            revision = found.revision
            if not found.pairs:
                return None
            record = decode_record(found.pairs[0].value)
            link = Link(record.parent, record.name, each, record.is_directory)
            entry = await self.range(dirent_key(link.parent, link.name), revision=revision)
            if not entry.pairs or entry.pairs[0].value != link.value:
                return None
            links.append(link)
            if len(links) > MAX_CHAIN:
                raise UndecodableValue(
                    f"file {file_id} has more than {MAX_CHAIN:,} directories above it"
                )
            each = record.parent
        return Chain(tuple(reversed(links)))

    async def find_id(self, file_id: str) -> FoundFile | None:
        """Return the file or directory with an id; None if it was unlinked."""
        for _ in range(MAX_CONFLICTS):
            chain = await self.chain_of(file_id)
            if chain is None:
                return None
            done = await self.txn(chain.compares(), [Range(record_key(file_id))])
            if done.succeeded and done.results[0].pairs:
                pair = done.results[0].pairs[0]
                record = decode_record(pair.value, chain.path)
                return FoundFile(chain, record, pair.mod_revision, done.revision)
        raise conflicted(f"file {file_id}", "renamed by other clients")

    async def entries(self, path: str) -> AsyncGenerator[FileInfo]:
        """Yield the entries of a directory in the order of their names; a file as itself.

        All are of one revision. If that is compacted meanwhile, the rest is of a later one, and
        each name is still yielded at most once. Raises `FileNotFound`, then also if the directory
        was deleted, and `TooBusy` after `MAX_CONFLICTS` compactions in a row.
        """
        last = ""
        conflicts = 0
        while conflicts < MAX_CONFLICTS:
            try:
                async for info in self._entries(path, last):
                    yield info
                    last, conflicts = info.path.rpartition("/")[2], 0
            except Compacted:
                conflicts += 1
            else:
                return
        raise conflicted(f"the history of {path!r}", "compacted")

    async def _entries(self, path: str, last: str) -> AsyncGenerator[FileInfo]:
        """Yield the entries of a directory after a name, at one revision."""
        found = await self.find(path)
        if not found.record.is_directory:
            yield await self._info(found.chain, found.record, found.read_at)
            return
        prefix, at = entries_of(found.id), found.read_at
        after = dirent_key(found.id, last) + b"\0" if last else prefix
        while True:
            page = await self.range(after, prefix_end(prefix), revision=at, limit=PAGE)
            links = [
                link_of(found.id, pair.key[len(prefix) :].decode(), pair.value)
                for pair in page.pairs
            ]
            for info in await self._infos(found.chain, links, at):
                yield info
            if not page.more:
                return
            after = page.pairs[-1].key + b"\0"

    async def _infos(self, parent: Chain, links: Sequence[Link], revision: int) -> list[FileInfo]:
        infos: list[FileInfo] = []
        for first in range(0, len(links), READS):
            some = links[first : first + READS]
            reads = [Range(record_key(link.id), revision=revision) for link in some]
            done = await self.txn([], reads)
            for link, result in zip(some, done.results, strict=True):
                if not result.pairs:
                    continue  # only in a keyspace that another program has changed
                chain = Chain((*parent.links, link))
                record = decode_record(result.pairs[0].value, chain.path)
                infos.append(await self._info(chain, record, revision))
        return infos

    async def stat(self, path: str) -> FileInfo:
        """Return what is listed of a file. Raises `FileNotFound`."""

        async def read() -> FileInfo:
            found = await self.find(path)
            return await self._info(found.chain, found.record, found.read_at)

        return await self.consistent(read)

    async def _info(self, chain: Chain, record: FileRecord, revision: int) -> FileInfo:
        size_bytes = record.length
        if record.state != FileState.CLOSED:
            current = await self.range(block_key(chain.id, record.blocks), revision=revision)
            if current.pairs:
                size_bytes += decode_block(current.pairs[0].value, chain.path).length
        return FileInfo(
            chain.path,
            chain.id,
            record.is_directory,
            size_bytes,
            record.state,
            "" if record.state == FileState.CLOSED else record.holder,
            record.created_ms,
            record.modified_ms,
        )
