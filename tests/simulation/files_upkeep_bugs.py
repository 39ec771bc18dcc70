"""Bugs of the collector and the repairer to switch on, to see that the simulation finds them."""

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from leasehold.files import (
    collector,
    held_file,
    opening,
    recovery,
    repairer,
    store_changes,
)
from leasehold.files.collector import Collector
from leasehold.files.file_keys import Trash, decode_trash
from leasehold.files.repairer import Repairer
from leasehold.files.replica_check import CheckedReplica, ReplicaHealth
from leasehold.files.replica_io import Stores
from leasehold.files.state import FilesConfig, Replica
from leasehold.files.store_changes import StoreChanges
from leasehold.keyspace.operations import Compare, Relation, Target
from tests.simulation import files_upkeep as upkeep
from tests.simulation.files_bugs import both
from tests.simulation.seeded_bugs import Patch, SeededBug

# The collector.


def _a_block_is_not_looked_up_before_an_orphan_is_deleted() -> Patch:
    original = collector._named
    return patch.object(collector, "_named", lambda _blocks, entries: original((), entries))


def _the_age_of_trash_is_ignored() -> Patch:
    def decode(value: bytes) -> Trash:
        return replace(decode_trash(value), since_ms=1)

    return patch.object(collector, "decode_trash", decode)


def _objects_of_any_stamp_are_orphans() -> Patch:
    return patch.object(collector, "_is_superseded", lambda *_: True)


def _orphans_are_not_looked_for() -> Patch:
    async def find(_self: Collector, _config: FilesConfig) -> bool:
        return False

    return patch.object(Collector, "_find_orphans", find)


def _the_trash_is_not_looked_up_before_an_orphan_is_deleted() -> Patch:
    original = collector._named
    return patch.object(collector, "_named", lambda blocks, _entries: original(blocks, ()))


# The repairer.

_IS_REPAIRING: ContextVar[bool] = ContextVar("_IS_REPAIRING", default=False)


def _repairing(method: str) -> Patch:
    """Let other patches see that a method of the repairer is under way.

    A patch that a coroutine makes and takes back would stay if several are under way.
    """
    original = getattr(Repairer, method)

    async def marked(self: Repairer, *args: Any, **named: Any) -> Any:
        _IS_REPAIRING.set(True)
        try:
            return await original(self, *args, **named)
        finally:
            _IS_REPAIRING.set(False)

    return patch.object(Repairer, method, marked)


def _a_damaged_replica_is_copied() -> Patch:
    async def copy(self: Stores, block: Any, sources: Sequence[Replica], target: Replica) -> Any:
        if not _IS_REPAIRING.get():
            return await original(self, block, sources, target)
        data = await self.read_replica(sources[0], 0, block.length)
        return await self.extend(target, 0, data)

    original = Stores.copy
    return both(_repairing("_copy"), patch.object(Stores, "copy", copy))


def _a_bad_replica_is_kept() -> Patch:
    return patch.object(CheckedReplica, "is_bad", property(lambda _self: False))


def _replicas_are_not_checked() -> Patch:
    async def check(_stores: Stores, _block: Any, replica: Replica, **_named: Any) -> Any:
        return CheckedReplica(replica, ReplicaHealth.GOOD)

    return patch.object(repairer, "check_replica", check)


def _a_repair_counts_as_complete() -> Patch:
    async def publish(self: Repairer, *args: Any, **named: Any) -> bool:
        return await original(self, *args, **{**named, "is_complete": True})

    original = Repairer._publish
    return patch.object(Repairer, "_publish", publish)


def _a_block_is_copied_to_a_store_that_has_it() -> Patch:
    def spare(self: Stores, config: FilesConfig, used: Any) -> list[str]:
        return original(self, config, () if _IS_REPAIRING.get() else used)

    original = Stores.spare
    return both(_repairing("_carry_out"), patch.object(Stores, "spare", spare))


def _replaced_objects_are_not_kept() -> Patch:
    async def publish(
        self: Repairer, stored: Any, begun: int, replicas: Any, _old: Any, **named: Any
    ) -> bool:
        return await original(self, stored, begun, replicas, (), **named)

    original = Repairer._publish
    return patch.object(Repairer, "_publish", publish)


# Changes of the stores.


def _blocks_of_a_removed_store_are_not_recorded() -> Patch:
    return patch.object(store_changes, "repair_key", lambda *_: b"nowhere")


def _a_store_leaves_while_blocks_use_it() -> Patch:
    async def end(self: StoreChanges, look: Any, config: FilesConfig) -> None:
        look.is_used, look.begun_at = False, math.inf
        await original(self, look, config)

    original = StoreChanges._end
    return patch.object(StoreChanges, "_end", end)


def _a_store_that_is_being_removed_gets_new_blocks() -> Patch:
    def spare(self: Stores, config: FilesConfig, used: Any) -> list[str]:
        stores = tuple(replace(each, is_leaving=False) for each in config.stores)
        return original(self, replace(config, stores=stores), used)

    original = Stores.spare
    return patch.object(Stores, "spare", spare)


def _the_configuration_is_not_compared() -> Patch:
    def nothing(_config: FilesConfig) -> Compare:
        return Compare(b"nothing", Target.CREATE_REVISION, Relation.EQUAL, 0)

    modules = (held_file, opening, recovery, repairer)
    return both(*(patch.object(module, "is_current", nothing) for module in modules))


_FOUND_BY: Sequence[tuple[Callable[[], Patch], Callable[[int], object]]] = (
    (_a_block_is_not_looked_up_before_an_orphan_is_deleted, upkeep.tidy),
    (_the_age_of_trash_is_ignored, upkeep.tidy),
    (_objects_of_any_stamp_are_orphans, upkeep.wrong_ages),
    (_orphans_are_not_looked_for, upkeep.bad_stores),
    (_the_trash_is_not_looked_up_before_an_orphan_is_deleted, upkeep.wrong_ages),
    (_replaced_objects_are_not_kept, upkeep.wrong_ages),
    (_a_damaged_replica_is_copied, upkeep.damaged_sources),
    (_a_bad_replica_is_kept, upkeep.damage),
    (_replicas_are_not_checked, upkeep.damage),
    (_a_repair_counts_as_complete, upkeep.bad_stores),
    (_a_block_is_copied_to_a_store_that_has_it, upkeep.bad_stores),
    (_blocks_of_a_removed_store_are_not_recorded, upkeep.removals),
    (_a_store_leaves_while_blocks_use_it, upkeep.removals),
    (_a_store_that_is_being_removed_gets_new_blocks, upkeep.removals),
    (_the_configuration_is_not_compared, upkeep.outdated),
)

UPKEEP_BUGS = [SeededBug(make.__name__.strip("_"), make, scenario) for make, scenario in _FOUND_BY]
