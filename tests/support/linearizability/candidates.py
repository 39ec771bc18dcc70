"""The operations on a key, as the search wants them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from tests.support.linearizability.actions import Action, Read
from tests.support.linearizability.entries import Candidate
from tests.support.linearizability.history import Operation
from tests.support.linearizability.models import NO_REVISION, KeyState, Span

UNSEEN: Final = b"(nobody saw)"


def candidates_of(
    key: bytes,
    operations: Sequence[Operation],
    initial: KeyState,
    owners: Mapping[int, bytes | None],
) -> list[Candidate[KeyState]]:
    """Prepare the operations on a key; `owners` tells which revisions other keys have."""
    values = _Values(operations, initial)
    free = _FreeRevisions(key, owners)
    return [
        _unanswered(each, values, free) if each.returned is None else _answered(each, values, free)
        for each in operations
        if each.returned is not None or each.action.is_write(None)
    ]


class _Values:
    """What matters about values: which are told apart, and which come only once."""

    def __init__(self, operations: Sequence[Operation], initial: KeyState) -> None:
        self._told_apart = {
            value for each in operations for value in each.action.tells_apart(each.result)
        }
        counts = Counter([initial.value, *(each.action.writes() for each in operations)])
        self.once = frozenset(value for value in self._told_apart if counts[value] <= 1)
        self._unseen = UNSEEN
        while self._unseen in self._told_apart:
            self._unseen += b"?"

    def seen(self, action: Action[Any]) -> Action[Any]:
        """Return an action as others can see it: values that no read distinguishes are equal."""
        value = action.writes()
        if value is None or value in self._told_apart:
            return action
        return action.writing(self._unseen)


def _answered(operation: Operation, values: _Values, free: "_FreeRevisions") -> Candidate[KeyState]:
    result, is_write = operation.result, operation.action.is_write(operation.result)
    action = values.seen(operation.action)
    revision, saw = result.revision, None
    if isinstance(result, Read):
        saw = result.mod_revision or None  # 0 tells only that the key is absent
        revision = saw if revision is None else revision
    if is_write and revision is None:
        return Candidate(operation, partial(_at_unknown, action, result, free), is_write)
    at = Span(revision, revision) if is_write else NO_REVISION
    return Candidate(operation, partial(_at_known, action, result, at), is_write, revision, saw)


def _unanswered(
    operation: Operation, values: _Values, free: "_FreeRevisions"
) -> Candidate[KeyState]:
    action = values.seen(operation.action)
    apply = partial(_at_unknown, action, None, free)
    return Candidate(operation, apply, True, twins=action, fits=action.fits(values.once))


def _at_known(
    action: Action[Any], result: Any, at: Span, state: KeyState, _most: int
) -> KeyState | None:
    return action.after(state, result, at)


def _at_unknown(
    action: Action[Any], result: Any, free: "_FreeRevisions", state: KeyState, most: int
) -> KeyState | None:
    least = free.after(state.store)
    if least > most:
        return None
    return action.after(state, result, Span(least, most))


class _FreeRevisions:
    """The revisions that an unknown write to a key may have: all but those of other keys."""

    def __init__(self, key: bytes, owners: Mapping[int, Any]) -> None:
        self._key = key
        self._owners = owners
        self._found: dict[int, int] = {}

    def after(self, revision: int) -> int:
        """Return the lowest free one that is higher."""
        found = self._found.get(revision)
        if found is None:
            found = revision + 1
            while self._owners.get(found, self._key) != self._key:
                found += 1
            self._found[revision] = found
        return found
