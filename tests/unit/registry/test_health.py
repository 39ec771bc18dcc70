"""The health of a service: the rules, and checks in virtual time."""

import asyncio
import math
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from leasehold import FOREVER
from leasehold.errors import FileNotFound as LeaseFileNotFound
from leasehold.registry.health import (
    FAIL_AFTER,
    CommandCheck,
    FunctionCheck,
    GrpcCheck,
    HealthMonitor,
    HealthRules,
    HealthState,
    HttpCheck,
    TcpCheck,
    parse_check,
)
from leasehold.registry.state import Health
from leasehold.testing import run_virtual

PASSING, FAILING, MAINTENANCE = Health.PASSING, Health.FAILING, Health.MAINTENANCE


def outcomes(state: HealthState, text: str, now: float = 0.0) -> list[Health]:
    """Record outcomes, + for good and - for failed; return the health after each."""
    found = []
    for each in text:
        state.checked(now, is_good=each == "+")
        found.append(state.health())
    return found


def test_a_service_is_failing_after_3_failed_checks() -> None:
    state = HealthState(HealthRules(), 0.0)
    assert outcomes(state, "---") == [PASSING, PASSING, FAILING]


def test_failed_checks_count_only_in_a_row() -> None:
    state = HealthState(HealthRules(), 0.0)
    assert set(outcomes(state, "--+--+--")) == {PASSING}


def test_a_failing_service_is_passing_after_2_good_checks() -> None:
    state = HealthState(HealthRules(), 0.0)
    outcomes(state, "---")
    assert outcomes(state, "+-+-++") == [FAILING] * 5 + [PASSING]


def test_a_service_is_withdrawn_after_10_minutes_of_failing() -> None:
    state = HealthState(HealthRules(), 0.0)
    outcomes(state, "---", now=100.0)
    assert state.withdrawn_at == 700.0
    assert not state.is_withdrawn(699.9)
    outcomes(state, "+-", now=400.0)  # one good check does not begin the time again
    assert state.is_withdrawn(700.0)
    outcomes(state, "++", now=800.0)
    assert not state.is_withdrawn(2_000.0)
    assert state.withdrawn_at == math.inf


def test_the_numbers_and_the_time_are_configurable() -> None:
    state = HealthState(HealthRules(1, 3, math.inf), 0.0)
    assert outcomes(state, "-++") == [FAILING] * 3
    assert not state.is_withdrawn(1e9)
    assert outcomes(state, "+") == [PASSING]
    for arguments in ((0, 2, 1.0), (3, 0, 1.0), (3, 2, 0.0), (3, 2, math.nan)):
        with pytest.raises(ValueError, match="must be"):
            HealthRules(*arguments)


def test_in_maintenance_checks_count_and_have_no_effect_before_its_end() -> None:
    state = HealthState(HealthRules(), 0.0)
    state.in_maintenance = True
    assert outcomes(state, "---") == [MAINTENANCE] * 3
    assert not state.is_withdrawn(10_000.0)
    state.in_maintenance = False
    assert state.health() is FAILING
    assert state.is_withdrawn(10_000.0)


def test_a_service_may_start_as_failing_or_in_maintenance() -> None:
    assert HealthState(HealthRules(), 5.0, FAILING).withdrawn_at == 605.0
    assert outcomes(HealthState(HealthRules(), 0.0, FAILING), "++") == [FAILING, PASSING]
    assert HealthState(HealthRules(), 0.0, MAINTENANCE).health() is MAINTENANCE


# Arguments of checks.


@pytest.mark.parametrize(
    "make",
    [
        lambda: HttpCheck("ftp://a/"),
        lambda: HttpCheck("http://"),
        lambda: HttpCheck("http://a:x/"),
        lambda: HttpCheck("http://a/ b"),
        lambda: HttpCheck("http://a/\r\nX: y"),
        lambda: HttpCheck("http://a/", interval=0),
        lambda: HttpCheck("http://a/", timeout=-1),
        lambda: HttpCheck("http://a/", timeout=math.nan),
        lambda: HttpCheck("http://a/", fail_after=0),
        lambda: HttpCheck("http://a/", withdraw_after=0),
        lambda: TcpCheck("nonsense"),
        lambda: GrpcCheck(""),
        lambda: CommandCheck([]),
        lambda: CommandCheck("true"),
        lambda: parse_check("ping"),
        lambda: parse_check("tcp://"),
        lambda: parse_check("exec:"),
    ],
)
def test_malformed_checks_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()


def test_checks_as_text() -> None:
    assert parse_check("http://a:1/x?y") == HttpCheck("http://a:1/x?y")
    assert parse_check("tcp://a:1", interval=2.0) == TcpCheck("a:1", interval=2.0)
    assert parse_check("tcp:a:1") == TcpCheck("a:1")
    assert parse_check("grpc://a:1/pkg.Service") == GrpcCheck("a:1", "pkg.Service")
    assert parse_check("exec:test -f '/a b'", timeout=1.0) == CommandCheck(
        ("test", "-f", "/a b"), timeout=1.0
    )
    assert HttpCheck("http://a/", withdraw_after=FOREVER).rules().withdraw_after_s == math.inf
    assert HttpCheck("http://a/", withdraw_after=timedelta(1)).rules().withdraw_after_s == 86_400


