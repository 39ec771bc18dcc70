"""The cost of the lease manager, as the number of comparisons and hashes that it makes.

Ids, holders and times count each of their uses. So a search from end to end is found on a machine
of any speed, also if it runs in C.
"""

from collections.abc import Callable
from typing import ClassVar, Final

import pytest

from leasehold.files.lease_manager import CHECK_BUDGET_S, LeaseManager
from leasehold.files.state import HARD_LIMIT_S

FEW: Final = 16
MANY: Final = 4096
DOUBLINGS: Final = 8
"""From few to many."""


class Uses:
    """How often ids, holders and times were compared or hashed."""

    count: ClassVar = 0


class Id(str):
    """A file or a holder."""

    __slots__ = ()

    def __hash__(self) -> int:
        Uses.count += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Uses.count += 1
        return super().__eq__(other)

    def __lt__(self, other: str) -> bool:
        Uses.count += 1
        return super().__lt__(other)


class Time(float):
    """A time; a later one is a time as well, and the difference of two is a plain number."""

    __slots__ = ()

    def __add__(self, other: float) -> "Time":
        return Time(super().__add__(other))

    def __hash__(self) -> int:
        Uses.count += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Uses.count += 1
        return super().__eq__(other)

    def __le__(self, other: float) -> bool:
        Uses.count += 1
        return super().__le__(other)

    def __lt__(self, other: float) -> bool:
        Uses.count += 1
        return super().__lt__(other)

    def __gt__(self, other: float) -> bool:
        Uses.count += 1
        return super().__gt__(other)

    def __sub__(self, other: float) -> float:
        Uses.count += 1
        return super().__sub__(other)


def name(number: int) -> Id:
    return Id(f"{number:08}")


def uses(work: Callable[[], object]) -> int:
    before = Uses.count
    work()
    return Uses.count - before


def filled(leases: int, files_per_lease: int = 1) -> LeaseManager[Id]:
    """Return a manager with this many leases, of increasing ages. All files are even numbers."""
    manager: LeaseManager[Id] = LeaseManager()
    for lease in range(leases):
        for file in range(files_per_lease):
            manager.add(name(lease), name(2 * (lease * files_per_lease + file)), Time(lease / MANY))
    return manager


CONSTANT: Final[dict[str, Callable[[LeaseManager[Id], int], object]]] = {
    "by_holder": lambda manager, n: manager.by_holder(name(n // 2)),
    "by_file": lambda manager, n: manager.by_file(name(n // 2 * 2)),
    "oldest": lambda manager, _: manager.oldest(),
    "renew the oldest": lambda manager, n: manager.renew(name(0), Time(n)),
    "renew the youngest": lambda manager, n: manager.renew(name(n - 1), Time(n)),
    "renew an unknown holder": lambda manager, n: manager.renew(name(n), Time(n)),
    "is_past_soft": lambda manager, n: manager.is_past_soft(name(1), Time(n)),
    "is_past_hard": lambda manager, n: manager.is_past_hard(name(1), Time(n)),
    "reassign": lambda manager, n: manager.reassign(name(2), name(n), Time(n)),
    "remove for an unknown holder": lambda manager, n: manager.remove(name(n), name(0)),
    "remove a wrong file": lambda manager, n: manager.remove(name(0), name(2)),
    "count": lambda manager, _: manager.count,
}

LOGARITHMIC: Final[dict[str, Callable[[LeaseManager[Id], int], object]]] = {
    "add to a new lease": lambda manager, n: manager.add(name(n), name(n + 1), Time(n)),
    "add to an old lease": lambda manager, n: manager.add(name(0), name(n + 1), Time(n)),
    "remove": lambda manager, n: manager.remove(name(n // 2), name(n // 2 * 2)),
    "a page": lambda manager, n: manager.files(name(n + 1), 3),
    "the first page": lambda manager, _: manager.files(None, 3),
}


@pytest.mark.parametrize("operation", CONSTANT)
def test_the_cost_does_not_grow_with_the_number_of_leases(operation: str) -> None:
    work = CONSTANT[operation]
    few, many = filled(FEW), filled(MANY)
    assert uses(lambda: work(many, MANY)) == uses(lambda: work(few, FEW)) < FEW


@pytest.mark.parametrize("operation", LOGARITHMIC)
def test_the_cost_grows_with_the_logarithm_of_the_number_of_files(operation: str) -> None:
    work = LOGARITHMIC[operation]
    few, many = filled(FEW), filled(MANY)
    assert uses(lambda: work(many, MANY)) <= uses(lambda: work(few, FEW)) + 2 * DOUBLINGS


def test_a_check_without_expired_leases_costs_the_same_for_any_number() -> None:
    few, many = filled(FEW), filled(MANY)
    assert checked(many, HARD_LIMIT_S, leaves=MANY) == checked(few, HARD_LIMIT_S, leaves=FEW) < FEW


def test_a_check_finds_the_expired_leases_without_a_search_of_all() -> None:
    few, many, late = filled(FEW), filled(MANY), HARD_LIMIT_S + 3 / MANY
    for_few = checked(few, late, leaves=FEW - 3)
    assert checked(many, late, leaves=MANY - 3) <= for_few + 3 * 2 * DOUBLINGS


def test_a_file_of_a_large_lease_is_released_as_fast_as_one_of_a_small_lease() -> None:
    few, many, late = filled(1, FEW), filled(1, MANY), HARD_LIMIT_S + 1.0
    for_few = checked(few, late, leaves=FEW - 1, budget_s=0.0)
    assert checked(many, late, leaves=MANY - 1, budget_s=0.0) <= for_few + 2 * DOUBLINGS


def test_a_due_retry_is_found_without_a_search_of_all() -> None:
    few, many = retrying(FEW), retrying(MANY)
    late = HARD_LIMIT_S + 10.0
    for_few = checked(few, late, leaves=0, budget_s=0.0)
    assert checked(many, late, leaves=0, budget_s=0.0) <= for_few + 2 * DOUBLINGS
    assert (few.retrying, many.retrying) == (FEW - 1, MANY - 1)


def retrying(files: int) -> LeaseManager[Id]:
    """Return a manager with this many files that wait for a retry."""

    def fail(_holder: str, _file: Id) -> None:
        raise OSError

    manager = filled(1, files)
    manager.check(Time(HARD_LIMIT_S + 1.0), fail, elapsed=float)
    assert manager.retrying == files
    return manager


def checked(
    manager: LeaseManager[Id], now: float, leaves: int, budget_s: float = CHECK_BUDGET_S
) -> int:
    """Return the cost of a check that leaves this many files in leases; no time elapses."""

    def release(_holder: str, _file: Id) -> None:
        pass

    cost = uses(lambda: manager.check(Time(now), release, elapsed=float, budget_s=budget_s))
    assert manager.count == leaves
    return cost
