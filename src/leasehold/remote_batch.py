"""Batches of a remote landlord as messages: which leases, what is asked for, what came of it."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from leasehold.core import codec
from leasehold.core.duration import Requested, from_wire_ms, to_wire_ms
from leasehold.errors import CallFailed, EndReason, LeaseDenied, Status, UnknownLease
from leasehold.lease import Lease, Outcome, check_answer
from leasehold.rpc.failures import as_ours
from leasehold.rpc.grpc import RpcError
from leasehold.wire import leases_pb2 as pb

MAX_BATCH: Final = 50_000
"""Leases in one message."""

MAX_BATCH_BYTES: Final = 1024 * 1024
"""And what their names may take together; servers take messages of twice that."""

REASONS: Final = {
    pb.UNKNOWN: EndReason.UNKNOWN,
    pb.EXPIRED: EndReason.EXPIRED,
    pb.REVOKED: EndReason.CANCELLED,
}

_IDS: Final = range(-(2**63), 2**63)
_NUMBER_BYTES: Final = 20
"""What an id takes, and a term, at most."""

Batch = list[tuple[Lease, Requested]]
"""Leases of one landlord, with what is asked for."""


def parts(wants: Batch) -> Iterator[Batch]:
    """Cut a batch into such as a message takes."""
    part: Batch = []
    octets = 0
    for lease, requested in wants:
        size = _size(lease.cookie)
        if part and (len(part) >= MAX_BATCH or octets + size > MAX_BATCH_BYTES):
            yield part
            part, octets = [], 0
        part.append((lease, requested))
        octets += size
    yield part


def _size(cookie: Hashable) -> int:
    return _NUMBER_BYTES + (0 if _has_id(cookie) else len(codec.name_to_bytes(cookie)))


def _has_id(cookie: Hashable) -> bool:
    return type(cookie) is int and cookie in _IDS


def numbers_first(wants: Batch) -> Batch:
    """Give the leases in the order in which a message names them."""
    return sorted(wants, key=lambda want: not _has_id(want[0].cookie))


def put_names(request: pb.RenewAllRequest | pb.RevokeAllRequest, wants: Batch) -> None:
    """Name the leases in a message, numbers first."""
    for lease, _ in wants:
        if type(lease.cookie) is int and lease.cookie in _IDS:
            request.ids.append(lease.cookie)
        else:
            request.cookies.append(codec.name_to_bytes(lease.cookie))


def renewal_of(ordered: Batch, grantor: str) -> pb.RenewAllRequest:
    """Make the message that asks for new terms."""
    request = pb.RenewAllRequest(grantor=grantor)
    put_names(request, ordered)
    terms = [to_wire_ms(requested) for _, requested in ordered]
    if len(set(terms)) == 1:
        request.ttl_ms = terms[0]
    else:
        request.ttls_ms.extend(terms)
    return request


def terms_of(answer: pb.RenewAllResponse, count: int) -> list[Requested]:
    """Read the terms that were granted, where there was no failure."""
    terms_ms = [answer.ttl_ms] * count
    for place, ttl_ms in zip(answer.others, answer.others_ttl_ms, strict=True):
        terms_ms[place] = ttl_ms
    return list(map(from_wire_ms, terms_ms))


def paired(
    ordered: Batch,
    terms: Sequence[Requested],
    answer: pb.RenewAllResponse | pb.RevokeAllResponse,
) -> list[tuple[Lease, Outcome]]:
    """Give what has become of each lease; `terms` is what they have got unless that says more."""
    outcomes: list[Outcome] = [check_answer(term) for term in terms]
    for place, reason in zip(answer.unknown, answer.unknown_reasons, strict=True):
        lease, _ = ordered[place]
        outcomes[place] = UnknownLease(lease.cookie, REASONS.get(reason, EndReason.UNKNOWN))
    for failure in answer.failures:
        outcomes[failure.place] = _error(failure, *ordered[failure.place])
    return [(lease, outcome) for (lease, _), outcome in zip(ordered, outcomes, strict=True)]


def _error(failure: pb.LeaseFailure, lease: Lease, requested: Requested) -> Exception:
    if failure.denied:
        return LeaseDenied(failure.message, lease=lease.cookie, requested=requested)
    return error_of(failure)


def error_of(failure: pb.LeaseFailure) -> Exception:
    """Give the error that a lease of a batch has met with."""
    try:
        return as_ours(RpcError(Status(failure.status), failure.message))
    except ValueError:
        return CallFailed(f"status {failure.status}: {failure.message}")
