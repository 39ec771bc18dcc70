"""Changes of the tree of files: directories, renames, deletes, each in one transaction.

A delete or rename that ends without an answer, such as by a timeout, must not be executed later,
when there may be other files below the same directory. It compares the revision of the record, so
the record is rewritten as it is: after that, no copy of the request can be executed.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from leasehold.engine.interface import prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import TxnResult
from leasehold.errors import (
    ConnectionLost,
    DirectoryNotEmpty,
    FileExists,
    FileNotFound,
    IsADirectory,
    LeaseholdError,
    NotADirectory,
    is_definite,
)
from leasehold.files.file_keys import (
    Trash,
    decode_record,
    dirent_key,
    encode_record,
    encode_trash,
    entries_of,
    open_key,
    record_key,
    recovery_key,
    trash_key,
    worker_key,
)
from leasehold.files.namespace import (
    ANSWER_S,
    MAX_CONFLICTS,
    Chain,
    FoundFile,
    Link,
    Namespace,
    absent,
    conflicted,
    entry_is,
    unchanged,
)
from leasehold.files.state import MAX_DEPTH, FileRecord, FileState, file_parts
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Step

MAX_COMPARES: Final = 120
"""Conditions of one transaction: etcd allows 128."""

NEW_DIRECTORIES: Final = 40
"""Directories that one transaction creates."""

PREVENT_S: Final = 600.0
"""How long a client tries to prevent the late execution of a change without an answer."""

logger = logging.getLogger(__name__)


class TreeChanges:
    """Changes directories and entries."""

    def __init__(self, namespace: Namespace) -> None:
        self._ns = namespace
        self._preventing: set[asyncio.Task[None]] = set()
        """Each is of a call that has ended; no further change is made before they are done."""

    async def make_directories(self, parts: Sequence[str]) -> Chain:
        """Create the directories of a path that are missing; `NotADirectory` if one is a file."""
        await self.settled()
        for _ in range(MAX_CONFLICTS):
            walk = await self._ns.walk(parts)
            if not walk.missing:
                if walk.chain.links and not walk.chain.links[-1].is_directory:
                    raise NotADirectory(walk.chain.path)
                return walk.chain
            await self._make_directories(walk.chain, walk.missing[:NEW_DIRECTORIES])
        raise conflicted(repr("/".join(parts)), "changed by other clients")

    async def _make_directories(self, chain: Chain, names: Sequence[str]) -> None:
        op, now_ms = self._ns.new_id(), self._ns.now_ms
        links: list[Link] = []
        steps: list[Step] = []
        parent = chain.id
        for name in names:
            link = Link(parent, name, self._ns.new_id(), is_directory=True)
            record = FileRecord(
                parent, name, is_directory=True, created_ms=now_ms, modified_ms=now_ms, op=op
            )
            steps.append(Put(record_key(link.id), encode_record(record)))
            steps.append(Put(dirent_key(parent, name), link.value))
            links.append(link)
            parent = link.id
        compares = [
            *chain.compares(),
            absent(dirent_key(chain.id, names[0])),
            # A request that is executed late must not bring back what was renamed or deleted.
            absent(record_key(links[0].id)),
            absent(trash_key(links[0].id)),
        ]
        await self._ns.txn(compares, steps)  # if it failed another one came first: look again

    def unlink_steps(self, found: FoundFile) -> list[Step]:
        """Return the steps that unlink a file or directory, except for its entry.

        The record of a file goes: every later step of its writer or its recovery fails. That of a
        directory stays until the collector has unlinked what is below it.
        """
        record, file_id = found.record, found.id
        trash = Trash(is_directory=record.is_directory, length=record.length)
        steps: list[Step] = [Put(trash_key(file_id), encode_trash(trash))]
        if not record.is_directory:
            steps.append(Delete(record_key(file_id)))
        if record.state == FileState.OPEN:
            steps.append(Delete(open_key(record.holder, file_id)))
        elif record.state == FileState.RECOVERING:
            steps += [Delete(recovery_key(file_id)), Delete(worker_key(file_id))]
        return steps

    def replaced_compares(self, found: FoundFile) -> list[Compare]:
        """Return the conditions under which `unlink_steps` are right."""
        compares = [unchanged(record_key(found.id), found.revision)]
        if found.record.is_directory:
            prefix = entries_of(found.id)
            compares.append(absent(prefix, prefix_end(prefix)))
        return compares

    async def delete(self, path: str, *, recursive: bool) -> str:
        """Delete a file or directory; return its id."""
        file_parts(path)
        await self.settled()
        for _ in range(MAX_CONFLICTS):
            found = await self._ns.find(path)
            compares = found.chain.compares()
            if found.record.is_directory and not recursive:
                if await self._has_entries(found.id):
                    raise DirectoryNotEmpty(path)
                compares += self.replaced_compares(found)
            else:
                compares.append(unchanged(record_key(found.id), found.revision))
            link = found.chain.links[-1]
            steps = [Delete(dirent_key(link.parent, link.name)), *self.unlink_steps(found)]
            done, _ = await self._change(found, compares, steps)
            # It may have been executed before its answer was lost. Then the path leads
            # to another file.
            if done.succeeded or await self._ns.chain_of(found.id) is None:
                return found.id
        raise conflicted(repr(path), "changed by other clients")

    async def _has_entries(self, directory: str) -> bool:
        prefix = entries_of(directory)
        return bool((await self._ns.range(prefix, prefix_end(prefix), limit=1)).pairs)

    async def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """Rename a file or directory, in one transaction."""
        source_parts, target_parts = file_parts(source), file_parts(target, MAX_DEPTH)
        op = self._ns.new_id()
        await self.settled()
        for _ in range(MAX_CONFLICTS):
            parent = await self._ns.walk(target_parts[:-1])
            if parent.missing:
                raise FileNotFound("/".join(target_parts[:-1]))
            if parent.chain.links and not parent.chain.links[-1].is_directory:
                raise NotADirectory(parent.chain.path)
            place = dirent_key(parent.chain.id, target_parts[-1])
            found = await self._ns.find(source)
            if source_parts == target_parts:
                return
            if found.id in {link.id for link in parent.chain.links}:
                raise ValueError(f"{source!r} cannot be moved into itself: {target!r}")
            compares, steps = await self._replaced_by_rename(found, target, place, overwrite)
            link = found.chain.links[-1]
            record = replace(
                found.record, parent=parent.chain.id, name=target_parts[-1], rename_op=op
            )
            moved = link._replace(parent=record.parent, name=record.name)
            compares += [
                *_merged(found.chain.compares(), parent.chain.compares()),
                unchanged(record_key(found.id), found.revision),
            ]
            if len(compares) > MAX_COMPARES:
                raise ValueError(
                    f"paths of a rename are too deep: {source!r} and {target!r} need "
                    f"{len(compares)} conditions, at most {MAX_COMPARES} are allowed"
                )
            steps += [
                Delete(dirent_key(link.parent, link.name)),
                Put(place, moved.value),
                Put(record_key(found.id), encode_record(record)),
            ]
            done, is_repeated = await self._change(found, compares, steps)
            if done.succeeded:
                return
            written = done.results[0].pairs
            last_op = decode_record(written[0].value).rename_op if written else ""
            if last_op == op:  # its answer was lost
                return
            if is_repeated and (not written or last_op != found.record.rename_op):
                raise ConnectionLost(
                    f"the answer to renaming {source!r} was lost, and it was renamed or deleted by "
                    f"others since; it may have been renamed to {target!r} before that"
                )
        raise conflicted(repr(source), "changed by other clients")

    async def _replaced_by_rename(
        self, found: FoundFile, target: str, place: bytes, overwrite: bool
    ) -> tuple[list[Compare], list[Step]]:
        """Return the conditions and steps for what is at the target of a rename."""
        try:
            replaced = await self._ns.find(target)
        except FileNotFound:
            return [absent(place)], []
        if not overwrite:
            raise FileExists(target)
        if replaced.record.is_directory:
            if not found.record.is_directory:
                raise IsADirectory(target)
            if await self._has_entries(replaced.id):
                raise DirectoryNotEmpty(target, "the directory is not empty")
        elif found.record.is_directory:
            raise NotADirectory(target)
        compares = [entry_is(replaced.chain.links[-1]), *self.replaced_compares(replaced)]
        return compares, self.unlink_steps(replaced)

    # Changes without an answer.

    async def _change(
        self, found: FoundFile, compares: Sequence[Compare], steps: Sequence[Step]
    ) -> tuple[TxnResult, bool]:
        """Execute a transaction that compares the record of a file; if it fails, read that.

        Also return whether it was sent more than once: then an earlier copy may have been executed.

        Neither the transaction nor a copy of it is executed after this call has ended.
        """
        attempts = 0
        reads = [Range(record_key(found.id))]

        async def attempt() -> TxnResult:
            nonlocal attempts
            attempts += 1
            return await self._ns.engine.txn(compares, steps, reads)

        try:
            done = await self._ns.answered(attempt)
            if not done.succeeded and attempts > 1:
                await self._rewrite(found)
        except BaseException as error:
            if not is_definite(error) or attempts > 1:
                task = asyncio.get_running_loop().create_task(self._prevent(found))
                self._preventing.add(task)
                task.add_done_callback(self._preventing.discard)
            raise
        return done, attempts > 1

    async def _rewrite(self, found: FoundFile) -> None:
        """Write the record of a file as it is, unless it was changed."""
        key = record_key(found.id)
        await self._ns.txn(
            [unchanged(key, found.revision)], [Put(key, encode_record(found.record))]
        )

    async def _prevent(self, found: FoundFile) -> None:
        """Prevent the execution of a change that had no answer, as soon as the engine answers."""
        try:
            async with asyncio.timeout(PREVENT_S):
                while True:
                    try:
                        return await self._rewrite(found)
                    except (LeaseholdError, OSError) as error:  # also a timeout
                        if is_definite(error):
                            raise
        except (LeaseholdError, OSError) as error:
            logger.warning(
                "%r may still be renamed or deleted by a call that has failed: %s",
                found.chain.path,
                error,
            )

    async def settled(self) -> None:
        """Wait until no delete or rename that has failed can be executed any more."""
        if self._preventing:
            async with time_limit(ANSWER_S, self._ns.engine):
                await asyncio.wait(self._preventing)

    async def close(self, within_s: float) -> None:
        """Wait for `settled`, but not longer than this."""
        tasks = list(self._preventing)
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _merged(*lists: Iterable[Compare]) -> list[Compare]:
    """Return conditions on different keys, each once."""
    return list({compare.key: compare for each in lists for compare in each}.values())
