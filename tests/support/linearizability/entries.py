"""Calls and returns, in lists in order of time. See `search` for what they are for."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from tests.support.linearizability.actions import Fits
from tests.support.linearizability.history import Operation

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Candidate(Generic[S]):
    """An operation as the search sees it."""

    operation: Operation
    apply: Callable[[S, int], S | None]
    """Return the state after it (the same object if that is equal), or None if it does not fit.

    If it writes, its revision is at most the second argument."""
    is_write: bool
    revision: int | None = None
    """If known. Of a write: its own. Of a read: one that all writes before it have at most, and all
    writes after it exceed."""
    saw: int | None = None
    """Of a read: the revision of the write that it saw, if known."""
    twins: Hashable = None
    """If not answered: equal for those that fit at the same times, and then do the same."""
    fits: Fits = Fits.ALWAYS
    """If not answered: how often."""


class Entry(Generic[S]):
    """A call, a return, or an end of a list."""

    __slots__ = (
        "after", "answer", "before", "candidate", "is_placed", "is_write", "number", "slot", "time",
        "twin",
    )  # fmt: skip

    def __init__(self, time: float, candidate: Candidate[S] | None = None) -> None:
        self.time = time
        self.candidate = candidate
        """None if it is not a call."""
        self.is_write = candidate is not None and candidate.is_write
        self.is_placed = False
        self.number = 0
        """By time, among the answered calls, or among the others."""
        self.before: Entry[S] = self
        self.after: Entry[S] = self
        self.answer: Entry[S] | None = None
        """Of an answered call: its return."""
        self.slot: int | None = None
        """How many writes with known revisions come before it, if that is known."""
        self.twin: Entry[S] | None = None
        """Of a call without an answer: the twin that takes effect before it."""

    @property
    def operation(self) -> Operation:
        """Of a call: what is called."""
        assert self.candidate is not None
        return self.candidate.operation

    def unlink(self) -> None:
        """Leave the list."""
        self.before.after = self.after
        self.after.before = self.before

    def relink(self) -> None:
        """Come back to where it was. What was unlinked last must come back first."""
        self.before.after = self
        self.after.before = self


def linked(entries: Iterable[Entry[S]]) -> Entry[S]:
    """Link a list by time, between two ends, and return the first one; calls before returns."""
    first: Entry[S] = Entry(-inf)
    last = first
    for entry in sorted(entries, key=lambda each: (each.time, each.candidate is None)):
        last.after, entry.before = entry, last
        last = entry
    end: Entry[S] = Entry(inf)
    last.after, end.before = end, last
    return first


def calls_of(candidates: Iterable[Candidate[S]]) -> list[Entry[S]]:
    """Make calls, numbered by time."""
    calls = [Entry(each.operation.invoked, each) for each in candidates]
    calls.sort(key=lambda each: each.time)
    for number, call in enumerate(calls):
        call.number = number
    return calls


def give_returns(calls: Sequence[Entry[S]]) -> list[Entry[S]]:
    """Make a return for each call."""
    returns = []
    for call in calls:
        assert call.operation.returned is not None
        call.answer = Entry(call.operation.returned)
        returns.append(call.answer)
    return returns


def give_twins(calls: Sequence[Entry[S]]) -> None:
    """Tell calls without an answer, which are in order of time, the twin before each."""
    last: dict[Hashable, Entry[S]] = {}
    for call in calls:
        assert call.candidate is not None
        call.twin = last.get(call.candidate.twins)
        last[call.candidate.twins] = call
