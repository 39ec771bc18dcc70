"""The API of etcd at a server that has its state in an etcd cluster: it is the cluster's to serve.

Every method answers UNIMPLEMENTED with the endpoints of the cluster, except Maintenance/Status, by
which clients recognize a server.
"""

from collections.abc import Callable
from typing import Final

from google.protobuf.descriptor import MethodDescriptor

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import (
    Answer,
    Exchange,
    Method,
    ServerStream,
    StreamHandler,
    Subscription,
)
from leasehold.wire import (
    auth_pb2,
    cluster_pb2,
    election_pb2,
    leases_pb2,
    lock_pb2,
    maintenance_pb2,
    rpc_pb2,
)
from leasehold.wire.maintenance_pb2 import StatusRequest, StatusResponse

STATUS: Final = "/etcdserverpb.Maintenance/Status"
LEASES: Final = leases_pb2.DESCRIPTOR.services_by_name["Leases"].full_name

_FILES: Final = (
    rpc_pb2,
    cluster_pb2,
    maintenance_pb2,
    auth_pb2,
    lock_pb2,
    election_pb2,
    leases_pb2,
)
_parse_status = StatusRequest.FromString


def refused_methods(cluster: str) -> dict[str, Method]:
    """Return all methods of etcd's API and of `leasehold.v1.Leases`, each with its refusal."""
    methods: dict[str, Method] = {}
    for file in _FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                error = RpcError(Status.UNIMPLEMENTED, _reason(service.full_name, method, cluster))
                path = f"/{service.full_name}/{method.name}"
                is_stream = method.client_streaming or method.server_streaming
                methods[path] = _refused_stream(error) if is_stream else _refused(error)
    return methods


def _reason(service: str, method: MethodDescriptor, cluster: str) -> str:
    if service == LEASES:
        return (
            f"{method.name} is not available on an etcd cluster, which neither lists leases with "
            f"their ends nor reports how they end: ask {cluster} for single leases"
        )
    return f"this server does not serve the API of etcd: its state is in {cluster}; connect to that"


def _refused(error: RpcError) -> Exchange:
    def refuse(message: bytes) -> Answer:
        del message
        raise RpcError(error.status, error.message)

    return Exchange(refuse)


def _refused_stream(error: RpcError) -> Subscription:
    def refuse(stream: ServerStream) -> StreamHandler:
        del stream
        raise RpcError(error.status, error.message)

    return Subscription(refuse, reads_context=False)


class StatusService:
    """Maintenance/Status of a server without a store: it reports the cluster's id as its own."""

    def __init__(
        self,
        engine: str,
        version: str,
        member_id: int,
        header: Callable[[int], bytes],
        revision: Callable[[], int],
        trouble: Callable[[], str],
    ) -> None:
        """`engine` is its URL; `revision` the last one seen, and `trouble` why it does not work."""
        self._engine = engine
        self._version = version
        self._member_id = member_id
        self._header = header
        self._revision = revision
        self._trouble = trouble

    def methods(self) -> dict[str, Method]:
        """The one method."""
        return {STATUS: Exchange(self.status)}

    def status(self, message: bytes) -> Answer:
        """Return the status: it has a leader, itself, while the cluster answers."""
        parse(_parse_status, message)
        trouble = self._trouble()
        answer = StatusResponse(
            version=self._version,
            leader=0 if trouble else self._member_id,
            errors=[trouble] if trouble else [],
            leasehold_engine=self._engine,
        )
        return self._header(self._revision()) + answer.SerializeToString(), 0