# The monitor.


class Scripted:
    """A check whose outcomes are a text; the last one repeats."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.made = 0

    async def __call__(self) -> bool:
        at = min(self.made, len(self.script) - 1)
        self.made += 1
        match self.script[at]:
            case "?":
                await asyncio.sleep(3_600)
            case "!":
                raise RuntimeError("broken")
        return self.script[at] == "+"


def monitored(script: str, seconds: float, **options: Any) -> list[tuple[float, Health, bool]]:
    found: list[tuple[float, Health, bool]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def changed(health: Health, is_withdrawn: bool) -> None:
            found.append((loop.time() - began, health, is_withdrawn))

        check = FunctionCheck(Scripted(script), **options)
        monitor = HealthMonitor(check, changed, random=Random(1))
        running = asyncio.ensure_future(monitor.run())
        await asyncio.sleep(seconds)
        running.cancel()

    run_virtual(main)
    return found


def test_a_monitor_reports_each_change_once() -> None:
    changes = monitored("----+++++", 200.0)
    assert [(health, gone) for _, health, gone in changes] == [(FAILING, False), (PASSING, False)]
    assert 18.0 <= changes[0][0] <= 22.0  # the third check, with jitter


def test_a_monitor_withdraws_and_brings_back() -> None:
    changes = monitored("-" * 70 + "+", 900.0)
    assert [(health, gone) for _, health, gone in changes] == [
        (FAILING, False),
        (FAILING, True),
        (PASSING, False),
    ]
    assert 599.999 <= changes[1][0] - changes[0][0] <= 612.0  # sums are rounded


def test_a_service_is_withdrawn_in_time_however_seldom_it_is_checked() -> None:
    changes = monitored("-----", 14_400.0, interval=3600.0)
    failing_at, withdrawn_at = (at for at, _, _ in changes)
    assert changes[1][1:] == (FAILING, True)
    assert withdrawn_at - failing_at == pytest.approx(600.0)


@pytest.mark.parametrize(
    ("script", "reported"),
    [
        ("-----++", [FAILING, PASSING]),
        ("--++---", [PASSING, FAILING]),
        ("-+--+--", [FAILING]),
    ],
)
def test_a_monitor_reports_a_service_that_fails_from_the_start(
    script: str, reported: list[Health]
) -> None:
    changes = monitored(script, 75.0, start=FAILING)
    assert [health for _, health, _ in changes] == reported


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('::1', 1)"), "Connection refused"),
        (FileNotFoundError(2, "No such file or directory", "f"), "f: No such file or directory"),
        (LeaseFileNotFound("f"), "'f': no such file or directory"),
        (OSError("broken"), "broken"),
    ],
)
def test_the_reason_of_a_failed_check_is_in_plain_words(error: OSError, text: str) -> None:
    async def probe() -> None:
        raise error

    async def main() -> None:
        assert await FunctionCheck(probe).make() == text

    run_virtual(main)


@pytest.mark.parametrize("script", ["?", "!"])
def test_a_check_that_hangs_or_raises_has_failed(script: str) -> None:
    changes = monitored(script, 60.0, timeout=1.0)
    assert [health for _, health, _ in changes] == [FAILING]


def test_a_check_whose_own_task_was_cancelled_has_failed_and_is_made_again() -> None:
    made = 0

    async def probe() -> bool:
        nonlocal made
        made += 1
        if made <= FAIL_AFTER:
            answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            answer.cancel()
            return await answer
        return True

    async def main() -> None:
        found: list[Health] = []
        monitor = HealthMonitor(
            FunctionCheck(probe), lambda health, _gone: found.append(health), random=Random(1)
        )
        running = asyncio.ensure_future(monitor.run())
        await asyncio.sleep(25.0)
        assert monitor.last_error == "something that the check awaited was cancelled"
        await asyncio.sleep(60.0)
        assert found == [FAILING, PASSING]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run_virtual(main)


def test_a_service_without_a_check_is_passing_unless_in_maintenance() -> None:
    async def main() -> None:
        found: list[Health] = []
        monitor = HealthMonitor(None, lambda health, _gone: found.append(health), random=Random(1))
        await monitor.run()  # returns
        monitor.maintain(is_on=True)
        monitor.maintain(is_on=True)
        monitor.maintain(is_on=False)
        assert found == [MAINTENANCE, PASSING]

    run_virtual(main)


def test_the_last_error_is_kept_until_a_check_is_good() -> None:
    async def main() -> None:
        monitor = HealthMonitor(FunctionCheck(Scripted("!+")), lambda *_: None, random=Random(1))
        running = asyncio.ensure_future(monitor.run())
        await asyncio.sleep(1.0)
        assert monitor.last_error == "broken"
        await asyncio.sleep(20.0)
        assert monitor.last_error == ""
        running.cancel()

    run_virtual(main)
