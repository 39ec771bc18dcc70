"""How calls are refused: in words of our own, once what they are based on is on disk."""

from typing import Final, NoReturn

from leasehold.errors import (
    Closed,
    JournalFailed,
    LeaseExists,
    LeaseholdError,
    Status,
)
from leasehold.rpc.grpc import RpcError
from leasehold.server.etcd.desk import Desk

MAX_HOLDER_BYTES: Final = 256
"""The name of a holder: it is kept with each of its leases, in the journal too."""

_PREFIX = "etcdserver: "


def invalid(text: str) -> RpcError:
    """Refuse an argument."""
    return RpcError(Status.INVALID_ARGUMENT, text)


def check_holder(holder: str) -> None:
    """Refuse a name that is too long."""
    size = len(holder.encode())
    if size > MAX_HOLDER_BYTES:
        raise invalid(f"the name of a holder has at most {MAX_HOLDER_BYTES} bytes, not {size:,}")


def check_room(desk: Desk, request_bytes: int) -> None:
    """Refuse a change while too much is waiting for the disk, or if it is too large."""
    try:
        desk.check_room(request_bytes)
    except RpcError as error:
        raise RpcError(error.status, error.message.removeprefix(_PREFIX)) from None


def refuse(desk: Desk, error: LeaseholdError) -> NoReturn:
    """Say no, once what the refusal is based on is on disk."""
    position = 0
    if isinstance(error, LeaseExists):
        position = desk.store.lease_position(error.lease)
    raise RpcError(error.status, str(error), position) from error


async def enter(desk: Desk) -> None:
    """Come back after a pause: if the server still serves, and no operation is under way."""
    try:
        await desk.runtime.enter()
    except (Closed, JournalFailed) as error:
        raise RpcError(Status.UNAVAILABLE, "the server has stopped") from error
