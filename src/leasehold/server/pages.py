"""The pages `/health` and `/metrics`.

`/health` reports, in etcd's format, whether the server works. It does not work if a commit has
failed, if the disk has not taken a change for too long, or if an alarm is raised.

`/metrics` has etcd's names where they mean the same, and our own names otherwise, in Prometheus'
text format, version 0.0.4. Values are computed only when the page is requested, from counters of
the server's parts. Calls are counted by method, with the names of gRPC's usual metrics. The metrics
of the process come from the operating system, with the names of Prometheus' clients.
"""

import json
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from google.protobuf.descriptor_pool import DescriptorPool

from leasehold.basics.histogram import Histogram
from leasehold.errors import Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import Reply
from leasehold.grpc.routes import CallCounts, Methods
from leasehold.server.etcd.alarms import Alarms
from leasehold.server.etcd.maintenance import CLUSTER_VERSION, ETCD_VERSION
from leasehold.serving.grpc_server import GrpcServer
from leasehold.store.runtime import Runtime

HEALTH_CONTENT_TYPE: Final = "text/plain; charset=utf-8"

MAX_QUERY_CHARS: Final = 256
"""The part of a query that is parsed: there are two kinds of alarms."""


UNHEALTHY_AFTER_S: Final = 10.0
"""How long a change may wait for the disk, by default: longer than the pauses of a disk that
works, shorter than an operator should have to wait."""


class HealthPage:
    """Reports whether a server works, and counts its answers.

    `reason` returns why it does not work, or an empty text; it is called with the kinds of alarms
    to ignore.
    """

    def __init__(self, reason: Callable[[Sequence[str]], str]) -> None:
        self._reason = reason
        self.successes = 0
        self.failures = 0

    def page(self, query: str) -> Reply:
        """Answer; `exclude=NOSPACE` in the query ignores the alarms of that kind."""
        excluded = parse_qs(query[:MAX_QUERY_CHARS]).get("exclude", [])
        reason = self._reason(excluded)
        body = json.dumps(
            {"health": str(not reason).lower(), "reason": reason}, separators=(",", ":")
        )
        if reason:
            self.failures += 1
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, HEALTH_CONTENT_TYPE, f"{body}\n".encode())
        self.successes += 1
        return Reply(HTTPStatus.OK, HEALTH_CONTENT_TYPE, body.encode())

    def show(self, out: "Exposition") -> None:
        """Add the counted answers to a scrape."""
        what = "Answers of /health for a healthy server."
        out.counter("etcd_server_health_success", what, self.successes)
        what = "Answers of /health for an unhealthy server."
        out.counter("etcd_server_health_failures", what, self.failures)


class StoreHealth:
    """Whether a server with its own store works.

    `failure` returns why the server has stopped, if it has; `outstanding_s` how long the oldest
    change has waited for the disk.
    """

    def __init__(
        self,
        alarms: Alarms,
        failure: Callable[[], BaseException | None],
        outstanding_s: Callable[[], float],
        unhealthy_after_s: float = UNHEALTHY_AFTER_S,
    ) -> None:
        self._alarms = alarms
        self._failure = failure
        self._outstanding_s = outstanding_s
        self._unhealthy_after_s = unhealthy_after_s

    def reason(self, excluded: Sequence[str]) -> str:
        """Return why it does not work; empty if it does. Alarms of some kinds are ignored."""
        return self._trouble() or self._alarms.reason(excluded)

    def _trouble(self) -> str:
        failure = self._failure()
        if failure is not None:
            return str(failure)
        outstanding_s = self._outstanding_s()
        if outstanding_s < self._unhealthy_after_s:
            return ""
        return f"a commit has been outstanding for {outstanding_s:.1f} s: the disk does not respond"


METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
_NO_LABELS: Final[Labels] = {}


