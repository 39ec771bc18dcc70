"""What a server answers in place of an answer, as an error of ours; and whether it was executed.

The one place that decides from a status and a text whether a call was executed: see `is_refusal`.
"""

import re
from typing import Final

from leasehold.errors import (
    STATUS_IS_DEFINITE,
    CallFailed,
    CallRefused,
    LeaseholdError,
    Status,
    TooBusy,
    TooLarge,
)
from leasehold.rpc.grpc import RpcError

_EXHAUSTED: Final = re.compile(
    r"(?:etcdserver: |leasehold: )?(?:"
    r"too many requests$"
    r"|mvcc: database space exceeded$"
    r"|[\d,]+ bytes are in use, and the quota is "
    r"|the quota was used up, and the alarm that this has raised"
    r"|lease -?[0-9a-f]+ has all the keys it may have: "
    r"|the answers on this connection are not taken; "
    r"|\d+ calls wait for a server that takes "
    r"|too much metadata: "
    r")"
)
"""Texts of RESOURCE_EXHAUSTED that are said before a call is executed: those of etcd, of a
Leasehold server, and of our own client. gRPC has the same status for an answer that is too long,
and for streams that a server resets: then the call may have been executed."""

_LARGER: Final = re.compile(r"larger than max \(.* vs\. (\d+)\)$")
"""gRPC's text for a message above a limit. Servers send it for a request, before it is executed,
and proxies for an answer: a request that is within the limit was not what is too large."""

_LARGE_ANSWER: Final = re.compile(
    r"answer larger than this client accepts |(?:etcdserver: )?answer would be larger than "
)
"""Texts of our client, and of a Leasehold server that has not executed the call."""

_AFTERWARDS: Final = frozenset({Status.DATA_LOSS})
"""Definite statuses that say nothing about whether the call was executed."""


def is_refusal(error: RpcError, request_bytes: int = 0) -> bool:
    """Return whether a call was certainly not executed; otherwise its outcome is unknown.

    `request_bytes` is the size of the request, or 0 if that is not known.
    """
    if error.status is Status.RESOURCE_EXHAUSTED:
        if larger := _LARGER.search(error.message):
            return request_bytes > int(larger[1])
        return _EXHAUSTED.match(error.message) is not None
    return STATUS_IS_DEFINITE.get(error.status, False) and error.status not in _AFTERWARDS


def as_ours(error: RpcError, request_bytes: int = 0) -> Exception:
    """Turn a status into an error that is definite, or indefinite, as the status is.

    An exception is `TooLarge` for RESOURCE_EXHAUSTED: it is definite, so it is raised only if it is
    certain which message was too large.
    """
    if error.status is Status.DEADLINE_EXCEEDED:
        return TimeoutError(error.message)
    not_executed = is_refusal(error, request_bytes)
    is_larger = _LARGER.search(error.message) is not None
    ours: LeaseholdError
    if _LARGE_ANSWER.match(error.message) or (is_larger and not_executed):
        ours = TooLarge(error.message)
    elif error.status is Status.RESOURCE_EXHAUSTED and not is_larger:
        ours = TooBusy(error.message)
    elif STATUS_IS_DEFINITE.get(error.status, False):
        ours = CallRefused(str(error))
    else:
        ours = CallFailed(str(error))
    ours.not_executed = not_executed
    return ours
