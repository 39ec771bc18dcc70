"""Directories with many keys and leases in them: as they were written, and compacted."""

import asyncio
import shutil
from pathlib import Path
from typing import Final

from benchmarks.common.children import in_child
from benchmarks.common.progress import tell
from benchmarks.common.tables import count
from benchmarks.engine.engines import (
    KEEP_ALL,
    grant_leases,
    key_of,
    put_keys,
    put_revisions,
)
from benchmarks.engine.scale import Scale
from leasehold.engine.embedded import open_engine
from leasehold.engine.interface import Engine
from leasehold.keyspace.keyspace import FROM_KEY

KEYS_OF_HISTORY: Final = 10
"""So often each key of a history was put."""


async def fill_estate(engine: Engine, keys: int, leases: int) -> None:
    """Put keys, the first of them under a lease each."""
    ids = await grant_leases(engine, leases)
    names = [key_of(number) for number in range(keys)]
    leased = min(keys, leases)
    await put_keys(engine, names[:leased], ids[:leased])
    await put_keys(engine, names[leased:])


async def fill_history(engine: Engine, revisions: int) -> int:
    """Put keys again and again; return the revision after the last."""
    await put_revisions(engine, revisions, max(1, revisions // KEYS_OF_HISTORY))
    return (await engine.range(key_of(0))).revision


async def check_estate(engine: Engine, keys: int, leases: int) -> None:
    """See that everything is there."""
    found = (await engine.range(b"\0", FROM_KEY, count_only=True)).total
    assert found == keys, f"{found} keys, not {keys}"
    listed = len(await engine.leases())
    assert listed == leases, f"{listed} leases, not {leases}"


def build_estate(path: str, keys: int, leases: int) -> None:
    """Write a directory."""

    async def build() -> None:
        async with open_engine(path, compaction=KEEP_ALL) as engine:
            await fill_estate(engine, keys, leases)

    asyncio.run(build())


def build_history(path: str, revisions: int) -> None:
    """Write a directory whose keys were put again and again."""

    async def build() -> None:
        async with open_engine(path, compaction=KEEP_ALL) as engine:
            await fill_history(engine, revisions)

    asyncio.run(build())


def compact_estate(path: str) -> None:
    """Compact everything that is in a directory, and wait until it is folded."""

    async def compact() -> None:
        async with open_engine(path, compaction=KEEP_ALL) as engine:
            await engine.put(key_of(0), b"")  # the last batch stays as it is
            revision = (await engine.put(key_of(0), b"")).revision
            await engine.compact(revision, wait=True)

    asyncio.run(compact())


def estate(base: Path, scale: Scale) -> Path:
    """A directory with keys and leases, never compacted; created when it is first used."""
    path = base / "estate"
    if not path.exists():
        tell(f"writing {count(scale.keys)} keys and {count(scale.leases)} leases")
        in_child(scale.limit_s, build_estate, str(path), scale.keys, scale.leases)
    return path


def folded(base: Path, scale: Scale) -> Path:
    """The same, compacted."""
    path = base / "folded"
    if not path.exists():
        source = estate(base, scale)
        tell("compacting them")
        draft = base / "folded-draft"
        shutil.copytree(source, draft)
        in_child(scale.limit_s, compact_estate, str(draft))
        draft.rename(path)
    return path


def history(base: Path, scale: Scale) -> Path:
    """A directory with many revisions of fewer keys."""
    path = base / "history"
    if not path.exists():
        tell(f"writing {count(scale.revisions)} revisions")
        in_child(scale.limit_s, build_history, str(path), scale.revisions)
    return path
