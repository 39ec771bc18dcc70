"""Errors of calls: from an exception of a handler to a status, and from a status to an exception.

A server turns the exception of a handler into the status that its caller receives
(`as_rpc_error`). A client turns the status of a server into an exception that tells whether the
call was executed (`as_ours`). A Leasehold server sends the error as structured details: see
`grpc.error_details`. For other servers `is_refusal` is the only place that decides this from a
status and a text. Texts of our own are not parsed.
"""

import logging
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from leasehold.errors import (
    STATUS_IS_DEFINITE,
    CallFailed,
    CallRefused,
    Closed,
    LeaseholdError,
    Status,
    TooBusy,
    TooLarge,
)
from leasehold.grpc.error_details import certainty_of, detail_of, error_of_detail
from leasehold.grpc.protocol import RpcError
from leasehold.http2.inbound import BufferFull

logger = logging.getLogger(__name__)

_EXHAUSTED: Final = re.compile(
    r"(?:etcdserver: )?(?:too many requests|mvcc: database space exceeded)$"
)
"""etcd's texts of RESOURCE_EXHAUSTED that are sent before a call is executed. gRPC uses the same
status for an answer that is too long, and for streams that a server resets: then the call may have
been executed."""

_LARGER: Final = re.compile(r"larger than max \(.* vs\. (\d+)\)$")
"""gRPC's text for a message above a limit. Servers send it for a request, before it is executed,
and proxies for an answer: if the request is within the limit, it was not the message that is too
large."""

_AFTERWARDS: Final = frozenset({Status.DATA_LOSS})
"""Definite statuses that do not tell whether the call was executed."""

_NOTHING_KNOWN: Final[Mapping[str, object]] = MappingProxyType({})


def as_rpc_error(error: BaseException, path: str) -> RpcError:
    """Return the error for the caller; the text of an unexpected exception is only logged."""
    if isinstance(error, Closed):  # during a call, which may be executed or not
        return RpcError(Status.UNAVAILABLE, f"leasehold: {error}")
    if isinstance(error, LeaseholdError):
        detail = detail_of(error, is_whole_call=False)
        return RpcError(error.status, f"leasehold: {error}", detail=detail)
    if isinstance(error, RpcError):
        return error
    if isinstance(error, BufferFull):
        return RpcError(Status.RESOURCE_EXHAUSTED, str(error))
    logger.error("the handler of %s failed", path, exc_info=error)
    return RpcError(Status.INTERNAL, "internal error; the server's log says more")


def is_refusal(error: RpcError, request_bytes: int = 0) -> bool:
    """Return whether a call was certainly not executed; otherwise its outcome is unknown.

    `request_bytes` is the size of the request, or 0 if that is not known.
    """
    certainty = certainty_of(error.detail)
    if certainty is not None:
        return certainty
    if error.status is Status.RESOURCE_EXHAUSTED:
        if larger := _LARGER.search(error.message):
            return request_bytes > int(larger[1])
        return _EXHAUSTED.match(error.message) is not None
    return STATUS_IS_DEFINITE.get(error.status, False) and error.status not in _AFTERWARDS


def as_ours(
    error: RpcError, request_bytes: int = 0, known: Mapping[str, object] = _NOTHING_KNOWN
) -> Exception:
    """Turn a status into the error of its details; else definite or indefinite as the status is.

    `known` has values for fields that the details lack, by name. Without details the exception is
    `TooLarge` for RESOURCE_EXHAUSTED only if it is certain which message was too large: that error
    is definite.
    """
    if error.status is Status.DEADLINE_EXCEEDED:
        return TimeoutError(error.message)
    not_executed = is_refusal(error, request_bytes)
    ours: LeaseholdError | None = None
    if error.detail is not None:
        ours = error_of_detail(error.detail, error.message, known)
    if ours is None:
        ours = _by_status(error, not_executed=not_executed)
    ours.not_executed = not_executed
    return ours


def _by_status(error: RpcError, *, not_executed: bool) -> LeaseholdError:
    is_larger = _LARGER.search(error.message) is not None
    if is_larger and not_executed:
        return TooLarge(error.message)
    if error.status is Status.RESOURCE_EXHAUSTED and not is_larger:
        return TooBusy(error.message)
    if STATUS_IS_DEFINITE.get(error.status, False):
        return CallRefused(str(error))
    return CallFailed(str(error))
