"""The page `/health`: false, with the reason, once the disk has not answered for long enough."""

import json
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.server.pages import UNHEALTHY_AFTER_S, HealthPage, StoreHealth


class Patient:
    """What a page asks of a server."""

    def __init__(self, unhealthy_after_s: float = UNHEALTHY_AFTER_S) -> None:
        self.outstanding_s = 0.0
        self.failure: BaseException | None = None
        self.alarm = ""
        alarms: Any = SimpleNamespace(
            reason=lambda excluded: "" if self.alarm in excluded else self.alarm
        )
        health = StoreHealth(
            alarms, lambda: self.failure, lambda: self.outstanding_s, unhealthy_after_s
        )
        self.page = HealthPage(health.reason)

    def ask(self, query: str = "") -> tuple[int, str, str]:
        reply = self.page.page(query)
        said = json.loads(reply.body)
        return reply.status, said["health"], said["reason"]


WELL = (HTTPStatus.OK, "true", "")


def test_it_is_well_while_nothing_is_outstanding() -> None:
    assert Patient().ask() == WELL


@pytest.mark.parametrize("limit_s", [UNHEALTHY_AFTER_S, 3.0])
def test_a_commit_that_is_outstanding_for_too_long_is_told_with_the_reason(limit_s: float) -> None:
    patient = Patient(limit_s)
    for outstanding_s in (0.1, limit_s / 2, limit_s - 0.001):
        patient.outstanding_s = outstanding_s
        assert patient.ask() == WELL
    patient.outstanding_s = limit_s
    why = f"a commit has been outstanding for {limit_s:.1f} s: the disk does not respond"
    assert patient.ask() == (HTTPStatus.SERVICE_UNAVAILABLE, "false", why)
    assert patient.ask("exclude=NOSPACE")[1] == "false"
    patient.outstanding_s = 0.0
    assert patient.ask() == WELL
    assert (patient.page.successes, patient.page.failures) == (4, 2)


def test_a_failure_counts_before_a_stall_and_a_stall_before_an_alarm() -> None:
    patient = Patient()
    patient.alarm = "ALARM NOSPACE"
    assert patient.ask()[2] == "ALARM NOSPACE"
    patient.outstanding_s = UNHEALTHY_AFTER_S
    assert "outstanding" in patient.ask()[2]
    patient.failure = RuntimeError("the disk is gone")
    assert patient.ask()[2] == "the disk is gone"
