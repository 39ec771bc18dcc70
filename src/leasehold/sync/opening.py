"""`leasehold.sync.open`: a client on an engine in this process, for blocking code."""

from datetime import timedelta
from os import PathLike

from leasehold.client import opening
from leasehold.client.patience import TIMEOUT_S
from leasehold.engine.housekeeping import AutoCompaction
from leasehold.engine.store import DEFAULT_QUOTA_BYTES
from leasehold.recipes.sessions import SESSION_TTL_S
from leasehold.sync.client import Client
from leasehold.sync.connecting import made


def open_client(
    path: str | PathLike[str],
    *,
    quota_bytes: int = DEFAULT_QUOTA_BYTES,
    compaction: AutoCompaction | None = None,
    timeout: float | timedelta = TIMEOUT_S,
    session_ttl: float | timedelta = SESSION_TTL_S,
    name: str | None = None,
) -> Client:
    """Have everything in this process, durable in the directory `path`; `"memory:"` keeps nothing.

        with leasehold.sync.open("./data") as client:
            client.kv.put("greeting", "hello")

    The same client as `connect` gives, with no server and no network. One process has a directory
    at a time: another one gets `DirectoryInUse`. `session_ttl` and `name` are as for `connect`.
    """
    pending = opening.open_client(
        path,
        quota_bytes=quota_bytes,
        compaction=compaction,
        timeout=timeout,
        session_ttl=session_ttl,
        name=name,
    )
    return made(pending, timeout)
