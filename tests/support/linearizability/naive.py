"""What the checker itself is checked with: a store and a brute-force search, as plain as can be.

Nothing is unknown here. A key has concrete revisions, and where an answer tells none, all that are
possible are tried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tests.support.linearizability.actions import (
    Action,
    Cas,
    Compare,
    Delete,
    Deleted,
    ModIs,
    Put,
    Read,
    ValueIs,
    VersionIs,
    Written,
)
from tests.support.linearizability.history import Operation


@dataclass(frozen=True)
class NaiveKey:
    """A key, as etcd keeps it."""

    value: bytes | None = None
    version: int = 0
    mod: int = 0
    create: int = 0

    def holds(self, compare: Compare) -> bool:
        match compare:
            case ModIs(revision):
                return self.mod == revision
            case VersionIs(version):
                return self.version == version
            case ValueIs(value):
                return self.value == value

    def is_written_by(self, action: Action[Any]) -> bool:
        match action:
            case Put():
                return True
            case Delete():
                return self.version > 0
            case Cas(compare):
                return self.holds(compare)
            case _:
                return False

    def after(self, action: Action[Any], revision: int) -> "tuple[NaiveKey, Any]":
        """Return the key after an action, and its answer; `revision` is the store's after it."""
        if not self.is_written_by(action):
            read = Read(self.value, self.mod, self.version, self.create, revision)
            return self, Deleted(0, revision) if isinstance(action, Delete) else read
        if isinstance(action, Delete):
            return NaiveKey(), Deleted(1, revision)
        assert isinstance(action, Put | Cas)
        create = self.create or revision
        return NaiveKey(action.value, self.version + 1, revision, create), Written(revision)


class NaiveStore:
    """Keys that are written one after the other."""

    def __init__(self) -> None:
        self.revision = 1
        self.keys: dict[bytes, NaiveKey] = {}

    def key(self, key: bytes) -> NaiveKey:
        return self.keys.get(key, NaiveKey())

    def do(self, key: bytes, action: Action[Any]) -> Any:
        before = self.key(key)
        self.revision += before.is_written_by(action)
        self.keys[key], answer = before.after(action, self.revision)
        return answer

    def copy(self) -> "NaiveStore":
        copy = NaiveStore()
        copy.revision, copy.keys = self.revision, dict(self.keys)
        return copy


def is_linearizable(operations: Sequence[Operation]) -> bool:
    """Try all orders of the operations on one key, with all revisions that are possible."""
    most = max([1, *(number for each in operations for number in _numbers(each))])
    return _can_go_on(NaiveKey(), 1, list(operations), most + len(operations))


def _numbers(operation: Operation) -> Iterator[int]:
    """Every number that may be a revision."""
    parts = [operation.result, getattr(operation.action, "compare", None)]
    for part in parts:
        values = [] if part is None else [getattr(part, each.name) for each in fields(part)]
        yield from (value for value in values if isinstance(value, int))


def _can_go_on(key: NaiveKey, store: int, left: list[Operation], most: int) -> bool:
    if all(each.returned is None for each in left):
        return True
    for operation in left:
        if any(_precedes(other, operation) for other in left):
            continue
        rest = [each for each in left if each is not operation]
        for revision in _revisions(key, store, operation, most):
            after, answer = key.after(operation.action, revision)
            if _agrees(operation.result, answer) and _can_go_on(after, revision, rest, most):
                return True
    return False


def _precedes(other: Operation, operation: Operation) -> bool:
    return other.returned is not None and other.returned < operation.invoked


def _revisions(key: NaiveKey, store: int, operation: Operation, most: int) -> Sequence[int]:
    """The revisions that the store may have after an operation."""
    is_write = key.is_written_by(operation.action)
    least = store + is_write
    told = None if operation.result is None else operation.result.revision
    if told is not None:
        return [told] if told >= least else []
    return range(least, most + 1) if is_write else [least]


def _agrees(result: Any, answer: Any) -> bool:
    """Whether all that was told is so."""
    if result is None:
        return True
    if type(result) is not type(answer):
        return False
    told = {each.name: getattr(result, each.name) for each in fields(result)}
    is_checked = [name for name in told if told[name] is not None or name == "value"]
    return bool(replace(answer, **{name: told[name] for name in is_checked}) == answer)
