"""Opening files for writing: create and append, and what happens if another writer has the file.

An open file belongs to its holder until the soft limit has passed since the holder's last renewal.
After that, a client that wants the file recovers it, and then opens it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Final, NamedTuple, TypeVar

from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue
from leasehold.errors import (
    FileAlreadyOpen,
    FileExists,
    FileNotFound,
    LeaseExpired,
    LeaseholdError,
    RecoveryInProgress,
    TooBusy,
    TooFewReplicas,
    UnknownLease,
    is_definite,
)
from leasehold.files.file_keys import (
    CONFIG,
    decode_record,
    dirent_key,
    encode_record,
    holder_key,
    open_key,
    record_key,
    soft_limit_of,
)
from leasehold.files.holder import FileHolder, LiveHolder
from leasehold.files.known_config import KnownConfig, is_current
from leasehold.files.namespace import (
    CALL_S,
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
from leasehold.files.recovery import Recoverer, wait_ms
from leasehold.files.replica_io import Stores
from leasehold.files.state import MAX_DEPTH, FileRecord, FilesConfig, FileState, file_parts
from leasehold.files.tree_changes import TreeChanges
from leasehold.keyspace.operations import Compare, Put, Range, Step

T = TypeVar("T")

RECOVER_WAIT_S: Final = 10.0
"""How long opening a file waits for its recovery."""

WHOLE_SECONDS: Final = 1.0
"""On an engine with this unit of TTLs, the remaining time may be too short by as much."""


class Replace(Enum):
    """Which existing files a create replaces."""

    NONE = auto()
    CLOSED = auto()
    """As the mode "wb" does."""
    ANY = auto()
    """Also one that is open: its writer loses it."""


class Opener:
    """Opens files for one holder."""

    def __init__(
        self,
        namespace: Namespace,
        tree: TreeChanges,
        holder: FileHolder,
        stores: Stores,
        recoverer: Recoverer,
        config: KnownConfig,
    ) -> None:
        self._ns = namespace
        self._tree = tree
        self._holder = holder
        self._stores = stores
        self._recoverer = recoverer
        self._config = config

    def _pipeline(self, path: str, config: FilesConfig) -> tuple[str, ...]:
        """Return the stores for the next block."""
        if not config.stores:
            raise TooFewReplicas(
                path, "no replica store is configured: use `leasehold files stores --add URL`"
            )
        self._stores.configure(config)
        chosen = tuple(self._stores.choose(config))
        if len(chosen) < config.needed:
            others = [each.id for each in config.stores if each.id not in chosen]
            raise TooFewReplicas(
                path,
                f"not enough replica stores: {config.needed} needed, {len(chosen)} usable"
                f"{self._stores.failures(others)}",
            )
        return chosen

    # Creating.

    async def create(self, live: LiveHolder, path: str, which: Replace) -> FoundFile:
        """Create a file, with its directories."""
        parts = file_parts(path, MAX_DEPTH)
        now_ms = self._ns.now_ms
        for _ in range(MAX_CONFLICTS):
            config = await self._config()
            pipeline = self._pipeline(path, config)
            file_id = self._ns.new_id()  # never that of a file that was created and deleted since
            parent = await self._tree.make_directories(parts[:-1])
            link = Link(parent.id, parts[-1], file_id, is_directory=False)
            record = FileRecord(
                parent.id,
                parts[-1],
                state=FileState.OPEN,
                holder=live.id,
                holder_revision=live.revision,
                stamp=1,
                pipeline=pipeline,
                created_ms=now_ms,
                modified_ms=now_ms,
                op=file_id,
            )
            replaced = await self._replaced(path, which)
            done = await self._create(live, parent, link, record, replaced, config)
            if done is not None:
                if replaced is not None:
                    self._holder.unlinked(replaced.id, "the file was replaced")
                return done
        raise conflicted(repr(path), "changed by other clients")

    async def _replaced(self, path: str, which: Replace) -> FoundFile | None:
        """Return the file that is to be replaced, if there is one."""
        try:
            found = await self._ns.find_file(path)
            while which != Replace.ANY and found.record.state != FileState.CLOSED:
                await self._take_over(found)
                found = await self._ns.find_file(path)
        except FileNotFound:  # also if it was deleted meanwhile
            return None
        if which == Replace.NONE:
            raise FileExists(path)
        return found

    async def _create(
        self,
        live: LiveHolder,
        parent: Chain,
        link: Link,
        record: FileRecord,
        replaced: FoundFile | None,
        config: FilesConfig,
    ) -> FoundFile | None:
        """Create a file, or replace one; None to look again."""
        place = dirent_key(link.parent, link.name)
        compares: list[Compare] = [live.is_current(), is_current(config), *parent.compares()]
        steps: list[Step] = [
            Put(record_key(link.id), encode_record(record)),
            Put(place, link.value),
            Put(open_key(live.id, link.id), Chain((*parent.links, link)).path.encode()),
        ]
        if replaced is None:
            compares.append(absent(place))
        else:
            compares += [
                entry_is(replaced.chain.links[-1]),
                *self._tree.replaced_compares(replaced),
            ]
            steps += self._tree.unlink_steps(replaced)
        try:
            async with time_limit(CALL_S, self._ns.engine):
                reads = [Range(holder_key(live.id)), Range(CONFIG)]
                done = await self._ns.engine.txn(compares, steps, reads)
        except (LeaseholdError, OSError) as error:
            if is_definite(error):
                raise
            # It must not be executed later, when the file may have been deleted again.
            try:
                if not await self._holder.settle(live):
                    raise _HolderGone from error
                return await self._created(live, link.id)
            except BaseException:
                self._holder.abandon(link.id)
                raise
        if done.succeeded:
            chain = Chain((*parent.links, link))
            return FoundFile(chain, record, done.revision, done.revision)
        _check_holder(live, done.results[0].pairs, self._holder)
        self._config.found(done.results[1].pairs)
        return None

    async def _created(self, live: LiveHolder, file_id: str) -> FoundFile | None:
        """Return a file whose create had no answer; None if it does not exist."""
        found = await self._ns.find_id(file_id)
        if found is None:
            return None
        record = found.record
        if record.state == FileState.RECOVERING:
            raise RecoveryInProgress(found.chain.path)
        if record.op != file_id or record.holder != live.id:
            raise LeaseExpired(found.chain.path, "the file was taken over while it was created")
        return found

    # Appending.

    async def append(self, live: LiveHolder, path: str) -> FoundFile:
        """Open an existing file at its end."""
        file_parts(path)
        await self._tree.settled()
        op = self._ns.new_id()
        for _ in range(MAX_CONFLICTS):
            config = await self._config()
            pipeline = self._pipeline(path, config)
            found = await self._ns.find_file(path)
            if found.record.state != FileState.CLOSED:
                await self._take_over(found)
                continue
            record = replace(
                found.record,
                state=FileState.OPEN,
                holder=live.id,
                holder_revision=live.revision,
                stamp=found.record.stamp + 1,
                pipeline=pipeline,
                op=op,
            )
            key = record_key(found.id)
            compares = [
                live.is_current(),
                is_current(config),
                unchanged(key, found.revision),
                *found.chain.compares(),
            ]
            steps = [
                Put(key, encode_record(record)),
                Put(open_key(live.id, found.id), found.chain.path.encode()),
            ]
            reads = [Range(holder_key(live.id)), Range(key), Range(CONFIG)]
            try:
                with self._holder.reopening(found.id):
                    done = await self._ns.txn(compares, steps, reads)
            except BaseException:
                self._holder.abandon(found.id)
                raise
            if done.succeeded:
                return found._replace(record=record, revision=done.revision)
            written = done.results[1].pairs
            if written and decode_record(written[0].value).op == op:  # the answer was lost
                revision = written[0].mod_revision
                return found._replace(record=record, revision=revision)
            if written and written[0].mod_revision == found.revision:
                # Another condition has failed, such as that of a directory that was renamed. A late
                # request could still open the file, once that directory has its name again.
                self._holder.abandon(found.id)
            _check_holder(live, done.results[0].pairs, self._holder)
            self._config.found(done.results[2].pairs)
        raise conflicted(repr(path), "changed by other clients")

    # Contention.

    async def _take_over(self, found: FoundFile) -> None:
        """Close a file whose holder has not renewed within the soft limit.

        Raises `FileAlreadyOpen` if it has, and `RecoveryInProgress` if the file is not closed yet:
        a recovery that has failed is not begun again before its pause is over. The caller then
        looks at the file again.
        """
        record, path = found.record, found.chain.path
        if record.state == FileState.OPEN and not await self.is_past_soft_limit(record):
            is_own = record.holder == self._holder.id
            raise FileAlreadyOpen(path, record.holder, is_own)
        progress = await self._ns.recovery(found.id)
        if pause_ms := wait_ms(progress, self._ns.now_ms):
            raise RecoveryInProgress(
                path,
                f"the last attempt to recover it has failed: {progress.last_error}; it is tried "
                f"again in {pause_ms / 1000:.0f} s or later",
            )
        if await self._recoverer.recover(found, wait_s=RECOVER_WAIT_S):
            return
        now = await self._ns.find_id(found.id)
        if now is not None and (
            now.record.state == FileState.RECOVERING or now.revision == found.revision
        ):
            raise RecoveryInProgress(path, is_own=self._recoverer.is_under_way(found.id))
        # Otherwise it was closed, opened again or deleted meanwhile: the caller looks again.

    async def is_past_soft_limit(self, record: FileRecord) -> bool:
        """Return whether another client may take over an open file.

        A holder renews by the limit that was configured when it began, if that is longer.
        """
        if record.holder == self._holder.id:
            return False
        state = await holder_state(self._ns, record.holder, record.holder_revision)
        limit_s = (await self._config()).soft_limit_s
        return state is None or state.elapsed_s > max(limit_s, state.soft_limit_s)


class HolderState(NamedTuple):
    """A holder whose lease has not ended."""

    elapsed_s: float
    """How long ago it has renewed, at least."""
    soft_limit_s: float


async def holder_state(namespace: Namespace, holder: str, revision: int = 0) -> HolderState | None:
    """Return the state of a holder; None if its lease has ended.

    `revision` is the create revision of its key, if that is known.
    """
    found = await namespace.range(holder_key(holder))
    if not found.pairs or (revision and found.pairs[0].create_revision != revision):
        return None
    lease, engine = found.pairs[0].lease, namespace.engine
    try:
        info = await namespace.answered(lambda: engine.time_to_live(lease))
    except UnknownLease:
        return None
    unit_s = WHOLE_SECONDS if engine.limits.ttl_unit >= WHOLE_SECONDS else 0.0
    elapsed_s = max(0.0, info.ttl - info.remaining - unit_s)
    return HolderState(elapsed_s, soft_limit_of(found.pairs[0].value))


class _HolderGone(Exception):
    """The holder's lease has ended while a file was being opened."""


def _check_holder(live: LiveHolder, pairs: Sequence[KeyValue], holder: FileHolder) -> None:
    """Take over a rewritten key of the holder; raise if it is gone."""
    if not pairs or pairs[0].create_revision != live.revision:
        holder.gone(live)
        raise _HolderGone
    live.epoch = pairs[0].mod_revision


async def with_holder(
    holder: FileHolder, open_file: Callable[[LiveHolder], Awaitable[T]], path: str
) -> T:
    """Open a file; with a new holder if the lease of the first one turns out to have ended."""
    for _ in range(2):
        async with holder.opening() as live:
            try:
                return await open_file(live)
            except _HolderGone:
                continue
    raise TooBusy(f"{path!r} was not opened: the lease of this client ended twice meanwhile")
