"""What holds for revisions across all keys: they never go back, and none is given twice."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from tests.support.linearizability.actions import Read
from tests.support.linearizability.history import Operation
from tests.support.linearizability.violation import Violation

Transactions = defaultdict[bytes | None, set[Hashable]]
"""Those that concern a key."""


@dataclass(frozen=True)
class RevisionViolation(Violation):
    """Two operations whose revisions contradict each other."""

    operations: tuple[Operation, Operation]


def check_revisions(history: Iterable[Operation]) -> RevisionViolation | None:
    """Check these rules, and return the first violation.

    - What was invoked after another operation had returned reports no smaller revision than that
      one; and a higher one, if it is a write.
    - Two writes have the same revision only if they are parts of one transaction. A read that
      tells when its key was written counts as well as the answer to that write.
    """
    operations = list(history)
    answered = [each for each in operations if each.returned is not None]
    back = _find_going_back(answered)
    if back is not None:
        return back
    return _find_given_twice(answered, _transactions_by_key(operations))


def _find_going_back(answered: Sequence[Operation]) -> RevisionViolation | None:
    returns = sorted(answered, key=_returned)
    past, seen, witness = 0, 0, None
    for operation in sorted(answered, key=lambda each: each.invoked):
        while _returned(returns[past]) < operation.invoked:
            if _seen(returns[past]) > seen:
                seen, witness = _seen(returns[past]), returns[past]
            past += 1
        if witness is not None and not _may_follow(operation, seen, witness):
            text = f"the revision went back:\n  {witness}\nand then\n  {operation}"
            return RevisionViolation(text, (witness, operation))
    return None


def _may_follow(operation: Operation, seen: int, witness: Operation) -> bool:
    revision = operation.result.revision
    if revision is None or revision > seen:
        return True
    is_part = operation.transaction is not None and operation.transaction == witness.transaction
    is_new = operation.action.is_write(operation.result) and not is_part
    return bool(revision == seen) and not is_new


def _returned(operation: Operation) -> float:
    return inf if operation.returned is None else operation.returned


def _seen(operation: Operation) -> int:
    """The highest revision in an answer."""
    result = operation.result
    written = result.mod_revision if isinstance(result, Read) else None
    return max(result.revision or 0, written or 0)


class _Claim(NamedTuple):
    """That a key was written at a revision, by one of these transactions if by any."""

    revision: int
    operation: Operation
    is_write: bool
    transactions: frozenset[Hashable]

    def agrees(self, other: "_Claim") -> bool:
        if self.operation.key == other.operation.key:
            return not (self.is_write and other.is_write)
        return not self.transactions.isdisjoint(other.transactions)


def owners_of_revisions(history: Iterable[Operation]) -> dict[int, bytes | None]:
    """Say to which key a revision belongs, where it is known to belong to no other."""
    operations = list(history)
    answered = [each for each in operations if each.returned is not None]
    transactions = _transactions_by_key(operations)
    return {
        claim.revision: claim.operation.key
        for claim in _claims(answered, transactions)
        if not claim.transactions
    }


def _transactions_by_key(operations: Sequence[Operation]) -> Transactions:
    transactions: Transactions = defaultdict(set)
    for operation in operations:
        if operation.transaction is not None:
            transactions[operation.key].add(operation.transaction)
    return transactions


def _find_given_twice(
    answered: Sequence[Operation], transactions: Transactions
) -> RevisionViolation | None:
    owners: dict[int, _Claim] = {}
    for claim in _claims(answered, transactions):
        owner = owners.setdefault(claim.revision, claim)
        if owner is not claim and not claim.agrees(owner):
            operations = (owner.operation, claim.operation)
            lines = "".join(f"\n  {each.key!r} {each}" for each in operations)
            return RevisionViolation(
                f"revision {claim.revision} was given twice:{lines}", operations
            )
    return None


def _claims(answered: Sequence[Operation], transactions: Transactions) -> Iterator[_Claim]:
    yield from _writes(answered)  # first: with them it is certain whose the revision is
    yield from _reads(answered, transactions)


def _writes(answered: Sequence[Operation]) -> Iterator[_Claim]:
    for operation in answered:
        revision = operation.result.revision
        if revision is not None and operation.action.is_write(operation.result):
            part_of = frozenset({operation.transaction} - {None})
            yield _Claim(revision, operation, True, part_of)


def _reads(answered: Sequence[Operation], transactions: Transactions) -> Iterator[_Claim]:
    for operation in answered:
        if isinstance(operation.result, Read) and operation.result.mod_revision:
            part_of = frozenset(transactions[operation.key])
            yield _Claim(operation.result.mod_revision, operation, False, part_of)
