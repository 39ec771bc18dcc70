"""Each rule for what is seen of a lease, kept and broken."""

import pytest

from tests.support.linearizability.leases import (
    LeaseHistory,
    LeaseViolation,
    Pause,
    Restart,
    Stall,
    check_latest_end,
    check_lease,
)

TTL_S = 10.0


@pytest.fixture
def lease() -> LeaseHistory:
    """A lease that was granted by a request sent at 0 and answered at 2."""
    lease = LeaseHistory(7)
    lease.granted(TTL_S, 0.0, 2.0)
    return lease


def broken(lease: LeaseHistory) -> str | None:
    violation = check_lease(lease)
    assert violation is None or isinstance(violation, LeaseViolation)
    return None if violation is None else str(violation)


def test_a_lease_of_which_nothing_is_known_breaks_no_rule() -> None:
    assert check_lease(LeaseHistory(7)) is None
    assert check_latest_end(LeaseHistory(7), slack_s=0.0) is None


@pytest.mark.parametrize(("answered", "is_early"), [(9.99, True), (10.0, False), (30.0, False)])
def test_a_granted_lease_lives_for_its_term_from_the_request_on(
    lease: LeaseHistory, answered: float, is_early: bool
) -> None:
    lease.seen_gone(3.0, answered)
    assert (broken(lease) is not None) == is_early


@pytest.mark.parametrize(("answered", "is_early"), [(17.99, True), (18.0, False)])
def test_a_renewed_lease_lives_for_its_term_from_the_last_renewal_on(
    lease: LeaseHistory, answered: float, is_early: bool
) -> None:
    lease.renewed(TTL_S, 8.0, 8.5)
    lease.renewed(TTL_S, 5.0, 5.5)
    lease.seen_gone(answered, answered)
    assert (broken(lease) is not None) == is_early


def test_a_renewal_without_an_answer_promises_nothing(lease: LeaseHistory) -> None:
    lease.renewed(TTL_S, 8.0, None)
    lease.seen_gone(11.0, 12.0)
    assert broken(lease) is None


def test_a_renewal_that_was_under_way_when_it_was_seen_gone_was_not_kept(
    lease: LeaseHistory,
) -> None:
    lease.renewed(TTL_S, 9.0, 14.0)
    lease.seen_gone(11.0, 12.0)
    assert "ended before its term" in str(broken(lease))


@pytest.mark.parametrize(("answered", "is_early"), [(10.99, True), (11.0, False)])
def test_the_last_renewal_may_have_made_the_term_shorter(
    lease: LeaseHistory, answered: float, is_early: bool
) -> None:
    lease.renewed(3.0, 8.0, 8.5)
    lease.seen_gone(9.0, answered)
    assert (broken(lease) is not None) == is_early


def test_a_shorter_term_counts_only_until_the_next_renewal(lease: LeaseHistory) -> None:
    lease.renewed(3.0, 4.0, 5.0)
    lease.renewed(TTL_S, 6.0, 7.0)
    lease.seen_gone(15.0, 15.99)
    assert broken(lease) is not None


def test_of_two_renewals_at_once_either_may_be_the_last(lease: LeaseHistory) -> None:
    lease.renewed(3.0, 4.0, 6.0)
    lease.renewed(TTL_S, 5.0, 7.0)
    lease.seen_gone(8.0, 8.0)
    assert broken(lease) is None
    lease.seen_gone(7.5, 7.9)
    assert broken(lease) is not None


@pytest.mark.parametrize(("sent", "is_early"), [(5.0, False), (6.0, False), (6.01, True)])
@pytest.mark.parametrize("answered", [None, 9.0])
def test_a_revoke_may_end_it_from_when_it_was_sent_on(
    lease: LeaseHistory, sent: float, is_early: bool, answered: float | None
) -> None:
    lease.revoked(sent, answered)
    lease.seen_gone(5.5, 6.0)
    assert (broken(lease) is not None) == is_early


@pytest.mark.parametrize(("answered", "is_early"), [(9.99, True), (10.0, False)])
def test_no_renewal_is_refused_within_a_term_that_was_promised(
    lease: LeaseHistory, answered: float, is_early: bool
) -> None:
    lease.refused(3.0, answered)
    assert (broken(lease) is not None) == is_early


def test_a_crash_may_undo_the_end_that_a_renewal_was_told_of(lease: LeaseHistory) -> None:
    lease.refused(11.0, 12.0)
    lease.seen_alive(13.0, 14.0)
    assert broken(lease) is None


@pytest.mark.parametrize(("asked", "is_back"), [(12.0, False), (12.01, True)])
def test_once_gone_it_is_never_seen_alive(lease: LeaseHistory, asked: float, is_back: bool) -> None:
    lease.seen_gone(11.0, 12.0)
    lease.seen_alive(asked, 13.0)
    assert (broken(lease) is not None) == is_back
    assert not is_back or "came back" in str(broken(lease))


@pytest.mark.parametrize(("asked", "is_back"), [(12.0, False), (12.01, True)])
def test_once_gone_it_is_never_renewed(lease: LeaseHistory, asked: float, is_back: bool) -> None:
    lease.revoked(1.0, None)  # only so that no promise holds
    lease.seen_gone(11.0, 12.0)
    lease.renewed(TTL_S, asked, 13.0)
    assert (broken(lease) is not None) == is_back


def test_a_renewal_after_its_end_that_was_not_answered_says_nothing(lease: LeaseHistory) -> None:
    lease.seen_gone(11.0, 12.0)
    lease.renewed(TTL_S, 13.0, None)
    assert broken(lease) is None


