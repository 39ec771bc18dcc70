"""What has become of the leases of a batch: a term that they have in common, and the exceptions."""

from collections import Counter
from typing import Final

from leasehold.core.duration import Duration, to_wire_ms
from leasehold.errors import EndReason, LeaseDenied, LeaseholdError, Status, UnknownLease
from leasehold.wire import leases_pb2
from leasehold.wire.leases_pb2 import LeaseFailure, RenewAllResponse, RevokeAllResponse

REASONS: Final = {
    EndReason.UNKNOWN: leases_pb2.UNKNOWN,
    EndReason.EXPIRED: leases_pb2.EXPIRED,
    EndReason.CANCELLED: leases_pb2.REVOKED,
}


class Outcomes:
    """Collects what becomes of the leases of a batch, by their places in it."""

    __slots__ = ("_failures", "_others", "count", "ttl_ms", "unknown")

    def __init__(self, ttl_ms: int = 0) -> None:
        self.ttl_ms = ttl_ms
        """The term that most of them have, as far as it can be guessed before."""
        self.count = 0
        self._others: dict[int, int] = {}
        self.unknown: dict[int, EndReason] = {}
        self._failures: list[LeaseFailure] = []

    def guess(self, term: Duration) -> None:
        """Take a term for the one that most of them have; before the first one is noted."""
        if not self._others:
            self.ttl_ms = to_wire_ms(term)

    def add(self, place: int, outcome: Duration | BaseException) -> None:
        """Note what has become of one lease; those that have got the common term need not be."""
        if isinstance(outcome, UnknownLease):
            self.unknown[place] = outcome.reason
        elif isinstance(outcome, BaseException):
            self._failures.append(_failure(place, outcome))
        elif (ttl_ms := to_wire_ms(outcome)) != self.ttl_ms:
            self._others[place] = ttl_ms

    def renewed(self) -> bytes:
        """Give the answer to a renewal, but for its header."""
        self._choose_common()
        return RenewAllResponse(
            ttl_ms=self.ttl_ms,
            others=self._others.keys(),
            others_ttl_ms=self._others.values(),
            unknown=self.unknown.keys(),
            unknown_reasons=[REASONS[reason] for reason in self.unknown.values()],
            failures=self._failures,
        ).SerializeToString()

    def revoked(self) -> bytes:
        """Give the answer to a revocation, but for its header."""
        return RevokeAllResponse(
            unknown=self.unknown.keys(),
            unknown_reasons=[REASONS[reason] for reason in self.unknown.values()],
            failures=self._failures,
        ).SerializeToString()

    def _choose_common(self) -> None:
        """Have the most frequent term in common, if the guess was wrong."""
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


def _failure(place: int, error: BaseException) -> LeaseFailure:
    if isinstance(error, LeaseDenied):
        return LeaseFailure(place=place, status=error.status, message=error.why, denied=True)
    if isinstance(error, LeaseholdError):
        return LeaseFailure(place=place, status=error.status, message=str(error))
    return LeaseFailure(
        place=place, status=Status.INTERNAL, message=f"the grantor failed: {type(error).__name__}"
    )
