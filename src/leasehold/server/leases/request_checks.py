"""Refusals of calls, with our own texts, sent once the state they are based on is on disk."""

from typing import Final, NoReturn

from leasehold.errors import (
    Closed,
    JournalFailed,
    LeaseExists,
    LeaseholdError,
    Status,
)
from leasehold.grpc.error_details import REFUSED, detail_of
from leasehold.grpc.protocol import RpcError
from leasehold.server.etcd.service_context import ServiceContext

MAX_HOLDER_BYTES: Final = 256
"""Of the name of a holder: it is stored with each of its leases, in the journal too."""

_PREFIX = "etcdserver: "


def invalid(text: str) -> RpcError:
    """Refuse an argument."""
    return RpcError(Status.INVALID_ARGUMENT, text)


def check_holder(holder: str) -> None:
    """Refuse a name that is too long."""
    size = len(holder.encode())
    if size > MAX_HOLDER_BYTES:
        raise invalid(f"holder must have at most {MAX_HOLDER_BYTES} bytes, got {size:,}")


def check_room(context: ServiceContext, request_bytes: int) -> None:
    """Refuse a change while too much is waiting for the disk, or if it is too large."""
    try:
        context.check_room(request_bytes)
    except RpcError as error:
        text = error.message.removeprefix(_PREFIX)
        raise RpcError(error.status, text, detail=error.detail) from None


def refuse(context: ServiceContext, error: LeaseholdError) -> NoReturn:
    """Raise a refusal, which is sent once the state that it is based on is on disk."""
    position = 0
    if isinstance(error, LeaseExists):
        position = context.store.lease_position(error.lease)
    detail = detail_of(error, is_whole_call=True)
    raise RpcError(error.status, str(error), position, detail=detail) from error


async def enter(context: ServiceContext) -> None:
    """Wait until no sliced operation is in progress. Raises `RpcError` if the server stopped."""
    try:
        await context.runtime.enter()
    except (Closed, JournalFailed) as error:
        raise RpcError(Status.UNAVAILABLE, "the server has stopped", detail=REFUSED) from error
