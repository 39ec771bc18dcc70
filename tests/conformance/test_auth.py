"""Authentication is off, on both servers; on ours it cannot be switched on yet."""

import pytest
from grpc import StatusCode

from leasehold.wire import auth_pb2 as auth
from tests.conformance.client import Client, fails, header
from tests.support.servers import RunningServer

NOT_ENABLED = "etcdserver: authentication is not enabled"
METHODS = sorted(method.name for method in auth.DESCRIPTOR.services_by_name["Auth"].methods)


def test_the_status_is_off_at_the_first_revision(client: Client) -> None:
    revision = client.revision()
    answer = client.checked(
        auth.AuthStatusResponse, client.raw("/etcdserverpb.Auth/AuthStatus", b"")
    )
    assert answer == auth.AuthStatusResponse(header=header(revision), authRevision=1)


@pytest.mark.parametrize("name", ["", "root"])
def test_nobody_is_authenticated(client: Client, name: str) -> None:
    request = auth.AuthenticateRequest(name=name, password=name).SerializeToString()
    with fails(StatusCode.FAILED_PRECONDITION, NOT_ENABLED):
        client.raw("/etcdserverpb.Auth/Authenticate", request)


def test_the_status_is_the_only_method_that_ours_does_not_refuse(
    server: RunningServer, client: Client
) -> None:
    if "leasehold" not in server.process.args:  # type: ignore[operator]
        pytest.skip("etcd has users and roles before authentication is enabled")
    assert len(METHODS) == 17
    for method in METHODS:
        if method != "AuthStatus":
            with fails(StatusCode.FAILED_PRECONDITION, NOT_ENABLED):
                client.raw(f"/etcdserverpb.Auth/{method}", b"")
