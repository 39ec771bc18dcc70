"""The search for an order of operations that explains all answers.

Theory of operation
-------------------
A history is linearizable if its operations can be put in one order in which each took effect at one
moment between its invocation and its return. So an operation may come next if no other that is not
placed yet had returned before it was invoked. Wing and Gong's search places one such operation
after the other, and takes the last one back when none fits. These make it fast enough:

- The calls and returns of operations without a place are one linked list, in order of time (Lowe).
  What may come next is what stands before the first return in it. To place an operation is to
  unlink its two entries; to take it back is to link them in again, where they know to belong.
- What was reached before is not searched again (Lowe): a set of the operations with a place,
  together with the state after them, decides what can follow. Nearly all operations before some
  moment have a place, so the set is kept as the number of those, and the bits of the rest.
- A read that fits and tells nothing new can come first: any order that has it later stays valid
  when it is moved to the front. So reads are tried before writes, and nothing else is tried in
  place of such a read.
- Where answers tell revisions, they tell the order. A write with revision R comes after all writes
  with lower ones, and each read has its slot between two of these writes. A write whose revision is
  unknown cannot come before a read that saw the write at the beginning of its slot. What is tried
  out of this order would be found wrong only after a search of all that is possible in between.

An operation without an answer is optional, and may come at any time after its invocation. It is
tried last: most often the rest fits without it. Many such writes, each of which might explain one
and the same thing, would make a search of all their subsets; but most are as good as another:

- Twins, which fit at the same times and do the same, take effect in the order of their invocations:
  had the second done so without the first, the first could have stood in its place.
- Of several that would lead to the same state now, one that does not fit at any later time is the
  best to take, and one that fits at any time the worst: it could still stand in for the other.

For this, all values that no answer tells apart count as one and the same.

Operations that touch in time count as concurrent. The search is bounded by a number of steps, and
raises beyond it: a history that was not searched is not a good one.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple

from tests.support.linearizability.actions import Fits
from tests.support.linearizability.entries import (
    Candidate,
    Entry,
    S,
    calls_of,
    give_returns,
    give_twins,
    linked,
)
from tests.support.linearizability.history import Operation
from tests.support.linearizability.slots import Slots

STEPS_MAX: Final = 2_000_000
"""How many placements are tried; each may be remembered, with some 400 bytes."""


class SearchTooLong(Exception):
    """It is not known whether the history is linearizable."""


@dataclass(frozen=True, slots=True)
class Stuck(Generic[S]):
    """How far the search came at best."""

    prefix: tuple[Operation, ...]
    state: S
    unplaced: tuple[Operation, ...]
    """None of these can come next, yet one of them must; what returned first is the last."""
    too_late: tuple[Operation, ...]
    """These must come next, by their revisions, but were invoked only after one of those returned.
    """


def search(
    candidates: Sequence[Candidate[S]], initial: S, *, steps_max: int = STEPS_MAX
) -> Stuck[S] | None:
    """Return None if there is an order, and otherwise the longest part of one.

    Raises SearchTooLong after `steps_max` tries.
    """
    return _Search(candidates, initial, steps_max).run()


class _Placed(NamedTuple):
    """Which operations have a place."""

    done: int
    """So many answered ones, first by invocation."""
    ahead: int
    """Bits of the answered ones after those."""
    unanswered: int
    """Bits of the others."""

    def plus(self, call: Entry[S]) -> "_Placed":
        if call.answer is None:
            return _Placed(self.done, self.ahead, self.unanswered | 1 << call.number)
        ahead = self.ahead | 1 << (call.number - self.done)
        ones = (ahead ^ (ahead + 1)).bit_length() - 1
        return _Placed(self.done + ones, ahead >> ones, self.unanswered)


class _Placement(NamedTuple, Generic[S]):
    """A step on the path, with what it takes to go back."""

    call: Entry[S]
    state: S
    placed: _Placed
    others: Iterator[Entry[S]]


class _Search(Generic[S]):
    def __init__(self, candidates: Sequence[Candidate[S]], initial: S, steps_max: int) -> None:
        calls = calls_of(each for each in candidates if each.operation.returned is not None)
        unanswered = calls_of(each for each in candidates if each.operation.returned is None)
        give_twins(unanswered)
        self._calls = linked([*calls, *give_returns(calls)])
        self._unanswered = linked(unanswered)
        self._slots = Slots(calls)
        self._unplaced = len(calls)
        self._state = initial
        self._placed = _Placed(0, 0, 0)
        self._path: list[_Placement[S]] = []
        self._reached: set[tuple[_Placed, S]] = set()
        self._steps_left = steps_max
        self._steps_max = steps_max
        self._longest: tuple[list[_Placement[S]], S, list[Operation]] | None = None
        self._score_of_longest = (len(calls) + 1, 0)

    def run(self) -> Stuck[S] | None:
        choices = self._choices()
        while self._unplaced:
            if self._place_one_of(choices):
                choices = self._choices()
            else:
                self._remember_if_longest()
                if not self._path:
                    return self._stuck()
                choices = self._take_back()
        return None

    def _choices(self) -> Iterator[Entry[S]]:
        """Return the calls that may come next, most promising first.

        Between two of them the lists may change, and must then be as they were.
        """
        writes = []
        entry = self._calls.after
        while entry.candidate is not None:
            if entry.is_write:
                writes.append(entry)
            else:
                yield entry
            entry = entry.after
        yield from writes
        if self._slots.admit_unknown_writes():
            yield from self._unanswered_until(entry.time)

    def _unanswered_until(self, first_return: float) -> Iterator[Entry[S]]:
        """Return those that fit, but of several with the same effect only what is needed."""
        rivals: defaultdict[S, list[Entry[S]]] = defaultdict(list)
        entry = self._unanswered.after
        while entry.time <= first_return:
            if entry.twin is None or entry.twin.is_placed:
                after = self._try(entry)
                if after is not None:
                    rivals[after].append(entry)
            entry = entry.after
        for same in rivals.values():
            yield from _least_able(same)

    def _place_one_of(self, choices: Iterator[Entry[S]]) -> bool:
        for call in choices:
            if not self._slots.admit(call):
                continue
            after = self._try(call)
            if after is None:
                continue
            placed = self._placed.plus(call)
            if (placed, after) not in self._reached:
                self._reached.add((placed, after))
                others = iter(()) if after is self._state else choices
                self._path.append(_Placement(call, self._state, self._placed, others))
                self._state, self._placed = after, placed
                self._place(call)
                return True
        return False

    def _try(self, call: Entry[S]) -> S | None:
        if not self._steps_left:
            raise SearchTooLong(f"no answer after {self._steps_max} steps")
        self._steps_left -= 1
        assert call.candidate is not None
        return call.candidate.apply(self._state, self._slots.most)

    def _place(self, call: Entry[S]) -> None:
        call.is_placed = True
        call.unlink()
        if call.answer is not None:
            call.answer.unlink()
            self._unplaced -= 1
        self._slots.place(call)

    def _take_back(self) -> Iterator[Entry[S]]:
        call, self._state, self._placed, others = self._path.pop()
        self._slots.take_back(call)
        if call.answer is not None:
            self._unplaced += 1
            call.answer.relink()
        call.relink()
        call.is_placed = False
        return others

    def _remember_if_longest(self) -> None:
        score = (self._unplaced, len(self._path))  # unanswered ones only if they helped
        if score < self._score_of_longest:
            self._score_of_longest = score
            self._longest = (self._path.copy(), self._state, self._due_next())

    def _due_next(self) -> list[Operation]:
        """Return what must come next or be concurrent to it; what returned first is the last."""
        entry, due = self._calls.after, []
        while entry.candidate is not None:
            due.append(entry.operation)
            entry = entry.after
        return sorted(due, key=lambda each: each.returned or 0.0, reverse=True)

    def _stuck(self) -> Stuck[S]:
        assert self._longest is not None
        path, state, unplaced = self._longest
        placed = [each.call for each in path]
        end = min(each.returned for each in unplaced if each.returned is not None)
        due = (call.operation for call in self._slots.due_after(placed))
        return Stuck(
            prefix=tuple(call.operation for call in placed),
            state=state,
            unplaced=tuple(unplaced),
            too_late=tuple(each for each in due if each.invoked > end),
        )


def _least_able(rivals: Sequence[Entry[S]]) -> Sequence[Entry[S]]:
    least = min(_fits(each) for each in rivals)
    chosen = [each for each in rivals if _fits(each) is least]
    return chosen[:1] if least is Fits.NEVER_AGAIN else chosen


def _fits(call: Entry[S]) -> Fits:
    assert call.candidate is not None
    return call.candidate.fits
