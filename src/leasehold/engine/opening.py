"""`leasehold.open_engine`: an engine in this process, with no network."""

import asyncio
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.housekeeping import AutoCompaction
from leasehold.engine.store import DEFAULT_QUOTA_BYTES
from leasehold.pending import Pending

MEMORY: Final = "memory:"
"""What is opened under this name keeps nothing."""


async def _open(directory: Path | None, **options: Any) -> EmbeddedEngine:
    # In a thread, because a long journal takes seconds to be read.
    made = asyncio.ensure_future(asyncio.to_thread(EmbeddedEngine, directory, **options))
    try:
        engine = await asyncio.shield(made)
    except asyncio.CancelledError:
        made.add_done_callback(_let_go)
        raise
    engine.start()
    return engine


def _let_go(made: "asyncio.Future[EmbeddedEngine]") -> None:
    """Give the directory back that nobody waits for any more."""
    if not made.cancelled() and made.exception() is None:
        made.result().discard()


def directory_of(path: str | PathLike[str]) -> Path | None:
    """Check the path of a data directory; None for `"memory:"`."""
    if path == MEMORY:
        return None
    text = fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"path must be a str or a path of text, got {path!r}")
    if not text:
        raise ValueError('path is empty; use "." for the current directory')
    if text.strip().casefold() == MEMORY:
        raise ValueError(
            f"{text!r} is not a directory name: write {MEMORY!r} for a store that keeps nothing, "
            f"or {'./' + text!r} for a directory of that name"
        )
    return Path(text)


def open_engine(
    path: str | PathLike[str],
    *,
    quota_bytes: int = DEFAULT_QUOTA_BYTES,
    compaction: AutoCompaction | None = None,
) -> Pending[EmbeddedEngine]:
    """Open an engine in this process: keys and leases, durable in the directory `path`.

    The directory is made if it is not there; `"memory:"` keeps nothing. To be awaited, or used as
    an async context manager, which closes it in the end:

        async with leasehold.open_engine("./data") as engine:
            await engine.put(b"greeting", b"hello")

    One process has a directory at a time: another one gets `DirectoryInUse`. `quota_bytes` bounds
    the data, `compaction` how much history is kept.
    """
    if quota_bytes < 1:
        raise ValueError(f"quota_bytes must be at least 1, and is {quota_bytes}")
    directory = directory_of(path)
    return Pending(lambda: _open(directory, quota_bytes=quota_bytes, compaction=compaction))
