"""`leasehold.open`: a client, on an engine in this process.

It is apart from `connect`, because all of an engine is long to import.
"""

from datetime import timedelta
from os import PathLike

from leasehold.client.client import Client, check_client
from leasehold.client.patience import TIMEOUT_S
from leasehold.core.duration import check_seconds
from leasehold.engine.housekeeping import AutoCompaction
from leasehold.engine.opening import open_engine
from leasehold.engine.store import DEFAULT_QUOTA_BYTES
from leasehold.pending import Pending
from leasehold.recipes.sessions import SESSION_TTL_S


def open_client(
    path: str | PathLike[str],
    *,
    quota_bytes: int = DEFAULT_QUOTA_BYTES,
    compaction: AutoCompaction | None = None,
    timeout: float | timedelta = TIMEOUT_S,
    session_ttl: float | timedelta = SESSION_TTL_S,
    name: str | None = None,
) -> Pending[Client]:
    """Have everything in this process, durable in the directory `path`; `"memory:"` keeps nothing.

        async with leasehold.open("./data") as client:
            await client.kv.put("greeting", "hello")

    The same client as `connect` gives, with no server and no network. One process has a directory
    at a time: another one gets `DirectoryInUse`. `session_ttl` and `name` are as for `connect`.
    """
    opening = open_engine(path, quota_bytes=quota_bytes, compaction=compaction)
    check_seconds(timeout, "timeout")
    check_client(session_ttl, name)

    async def make() -> Client:
        return Client(await opening, timeout=timeout, session_ttl=session_ttl, name=name)

    return Pending(make, "leasehold.open()", on_loop_only=False)
