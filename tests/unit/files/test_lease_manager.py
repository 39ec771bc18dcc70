"""The lease manager: leases, files, limits and time. Checks are in `test_lease_checks.py`."""

import logging
from collections.abc import Callable

import pytest

from leasehold.files.lease_manager import LeaseManager
from leasehold.files.state import HARD_LIMIT_S, SOFT_LIMIT_S
from tests.support.lease_bench import LATE, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def manager(bench: Bench) -> LeaseManager[str]:
    return bench.manager


# Leases


def test_the_first_file_creates_the_lease(manager: LeaseManager[str]) -> None:
    lease = manager.add("anna", "a", 5.0)
    assert (lease.holder, lease.renewed_at, list(lease.files)) == ("anna", 5.0, ["a"])
    assert manager.by_holder("anna") is manager.by_file("a") is manager.oldest() is lease


def test_an_empty_manager_finds_nothing(bench: Bench, manager: LeaseManager[str]) -> None:
    assert manager.by_holder("anna") is manager.by_file("a") is manager.oldest() is None
    assert manager.files(None, 10) == []
    assert manager.count == manager.retrying == 0
    assert bench.check(1e9) is False


def test_a_holder_has_one_lease_for_all_its_files(manager: LeaseManager[str]) -> None:
    lease = manager.add("anna", "b", 0.0)
    assert manager.add("anna", "a", 1.0) is lease
    assert list(lease.files) == ["b", "a"]
    assert manager.count == 2


