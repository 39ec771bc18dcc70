"""The gRPC method of each HTTP path: etcd's paths, and ours."""

from typing import Final, NamedTuple

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from leasehold.grpc.routes import Method, Methods
from leasehold.wire import (  # noqa: F401  which puts them into the pool
    auth_pb2,
    cluster_pb2,
    election_pb2,
    lock_pb2,
    maintenance_pb2,
    rpc_pb2,
)

PREFIX: Final = "/v3/"
OLD_PREFIX: Final = "/v3beta/"
"""Of etcd 3.3, and still accepted."""

OWN_PACKAGE: Final = "leasehold.v1"
OWN_PREFIX: Final = "/v1/"
"""For services that etcd does not have: `/v1/leases/grant` is `leasehold.v1.Leases/Grant`."""

_ETCD: Final = {
    "etcdserverpb.KV": {
        "kv/range": "Range",
        "kv/put": "Put",
        "kv/deleterange": "DeleteRange",
        "kv/txn": "Txn",
        "kv/compaction": "Compact",
    },
    "etcdserverpb.Watch": {"watch": "Watch"},
    "etcdserverpb.Lease": {
        "lease/grant": "LeaseGrant",
        "lease/revoke": "LeaseRevoke",
        "lease/keepalive": "LeaseKeepAlive",
        "lease/timetolive": "LeaseTimeToLive",
        "lease/leases": "LeaseLeases",
        "kv/lease/revoke": "LeaseRevoke",
        "kv/lease/timetolive": "LeaseTimeToLive",
        "kv/lease/leases": "LeaseLeases",
    },
    "etcdserverpb.Cluster": {
        "cluster/member/add": "MemberAdd",
        "cluster/member/remove": "MemberRemove",
        "cluster/member/update": "MemberUpdate",
        "cluster/member/list": "MemberList",
        "cluster/member/promote": "MemberPromote",
    },
    "etcdserverpb.Maintenance": {
        "maintenance/alarm": "Alarm",
        "maintenance/status": "Status",
        "maintenance/defragment": "Defragment",
        "maintenance/hash": "Hash",  # HashKV has no separate path
        "maintenance/snapshot": "Snapshot",
        "maintenance/transfer-leadership": "MoveLeader",
        "maintenance/downgrade": "Downgrade",
    },
    "etcdserverpb.Auth": {
        "auth/enable": "AuthEnable",
        "auth/disable": "AuthDisable",
        "auth/status": "AuthStatus",
        "auth/authenticate": "Authenticate",
        "auth/user/add": "UserAdd",
        "auth/user/get": "UserGet",
        "auth/user/list": "UserList",
        "auth/user/delete": "UserDelete",
        "auth/user/changepw": "UserChangePassword",
        "auth/user/grant": "UserGrantRole",
        "auth/user/revoke": "UserRevokeRole",
        "auth/role/add": "RoleAdd",
        "auth/role/get": "RoleGet",
        "auth/role/list": "RoleList",
        "auth/role/delete": "RoleDelete",
        "auth/role/grant": "RoleGrantPermission",
        "auth/role/revoke": "RoleRevokePermission",
    },
    "v3lockpb.Lock": {"lock/lock": "Lock", "lock/unlock": "Unlock"},
    "v3electionpb.Election": {
        "election/campaign": "Campaign",
        "election/proclaim": "Proclaim",
        "election/leader": "Leader",
        "election/observe": "Observe",
        "election/resign": "Resign",
    },
}


class Route(NamedTuple):
    """A method, and the types of its requests and responses."""

    path: str
    """Of the gRPC method."""
    method: Method | None
    """None if this server does not have it."""
    request: type[Message]
    answer: type[Message]
    takes_many: bool
    """Whether the client may send more than one message."""
    gives_many: bool
    """Whether the server may answer with other than one message."""


Routes = dict[str, Route]
"""By HTTP path."""


def find_routes(methods: Methods, pool: DescriptorPool) -> Routes:
    """Return etcd's paths, with or without a method for them, and those of our services."""
    routes: Routes = {}
    for service, paths in _ETCD.items():
        described = pool.FindServiceByName(service).methods_by_name
        for path, name in paths.items():
            routes[PREFIX + path] = _route(described[name], methods)
    for path in methods:
        service, _, name = path.removeprefix("/").partition("/")
        package, _, own_name = service.rpartition(".")
        if package == OWN_PACKAGE:
            descriptor = pool.FindServiceByName(service).methods_by_name[name]
            own_path = f"{OWN_PREFIX}{own_name.lower()}/{name.lower()}"
            routes[own_path] = _route(descriptor, methods)
    return routes


def _route(descriptor: MethodDescriptor, methods: Methods) -> Route:
    path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
    return Route(
        path,
        methods.get(path),
        GetMessageClass(descriptor.input_type),
        GetMessageClass(descriptor.output_type),
        descriptor.client_streaming,
        descriptor.server_streaming,
    )
