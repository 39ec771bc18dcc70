"""The page `/metrics`: etcd's names where they mean the same, and ours for what etcd has not.

Nothing is computed before somebody asks; the parts of the server count as they go.
"""

from http import HTTPStatus

from leasehold.engine.runtime import Runtime
from leasehold.rpc.gate import Gate
from leasehold.rpc.pages import Reply
from leasehold.rpc.serving import Server
from leasehold.server.health_page import HealthPage
from leasehold.server.metrics.calls import Calls
from leasehold.server.metrics.process import show_process
from leasehold.server.metrics.text import CONTENT_TYPE, Exposition
from leasehold.server.version import CLUSTER_VERSION, ETCD_VERSION


class Metrics:
    """Shows what the parts of one server have counted."""

    def __init__(
        self, runtime: Runtime, gate: Gate, server: Server, calls: Calls, health: HealthPage
    ) -> None:
        self._health = health
        self._runtime = runtime
        self._store = runtime.store
        self._gate = gate
        self._server = server
        self._calls = calls

    def page(self) -> Reply:
        """Answer a scrape."""
        out = Exposition()
        self._show_server(out)
        self._show_disk(out)
        self._show_keys(out)
        self._show_leases(out)
        self._show_watches(out)
        self._show_network(out)
        self._calls.show(out)
        show_process(out)
        return Reply(HTTPStatus.OK, CONTENT_TYPE, out.encode())

    def _show_server(self, out: Exposition) -> None:
        version = [({"server_version": ETCD_VERSION}, 1)]
        out.family("etcd_server_version", "gauge", "The version of etcd it speaks as.", version)
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
        what = "Always 0: what was taken is done, or the server stops."
        out.counter("etcd_server_proposals_failed_total", what, 0)
        what = "Answers that wait for the disk."
        out.gauge("etcd_server_proposals_pending", what, self._gate.answers)
        what = "How often /health said that all is well."
        out.counter("etcd_server_health_success", what, self._health.successes)
        what = "How often /health said that it is not."
        out.counter("etcd_server_health_failures", what, self._health.failures)
        what = "Batches of changes that are on disk, since the start."
        out.counter("leasehold_commits_total", what, self._store.durable)

    def _show_disk(self, out: Exposition) -> None:
        what = "What writing a batch to the journal took, with its sync, in seconds."
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
        what = "What of the journal is in use, in bytes."
        out.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", what, journal.used_bytes)
        what = "What the data may take before writes are refused, in bytes."
        out.gauge("etcd_server_quota_backend_bytes", what, store.quota_bytes)
        what = "What the data takes, on disk or in memory, whichever is more, in bytes."
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
        ended = tally.revoked + tally.expired  # as etcd counts: there, an expiry is a revoke
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
        what = "Watches that lag, and are told from the history."
        out.gauge("etcd_debugging_mvcc_slow_watcher_total", what, len(watchers.behind))
        what = "How many revisions the watch that lags most is behind."
        newest = self._store.revision + 1
        oldest = min((each.next_revision for each in watchers.behind), default=newest)
        out.gauge("leasehold_watcher_lag_revisions", what, max(0, newest - oldest))

    def _show_network(self, out: Exposition) -> None:
        server = self._server
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
