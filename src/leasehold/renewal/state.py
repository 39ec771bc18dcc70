"""The state of a renewal set: its members, those that have left, and when its warning is due. Pure.

Terms of a member. A client wants a lease to be kept until its *desired end*; without renewals it
runs until its *actual end*. A member leaves the set in one of five ways:

| how | event |
|---|---|
| the set ends | none |
| it is removed, or added again with a desired duration of zero or less | none |
| its desired end comes | none |
| its actual end passes before that | renewal failure |
| a renewal fails definitely | renewal failure |

Invariants:

- A member that has left is not in `members`. It is in `leaving` until the keys that record it are
  written: its own key is deleted, and its failure is numbered and queued, in one transaction. Calls
  on a set write what is in `leaving` before anything else, so that a lease that is added again is
  not deleted by an earlier departure.
- One warning is sent for each term of the set's lease, and for each warning listener.

Times are seconds. Ends of members are wall-clock times here, since these are what a key can store.
`NEVER` is an end that does not come.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from itertools import islice
from typing import Final, NamedTuple

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    NEVER,
    Duration,
    Requested,
    duration_of,
    seconds_of,
)

FAILURES_PER_TRANSACTION: Final = 40
"""Members that leave in one transaction, which has at most 128 operations."""

FAILURES_BYTES: Final = 256 * 1024
"""The references of these members; a request has at most 1.5 MiB."""

UNKNOWN_TERM_S: Final = 60.0
"""The assumed term of a lease that is added without one: it is renewed immediately, and leaves if
there is no answer in this time."""

LAST_END_S: Final = 253_402_300_799.0
"""The last second of the year 9999, by the wall clock: an end after that is `NEVER`."""


class SetEvent(IntEnum):
    """The kinds of events of a set: the same for all sets."""

    EXPIRATION_WARNING = 1
    RENEWAL_FAILURE = 2


class MemberChange(Enum):
    """The result of adding a lease to a set."""

    ADDED = "added"
    REPLACED = "its durations were replaced"
    REMOVED = "it was a member, and has left"
    IGNORED = "it is not wanted, and was no member"
    EXPIRED = "it had ended already"


class MemberTerms(NamedTuple):
    """The end until which a lease is renewed, and the duration that each renewal requests."""

    desired_end: float
    renew: Requested


def terms_of(desired: Requested, renew: Requested, wall: float) -> MemberTerms | None:
    """Return the terms of a lease that is to be kept for `desired` from now on.

    None if it is not to be kept: a desired duration of zero or less, or ANY. Raises `ValueError`
    for a `renew` that is not allowed.
    """
    if renew is ANY and desired is not FOREVER:
        raise ValueError("renew_duration may be ANY only with a desired duration of FOREVER")
    if isinstance(renew, float) and not renew > 0.0:
        raise ValueError(f"renew_duration must be more than zero, got {renew:g} s")
    if desired is ANY or (isinstance(desired, float) and desired <= 0.0):
        return None
    return MemberTerms(end_after(desired, wall), renew)


def end_after(duration: Duration, wall: float) -> float:
    """Return the end of a duration that begins now, by the wall clock."""
    end = wall + seconds_of(duration)
    return NEVER if end > LAST_END_S else end


@dataclass(slots=True, eq=False)
class Member:
    """A lease in a set."""

    digest: str
    """Identifies the lease in the set; part of the member's key."""
    reference: bytes
    """As it was received: it may be one that cannot be decoded."""
    terms: MemberTerms
    end: float
    """The end as last recorded. While the set is served, the lease itself has the current one."""
    term_s: float
    order: int
    """Members are renewed in this order after a restart."""

    @property
    def term(self) -> Duration:
        """The length of the term as last recorded."""
        return duration_of(self.term_s)


class Leaving(NamedTuple):
    """A member that has left, and whose keys are to be written."""

    member: Member
    is_failure: bool
    error: BaseException | None = None


@dataclass(slots=True)
class WarningState:
    """When the warning of a set is due, for its present listener."""

    min_warning_s: float
    told_term: int = -1
    """The term that the last warning was about: terms of a set's lease are numbered."""

    def wait_s(self, term: int, remaining_s: float) -> float:
        """Return in how much time the warning is due, if the set's lease has so much left.

        0 if it is due; `NEVER` if it was sent for this term, or the lease does not end.
        """
        if term == self.told_term:
            return NEVER
        return max(0.0, remaining_s - self.min_warning_s)


@dataclass(slots=True)
class SetState:
    """The members of a set, and the state of its warning."""

    members: dict[str, Member] = field(default_factory=dict)
    """By digest, in the order in which they were added, which is that of their numbers."""
    leaving: deque[Leaving] = field(default_factory=deque)
    warning: WarningState | None = None
    """None without a listener for warnings."""
    last_order: int = 0

    def restore(self, member: Member) -> None:
        """Add a member that was stored; those with lower numbers come first."""
        self.members[member.digest] = member
        self.last_order = max(self.last_order, member.order)

    def after(self, order: int, count: int) -> list[Member]:
        """Return the first members with higher numbers than `order`, at most `count`."""
        later = (member for member in self.members.values() if member.order > order)
        return list(islice(later, count))

    def admission(self, digest: str, terms: MemberTerms | None, *, is_over: bool) -> MemberChange:
        """Return the effect of adding a lease; nothing is changed."""
        is_member = digest in self.members
        if terms is None:
            return MemberChange.REMOVED if is_member else MemberChange.IGNORED
        if is_member:
            return MemberChange.REPLACED
        return MemberChange.EXPIRED if is_over else MemberChange.ADDED

    def new_member(
        self, digest: str, reference: bytes, terms: MemberTerms, end: float, term_s: float
    ) -> Member:
        """Make a member with the next number; it is not added."""
        return Member(digest, reference, terms, end, term_s, self.last_order + 1)

    def leave(self, member: Member, *, is_failure: bool, error: BaseException | None) -> bool:
        """Let a member leave; return False if it has left already."""
        if self.members.get(member.digest) is not member:
            return False
        del self.members[member.digest]
        self.leaving.append(Leaving(member, is_failure, error))
        return True

    def removed(self, member: Member) -> None:
        """Forget that a member has left: it was removed by a call while it did."""
        self.leaving = deque(each for each in self.leaving if each.member is not member)

    def leaving_now(self) -> list[Leaving]:
        """Return the first members whose departure is to be written, as many as fit."""
        return list(_first(self.leaving))

    def written(self, count: int) -> None:
        """Record that the keys of the first ones were written."""
        for _ in range(count):
            self.leaving.popleft()


def _first(queue: deque[Leaving]) -> Iterator[Leaving]:
    size_bytes = 0
    for place, leaving in enumerate(queue):
        size_bytes += len(leaving.member.reference)
        if place and (place >= FAILURES_PER_TRANSACTION or size_bytes > FAILURES_BYTES):
            return
        yield leaving
