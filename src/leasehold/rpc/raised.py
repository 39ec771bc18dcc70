"""What a handler raised, as the error that its caller is told."""

import logging

from leasehold.errors import Closed, LeaseholdError, Status
from leasehold.rpc.grpc import RpcError

logger = logging.getLogger(__name__)


def as_rpc_error(error: BaseException, path: str) -> RpcError:
    """Give the error for the caller; what nobody has foreseen is for the log only."""
    if isinstance(error, Closed):  # in the midst of a call, which may be done or not
        return RpcError(Status.UNAVAILABLE, f"leasehold: {error}")
    if isinstance(error, LeaseholdError):
        return RpcError(error.status, f"leasehold: {error}")
    if isinstance(error, RpcError):
        return error
    logger.error("the handler of %s failed", path, exc_info=error)
    return RpcError(Status.INTERNAL, "internal error; the server's log says more")
