"""Sees what servers delete and repair, besides what the oracle of files sees.

- An object that a block of a linked file names is never deleted.
- An object that a block has named stays for `keep`, for readers that have opened the file before.
- A store leaves the configuration when no block of a file names it, and gets no block before that.
- In the end, each block of each linked file has all its replicas, with the same bytes. No other
  object is in any store, and no key is left of what was deleted, replaced or repaired.
"""

from typing import Any, Final

from leasehold.engine.values import Event, KeyValue
from leasehold.files.file_keys import (
    BLOCKS,
    CONFIG,
    OPEN_FILES,
    RECORDS,
    REPAIRS,
    TRASH,
    decode_config,
    id_in,
)
from leasehold.files.state import Block, FilesConfig, parse_object
from leasehold.files.threaded_store import OWNER
from tests.simulation.files_history import FileHistory
from tests.simulation.files_oracle import FilesOracle
from tests.simulation.files_stores import Disk

SKEW: Final = 0.02
"""How much two wall clocks can go apart, as a part of the time since the beginning."""

Object = tuple[str, str]
"""The id of a store, and the name of an object in it."""


def _objects(block: Block | None) -> set[Object]:
    replicas = () if block is None else block.replicas
    return {(each.store, name) for each in replicas for name in each.objects()}


class UpkeepOracle(FilesOracle):
    """Watches all files and stores, from outside."""

    late_s = 0.0
    """How long a transaction may take that replaces or deletes something."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._named_until: dict[Object, float] = {}
        """Objects that blocks have named, and until when."""
        for disk in self.disks.values():
            disk.deleted = self._deleted

    def _apply(self, events: list[Event]) -> None:
        before = self.pairs.get(CONFIG)
        super()._apply(events)
        if before is not None and self.pairs[CONFIG].value != before.value:
            self._stores_changed(decode_config(before.value), self.config)

    def _stores_changed(self, before: FilesConfig, after: FilesConfig) -> None:
        """Check that no block uses a store that has left."""
        gone = before.leaving - after.leaving - after.staying
        for file_id, history in self.files.items():
            for number, block in history.blocks.items():
                used = gone.intersection(each.store for each in block.replicas)
                if used and self.is_linked(file_id):
                    self.fail(f"{used} have left, and block {number} of {file_id} uses them")

    def _block_changed(self, file_id: str, number: int, pair: KeyValue | None) -> None:
        history = self.files.setdefault(file_id, FileHistory(file_id))
        before = _objects(history.blocks.get(number))
        super()._block_changed(file_id, number, pair)
        after = _objects(history.blocks.get(number))
        for store in {store for store, _ in after} - {store for store, _ in before}:
            if store in self.config.leaving:
                self.fail(f"{store} has got block {number} of {file_id}, and is being removed")
        # A reader that has opened the file before needs one of them: a writer leaves out a store
        # that has failed while others have the same bytes.
        if not history.is_deleted and before.isdisjoint(after):
            self._unnamed(before)

    def _record_changed(self, file_id: str, pair: KeyValue | None) -> None:
        super()._record_changed(file_id, pair)
        if pair is None:
            for block in self.files[file_id].blocks.values():
                self._unnamed(_objects(block))

    def _unnamed(self, objects: set[Object]) -> None:
        self._named_until.update(dict.fromkeys(objects, self.sim.now))

    def _deleted(self, disk: Disk, name: str) -> None:
        """Check that an object may be deleted."""
        self.counts["deleted objects"] += 1
        parsed = parse_object(name)
        if parsed is None:
            self.fail(f"{disk.id}: {name} was deleted, which is no object of a file")
            return
        history = self.files.get(parsed.file)
        if history is None:
            self.fail(f"{disk.id}: {name} of an unknown file was deleted")
            return
        block = history.blocks.get(parsed.number)
        if (disk.id, name) in _objects(block) and self.is_linked(parsed.file):
            self.fail(f"{disk.id}: {name} was deleted, and a block names it")
        now, until = self.sim.now, self._named_until.get((disk.id, name))
        if until is not None and now - until < self.keep_s - self.late_s - SKEW * now:
            self.fail(f"{disk.id}: {name} was deleted {now - until:.1f} s after it was replaced")

    @property
    def config(self) -> FilesConfig:
        """The configuration."""
        return decode_config(self.pairs[CONFIG].value)

    # The end.

    def left_over(self) -> str:
        """Return what servers have still to delete or to repair; empty if all is done."""
        for key in self.pairs:
            if key.startswith((TRASH, REPAIRS, OPEN_FILES)):
                return f"the key {key!r} is left"
            for prefix in (RECORDS, BLOCKS):
                if key.startswith(prefix):
                    file_id = id_in(key, prefix).partition("/")[0]
                    if not self.exists(file_id):
                        return f"the key {key!r} of a deleted file is left"
        if self.config.leaving:
            return f"{self.config.leaving} have not left"
        staying = self.config.staying
        named: set[Object] = set()
        for file_id, history in self.files.items():
            if history.record is None or not self.is_linked(file_id):
                continue
            wanted = self.config.wanted
            for number, block in history.blocks.items():
                named |= _objects(block)
                if len({each.store for each in block.replicas} & staying) < wanted:
                    return f"block {number} of {file_id} has replicas {block.replicas}"
                if any(map(self.is_damaged, block.replicas)):
                    return f"block {number} of {file_id} has damaged replicas"
        for disk in map(self.disks.__getitem__, sorted(staying)):
            for name in disk.objects:
                if name != OWNER and (disk.id, name) not in named:
                    return f"{disk.id}: {name} is left, and no block names it"
        return ""

    def exists(self, file_id: str) -> bool:
        """Return whether a file or directory can be found."""
        history = self.files.get(file_id)
        if history is None or history.record is None:
            return False
        return self.is_linked(file_id, is_directory=history.record.is_directory)