def test_opening_a_further_file_renews_the_lease(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    bench.manager.add("anna", "b", 7.0)
    assert bench.renewed_at("anna") == 7.0


def test_adding_a_file_twice_counts_once_and_renews(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    bench.manager.add("anna", "a", 7.0)
    assert bench.manager.count == 1
    assert bench.files_of("anna") == ["a"]
    assert bench.renewed_at("anna") == 7.0


def test_a_file_of_another_holder_is_refused_and_nothing_changes(bench: Bench) -> None:
    manager = bench.manager
    manager.add("anna", "a", 0.0)
    manager.add("bob", "b", 1.0)
    with pytest.raises(ValueError, match="'a' belongs to the lease of another holder, 'anna'"):
        manager.add("bob", "a", 9.0)
    with pytest.raises(ValueError, match="another holder"):
        manager.add("carl", "a", 9.0)
    assert manager.files(None, 10) == [("a", "anna"), ("b", "bob")]
    assert manager.by_holder("carl") is None
    assert bench.renewed_at("bob") == 1.0
    assert manager.renew("bob", 2.0)
    assert bench.renewed_at("bob") == 2.0  # the time of the refused call does not count


def test_an_id_that_cannot_be_compared_is_refused_and_nothing_changes() -> None:
    manager: LeaseManager[object] = LeaseManager()
    manager.add("anna", "a", 0.0)
    with pytest.raises(TypeError):
        manager.add("bob", 1, 0.0)
    assert manager.by_holder("bob") is None
    assert manager.by_file(1) is None
    assert manager.files(None, 10) == [("a", "anna")]


def test_renewing_moves_the_time_of_the_lease(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    assert bench.manager.renew("anna", 8.0) is True
    assert bench.renewed_at("anna") == 8.0


def test_renewing_an_unknown_holder_returns_false(manager: LeaseManager[str]) -> None:
    assert manager.renew("anna", 0.0) is False
    assert manager.by_holder("anna") is None


def test_removing_a_file_leaves_the_others_and_does_not_renew(bench: Bench) -> None:
    manager = bench.manager
    manager.add("anna", "a", 0.0)
    manager.add("anna", "b", 1.0)
    manager.remove("anna", "a")
    assert bench.files_of("anna") == ["b"]
    assert manager.by_file("a") is None
    assert manager.count == 1
    assert bench.renewed_at("anna") == 1.0
    assert bench.errors == []


def test_the_last_file_removes_the_lease(manager: LeaseManager[str]) -> None:
    manager.add("anna", "a", 0.0)
    manager.remove("anna", "a")
    assert manager.by_holder("anna") is manager.oldest() is None
    assert manager.renew("anna", 1.0) is False


def test_removing_a_file_that_is_not_in_the_lease_is_an_error_and_changes_nothing(
    bench: Bench,
) -> None:
    manager = bench.manager
    manager.add("anna", "a", 0.0)
    manager.add("bob", "b", 0.0)
    manager.remove("anna", "b")
    manager.remove("anna", "c")
    assert bench.errors == [
        "cannot remove file 'b': it is not in the lease of 'anna'",
        "cannot remove file 'c': it is not in the lease of 'anna'",
    ]
    assert manager.files(None, 10) == [("a", "anna"), ("b", "bob")]
    assert manager.count == 2


def test_removing_for_an_unknown_holder_does_nothing(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    bench.manager.remove("bob", "a")
    assert bench.manager.files(None, 10) == [("a", "anna")]
    assert bench.errors == []


def test_reassigning_moves_a_file_and_renews_the_lease_that_gets_it(bench: Bench) -> None:
    manager = bench.manager
    manager.add("anna", "a", 0.0)
    manager.add("anna", "b", 0.0)
    manager.add("bob", "c", 0.0)
    assert manager.reassign("a", "bob", 4.0) is manager.by_holder("bob")
    assert manager.files(None, 10) == [("a", "bob"), ("b", "anna"), ("c", "bob")]
    assert manager.count == 3
    assert bench.files_of("bob") == ["c", "a"]
    assert (bench.renewed_at("anna"), bench.renewed_at("bob")) == (0.0, 4.0)


def test_reassigning_the_last_file_removes_the_old_lease_and_creates_the_new_one(
    bench: Bench,
) -> None:
    bench.manager.add("anna", "a", 0.0)
    bench.manager.reassign("a", "bob", 4.0)
    assert bench.manager.by_holder("anna") is None
    assert bench.files_of("bob") == ["a"]
    assert bench.renewed_at("bob") == 4.0


def test_reassigning_a_file_to_its_own_holder_only_renews(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    bench.manager.reassign("a", "anna", 4.0)
    assert bench.files_of("anna") == ["a"]
    assert bench.renewed_at("anna") == 4.0
    assert bench.manager.count == 1


def test_reassigning_a_file_without_a_lease_is_refused_and_nothing_changes(
    manager: LeaseManager[str],
) -> None:
    with pytest.raises(ValueError, match="'a' does not belong to a lease"):
        manager.reassign("a", "anna", 0.0)
    assert manager.by_holder("anna") is None
    assert manager.count == 0


def test_the_files_of_a_lease_cannot_be_changed_through_it(manager: LeaseManager[str]) -> None:
    files = manager.add("anna", "a", 0.0).files
    assert not hasattr(files, "add")
    assert not hasattr(files, "remove")
    assert not hasattr(files, "__setitem__")
    manager.add("anna", "b", 0.0)
    assert set(files) == {"a", "b"}


# Order and pages


def test_the_oldest_lease_is_the_one_whose_renewal_is_longest_ago(
    manager: LeaseManager[str],
) -> None:
    manager.add("anna", "a", 0.0)
    manager.add("bob", "b", 1.0)
    manager.add("carl", "c", 1.0)
    assert manager.oldest() is manager.by_holder("anna")
    manager.renew("anna", 2.0)
    assert manager.oldest() is manager.by_holder("bob")
    manager.remove("bob", "b")
    assert manager.oldest() is manager.by_holder("carl")
    manager.reassign("a", "carl", 3.0)
    assert manager.oldest() is manager.by_holder("carl")


def test_files_are_listed_sorted_in_pages(manager: LeaseManager[str]) -> None:
    for holder, file in [("bob", "c"), ("anna", "d"), ("anna", "a"), ("carl", "b")]:
        manager.add(holder, file, 0.0)
    assert manager.files(None, 2) == [("a", "anna"), ("b", "carl")]
    assert manager.files("b", 2) == [("c", "bob"), ("d", "anna")]
    assert manager.files("d", 2) == []


def test_a_page_begins_after_a_file_that_is_gone(manager: LeaseManager[str]) -> None:
    for file in "abc":
        manager.add("anna", file, 0.0)
    manager.remove("anna", "b")
    assert manager.files("b", 2) == [("c", "anna")]


def test_a_page_without_room_is_refused(manager: LeaseManager[str]) -> None:
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        manager.files(None, 0)


def test_files_are_any_ids_that_can_be_hashed_and_compared() -> None:
    manager: LeaseManager[tuple[int, bytes]] = LeaseManager()
    manager.add("anna", (2, b"x"), 0.0)
    manager.add("bob", (1, b"y"), 0.0)
    assert manager.files((1, b""), 5) == [((1, b"y"), "bob"), ((2, b"x"), "anna")]


# Limits and time


def test_the_limits_are_a_minute_and_twenty_minutes_by_default() -> None:
    assert (SOFT_LIMIT_S, HARD_LIMIT_S) == (60.0, 1200.0)
    manager: LeaseManager[str] = LeaseManager()
    assert (manager.soft_limit_s, manager.hard_limit_s) == (60.0, 1200.0)


@pytest.mark.parametrize(
    ("soft_s", "hard_s"),
    [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (1.0, float("nan"))],
)
def test_limits_that_are_not_positive_and_ordered_are_refused(soft_s: float, hard_s: float) -> None:
    with pytest.raises(ValueError, match="soft limit must be positive and at most the hard limit"):
        LeaseManager[str](soft_limit_s=soft_s, hard_limit_s=hard_s)


def test_equal_limits_are_allowed() -> None:
    manager: LeaseManager[str] = LeaseManager(soft_limit_s=3.0, hard_limit_s=3.0)
    manager.add("anna", "a", 0.0)
    assert not manager.is_past_soft("anna", 3.0)
    assert manager.is_past_soft("anna", 3.5)
    assert manager.is_past_hard("anna", 3.5)


def test_the_soft_limit_is_passed_when_more_time_has_elapsed(manager: LeaseManager[str]) -> None:
    manager.add("anna", "a", 0.0)
    assert not manager.is_past_soft("anna", SOFT_LIMIT_S)
    assert manager.is_past_soft("anna", SOFT_LIMIT_S + 0.001)
    assert not manager.is_past_hard("anna", SOFT_LIMIT_S + 0.001)


def test_the_hard_limit_is_passed_when_more_time_has_elapsed(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    assert not bench.manager.is_past_hard("anna", HARD_LIMIT_S)
    assert bench.check(HARD_LIMIT_S) is False
    assert bench.released == []
    assert bench.manager.is_past_hard("anna", HARD_LIMIT_S + 0.001)
    assert bench.check(HARD_LIMIT_S + 0.001) is False
    assert bench.released == [("anna", "a")]


def test_an_unknown_holder_is_past_no_limit(manager: LeaseManager[str]) -> None:
    assert not manager.is_past_soft("anna", 1e9)
    assert not manager.is_past_hard("anna", 1e9)


def test_a_lease_past_the_limits_can_still_be_renewed(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    assert bench.manager.renew("anna", LATE)
    assert not bench.manager.is_past_soft("anna", LATE)
    assert bench.check(LATE) is False
    assert bench.released == []


@pytest.mark.parametrize(
    "use",
    [
        lambda manager: manager.add("bob", "b", 50.0),
        lambda manager: manager.renew("stranger", 50.0),
        lambda manager: manager.is_past_soft("stranger", 50.0),
        lambda manager: manager.check(50.0, print, elapsed=float),
    ],
    ids=["add", "renew", "is_past_soft", "check"],
)
def test_a_time_before_the_latest_one_counts_as_the_latest_one(
    bench: Bench, use: Callable[[LeaseManager[str]], object]
) -> None:
    bench.manager.add("anna", "a", 0.0)
    use(bench.manager)
    bench.manager.add("carl", "c", 10.0)
    assert bench.renewed_at("carl") == 50.0
    bench.manager.renew("anna", 20.0)
    assert bench.renewed_at("anna") == 50.0
    bench.manager.reassign("a", "dora", 30.0)
    assert bench.renewed_at("dora") == 50.0


@pytest.mark.parametrize("now", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_not_finite_is_refused_and_nothing_changes(bench: Bench, now: float) -> None:
    manager = bench.manager
    manager.add("anna", "a", 0.0)
    for call in (
        lambda: manager.add("bob", "b", now),
        lambda: manager.renew("anna", now),
        lambda: manager.reassign("a", "bob", now),
        lambda: manager.is_past_soft("anna", now),
        lambda: manager.is_past_hard("anna", now),
        lambda: bench.check(now),
    ):
        with pytest.raises(ValueError, match="now must be a finite number of seconds"):
            call()
    assert manager.files(None, 10) == [("a", "anna")]
    assert bench.renewed_at("anna") == 0.0


# Messages


def test_messages_can_go_to_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("leases")
    manager: LeaseManager[str] = LeaseManager(on_error=log.error, on_info=log.info)
    manager.add("anna", "100%s", 0.0)
    manager.remove("anna", "%d")
    with caplog.at_level(logging.INFO):
        manager.check(LATE, lambda _holder, _file: None, elapsed=lambda: 0.0)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_messages_are_dropped_by_default() -> None:
    manager: LeaseManager[str] = LeaseManager()
    manager.add("anna", "a", 0.0)
    manager.remove("anna", "b")
    assert manager.count == 1


def test_a_callback_must_be_a_plain_function() -> None:
    async def report(_text: str) -> None: ...

    with pytest.raises(TypeError, match="on_error must be a plain function"):
        LeaseManager[str](on_error=report)
    with pytest.raises(TypeError, match="on_info must be a plain function"):
        LeaseManager[str](on_info=report)
