"""Errors as etcd's gateway tells them: a status of HTTP, and a document of JSON.

An error that comes instead of an answer is a document of its own. One that ends a stream comes as
its last line, for the status of HTTP was sent long ago.
"""

from http import HTTPStatus
from typing import Final

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.server.gateway.strings import quoted

HTTP_STATUS: Final = {
    Status.OK: HTTPStatus.OK,
    Status.CANCELLED: HTTPStatus.REQUEST_TIMEOUT,
    Status.UNKNOWN: HTTPStatus.INTERNAL_SERVER_ERROR,
    Status.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    Status.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
    Status.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Status.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    Status.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    Status.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    Status.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    Status.ABORTED: HTTPStatus.CONFLICT,
    Status.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    Status.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    Status.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    Status.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Status.DATA_LOSS: HTTPStatus.INTERNAL_SERVER_ERROR,
    Status.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
}


MAX_TEXT: Final = 2048
"""Characters of an error that are told: some repeat what was sent."""


def document(error: RpcError) -> bytes:
    """Give the document that comes instead of an answer."""
    text = quoted(error.message[:MAX_TEXT])
    return f'{{"error":{text},"code":{error.status.value},"message":{text}}}'.encode()


def last_line(error: RpcError) -> bytes:
    """Give the line that ends a stream."""
    http = HTTP_STATUS[error.status]
    return (
        f'{{"error":{{"grpc_code":{error.status.value},"http_code":{http.value},'
        f'"message":{quoted(error.message[:MAX_TEXT])},"http_status":{quoted(http.phrase)}}}}}'
    ).encode()
