"""Changes of services in ZooKeeper with `kazoo`, for many listeners.

A listener is a session with a watch on the node of a type. A watch is sent once: the listener lists
the services again, and sets it again with the same call. So several changes may be one event; a
report is a service that a listener has found for the first time. The service that ends closes its
session. One that is killed is noticed after the timeout of its session, which is at least 4 s.
"""

from contextlib import ExitStack
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any, Final

from benchmarks.common.processes import cpu_s_of
from benchmarks.etcd.servers import CannotStart
from benchmarks.locks.servers import ZOOKEEPER, running
from benchmarks.registry.departures import EventSample
from benchmarks.registry.zookeeper_lookups import START_S, can_measure

PATH: Final = "/services/bench"
WITHIN_S: Final = 60.0


class _Listeners:
    """Counts what all listeners have found."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._expected = 0
        self._count = 0
        self.done = Event()
        self.first_at = self.last_at = 0.0

    def expect(self, count: int) -> None:
        with self._lock:
            self._expected, self._count, self.first_at = count, 0, 0.0
            self.done.clear()

    def found(self, count: int) -> None:
        with self._lock:
            self.last_at = monotonic()
            self.first_at = self.first_at or self.last_at
            self._count += count
            if self._count >= self._expected:
                self.done.set()

    def wait(self) -> None:
        if not self.done.wait(WITHIN_S):
            raise AssertionError(f"{self._count} of {self._expected} reports were received")


def _listen(client: Any, listeners: _Listeners) -> None:
    known: set[str] = set()

    def look(_event: object = None) -> None:
        now = set(client.get_children(PATH, watch=look))
        changes = len(now ^ known)
        known.clear()
        known.update(now)
        if changes:
            listeners.found(changes)

    look()


def measure_zookeeper_events(count: int, services: int, directory: Path) -> EventSample:
    """Create services, then end one, with so many listeners. Raises `CannotStart`."""
    if why := can_measure():
        raise CannotStart(why)
    from kazoo.client import KazooClient  # noqa: PLC0415  of the dependency group `bench`

    listeners = _Listeners()
    with running(ZOOKEEPER, directory) as server, ExitStack() as stack:

        def connect() -> Any:
            client = KazooClient(f"127.0.0.1:{server.port}", timeout=START_S)
            client.start(START_S)
            stack.callback(client.close)
            stack.callback(client.stop)
            return client

        registering, leaving = connect(), connect()
        registering.ensure_path(PATH)
        for _ in range(count):
            _listen(connect(), listeners)
        listeners.expect(count * services)
        began, cpu_s = monotonic(), cpu_s_of(server.pid)
        for number in range(services):
            registering.create(f"{PATH}/{number}", b"10.0.0.1:1", ephemeral=True)
        listeners.wait()
        took_s, cpu_s = monotonic() - began, cpu_s_of(server.pid) - cpu_s
        listeners.expect(count)
        leaving.create(f"{PATH}/leaving", b"10.0.0.2:1", ephemeral=True)
        listeners.wait()
        listeners.expect(count)
        ends_at = monotonic()
        leaving.stop()
        listeners.wait()
        reports = count * services
        return EventSample(
            reports / took_s,
            1e6 * cpu_s / reports,
            1e3 * (listeners.first_at - ends_at),
            1e3 * (listeners.last_at - ends_at),
        )
