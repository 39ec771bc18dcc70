"""`leasehold.open`: a client on an engine in this process.

It is separate from `connect`: a program with a server imports no store, and one without a server no
gRPC client.
"""

from datetime import timedelta
from os import PathLike

from leasehold.basics.durations import check_seconds
from leasehold.basics.pending import Pending
from leasehold.client.client import Client
from leasehold.engine.embedded import open_engine
from leasehold.engine.time_limits import TIMEOUT_S
from leasehold.locks.recipe_context import check_client
from leasehold.sessions.client_session import SESSION_TTL_S
from leasehold.store.housekeeping import AutoCompaction
from leasehold.store.store import DEFAULT_QUOTA_BYTES


def open_client(
    path: str | PathLike[str],
    *,
    quota_bytes: int = DEFAULT_QUOTA_BYTES,
    compaction: AutoCompaction | None = None,
    timeout: float | timedelta = TIMEOUT_S,
    session_ttl: float | timedelta = SESSION_TTL_S,
    name: str | None = None,
) -> Pending[Client]:
    """Run an engine in this process, durable in the directory `path`; `"memory:"` is not durable.

        async with leasehold.open("./data") as client:
            await client.kv.put("greeting", "hello")

    Returns the same client as `connect`, with no server and no network. One process can use a
    directory at a time: another one gets `DirectoryInUse`. `session_ttl` and `name` are as for
    `connect`.
    """
    opening = open_engine(path, quota_bytes=quota_bytes, compaction=compaction)
    check_seconds(timeout, "timeout")
    check_client(session_ttl, name)

    async def make() -> Client:
        return Client(await opening, timeout=timeout, session_ttl=session_ttl, name=name)

    return Pending(make, "leasehold.open()", on_loop_only=False)
