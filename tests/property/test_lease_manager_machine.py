"""`LeaseManager` against dicts that are searched from end to end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leasehold.files.lease_manager import CHECK_BUDGET_S, RETRY_WAITS_S, LeaseManager
from tests.property.support import effort

SOFT_S: Final = 10.0
HARD_S: Final = 30.0
HOLDERS: Final = ("anna", "bob", "carl", "dora")
FILES: Final = range(12)


class Mismatch(BaseException):
    """A release that the model does not expect. Unlike an Exception, it ends the check."""


@dataclass
class NaiveLease:
    """A lease of the model."""

    renewed_at: float
    renewal: int
    """The number of its last renewal: of equal times, the first is the oldest."""
    files: list[int] = field(default_factory=list)
    is_reported: bool = False


@dataclass
class NaiveRetry:
    """A file of the model that could not be released."""

    holder: str
    due_at: float
    failure: int
    """The number of the failure: of equal times, the first one comes first."""
    failures: int


class NaiveManager:
    """The rules, without any index."""

    def __init__(self) -> None:
        self.leases: dict[str, NaiveLease] = {}
        self.retries: dict[int, NaiveRetry] = {}
        self.now = -1e300
        self.numbers = 0
        self.is_retry_next = False
        self.errors = 0
        self.infos = 0

    def advance(self, now: float) -> None:
        self.now = max(self.now, now)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def holder_of(self, file: int) -> str | None:
        return next((each for each, lease in self.leases.items() if file in lease.files), None)

    def renew(self, holder: str) -> None:
        lease = self.leases.setdefault(holder, NaiveLease(self.now, 0))
        lease.renewed_at, lease.renewal, lease.is_reported = self.now, self.number(), False

    def put(self, holder: str, file: int) -> None:
        self.renew(holder)
        self.leases[holder].files.append(file)
        self.retries.pop(file, None)

    def take(self, holder: str, file: int) -> None:
        self.leases[holder].files.remove(file)
        if not self.leases[holder].files:
            del self.leases[holder]

    def oldest(self) -> str | None:
        return min(
            self.leases,
            key=lambda each: (self.leases[each].renewed_at, self.leases[each].renewal),
            default=None,
        )

    def is_past(self, holder: str, limit_s: float, now: float) -> bool:
        return holder in self.leases and now - self.leases[holder].renewed_at > limit_s

    def expired(self, now: float) -> str | None:
        oldest = self.oldest()
        return oldest if oldest is not None and self.is_past(oldest, HARD_S, now) else None

    def due(self, now: float) -> int | None:
        return min(
            (file for file, retry in self.retries.items() if retry.due_at <= now),
            key=lambda file: (self.retries[file].due_at, self.retries[file].failure),
            default=None,
        )

    def has_work(self, now: float) -> bool:
        return self.expired(now) is not None or self.due(now) is not None

    def begin_release(self, now: float) -> tuple[str, int, int]:
        """Return the holder and file that must be released next, and its failures until now."""
        holder, file = self.expired(now), self.due(now)
        if file is not None and (holder is None or self.is_retry_next):
            self.is_retry_next = False
            return self.retries[file].holder, file, self.retries[file].failures
        assert holder is not None
        self.is_retry_next = True
        lease = self.leases[holder]
        self.infos += not lease.is_reported
        lease.is_reported = True
        return holder, lease.files[0], 0

    def end_release(self, holder: str, file: int, failures: int, *, is_bad: bool) -> None:
        self.errors += is_bad
        current = self.holder_of(file)
        if current not in (None, holder):
            return
        if current is not None:
            self.take(holder, file)
        self.retries.pop(file, None)
        if is_bad:
            wait_s = (RETRY_WAITS_S + RETRY_WAITS_S[-1:] * 1000)[failures]
            self.retries[file] = NaiveRetry(holder, self.now + wait_s, self.number(), failures + 1)


holders = st.sampled_from(HOLDERS)
files = st.sampled_from(FILES)
steps = st.sampled_from([0.0, 0.0, 0.25, 1.0, 5.0, SOFT_S, HARD_S, 31.0, 700.0, -5.0])
steps |= st.sampled_from(RETRY_WAITS_S[:3])  # a retry is due at that time, and not before
changes = st.sampled_from(["add", "renew", "remove", "reassign"])


class LeaseManagerMachine(RuleBasedStateMachine):
    """Single operations and checks, in which releases fail, take time and change leases."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.infos: list[str] = []
        self.manager: LeaseManager[int] = LeaseManager(
            soft_limit_s=SOFT_S,
            hard_limit_s=HARD_S,
            on_error=self.errors.append,
            on_info=self.infos.append,
        )
        self.model = NaiveManager()
        self.clock = 0.0

    def time(self, step: float) -> float:
        """Return the time of the next call; sometimes it goes back."""
        now = self.clock + step
        self.clock = max(self.clock, now)
        return now

    @rule(holder=holders, file=files, step=steps)
    def add(self, holder: str, file: int, step: float) -> None:
        now, current = self.time(step), self.model.holder_of(file)
        if current not in (None, holder):
            with pytest.raises(ValueError, match="another holder"):
                self.manager.add(holder, file, now)
            return
        lease = self.manager.add(holder, file, now)
        assert lease is self.manager.by_holder(holder)
        self.model.advance(now)
        if current is None:
            self.model.put(holder, file)
        else:
            self.model.renew(holder)

    @rule(holder=holders, opened=st.sets(files), step=steps)
    def add_many(self, holder: str, opened: set[int], step: float) -> None:
        for file in opened:
            self.add(holder, file, step if file == min(opened) else 0.0)

    @rule(holder=holders, step=steps)
    def renew(self, holder: str, step: float) -> None:
        now = self.time(step)
        assert self.manager.renew(holder, now) == (holder in self.model.leases)
        self.model.advance(now)
        if holder in self.model.leases:
            self.model.renew(holder)

    @rule(holder=holders, file=files)
    def remove(self, holder: str, file: int) -> None:
        self.manager.remove(holder, file)
        if self.model.holder_of(file) == holder:
            self.model.take(holder, file)
        else:
            self.model.errors += holder in self.model.leases

    @rule(holder=holders, file=files, step=steps)
    def reassign(self, holder: str, file: int, step: float) -> None:
        now, current = self.time(step), self.model.holder_of(file)
        if current is None:
            with pytest.raises(ValueError, match="does not belong to a lease"):
                self.manager.reassign(file, holder, now)
            return
        count = self.manager.count
        assert self.manager.reassign(file, holder, now) is self.manager.by_holder(holder)
        assert self.manager.count == count
        self.model.advance(now)
        if current == holder:
            self.model.renew(holder)
        else:
            self.model.take(current, file)
            self.model.put(holder, file)

    @rule(holder=holders, step=steps)
    def ask_for_limits(self, holder: str, step: float) -> None:
        now = self.time(step)
        self.model.advance(now)
        soft = self.model.is_past(holder, SOFT_S, self.model.now)
        assert self.manager.is_past_soft(holder, now) == soft
        hard = self.model.is_past(holder, HARD_S, self.model.now)
        assert self.manager.is_past_hard(holder, now) == hard

    @rule(
        step=steps,
        bad=st.sets(files),
        cost_s=st.sampled_from([0.0, 0.01, CHECK_BUDGET_S, 1.0]),
        during=st.lists(
            st.none() | st.tuples(changes, holders, st.none() | files, steps), max_size=4
        ),
    )
    def check(
        self,
        step: float,
        bad: set[int],
        cost_s: float,
        during: list[tuple[str, str, int | None, float] | None],
    ) -> None:
        """Check once. The release of a file in `bad` fails.

        The first releases make the changes in `during`, to a file or (None) to the released one.
        """
        now = self.time(step)
        self.model.advance(now)
        now_in_model = self.model.now
        spent_s = 0.0
        released: list[int] = []

        def release(holder: str, file: int) -> None:
            nonlocal spent_s
            try:
                assert not released or spent_s < CHECK_BUDGET_S, "a release after the budget"
                *expected, failures = self.model.begin_release(now_in_model)
                assert [holder, file] == expected
                released.append(file)
                spent_s += cost_s
                if during and (change := during.pop(0)) is not None:
                    operation, other, changed, later = change
                    self.change(operation, other, file if changed is None else changed, later)
                self.model.end_release(holder, file, failures, is_bad=file in bad)
            except Exception as error:
                raise Mismatch from error
            if file in bad:
                raise OSError(file)

        try:
            is_work_left = self.manager.check(now, release, elapsed=lambda: 1e6 + spent_s)
        except Mismatch as mismatch:
            raise AssertionError("a wrong release") from mismatch
        assert is_work_left == self.model.has_work(now_in_model)
        assert not is_work_left or spent_s >= CHECK_BUDGET_S, "stopped before the budget"

    def change(self, operation: str, holder: str, file: int, step: float) -> None:
        operations: dict[str, Callable[[], None]] = {
            "add": lambda: self.add(holder, file, step),
            "renew": lambda: self.renew(holder, step),
            "remove": lambda: self.remove(holder, file),
            "reassign": lambda: self.reassign(holder, file, step),
        }
        operations[operation]()

    @invariant()
    def leases_are_those_of_the_model(self) -> None:
        for holder in HOLDERS:
            lease, naive = self.manager.by_holder(holder), self.model.leases.get(holder)
            assert (lease is None) == (naive is None)
            if lease is not None and naive is not None:
                assert lease.holder == holder
                assert lease.renewed_at == naive.renewed_at
                assert list(lease.files) == naive.files
        oldest = self.manager.oldest()
        assert (None if oldest is None else oldest.holder) == self.model.oldest()

    @invariant()
    def files_are_those_of_the_model(self) -> None:
        expected = []
        for file in FILES:
            lease, holder = self.manager.by_file(file), self.model.holder_of(file)
            assert (None if lease is None else lease.holder) == holder
            if holder is not None:
                assert lease is self.manager.by_holder(holder)
                expected.append((file, holder))
        assert self.manager.count == len(expected)
        page = self.manager.files(None, 5)
        found = []
        while page:
            assert len(page) <= 5
            found += page
            page = self.manager.files(page[-1][0], 5)
        assert found == expected

    @invariant()
    def a_file_is_in_a_lease_or_waits_for_a_retry_and_never_both(self) -> None:
        assert self.manager.retrying == len(self.model.retries)
        assert {each.file for each in self.manager._retries} == self.model.retries.keys()
        assert self.manager._retry_of.keys() == self.model.retries.keys()
        assert not any(self.manager.by_file(file) for file in self.model.retries)

    @invariant()
    def messages_are_as_many_as_in_the_model(self) -> None:
        assert len(self.errors) == self.model.errors
        assert len(self.infos) == self.model.infos

    def teardown(self) -> None:
        """Whatever was done, every file is released in the end."""
        late = self.clock + HARD_S + RETRY_WAITS_S[-1] + 1.0
        assert not self.manager.check(late, lambda _holder, _file: None, elapsed=lambda: 0.0)
        assert self.manager.count == self.manager.retrying == 0
        assert self.manager.oldest() is None


TestLeaseManager = LeaseManagerMachine.TestCase
TestLeaseManager.settings = effort(200, steps=40)
