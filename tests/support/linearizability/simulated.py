"""Random histories of a naive store: honest ones, and with faults of which the store says nothing.

Each operation takes effect at a random moment between its invocation and its return. Times are
small whole numbers, so that many of them are equal.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.support.linearizability.actions import (
    Action,
    Cas,
    Compare,
    Delete,
    Deleted,
    Get,
    ModIs,
    Put,
    Read,
    ValueIs,
    VersionIs,
)
from tests.support.linearizability.history import Operation
from tests.support.linearizability.naive import NaiveStore

ANSWER_FIELDS: Final = ("mod_revision", "version", "create_revision", "revision")
LONG: Final = 10.0


@dataclass(frozen=True)
class Setting:
    """What kind of history it is to be."""

    clients: int = 3
    calls: int = 4
    """Of each client."""
    keys: int = 1
    values: int | None = None
    """So many different ones; None: no value is put twice."""
    lost: float = 0.0
    """The part of the operations that are never answered."""
    hidden: float = 0.0
    """The part of what answers tell that they do not tell."""
    deletes: bool = True
    elsewhere: int = 0
    """So many revisions, at most, go to others between two operations."""
    stale: float = 0.0
    """The part of the reads that are answered from an old copy of the store."""
    undone: int = 0
    """So many operations are forgotten, at one moment, by a crash."""
    revisions_survive: bool = False
    """It does not give their revisions again."""


@dataclass
class _Plan:
    """An operation to come."""

    client: int
    invoked: float
    moment: float
    returned: float
    is_lost: bool = False


@dataclass
class Simulation:
    """One run. What was wrong in it is noted."""

    rng: random.Random
    setting: Setting
    store: NaiveStore = field(default_factory=NaiveStore)
    operations: list[Operation] = field(default_factory=list)
    outdated: list[Operation] = field(default_factory=list)
    """Of these, none can be explained: a later write was acknowledged before they were sent."""
    undone: list[Operation] = field(default_factory=list)
    """Writes that were forgotten."""

    def run(self) -> list[Operation]:
        """Run all, and return the history."""
        plans = sorted(self._plans(), key=lambda plan: plan.moment)
        crash_after = self.rng.randrange(len(plans)) if self.setting.undone else -1
        copies = []
        for number, plan in enumerate(plans):
            copies.append(self.store.copy())
            self._do(plan, copies)
            if number == crash_after:
                self._crash(copies)
        return self.operations

    def _crash(self, copies: list[NaiveStore]) -> None:
        kept = max(0, len(copies) - self.setting.undone)
        revision = self.store.revision
        self.store = copies[kept].copy()
        if self.setting.revisions_survive:
            self.store.revision = revision
        self.undone = [each for each in self.operations[kept:] if _wrote(each)]

    def read_all(self) -> None:
        """Read every key once more, after all else."""
        end = 1.0 + max(each.returned or each.invoked for each in self.operations)
        for number in range(self.setting.keys):
            key = b"k%d" % number
            result = self.store.do(key, Get())
            self.operations.append(Operation("last", key, Get(), end, end, result))

    def _plans(self) -> list[_Plan]:
        plans = []
        for client in range(self.setting.clients):
            now = 0.0
            for _ in range(self.setting.calls):
                times = [self.rng.randrange(3) for _ in range(3)]
                invoked = now + times[0]
                moment = invoked + times[1]
                plan = _Plan(client, invoked, moment, moment + times[2])
                now = plan.returned + 1.0
                if self.rng.random() < self.setting.lost:
                    plan.is_lost = True
                    plan.moment += LONG * self.rng.randrange(3)
                plans.append(plan)
        return plans

    def _do(self, plan: _Plan, copies: list[NaiveStore]) -> None:
        self.store.revision += self.rng.randint(0, self.setting.elsewhere)
        key = b"k%d" % self.rng.randrange(self.setting.keys)
        action = self._action(key)
        asked = Operation(plan.client, key, action, plan.invoked)
        if plan.is_lost:
            if self.rng.random() < 0.7:
                self.store.do(key, action)
            self.operations.append(asked)
            return
        if isinstance(action, Get) and self.rng.random() < self.setting.stale:
            answer = self.rng.choice(copies).copy().do(key, action)
        else:
            answer = self.store.do(key, action)
        done = replace(asked, returned=plan.returned, result=self._as_told(action, answer))
        if self.setting.stale and isinstance(answer, Read) and self._is_outdated(done, answer):
            self.outdated.append(done)
        self.operations.append(done)

    def _is_outdated(self, read: Operation, answer: Read) -> bool:
        return any(
            each.key == read.key
            and _wrote(each)
            and each.returned is not None
            and each.returned < read.invoked
            and answer.revision is not None
            and each.result.revision is not None
            and each.result.revision > answer.revision
            for each in self.operations
        )

    def _action(self, key: bytes) -> Action[Any]:
        kinds: list[Callable[[], Action[Any]]] = [
            Get,
            lambda: Put(self._value()),
            lambda: Cas(self._compare(key), self._value()),
            *([Delete] if self.setting.deletes else []),
        ]
        return self.rng.choices(kinds, [4, 3, 2, 1][: len(kinds)])[0]()

    def _value(self) -> bytes:
        if self.setting.values is None:
            return b"%d" % len(self.operations)
        return b"%d" % self.rng.randrange(self.setting.values)

    def _compare(self, key: bytes) -> Compare:
        now = self.store.key(key)
        off = self.rng.choice([0, 0, 0, -1, 1])
        compares: list[Compare] = [
            ModIs(max(0, now.mod + off)),
            VersionIs(max(0, now.version + off)),
            ValueIs(now.value if now.value is not None and not off else self._value()),
        ]
        return self.rng.choice(compares)

    def _as_told(self, action: Action[Any], answer: Any) -> Any:
        """Leave out a part of what an answer tells."""
        for name in ANSWER_FIELDS:
            # Where a compare of it failed, the checker needs to be told.
            is_needed = isinstance(action, Cas) and name == "mod_revision"
            if hasattr(answer, name) and self.rng.random() < self.setting.hidden and not is_needed:
                answer = replace(answer, **{name: None})
        return answer


def _wrote(operation: Operation) -> bool:
    return operation.result is not None and operation.action.is_write(operation.result)


def corrupted(rng: random.Random, operations: list[Operation]) -> list[Operation]:
    """Change one thing in one answer."""
    answered = [number for number, each in enumerate(operations) if each.result is not None]
    if not answered:
        return operations
    number = rng.choice(answered)
    operation = operations[number]
    changed = replace(operation, result=_changed(rng, operation.result))
    return [*operations[:number], changed, *operations[number + 1 :]]


def _changed(rng: random.Random, result: Any) -> Any:
    names = [name for name in ANSWER_FIELDS if getattr(result, name, None) is not None]
    if isinstance(result, Read):
        names.append("value")
    if isinstance(result, Deleted):
        names.append("count")
    if not names:
        return result
    name = rng.choice(names)
    if name == "value":
        return replace(result, value=rng.choice([None, b"0", b"1", b"2"]))
    if name == "count":
        return replace(result, count=1 - result.count)
    return replace(result, **{name: getattr(result, name) + rng.choice([-2, -1, 1, 2])})
