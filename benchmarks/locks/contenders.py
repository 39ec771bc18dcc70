"""Whose locks are measured: libraries, the servers they keep them on, where their packages are."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.client.clients import Absent
from benchmarks.etcd.servers import ETCD, OURS
from benchmarks.locks.messages import GRPC, JUTE, RESP
from benchmarks.locks.servers import REDIS, ZOOKEEPER
from tools.client_environments import directory_of, is_ready

CACHED, CACHED_SYNC = "ours, asyncio, cached", "ours, threads, cached"
UNCACHED, UNCACHED_SYNC = "ours, asyncio, not cached", "ours, threads, not cached"
UNCACHED_ETCD: Final = "ours on etcd, asyncio, not cached"
NO_RECALL: Final = "ours, asyncio, cached, no recall"
REDIS_PY, REDIS_PY_SYNC = "redis-py, asyncio", "redis-py, threads"
KAZOO, AETCD, ETCD3 = "kazoo, threads", "aetcd, asyncio", "etcd3, threads"

FROM_CACHE: Final = (CACHED, CACHED_SYNC)
OTHERS: Final = (REDIS_PY, REDIS_PY_SYNC, KAZOO, AETCD, ETCD3)


class Contender(NamedTuple):
    """A library on a server, and the module here that drives it."""

    server: str
    protocol: str
    module: str
    package: str
    options: dict[str, Any]
    has_environment: bool = False
    """Whether its packages are apart from ours, because they need other versions."""


def _ours(server: str, module: str, **options: Any) -> Contender:
    return Contender(server, GRPC, module, "leasehold", options)


CONTENDERS: Final[dict[str, Contender]] = {
    CACHED: _ours(OURS, "our_locks", cache=True),
    REDIS_PY: Contender(REDIS, RESP, "redis_async_locks", "redis", {}),
    UNCACHED: _ours(OURS, "our_locks", cache=False),
    AETCD: Contender(ETCD, GRPC, "aetcd_locks", "aetcd", {}, has_environment=True),
    CACHED_SYNC: _ours(OURS, "our_sync_locks", cache=True),
    REDIS_PY_SYNC: Contender(REDIS, RESP, "redis_locks", "redis", {}),
    UNCACHED_SYNC: _ours(OURS, "our_sync_locks", cache=False),
    ETCD3: Contender(ETCD, GRPC, "etcd3_locks", "etcd3", {}, has_environment=True),
    UNCACHED_ETCD: _ours(ETCD, "our_locks", cache=False),
    KAZOO: Contender(ZOOKEEPER, JUTE, "kazoo_locks", "kazoo", {}),
    NO_RECALL: _ours(OURS, "our_locks", cache=True, recall=False),
}
"""The order of measurement: it alternates between kinds."""

IN_TABLES: Final = (
    *(CACHED, CACHED_SYNC, UNCACHED, UNCACHED_SYNC, UNCACHED_ETCD, NO_RECALL),
    *OTHERS,
)


def interpreter_of(who: str) -> Path | Absent:
    """Find the Python that has a library: ours, or one that `make clients` has made."""
    contender = CONTENDERS[who]
    package = contender.package
    if contender.has_environment:
        if not is_ready(package):
            return Absent(f"{package} is not there, or too old: `make clients` installs it")
        return directory_of(package) / "bin" / "python"
    if find_spec(package) is None:
        return Absent(f"{package} is not there: it is in the dependency group `bench`")
    return Path(sys.executable)
