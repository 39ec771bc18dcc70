"""`StoreChanges`: finds the blocks that need repair because the replica stores were changed.

After each change of the configuration all blocks are looked at, in passes of limited work, and
those with too few replicas in the stores that are left are recorded in `repair/`. The key `scanned`
has the revision of the configuration at the last look: while it is the same, nothing is to be done.

A store that is being removed is read until no block needs it. It leaves the configuration when a
look has found no block and no writer that uses it.

A look need not wait until all processes have read the change. Each transaction that seals a block,
chooses stores for a writer, or publishes the copies of a recovery or a repair compares the revision
of the configuration. So after the change no block and no writer begins to use a store that is being
removed, and a block that is sealed with too few replicas is recorded in the same transaction.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from leasehold.engine.interface import prefix_end
from leasehold.engine.values import KeyValue
from leasehold.files.file_keys import (
    BLOCKS,
    CONFIG,
    OPEN_FILES,
    REPAIRS,
    SCANNED,
    UndecodableValue,
    decode_block,
    decode_config,
    decode_record,
    encode_config,
    id_in,
    record_key,
    repair_key,
)
from leasehold.files.namespace import READS, Namespace, unchanged
from leasehold.files.state import FilesConfig
from leasehold.keyspace.operations import Put, Range, Step

logger = logging.getLogger(__name__)

BLOCKS_PER_PASS: Final = 500
"""Blocks that one pass looks at after a change of the stores."""

PAUSE_S: Final = 60.0
"""The time between two looks at all blocks while a store is being removed."""

LOOK_S: Final = 3_600.0
"""The same while recorded blocks are still being copied."""


class _Look:
    """A look at all blocks, after a change of the stores."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        """That of the configuration: after two changes it may have its first value again."""
        self.begun_at = -LOOK_S
        self.after = b""
        """The next block; empty between two looks."""
        self.is_used = False
        """Whether a block or a writer uses a store that is being removed."""
        self.is_done = False


class StoreChanges:
    """Finds the blocks that need repair after a change of the stores, in one process."""

    def __init__(self, namespace: Namespace) -> None:
        self._ns = namespace
        self._look = _Look(0)

    async def make_pass(self) -> bool:
        """Record some of the blocks that need repair; return whether there are more to look at."""
        found, now = await self._ns.range(CONFIG), self._ns.clock.monotonic()
        if not found.pairs:
            return False
        config, revision = decode_config(found.pairs[0].value), found.pairs[0].mod_revision
        if revision != self._look.revision:
            self._look = _Look(revision)
        look = self._look
        if not look.after and not await self._begin(look, config, now):
            return False
        end = prefix_end(BLOCKS)
        page = await self._ns.range(look.after, end, limit=BLOCKS_PER_PASS)
        await self._record_blocks(look, config, page.pairs)
        look.after = page.pairs[-1].key + b"\0" if page.more else b""
        if not page.more:
            await self._end(look, config)
        return page.more

    async def _begin(self, look: _Look, config: FilesConfig, now: float) -> bool:
        """Begin a look at all blocks, unless it is not needed or not yet time."""
        if look.is_done or now < look.begun_at + PAUSE_S:
            return False
        end = prefix_end(REPAIRS)
        if now < look.begun_at + LOOK_S and (await self._ns.range(REPAIRS, end, limit=1)).pairs:
            return False
        if not config.leaving:
            found = await self._ns.range(SCANNED)
            if found.pairs and found.pairs[0].value == b"%d" % look.revision:
                look.is_done = True
                return False
        # First the writers, then the blocks: blocks sealed in between are found there.
        look.is_used = await self._is_written(config.leaving)
        look.begun_at, look.after = now, BLOCKS
        return True

    async def _is_written(self, stores: frozenset[str]) -> bool:
        """Return whether the current block of an open file is, or will be, in these stores."""
        if not stores:
            return False
        async for pairs in self._ns.pages(OPEN_FILES, READS):
            ids = (id_in(pair.key, OPEN_FILES).rpartition("/")[2] for pair in pairs)
            done = await self._ns.txn([], [Range(record_key(file_id)) for file_id in ids])
            for result in done.results:
                for pair in result.pairs:
                    with suppress(UndecodableValue):  # `fsck` names it
                        if not stores.isdisjoint(decode_record(pair.value).pipeline):
                            return True
        return False

    async def _record_blocks(
        self, look: _Look, config: FilesConfig, pairs: Sequence[KeyValue]
    ) -> None:
        staying, steps = config.staying, list[Step]()
        for pair in pairs:
            file_id, _, number = id_in(pair.key, BLOCKS).partition("/")
            try:
                used = {each.store for each in decode_block(pair.value).replicas}
            except UndecodableValue:
                continue  # `fsck` names it
            look.is_used |= not used.isdisjoint(config.leaving)
            is_short = len(used & staying) < config.wanted
            if number.isdecimal() and (is_short or not used <= staying):
                steps.append(Put(repair_key(file_id, int(number)), b""))
        for first in range(0, len(steps), READS):
            await self._ns.txn([], steps[first : first + READS])

    async def _end(self, look: _Look, config: FilesConfig) -> None:
        if not config.leaving:
            await self._ns.txn([], [Put(SCANNED, b"%d" % look.revision)])
            look.is_done = True
        elif not look.is_used:
            await self._remove_stores(look)

    async def _remove_stores(self, look: _Look) -> None:
        """Remove the stores that no block uses any more from the configuration."""
        found = await self._ns.range(CONFIG)
        if not found.pairs or found.pairs[0].mod_revision != look.revision:
            return
        config = decode_config(found.pairs[0].value)
        staying = tuple(store for store in config.stores if not store.is_leaving)
        value = encode_config(replace(config, stores=staying))
        done = await self._ns.txn([unchanged(CONFIG, look.revision)], [Put(CONFIG, value)])
        if done.succeeded:
            for store in set(config.stores) - set(staying):
                logger.info("store %s was removed: all its blocks are in other stores", store.url)
