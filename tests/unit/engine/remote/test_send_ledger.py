"""Which send an answer belongs to, where answers carry no number."""

import pytest

from leasehold.engine.remote.send_ledger import SendLedger


@pytest.fixture
def ledger() -> SendLedger[str, int]:
    return SendLedger()


def test_an_answer_belongs_to_the_send_that_is_outstanding(ledger: SendLedger[str, int]) -> None:
    assert ledger.sent("lease", 1)
    assert ledger.answered("lease") == 1
    assert ledger.sent("lease", 2)
    assert ledger.answered("lease") == 2


def test_at_most_one_renewal_of_a_lease_is_outstanding(ledger: SendLedger[str, int]) -> None:
    assert ledger.sent("lease", 1)
    assert not ledger.sent("lease", 2)
    assert len(ledger) == 1
    assert ledger.answered("lease") == 1  # the oldest; the second never went out
    assert ledger.answered("lease") is None


def test_an_answer_that_nobody_asked_for_is_credited_to_nothing(
    ledger: SendLedger[str, int],
) -> None:
    assert ledger.answered("lease") is None
    assert len(ledger) == 0


def test_leases_do_not_take_each_others_answers(ledger: SendLedger[str, int]) -> None:
    ledger.sent("one", 1)
    ledger.sent("two", 2)
    assert ledger.answered("two") == 2
    assert "one" in ledger
    assert "two" not in ledger


def test_a_new_connection_starts_with_none(ledger: SendLedger[str, int]) -> None:
    ledger.sent("one", 1)
    ledger.sent("two", 2)
    assert ledger.broken() == [("one", 1), ("two", 2)]
    assert ledger.broken() == []
    assert ledger.answered("one") is None  # a late answer of the old connection
    assert ledger.sent("one", 3)
    assert ledger.answered("one") == 3
