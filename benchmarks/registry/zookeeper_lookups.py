"""Lookups in ZooKeeper with `kazoo`: services as nodes below their types, as is usual.

A lookup by id reads one node. A lookup by type lists the nodes of that type, and reads each of
them. ZooKeeper has no attributes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Lock, Thread
from time import perf_counter
from typing import Any, Final

from benchmarks.common.processes import cpu_s_of
from benchmarks.common.progress import tell
from benchmarks.common.stats import quantile
from benchmarks.etcd.servers import CannotStart, Server
from benchmarks.locks.servers import ZOOKEEPER, running
from benchmarks.registry.lookups import CONCURRENT_LOOKUPS, MATCHES, LookupCell, LookupSample, item

MAX_ITEMS: Final = 10_000
"""More of them take ZooKeeper minutes to create."""

CREATED: Final = 1_000
"""Nodes that are created together."""

START_S: Final = 30.0


def can_measure() -> str:
    """Return why ZooKeeper cannot be measured here, or an empty text."""
    try:
        import kazoo  # noqa: F401, PLC0415  it is in the dependency group `bench`
    except ImportError:
        return "kazoo, of the dependency group `bench`, is not installed"
    return ""


@contextmanager
def zookeeper_of(count: int, directory: Path) -> Iterator[tuple[Server, Any]]:
    """Start ZooKeeper with so many services. Raises `CannotStart`."""
    if why := can_measure():
        raise CannotStart(why)
    from kazoo.client import KazooClient  # noqa: PLC0415  as above

    with running(ZOOKEEPER, directory) as server:
        client = KazooClient(f"127.0.0.1:{server.port}", timeout=START_S)
        client.start(START_S)
        try:
            tell(f"creating {count:,} nodes")
            for group in range(max(1, count // MATCHES)):
                client.ensure_path(f"/services/{group}")
            for first in range(0, count, CREATED):
                last = min(count, first + CREATED)
                waiting = [
                    client.create_async(
                        _path(number, count), item(number, count).endpoint.encode(), ephemeral=True
                    )
                    for number in range(first, last)
                ]
                for each in waiting:
                    each.get(timeout=START_S)
            yield server, client
        finally:
            client.stop()
            client.close()


def _path(number: int, count: int) -> str:
    return f"/services/{number % max(1, count // MATCHES)}/{number}"


def measure_zookeeper(
    server: Server, client: Any, cell: LookupCell, seconds: float, random: Random
) -> LookupSample:
    """Make lookups for so many seconds, in threads."""
    took_s: list[float] = []
    lock = Lock()
    began, cpu_s = perf_counter(), cpu_s_of(server.pid)
    until = began + seconds

    def look_up() -> None:
        while perf_counter() < until:
            with lock:
                number = random.randrange(cell.items)
            sent_at = perf_counter()
            path = _path(number, cell.items)
            if cell.by == "id":
                client.get(path)
            else:
                parent = path.rpartition("/")[0]
                names = client.get_children(parent)
                found = [client.get_async(f"{parent}/{name}") for name in names]
                if len([each.get(timeout=START_S) for each in found]) != MATCHES:
                    raise AssertionError(f"{parent} has {len(names)} services, not {MATCHES}")
            took_s.append(perf_counter() - sent_at)

    threads = [Thread(target=look_up) for _ in range(CONCURRENT_LOOKUPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return LookupSample(
        len(took_s) / (perf_counter() - began),
        1e6 * (cpu_s_of(server.pid) - cpu_s) / len(took_s),
        1e3 * quantile(took_s, 0.5),
        1e3 * quantile(took_s, 0.99),
    )
