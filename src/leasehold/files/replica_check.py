"""Checks of single replicas, and a walk over all files, for `fsck` and the repairer."""

from collections.abc import AsyncGenerator
from enum import Enum, auto
from typing import NamedTuple

from leasehold.engine.interface import prefix_end
from leasehold.engine.values import KeyValue
from leasehold.errors import FileNotFound
from leasehold.files.file_keys import entries_of, record_key
from leasehold.files.namespace import READS, Link, Namespace, link_of
from leasehold.files.replica_io import StoreFailed, Stores
from leasehold.files.state import MAX_CHAIN, Block, Checksums, Replica, path_parts
from leasehold.keyspace.operations import Range


class ReplicaHealth(Enum):
    """The condition of a replica in its store."""

    GOOD = auto()
    MISSING = auto()
    """The store does not have it, or not all of its pieces."""
    SHORT = auto()
    """It does not have all flushed bytes."""
    DAMAGED = auto()
    """Its bytes do not have the checksums of the block."""
    UNREACHABLE = auto()
    """The store does not answer."""


class CheckedReplica(NamedTuple):
    """A replica, and its condition."""

    replica: Replica
    health: ReplicaHealth
    why: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether it must be replaced."""
        return self.health not in (ReplicaHealth.GOOD, ReplicaHealth.UNREACHABLE)


async def check_replica(
    stores: Stores, block: Block, replica: Replica, *, deep: bool
) -> CheckedReplica:
    """Compare the sizes of the objects of a replica, and with `deep` the checksums of its bytes."""

    def checked(health: ReplicaHealth, why: str) -> CheckedReplica:
        return CheckedReplica(replica, health, stores.described(replica.store, why))

    sizes = replica.pieces or (block.length,)
    try:
        found = await stores.sizes(replica)
        for name, size, expected in zip(replica.objects(), found, sizes, strict=True):
            if size is None:
                return checked(ReplicaHealth.MISSING, f"{name} is missing")
            if size < expected:
                why = f"{name} has {size} bytes, expected {expected}"
                return checked(ReplicaHealth.SHORT, why)
        if sum(sizes) < block.length:
            why = f"its pieces have {sum(sizes)} bytes, expected {block.length}"
            return checked(ReplicaHealth.SHORT, why)
        if deep:
            checks = Checksums()
            await stores.checksums(replica, checks, block.length)
            if checks.value() != block.checksums:
                why = f"{replica.name} does not match its checksum"
                return checked(ReplicaHealth.DAMAGED, why)
    except StoreFailed as error:
        return CheckedReplica(replica, ReplicaHealth.UNREACHABLE, str(error))
    return CheckedReplica(replica, ReplicaHealth.GOOD)


class VisitedEntry(NamedTuple):
    """An entry of a directory, and its record."""

    path: str
    link: Link
    record: KeyValue | None


async def walk_tree(namespace: Namespace, under: str) -> AsyncGenerator[VisitedEntry]:
    """Yield a file, or all files and directories below a directory.

    They are read in pages, each as it is when it is read: a file that is renamed meanwhile may be
    missed, or yielded twice. Raises `FileNotFound`.
    """
    walk = await namespace.walk(path_parts(under))
    if walk.missing:
        raise FileNotFound(under)
    links = walk.chain.links
    if links and not links[-1].is_directory:
        found = await namespace.range(record_key(walk.chain.id))
        yield VisitedEntry(walk.chain.path, links[-1], next(iter(found.pairs), None))
        return
    prefix = entries_of(walk.chain.id)
    waiting = [(walk.chain.id, walk.chain.path, prefix)]
    while waiting:
        directory, path, after = waiting.pop()
        prefix = entries_of(directory)
        page = await namespace.range(after, prefix_end(prefix), limit=READS)
        if page.more:
            waiting.append((directory, path, page.pairs[-1].key + b"\0"))
        entries = [
            link_of(directory, pair.key[len(prefix) :].decode(errors="replace"), pair.value)
            for pair in page.pairs
        ]
        if not entries:
            continue
        records = await namespace.txn([], [Range(record_key(link.id)) for link in entries])
        below: list[tuple[str, str, bytes]] = []
        for link, result in zip(entries, records.results, strict=True):
            at = f"{path}/{link.name}" if path else link.name
            yield VisitedEntry(at, link, next(iter(result.pairs), None))
            if link.is_directory and at.count("/") < MAX_CHAIN:  # deeper ones are a cycle
                below.append((link.id, at, entries_of(link.id)))
        waiting += reversed(below)