@pytest.mark.parametrize(("asked", "is_back"), [(5.0, False), (5.01, True)])
def test_once_revoked_it_is_never_seen_alive(
    lease: LeaseHistory, asked: float, is_back: bool
) -> None:
    lease.revoked(4.0, 5.0)
    lease.seen_alive(asked, 6.0)
    assert (broken(lease) is not None) == is_back


def test_a_revoke_without_an_answer_may_come_late(lease: LeaseHistory) -> None:
    lease.revoked(4.0, None)
    lease.seen_alive(6.0, 7.0)
    lease.seen_gone(8.0, 9.0)
    assert broken(lease) is None


def test_before_it_was_granted_it_may_be_missing() -> None:
    lease = LeaseHistory(7)
    lease.seen_gone(0.0, 1.0)
    lease.granted(TTL_S, 2.0, 4.0)
    lease.seen_gone(3.0, 3.5)
    lease.seen_alive(5.0, 6.0)
    assert broken(lease) is None
    lease.seen_gone(4.5, 5.0)
    assert broken(lease) is not None


def test_a_grant_without_an_answer_may_have_had_no_effect() -> None:
    lease = LeaseHistory(7)
    lease.granted(TTL_S, 0.0, None)
    lease.seen_gone(1.0, 2.0)
    lease.seen_gone(5.0, 6.0)
    assert broken(lease) is None


def test_a_grant_that_was_seen_is_never_undone() -> None:
    lease = LeaseHistory(7)
    lease.granted(TTL_S, 0.0, None)
    lease.seen_alive(1.0, 2.0)
    assert broken(lease) is None
    lease.seen_gone(5.0, 6.0)
    assert "ended before its term" in str(broken(lease))


def test_a_violation_names_the_lease_and_the_events(lease: LeaseHistory) -> None:
    lease.seen_gone(4.0, 5.0)
    violation = check_lease(lease)
    assert violation is not None
    assert violation.lease == 7
    assert list(violation.events) == lease.events()
    assert str(violation).splitlines() == [
        "lease 7: it ended before its term did:",
        "  [0.000000, 2.000000] granted for 10.0 s",
        "  [4.000000, 5.000000] seen gone",
    ]


def test_an_answer_before_its_question_is_refused(lease: LeaseHistory) -> None:
    with pytest.raises(ValueError, match="before it was invoked"):
        lease.seen_gone(5.0, 4.0)


@pytest.mark.parametrize(
    ("pauses", "latest"),
    [
        ([], 13.0),
        ([Stall(5.0, 8.0)], 16.0),
        ([Stall(5.0, 8.0), Stall(15.0, 16.0)], 17.0),
        ([Stall(13.5, 18.0)], 13.0),
        ([Restart(5.0, 9.0)], 20.0),
        ([Restart(5.0, 9.0), Restart(19.0, 30.0)], 41.0),
        ([Restart(13.5, 18.0)], 13.0),
    ],
)
@pytest.mark.parametrize("is_renewal", [False, True])
def test_nobody_sees_it_later_than_it_can_live(
    lease: LeaseHistory, pauses: list[Pause], latest: float, is_renewal: bool
) -> None:
    lease.seen_alive(latest, latest + 1.0)
    assert check_latest_end(lease, slack_s=1.0, pauses=pauses) is None
    if is_renewal:
        lease.renewed(TTL_S, latest + 0.01, latest + 1.0)
    else:
        lease.seen_alive(latest + 0.01, latest + 1.0)
    violation = check_latest_end(lease, slack_s=1.0, pauses=pauses)
    assert violation is not None
    assert f"longer than until {latest:.6f}" in str(violation)


@pytest.mark.parametrize("pause", [Stall(13.5, 18.0), Restart(13.5, 18.0)])
def test_a_pause_after_its_end_does_not_revive_it(lease: LeaseHistory, pause: Pause) -> None:
    lease.seen_alive(14.0, 15.0)
    assert check_latest_end(lease, slack_s=1.0, pauses=[pause]) is not None
    assert check_latest_end(lease, slack_s=2.0, pauses=[pause]) is None


def test_a_renewal_lets_it_live_longer(lease: LeaseHistory) -> None:
    lease.renewed(TTL_S, 9.0, 12.0)
    lease.seen_alive(22.0, 23.0)
    assert check_latest_end(lease, slack_s=0.0) is None
    lease.seen_alive(22.01, 23.0)
    assert check_latest_end(lease, slack_s=0.0) is not None


def test_a_renewal_without_an_answer_may_be_heard_late(lease: LeaseHistory) -> None:
    lease.renewed(TTL_S, 9.0, None)
    lease.seen_alive(24.0, 25.0)
    assert check_latest_end(lease, slack_s=0.0) is None
    assert check_latest_end(lease, slack_s=0.0, unanswered_s=5.0) is None
    assert check_latest_end(lease, slack_s=0.0, unanswered_s=4.9) is not None


def test_a_renewal_without_an_answer_after_its_end_does_not_revive_it(
    lease: LeaseHistory,
) -> None:
    lease.renewed(TTL_S, 12.5, None)
    assert check_latest_end(lease, slack_s=0.0) is None
    lease.seen_alive(13.0, 14.0)
    assert check_latest_end(lease, slack_s=0.0) is not None


def test_a_late_end_alone_breaks_no_other_rule(lease: LeaseHistory) -> None:
    lease.seen_alive(99.0, 100.0)
    assert broken(lease) is None
