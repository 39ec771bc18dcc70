"""The check of a whole history: its revisions, and then each key separately.

Keys are independent of each other (linearizability is local), so each has its own, small search.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tests.support.linearizability.candidates import candidates_of
from tests.support.linearizability.entries import Candidate
from tests.support.linearizability.history import Operation
from tests.support.linearizability.models import ABSENT, KeyState
from tests.support.linearizability.revisions import check_revisions, owners_of_revisions
from tests.support.linearizability.search import (
    STEPS_MAX,
    SearchTooLong,
    Stuck,
    search,
)
from tests.support.linearizability.violation import Violation

LINES_MAX: Final = 6
NO_KEYS: Final[Mapping[bytes, KeyState]] = MappingProxyType({})


@dataclass(frozen=True)
class KeyViolation(Violation):
    """No order of the operations on a key explains their answers."""

    key: bytes
    prefix: tuple[Operation, ...]
    """The longest part of an order that was found."""
    state: KeyState
    """The key after it."""
    unplaced: tuple[Operation, ...]
    """None of these can come next, and one of them must."""
    too_late: tuple[Operation, ...]
    """These must come next, by their revisions, and were invoked too late for that."""


def check(
    history: Iterable[Operation],
    *,
    initial: Mapping[bytes, KeyState] = NO_KEYS,
    steps_max: int = STEPS_MAX,
) -> Violation | None:
    """Check a history, and return the first violation, if there is one.

    A key is absent at first unless `initial` has it. If the search for one key takes more than
    `steps_max` steps, SearchTooLong is raised.
    """
    operations = list(history)
    violation = check_revisions(operations)
    if violation is not None:
        return violation
    owners = owners_of_revisions(operations)
    for key, of_key in sorted(_by_key(operations).items()):
        at_first = initial.get(key, ABSENT)
        candidates = candidates_of(key, of_key, at_first, owners)
        found = _check_key(key, candidates, at_first, steps_max)
        if found is not None:
            return found
    return None


def _by_key(operations: Sequence[Operation]) -> dict[bytes, list[Operation]]:
    keys: defaultdict[bytes, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.key is not None:
            keys[operation.key].append(operation)
    return keys


def _check_key(
    key: bytes, candidates: Sequence[Candidate[KeyState]], initial: KeyState, steps_max: int
) -> KeyViolation | None:
    try:
        stuck = search(candidates, initial, steps_max=steps_max)
    except SearchTooLong as error:
        raise SearchTooLong(f"{key!r}, {len(candidates)} operations: {error}") from None
    if stuck is None:
        return None
    unanswered = sum(each.operation.returned is None for each in candidates)
    return KeyViolation(
        text=_text(key, stuck, unanswered),
        key=key,
        prefix=stuck.prefix,
        state=stuck.state,
        unplaced=stuck.unplaced,
        too_late=stuck.too_late,
    )


def _text(key: bytes, stuck: Stuck[KeyState], unanswered: int) -> str:
    hidden = len(stuck.prefix) - LINES_MAX
    lines = [
        f"{key!r}: no order of its operations explains their answers. At best, these fit:",
        *([f"  ({hidden} before)"] if hidden > 0 else []),
        *_lines(stuck.prefix[-LINES_MAX:]),
        f"Now it is {stuck.state}.",
        f"None of these can be next, even after some of {unanswered} unanswered writes:",
        *_lines(stuck.unplaced[-LINES_MAX:]),
    ]
    if stuck.too_late:
        lines += [
            "By their revisions these must be next, but they were invoked too late for that:",
            *_lines(stuck.too_late[:LINES_MAX]),
        ]
    return "\n".join(lines)


def _lines(operations: Iterable[Operation]) -> list[str]:
    return [f"  {operation}" for operation in operations]
