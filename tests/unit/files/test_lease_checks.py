"""The checks of the lease manager: leases past the hard limit, the budget, retries."""

import pytest

from leasehold.files import lease_manager
from leasehold.files.lease_manager import CHECK_BUDGET_S, RETRY_WAITS_S
from tests.support.lease_bench import LATE, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Checks


def test_a_check_releases_all_files_of_expired_leases_oldest_lease_first(bench: Bench) -> None:
    manager = bench.manager
    manager.add("anna", "a", 0.0)
    manager.add("bob", "z", 0.0)
    manager.add("bob", "b", 0.5)
    manager.renew("anna", 0.6)
    manager.add("carl", "c", 0.75)
    manager.add("dora", "d", 100.0)
    assert bench.check(LATE) is False
    assert bench.released == [("bob", "z"), ("bob", "b"), ("anna", "a"), ("carl", "c")]
    assert manager.files(None, 10) == [("d", "dora")]
    assert manager.by_holder("bob") is None


def test_each_lease_past_the_hard_limit_is_reported_once(bench: Bench) -> None:
    bench.cost_s = CHECK_BUDGET_S
    for file in "ab":
        bench.manager.add("anna", file, 0.0)
    bench.manager.add("bob", "c", 0.0)
    while bench.check(LATE):
        pass
    assert bench.infos == [
        "the lease of 'anna' has passed the hard limit of 1200 s; files to release: 2",
        "the lease of 'bob' has passed the hard limit of 1200 s; files to release: 1",
    ]


def test_a_lease_that_is_renewed_and_passes_the_limit_again_is_reported_again(
    bench: Bench,
) -> None:
    bench.cost_s = CHECK_BUDGET_S
    for file in "ab":
        bench.manager.add("anna", file, 0.0)
    bench.check(LATE)
    bench.manager.renew("anna", LATE)
    bench.check(2 * LATE)
    assert len(bench.infos) == 2


def test_a_check_stops_at_its_budget_and_returns_whether_work_is_left(bench: Bench) -> None:
    bench.cost_s = 0.010
    for number in range(7):
        bench.manager.add("anna", str(number), 0.0)
    assert bench.check(LATE) is True
    assert len(bench.take_released()) == 3  # 10 and 20 ms are within 25 ms, 30 ms are not
    assert bench.check(LATE) is True
    assert len(bench.take_released()) == 3
    assert bench.check(LATE) is False
    assert len(bench.take_released()) == 1


def test_no_work_is_left_if_the_budget_ends_with_the_last_file(bench: Bench) -> None:
    bench.cost_s = CHECK_BUDGET_S
    bench.manager.add("anna", "a", 0.0)
    bench.manager.add("bob", "b", 100.0)
    assert bench.check(LATE) is False


def test_a_check_releases_at_least_one_file(bench: Bench) -> None:
    bench.cost_s = 10.0
    bench.manager.add("anna", "a", 0.0)
    bench.manager.add("anna", "b", 0.0)
    spent = iter(range(100))
    assert bench.manager.check(LATE, bench.release, elapsed=lambda: next(spent), budget_s=0.0)
    assert bench.released == [("anna", "a")]