class Exposition:
    """One answer to a scrape, while it is written."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, what: str, value: float) -> None:
        """Add a value that goes up and down."""
        self.family(name, "gauge", what, [(_NO_LABELS, value)])

    def counter(self, name: str, what: str, value: float) -> None:
        """Add a value that only grows."""
        self.family(name, "counter", what, [(_NO_LABELS, value)])

    def family(
        self, name: str, kind: str, what: str, samples: Iterable[tuple[Labels, float]]
    ) -> None:
        """Add values of one name with different labels."""
        self._head(name, kind, what)
        self._lines += [_sample(name, labels, value) for labels, value in samples]

    def histogram(self, name: str, what: str, histogram: Histogram) -> None:
        """Add a histogram of durations."""
        self._head(name, "histogram", what)
        counts = histogram.cumulative()
        for bound, count in zip((*histogram.bounds, inf), counts, strict=True):
            self._lines.append(_sample(f"{name}_bucket", {"le": _number(bound)}, count))
        self._lines.append(_sample(f"{name}_sum", _NO_LABELS, histogram.total))
        self._lines.append(_sample(f"{name}_count", _NO_LABELS, counts[-1]))

    def _head(self, name: str, kind: str, what: str) -> None:
        what = what.replace("\\", r"\\").replace("\n", r"\n")
        self._lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]

    def encode(self) -> bytes:
        """Return the whole answer."""
        return "\n".join((*self._lines, "")).encode()


def _sample(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


_KINDS: Final = {
    (False, False): "unary",
    (True, False): "client_stream",
    (False, True): "server_stream",
    (True, True): "bidi_stream",
}

_STARTED_AT = time.time()


class CallMetrics:
    """The counted methods: those that are in the pool."""

    def __init__(self, methods: Methods, pool: DescriptorPool) -> None:
        self._tallies: list[tuple[dict[str, str], CallCounts]] = []
        for path, method in methods.items():
            service, _, name = path.removeprefix("/").partition("/")
            found = pool.FindServiceByName(service).FindMethodByName(name)
            kind = _KINDS[found.client_streaming, found.server_streaming]
            labels = {"grpc_type": kind, "grpc_service": service, "grpc_method": name}
            self._tallies.append((labels, method.counts))

    @property
    def open_watches(self) -> int:
        """The number of open streams of etcd's watches."""
        return sum(
            tally.begun - tally.ended
            for labels, tally in self._tallies
            if labels["grpc_service"] == "etcdserverpb.Watch"
        )

    def show(self, out: Exposition) -> None:
        """Add all methods."""
        begun = [(labels, tally.begun) for labels, tally in self._tallies]
        out.family("grpc_server_started_total", "counter", "Calls that were begun.", begun)
        what = "Calls that are over, by what they ended with."
        out.family("grpc_server_handled_total", "counter", what, self._ended())

    def _ended(self) -> Iterator[tuple[Labels, int]]:
        for labels, tally in self._tallies:
            yield {**labels, "grpc_code": "OK"}, tally.succeeded
            for status, count in tally.failures.items():
                yield {**labels, "grpc_code": _code(status)}, count


def _code(status: Status) -> str:
    """Return a status as Go writes it, which dashboards expect."""
    if status is Status.CANCELLED:
        return "Canceled"
    return status.name.title().replace("_", "")


