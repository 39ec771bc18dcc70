"""What a server answers in place of an answer, as an error of ours; and whether it was executed.

The one place that decides from a status and a text whether a call was executed: see `is_refusal`.
"""

import re
from typing import Final

from leasehold.errors import STATUS_IS_DEFINITE, CallFailed, CallRefused, Status, TooBusy
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

_AFTERWARDS: Final = frozenset({Status.DATA_LOSS})
"""Definite statuses that say nothing about whether the call was executed."""


def is_refusal(error: RpcError) -> bool:
    """Say whether a call was certainly not executed; otherwise its outcome is unknown."""
    if error.status is Status.RESOURCE_EXHAUSTED:
        return _EXHAUSTED.match(error.message) is not None
    return STATUS_IS_DEFINITE.get(error.status, False) and error.status not in _AFTERWARDS


def as_ours(error: RpcError) -> Exception:
    """Turn a status into an error that is definite, or indefinite, as the status is."""
    if error.status is Status.DEADLINE_EXCEEDED:
        return TimeoutError(error.message)
    ours: TooBusy | CallRefused | CallFailed
    if error.status is Status.RESOURCE_EXHAUSTED:
        ours = TooBusy(error.message)
    elif STATUS_IS_DEFINITE.get(error.status, False):
        ours = CallRefused(str(error))
    else:
        ours = CallFailed(str(error))
    ours.not_executed = is_refusal(error)
    return ours
