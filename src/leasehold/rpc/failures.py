"""What a server answers in place of an answer, as an error of ours."""

from leasehold.errors import STATUS_IS_DEFINITE, CallFailed, CallRefused, Status, TooBusy
from leasehold.rpc.grpc import RpcError


def as_ours(error: RpcError) -> Exception:
    """Turn a status into an error that is definite, or indefinite, as the status is."""
    if error.status is Status.DEADLINE_EXCEEDED:
        return TimeoutError(error.message)
    if error.status is Status.RESOURCE_EXHAUSTED:
        return TooBusy(error.message)
    is_definite = STATUS_IS_DEFINITE.get(error.status, False)
    return (CallRefused if is_definite else CallFailed)(str(error))
