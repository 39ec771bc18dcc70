"""Log lines that peers cause are limited, and what is left out is counted."""

import logging

import pytest

from leasehold.serving.limited_log import LINES, SUMMARY_S, LimitedLog
from tests.support.virtual_loop import VirtualLoop


def test_lines_beyond_a_burst_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    loop = VirtualLoop()
    log = LimitedLog(logging.getLogger("test"), loop)
    for number in range(1000):
        log.warning("peer %d is wrong", number)
    log.warning("another kind")
    assert len(caplog.messages) == LINES.burst + 1
    assert caplog.messages[-1] == "another kind"
    caplog.clear()
    loop.pass_time(SUMMARY_S)
    suppressed = 1000 - LINES.burst
    assert caplog.messages == [
        f"{suppressed} more log lines were suppressed, all of this kind: peer %d is wrong"
    ]
    log.warning("peer %d is wrong", 7)
    assert caplog.messages[-1] == "peer 7 is wrong"


def test_a_flood_costs_a_few_lines_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop = VirtualLoop()
    log = LimitedLog(logging.getLogger("test"), loop)
    for _ in range(3600):
        for _ in range(10):
            log.warning("wrong")
        loop.pass_time(1.0)
    assert len(caplog.messages) <= LINES.burst + 3600 * LINES.per_s + 3600 / SUMMARY_S + 1
    assert loop.alarms <= 1
