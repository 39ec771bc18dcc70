"""What must be true of the log of a resource that was used under locks."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.faults.lock_resource import Operation


class Violation(NamedTuple):
    """A rule that was broken, and where."""

    rule: str
    where: str


def violations(log: Sequence[Operation]) -> list[Violation]:
    """Find everything that must not be, lock by lock."""
    found: list[Violation] = []
    for lock in sorted({each.lock for each in log}):
        here = [each for each in log if each.lock == lock]
        admitted = [each for each in here if each.what != "refused"]
        for rule, cases in (
            ("tokens go down", _descents(admitted)),
            ("two guards have one token", _shared_tokens(here)),
            ("two holders at once", _interleavings(admitted)),
            ("an update is lost", _lost_updates(admitted)),
            ("two rely on the lock at one time", _overlaps(here)),
        ):
            found += (Violation(rule, case) for case in cases)
    return found


def broken_rules(log: Sequence[Operation]) -> set[str]:
    """Name the rules that were broken."""
    return {each.rule for each in violations(log)}


def _descents(admitted: Sequence[Operation]) -> Iterable[str]:
    for before, after in pairwise(admitted):
        if after.token < before.token:
            yield f"{after} after {before}"


def _shared_tokens(log: Sequence[Operation]) -> Iterable[str]:
    users: defaultdict[object, set[str]] = defaultdict(set)
    for each in log:
        users[each.token].add(each.guard)
    return (f"{token}: {guards}" for token, guards in users.items() if len(guards) > 1)


def _interleavings(admitted: Sequence[Operation]) -> Iterable[str]:
    """Find guards that come back after another one was there."""
    left: set[str] = set()
    for before, after in pairwise(admitted):
        if after.guard != before.guard:
            left.add(before.guard)
            if after.guard in left:
                yield f"{after} after {before}"


def _lost_updates(admitted: Sequence[Operation]) -> Iterable[str]:
    """Find writes that were not based on the latest, and reads of what nobody wrote."""
    value, by = 0, "the beginning"
    for each in admitted:
        expected = value + 1 if each.what == "write" else value
        if each.value != expected:
            yield f"{each}, not {expected}, after {by}"
        value, by = each.value, str(each)


def _overlaps(log: Sequence[Operation]) -> Iterable[str]:
    """Find guards whose checks have passed at one time, by a clock that all have in common."""
    since: dict[str, float] = {}
    until: dict[str, float] = {}
    for each in log:
        since[each.guard] = each.since
        until[each.guard] = max(each.checked, until.get(each.guard, each.checked))
    latest = ""
    for guard in sorted(since, key=lambda each: since[each]):
        if latest and since[guard] <= until[latest]:
            yield f"{guard} from {since[guard]:.3f} on, {latest} until {until[latest]:.3f}"
        if not latest or until[guard] > until[latest]:
            latest = guard
