"""Batches of leases as messages of `leasehold.v1.Leases`: requests, and the outcome of each lease.

A holder names its leases with `renewal_of` and `put_names`, numbers first, and reads the answer
with `terms_of` and `paired`. The grantor collects the answer in `Outcomes`. An answer has one
common term, and only the exceptions from it, by their places in the request.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, Self

from leasehold.basics.durations import ANY, Duration, Requested, from_wire_ms, to_wire_ms
from leasehold.errors import (
    CallFailed,
    EndReason,
    LeaseDenied,
    LeaseholdError,
    Status,
    UnknownLease,
    is_definite,
)
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.leases import lease_codec
from leasehold.leases.lease import Lease, Outcome, check_answer
from leasehold.wire import leases_pb2 as pb

MAX_BATCH: Final = 50_000
"""Leases in one message."""

MAX_BATCH_BYTES: Final = 1024 * 1024
"""The limit of the total length of their names; servers accept messages of twice that."""

REASONS: Final = {
    pb.UNKNOWN: EndReason.UNKNOWN,
    pb.EXPIRED: EndReason.EXPIRED,
    pb.REVOKED: EndReason.CANCELLED,
}

REASON_CODES: Final = {reason: code for code, reason in REASONS.items()}

_IDS: Final = range(-(2**63), 2**63)
_NUMBER_BYTES: Final = 20
"""The maximum length of an id, and of a term."""

Batch = list[tuple[Lease, Requested]]
"""Leases of one landlord, with the requested term of each."""


def parts(wants: Batch) -> Iterator[Batch]:
    """Split a batch into parts that fit into a message."""
    part: Batch = []
    size_bytes = 0
    for lease, requested in wants:
        size = _size(lease.cookie)
        if part and (len(part) >= MAX_BATCH or size_bytes + size > MAX_BATCH_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append((lease, requested))
        size_bytes += size
    yield part


def _size(cookie: Hashable) -> int:
    return _NUMBER_BYTES + (0 if _has_id(cookie) else len(lease_codec.name_to_bytes(cookie)))


def _has_id(cookie: Hashable) -> bool:
    return type(cookie) is int and cookie in _IDS


def numbers_first(wants: Batch) -> Batch:
    """Return the leases in the order in which a message names them."""
    return sorted(wants, key=lambda want: not _has_id(want[0].cookie))


def put_names(request: pb.RenewAllRequest | pb.RevokeAllRequest, wants: Batch) -> None:
    """Add the names of the leases to a message, numbers first."""
    for lease, _ in wants:
        if type(lease.cookie) is int and lease.cookie in _IDS:
            request.ids.append(lease.cookie)
        else:
            request.cookies.append(lease_codec.name_to_bytes(lease.cookie))


def renewal_of(ordered: Batch, grantor: str) -> pb.RenewAllRequest:
    """Return the message that requests new terms."""
    request = pb.RenewAllRequest(grantor=grantor)
    put_names(request, ordered)
    put_terms(request, [requested for _, requested in ordered])
    return request


def put_terms(request: pb.RenewAllRequest, terms: Sequence[Requested]) -> None:
    """Add the requested terms to a message; one term if they are all equal."""
    terms_ms = list(map(to_wire_ms, terms))
    if len(set(terms_ms)) == 1:
        request.ttl_ms = terms_ms[0]
    else:
        request.ttls_ms.extend(terms_ms)


def terms_of(answer: pb.RenewAllResponse, count: int) -> list[Requested]:
    """Return the terms that were granted, where there was no failure."""
    terms_ms = [answer.ttl_ms] * count
    for place, ttl_ms in zip(answer.others, answer.others_ttl_ms, strict=True):
        terms_ms[place] = ttl_ms
    return list(map(from_wire_ms, terms_ms))


def paired(
    ordered: Batch,
    terms: Sequence[Requested],
    answer: pb.RenewAllResponse | pb.RevokeAllResponse,
) -> list[tuple[Lease, Outcome]]:
    """Return the outcome of each lease: its failure in `answer`, or else its term in `terms`."""
    wants = [(lease.cookie, requested) for lease, requested in ordered]
    outcomes = outcomes_in(answer, terms, wants)
    return [(lease, outcome) for (lease, _), outcome in zip(ordered, outcomes, strict=True)]


def outcomes_in(
    answer: pb.RenewAllResponse | pb.RevokeAllResponse,
    terms: Sequence[Requested],
    wants: Sequence[tuple[Hashable, Requested]],
) -> list[Outcome]:
    """Return the outcome of each lease, by its cookie and requested term, in their order."""
    outcomes: list[Outcome] = [check_answer(term) for term in terms]
    for place, reason in zip(answer.unknown, answer.unknown_reasons, strict=True):
        cookie, _ = wants[place]
        outcomes[place] = UnknownLease(cookie, REASONS.get(reason, EndReason.UNKNOWN))
    for failure in answer.failures:
        outcomes[failure.place] = _error(failure, *wants[failure.place])
    return outcomes


def _error(failure: pb.LeaseFailure, cookie: Hashable, requested: Requested) -> Exception:
    if failure.denied:
        return LeaseDenied(failure.message, lease=cookie, requested=requested)
    return error_of(failure)


def error_of(failure: pb.LeaseFailure) -> Exception:
    """Return the error for a lease of a batch."""
    try:
        return as_ours(RpcError(Status(failure.status), failure.message))
    except ValueError:
        return CallFailed(f"status {failure.status}: {failure.message}")


# The grantor's side.


def wants_in(request: pb.RenewAllRequest | pb.RevokeAllRequest) -> list[tuple[Hashable, Requested]]:
    """Return the leases of a request, each with its requested term: 0.0 if it is to be ended.

    Raises `RpcError` for a request that is not valid.
    """
    count = len(request.ids) + len(request.cookies)
    if count > MAX_BATCH:
        raise _invalid(f"{count:,} leases in one message; send at most {MAX_BATCH:,} at a time")
    try:
        cookies = [*request.ids, *map(lease_codec.name_from_bytes, request.cookies)]
    except ValueError as error:
        raise _invalid(f"invalid cookie: {error}") from None
    if isinstance(request, pb.RenewAllRequest):
        return list(zip(cookies, _requested(request, count), strict=True))
    return [(cookie, 0.0) for cookie in cookies]


def _requested(request: pb.RenewAllRequest, count: int) -> list[Requested]:
    if request.ttls_ms and len(request.ttls_ms) != count:
        raise _invalid(
            f"ttls_ms must have one term for each of {count:,} leases or be empty, got "
            f"{len(request.ttls_ms):,}"
        )
    try:
        if request.ttls_ms:
            return list(map(from_wire_ms, request.ttls_ms))
        return [from_wire_ms(request.ttl_ms) if request.HasField("ttl_ms") else ANY] * count
    except ValueError as error:
        raise _invalid(str(error)) from None


def _invalid(text: str) -> RpcError:
    return RpcError(Status.INVALID_ARGUMENT, text)


class Outcomes:
    """Collects the outcomes of the leases of a batch, by their indexes."""

    __slots__ = ("_failures", "_others", "count", "ttl_ms", "unknown")

    def __init__(self, ttl_ms: int = 0) -> None:
        self.ttl_ms = ttl_ms
        """The term that most of them have, as far as it can be guessed in advance."""
        self.count = 0
        self._others: dict[int, int] = {}
        self.unknown: dict[int, EndReason] = {}
        self._failures: list[pb.LeaseFailure] = []

    @classmethod
    def all_unknown(cls, count: int) -> Self:
        """Return the outcomes of leases of another grantor."""
        outcomes = cls()
        outcomes.count = count
        outcomes.unknown = dict.fromkeys(range(count), EndReason.UNKNOWN)
        return outcomes

    def guess(self, term: Duration) -> None:
        """Set the guess of the most frequent term; before the first outcome is added."""
        if not self._others:
            self.ttl_ms = to_wire_ms(term)

    def add(self, place: int, outcome: Duration | BaseException) -> None:
        """Add the outcome of one lease; not needed for those that got the common term."""
        if isinstance(outcome, UnknownLease):
            self.unknown[place] = outcome.reason
        elif isinstance(outcome, BaseException):
            self._failures.append(_failure(place, outcome))
        elif (ttl_ms := to_wire_ms(outcome)) != self.ttl_ms:
            self._others[place] = ttl_ms

    def extend(self, outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of the next leases, in order."""
        if not self.count and not self.ttl_ms:
            for outcome in outcomes:
                if not isinstance(outcome, BaseException):
                    self.guess(outcome)
                    break
        for place, outcome in enumerate(outcomes, self.count):
            self.add(place, outcome)
        self.count += len(outcomes)

    def renewed(self) -> bytes:
        """Return the answer to a renewal, without its header."""
        self._choose_common()
        return pb.RenewAllResponse(
            ttl_ms=self.ttl_ms,
            others=self._others.keys(),
            others_ttl_ms=self._others.values(),
            unknown=self.unknown.keys(),
            unknown_reasons=[REASON_CODES[reason] for reason in self.unknown.values()],
            failures=self._failures,
        ).SerializeToString()

    def revoked(self) -> bytes:
        """Return the answer to a revocation, without its header."""
        return pb.RevokeAllResponse(
            unknown=self.unknown.keys(),
            unknown_reasons=[REASON_CODES[reason] for reason in self.unknown.values()],
            failures=self._failures,
        ).SerializeToString()

    def _choose_common(self) -> None:
        """Choose the most frequent term as the common one, if the guess was wrong."""
        failed = {*self.unknown, *(failure.place for failure in self._failures)}
        as_guessed = self.count - len(failed) - len(self._others)
        if len(self._others) <= as_guessed:
            return
        ((ttl_ms, count),) = Counter(self._others.values()).most_common(1)
        if count > as_guessed:
            places = set(range(self.count)) - self._others.keys() - failed
            others = {place: each for place, each in self._others.items() if each != ttl_ms}
            others.update(dict.fromkeys(places, self.ttl_ms))
            self._others = dict(sorted(others.items()))
            self.ttl_ms = ttl_ms


def _failure(place: int, error: BaseException) -> pb.LeaseFailure:
    if isinstance(error, LeaseDenied):
        return pb.LeaseFailure(place=place, status=error.status, message=error.why, denied=True)
    if isinstance(error, LeaseholdError):
        return pb.LeaseFailure(place=place, status=error.status, message=str(error))
    # Of the program: its policy, or the owner of the resource.
    status = Status.FAILED_PRECONDITION if is_definite(error) else Status.UNAVAILABLE
    message = f"the grantor failed: {type(error).__name__}"
    return pb.LeaseFailure(place=place, status=status, message=message)
