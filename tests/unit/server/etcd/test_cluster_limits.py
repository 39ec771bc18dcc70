"""Where a member is to be reached is told to every client: it is short."""

import pytest

from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.server.etcd.cluster import MAX_URL_CHARS, MAX_URLS, ClusterService
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.store.runtime import Runtime
from leasehold.wire.cluster_pb2 import MemberAddRequest, MemberUpdateRequest

URL = "http://127.0.0.1:2380"


@pytest.fixture
def cluster() -> ClusterService:
    runtime = Runtime(None)
    return ClusterService(ServiceContext(runtime, DurabilityGate(), runtime.journal.identity))


@pytest.mark.parametrize(
    "urls",
    [[URL] * (MAX_URLS + 1), ["http://" + "a" * MAX_URL_CHARS + ":1"]],
    ids=["many", "long"],
)
def test_many_or_long_urls_are_refused(cluster: ClusterService, urls: list[str]) -> None:
    with pytest.raises(RpcError, match="given member URLs are invalid"):
        cluster.add(MemberAddRequest(peerURLs=urls).SerializeToString())
    update = MemberUpdateRequest(ID=cluster._member, peerURLs=urls)
    with pytest.raises(RpcError, match="given member URLs are invalid"):
        _ = cluster.update(update.SerializeToString())


def test_some_short_ones_are_not(cluster: ClusterService) -> None:
    with pytest.raises(RpcError, match="not enough started members"):
        cluster.add(MemberAddRequest(peerURLs=[URL] * MAX_URLS).SerializeToString())