def show_process(out: Exposition) -> None:
    """Add the metrics of this process; there are fewer on systems without `/proc`."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = used.ru_utime + used.ru_stime
    out.counter("process_cpu_seconds_total", "Processor time spent, in seconds.", spent_s)
    out.gauge("process_start_time_seconds", "When the process began, since 1970.", _STARTED_AT)
    open_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    out.gauge("process_max_fds", "File descriptors that it may open.", open_max)
    with suppress(OSError, ValueError):
        open_now = len(list(Path("/proc/self/fd").iterdir()))
        out.gauge("process_open_fds", "File descriptors that it has open.", open_now)
        sizes = Path("/proc/self/statm").read_text(encoding="ascii").split()
        virtual, resident = (int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in sizes[:2])
        out.gauge("process_virtual_memory_bytes", "Address space in use.", virtual)
        out.gauge("process_resident_memory_bytes", "Memory in use.", resident)


def show_network(out: Exposition, server: GrpcServer) -> None:
    """Add the connections of a server, and their traffic."""
    out.gauge("leasehold_connections", "Connections of clients.", server.connections)
    prefix = "leasehold_connections_"
    what = "Idle connections that were closed to make room for new ones."
    out.counter(f"{prefix}evicted_total", what, server.evicted_connections)
    what = "Connections that were refused, because all were in use and none was idle."
    out.counter(f"{prefix}refused_total", what, server.refused_connections)
    prefix = "etcd_network_client_grpc_"
    what = "Bytes that clients have sent."
    out.counter(f"{prefix}received_bytes_total", what, server.received_bytes)
    what = "Bytes that were sent to clients."
    out.counter(f"{prefix}sent_bytes_total", what, server.sent_bytes)


class MetricsPage:
    """Shows the counters of the parts of one server."""

    def __init__(
        self,
        runtime: Runtime,
        gate: DurabilityGate,
        server: GrpcServer,
        calls: CallMetrics,
        health: HealthPage,
        show_services: Callable[[Exposition], None],
    ) -> None:
        self._health = health
        self._runtime = runtime
        self._store = runtime.store
        self._gate = gate
        self._server = server
        self._calls = calls
        self._show_services = show_services

    def page(self) -> Reply:
        """Answer a scrape."""
        out = Exposition()
        self._show_server(out)
        self._show_disk(out)
        self._show_keys(out)
        self._show_leases(out)
        self._show_watches(out)
        show_network(out, self._server)
        self._calls.show(out)
        self._show_services(out)
        show_process(out)
        return Reply(HTTPStatus.OK, METRICS_CONTENT_TYPE, out.encode())

    def _show_server(self, out: Exposition) -> None:
        version = [({"server_version": ETCD_VERSION}, 1)]
        out.family("etcd_server_version", "gauge", "The etcd version of the API.", version)
        cluster = [({"cluster_version": CLUSTER_VERSION.rpartition(".")[0]}, 1)]
        out.family("etcd_cluster_version", "gauge", "The same of the cluster.", cluster)
        member = [({"server_id": f"{self._runtime.journal.identity.member_id:x}"}, 1)]
        out.family("etcd_server_id", "gauge", "The id of this member, in hexadecimal.", member)
        well = self._runtime.failure is None
        out.gauge("etcd_server_has_leader", "Whether it serves: 1, or 0 after a failure.", well)
        out.gauge("etcd_server_is_leader", "Always 1: there is one member.", 1)
        out.gauge("etcd_server_is_learner", "Always 0: there is one member.", 0)
        out.counter("etcd_server_leader_changes_seen_total", "Always 1: the start.", 1)
        index = self._runtime.journal.index
        what = "Batches of changes that are on disk, and starts, ever."
        out.gauge("etcd_server_proposals_committed_total", what, index)
        out.gauge("etcd_server_proposals_applied_total", what, index)
        what = "Always 0: the server stops if a change fails."
        out.counter("etcd_server_proposals_failed_total", what, 0)
        what = "Answers that wait for the disk."
        out.gauge("etcd_server_proposals_pending", what, self._gate.answers)
        self._health.show(out)
        what = "Batches of changes that are on disk, since the start."
        out.counter("leasehold_commits_total", what, self._store.durable)

    def _show_disk(self, out: Exposition) -> None:
        what = "Duration of writing and syncing a batch to the journal, in seconds."
        costs_s = self._runtime.commit_costs_s
        for name in (
            "leasehold_commit_duration_seconds",
            "etcd_disk_wal_fsync_duration_seconds",
            "etcd_disk_backend_commit_duration_seconds",
        ):
            out.histogram(name, what, costs_s)
        journal, store = self._runtime.journal, self._store
        what = "The size of the journal, in bytes."
        out.gauge("etcd_mvcc_db_total_size_in_bytes", what, journal.size_bytes)
        what = "Used part of the journal, in bytes."
        out.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", what, journal.used_bytes)
        what = "Data size above which writes are refused, in bytes."
        out.gauge("etcd_server_quota_backend_bytes", what, store.quota_bytes)
        what = "Size of the data on disk or in memory, whichever is larger, in bytes."
        out.gauge("leasehold_used_bytes", what, store.used_bytes)

    def _show_keys(self, out: Exposition) -> None:
        store = self._store
        out.gauge("etcd_debugging_mvcc_keys_total", "Keys.", len(store.keyspace))
        what = "The last revision that is on disk."
        out.gauge("etcd_debugging_mvcc_current_revision", what, store.durable_revision)
        what = "The revision of the last compaction."
        compacted = max(0, store.durable_compacted)
        out.gauge("etcd_debugging_mvcc_compact_revision", what, compacted)

    def _show_leases(self, out: Exposition) -> None:
        leases = self._store.leases
        tally = leases.tally
        out.gauge("leasehold_leases", "Leases that are alive.", len(leases))
        prefix = "etcd_debugging_lease_"
        out.counter(f"{prefix}granted_total", "Leases that were granted.", tally.granted)
        out.counter(f"{prefix}renewed_total", "Renewals.", tally.renewed)
        ended = tally.revoked + tally.expired  # as in etcd, where an expiry is a revoke
        out.counter(f"{prefix}revoked_total", "Leases that ended, for any reason.", ended)
        name = "etcd_debugging_server_lease_expired_total"
        out.counter(name, "Leases that expired.", tally.expired)
        what = "How long after its deadline a lease that expired was ended, in seconds."
        out.histogram("leasehold_lease_expiry_lateness_seconds", what, tally.lateness_s)
        what = "How far lease time is behind, from all stalls of this server together, in seconds."
        out.counter("leasehold_lease_time_lag_seconds_total", what, leases.table.clock.lag_s)

    def _show_watches(self, out: Exposition) -> None:
        watchers = self._store.watchers
        what = "Streams of watches."
        out.gauge("etcd_debugging_mvcc_watch_stream_total", what, self._calls.open_watches)
        out.gauge("etcd_debugging_mvcc_watcher_total", "Watches.", len(watchers))
        what = "Watches that lag, and are sent events from the history."
        out.gauge("etcd_debugging_mvcc_slow_watcher_total", what, len(watchers.behind))
        what = "How many revisions the watch that lags most is behind."
        newest = self._store.revision + 1
        oldest = min((each.next_revision for each in watchers.behind), default=newest)
        out.gauge("leasehold_watcher_lag_revisions", what, max(0, newest - oldest))
