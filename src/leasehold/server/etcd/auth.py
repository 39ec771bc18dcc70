"""etcd's Auth service, as long as there is none: it says so."""

from typing import Final

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Exchange, Method
from leasehold.server.etcd.desk import Desk
from leasehold.wire.auth_pb2 import DESCRIPTOR, AuthStatusRequest

NOT_ENABLED: Final = "etcdserver: authentication is not enabled"

FIRST_REVISION: Final = b"\x18\x01"
"""The field of the revision of users and roles, which nobody has ever changed."""

_SERVICE: Final = DESCRIPTOR.services_by_name["Auth"]
_parse_status = AuthStatusRequest.FromString


class Auth:
    """Says that everybody may do everything."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = f"/{_SERVICE.full_name}/"
        refused: dict[str, Method] = {
            path + method.name: Exchange(self.refuse) for method in _SERVICE.methods
        }
        return {**refused, path + "AuthStatus": Exchange(self.status)}

    def status(self, message: bytes) -> Answer:
        """Say that authentication is off."""
        parse(_parse_status, message)
        return self._desk.durable_header() + FIRST_REVISION, 0

    def refuse(self, message: bytes) -> Answer:
        """Refuse what would mean nothing, or would be forgotten."""
        raise RpcError(Status.FAILED_PRECONDITION, NOT_ENABLED)
