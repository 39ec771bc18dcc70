"""etcd's Auth service, without authentication: it reports that authentication is off."""

from typing import Final

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Answer, Exchange, Method
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.wire.auth_pb2 import DESCRIPTOR, AuthStatusRequest

NOT_ENABLED: Final = "etcdserver: authentication is not enabled"

FIRST_REVISION: Final = b"\x18\x01"
"""The field of the revision of users and roles, which never changes."""

_SERVICE: Final = DESCRIPTOR.services_by_name["Auth"]
_parse_status = AuthStatusRequest.FromString


class AuthService:
    """Reports that authentication is off; every client may do everything."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = f"/{_SERVICE.full_name}/"
        refused: dict[str, Method] = {
            path + method.name: Exchange(self.refuse) for method in _SERVICE.methods
        }
        return {**refused, path + "AuthStatus": Exchange(self.status)}

    def status(self, message: bytes) -> Answer:
        """Return that authentication is off."""
        parse(_parse_status, message)
        return self._context.durable_header() + FIRST_REVISION, 0

    def refuse(self, message: bytes) -> Answer:
        """Refuse calls that would have no effect, or would not be stored."""
        raise RpcError(Status.FAILED_PRECONDITION, NOT_ENABLED)