def test_the_file_is_still_in_the_lease_during_its_release(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    seen = []
    bench.check(LATE, lambda _holder, file: seen.append(bench.manager.by_file(file) is not None))
    assert seen == [True]
    assert bench.manager.by_file("a") is None


def test_a_release_may_remove_files_of_the_lease(bench: Bench) -> None:
    for file in "abc":
        bench.manager.add("anna", file, 0.0)

    def release(holder: str, file: str) -> None:
        bench.release(holder, file)
        for each in {"a": "ab", "c": "c"}[file]:
            bench.manager.remove(holder, each)

    assert bench.check(LATE, release) is False
    assert bench.released == [("anna", "a"), ("anna", "c")]
    assert bench.manager.count == 0
    assert bench.errors == []


def test_a_file_that_its_release_moves_to_another_holder_stays_there(bench: Bench) -> None:
    for file in "ab":
        bench.manager.add("anna", file, 0.0)
    bench.check(LATE, lambda _holder, file: bench.manager.reassign(file, "recovery", LATE))
    assert bench.manager.files(None, 10) == [("a", "recovery"), ("b", "recovery")]
    assert bench.manager.by_holder("anna") is None


def test_a_file_that_was_moved_is_not_retried_if_its_release_fails(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)

    def release(_holder: str, file: str) -> None:
        bench.manager.reassign(file, "recovery", LATE)
        raise OSError

    assert bench.check(LATE, release) is False
    assert bench.files_of("recovery") == ["a"]
    assert bench.manager.retrying == 0
    assert len(bench.errors) == 1


def test_a_file_that_its_failed_release_removed_is_retried(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)

    def release(holder: str, file: str) -> None:
        bench.manager.remove(holder, file)
        raise OSError

    bench.check(LATE, release)
    assert (bench.manager.count, bench.manager.retrying) == (0, 1)


def test_a_lease_that_is_renewed_during_a_check_keeps_its_other_files(bench: Bench) -> None:
    for file in "abc":
        bench.manager.add("anna", file, 0.0)
    assert bench.check(LATE, lambda holder, _file: bench.manager.renew(holder, LATE)) is False
    assert bench.files_of("anna") == ["b", "c"]


def test_a_release_that_opens_files_does_not_keep_the_check_running(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)

    def release(holder: str, file: str) -> None:
        bench.release(holder, file)
        bench.manager.add(holder, file + "a", LATE)

    assert bench.check(LATE, release) is False
    assert bench.released == [("anna", "a")]
    assert bench.files_of("anna") == ["aa"]


def test_a_check_within_a_check_is_refused(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)
    bench.check(LATE, lambda _holder, _file: bench.check(LATE))
    assert len(bench.errors) == 1
    assert "check must not be called by a release callback" in bench.errors[0]
    assert bench.check(LATE) is False


def test_an_interrupted_release_leaves_the_file_in_its_lease(bench: Bench) -> None:
    bench.manager.add("anna", "a", 0.0)

    def interrupted(_holder: str, _file: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.check(LATE, interrupted)
    assert bench.files_of("anna") == ["a"]
    assert bench.check(LATE) is False
    assert bench.released == [("anna", "a")]


# Retries


def test_a_file_whose_release_fails_leaves_the_lease_and_stops_no_other(bench: Bench) -> None:
    bench.bad = {"a"}
    for file in "ab":
        bench.manager.add("anna", file, 0.0)
    bench.manager.add("bob", "c", 0.0)
    assert bench.check(LATE) is False
    assert bench.released == [("anna", "a"), ("anna", "b"), ("bob", "c")]
    assert bench.errors == [
        "cannot release file 'a' of holder 'anna' (attempt 1): OSError('a is bad')"
    ]
    assert (bench.manager.count, bench.manager.retrying) == (0, 1)
    assert bench.manager.by_file("a") is bench.manager.by_holder("anna") is None


def test_retries_follow_the_schedule_whose_last_wait_repeats(bench: Bench) -> None:
    bench.bad = {"a"}
    bench.manager.add("anna", "a", 0.0)
    now = LATE
    bench.check(now)
    for wait_s in [*RETRY_WAITS_S, 600.0, 600.0]:
        bench.take_released()
        bench.check(now + wait_s - 0.001)
        assert bench.released == []
        now += wait_s
        assert bench.check(now) is False  # it does not loop
        assert bench.released == [("anna", "a")]
    assert "(attempt 13)" in bench.errors[-1]


def test_the_waits_grow_up_to_ten_minutes() -> None:
    assert list(RETRY_WAITS_S) == sorted(set(RETRY_WAITS_S))
    assert RETRY_WAITS_S[0] > 0
    assert RETRY_WAITS_S[-1] == 600.0


def test_a_retry_that_succeeds_is_the_last_one(bench: Bench) -> None:
    bench.bad = {"a"}
    bench.manager.add("anna", "a", 0.0)
    bench.check(LATE)
    bench.bad = set()
    bench.take_released()
    assert bench.check(LATE + 2.0) is False
    assert bench.manager.retrying == 0
    bench.check(LATE + 1e6)
    assert bench.released == [("anna", "a")]


def test_due_retries_are_tried_in_the_order_of_their_due_times(bench: Bench) -> None:
    bench.bad = {"a", "b"}
    bench.manager.add("anna", "a", 0.0)
    bench.manager.add("bob", "b", 2.0)
    bench.check(LATE)
    bench.check(LATE + 2.0)  # a fails again, and waits 4 s; b fails, and waits 2 s
    bench.take_released()
    bench.check(LATE + 100.0)
    assert bench.released == [("bob", "b"), ("anna", "a")]


def test_retries_and_expired_leases_take_turns(bench: Bench) -> None:
    bench.bad = set("abc")
    for file in "abc":
        bench.manager.add("anna", file, 0.0)
    bench.check(LATE)
    bench.take_released()
    for file in "defg":
        bench.manager.add("bob", file, LATE)
    bench.cost_s = CHECK_BUDGET_S  # one file per check: the turns go on from check to check
    while bench.check(3 * LATE):
        pass
    assert "".join(file for _, file in bench.released) == "adbecfg"


def test_a_file_that_is_opened_again_is_no_longer_retried(bench: Bench) -> None:
    bench.bad = {"a"}
    bench.manager.add("anna", "a", 0.0)
    bench.check(LATE)
    bench.manager.add("bob", "a", LATE)
    assert (bench.manager.count, bench.manager.retrying) == (1, 0)
    bench.take_released()
    bench.check(LATE + 10.0)
    assert bench.released == []


def test_a_file_that_its_retry_opens_for_another_holder_stays_with_it(bench: Bench) -> None:
    bench.bad = {"a"}
    bench.manager.add("anna", "a", 0.0)
    bench.check(LATE)

    def release(_holder: str, file: str) -> None:
        bench.manager.add("bob", file, LATE)
        raise OSError

    assert bench.check(LATE + 2.0, release) is False
    assert bench.files_of("bob") == ["a"]
    assert bench.manager.retrying == 0


def test_an_interrupted_retry_stays_due(bench: Bench) -> None:
    bench.bad = {"a"}
    bench.manager.add("anna", "a", 0.0)
    bench.check(LATE)

    def interrupted(_holder: str, _file: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.check(LATE + 2.0, interrupted)
    assert bench.manager.retrying == 1
    bench.bad = set()
    bench.check(LATE + 2.0)
    assert bench.manager.retrying == 0


def test_a_file_that_waits_for_a_retry_is_in_no_lease(bench: Bench) -> None:
    bench.bad = {"a"}
    for file in "ab":
        bench.manager.add("anna", file, 0.0)
    bench.cost_s = CHECK_BUDGET_S
    bench.check(LATE)
    bench.manager.remove("anna", "a")
    assert len(bench.errors) == 2
    with pytest.raises(ValueError, match="'a' does not belong to a lease"):
        bench.manager.reassign("a", "bob", LATE)
    assert (bench.manager.count, bench.manager.retrying) == (1, 1)


def test_beyond_the_limit_the_file_with_the_latest_retry_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_manager, "MAX_RETRYING", 2)
    bench.bad = {"a", "b", "c"}
    bench.manager.add("anna", "a", 0.0)
    for file in "bc":
        bench.manager.add("bob", file, 2.0)
    bench.check(LATE)
    bench.check(LATE + 2.0)  # a fails again, and waits 4 s; b and c fail, and wait 2 s
    assert bench.manager.retrying == 2
    assert bench.errors[-2].startswith(
        "gave up file 'a' of holder 'anna' after 2 attempts to release it"
    )
    bench.take_released()
    bench.check(LATE + 100.0)
    assert bench.released == [("bob", "b"), ("bob", "c")]
