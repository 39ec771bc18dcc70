"""The three clocks, driven by hand and by a simulation."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.clock import Clock
from leasehold.testing import Simulation, VirtualClock


def test_a_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(wall=1000.0)
    reading: Clock = clock
    assert (reading.monotonic(), reading.boottime(), reading.wall()) == (0.0, 0.0, 1000.0)
    clock.advance(2.0)
    assert (clock.monotonic(), clock.boottime(), clock.wall()) == (2.0, 2.0, 1002.0)
    clock.suspend(5.0)
    assert (clock.monotonic(), clock.boottime(), clock.wall()) == (2.0, 7.0, 1007.0)
    clock.jump_wall(-7.0)
    assert (clock.monotonic(), clock.boottime(), clock.wall()) == (2.0, 7.0, 1000.0)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_virtual_clock_refuses_what_is_no_length_of_time(seconds: float) -> None:
    clock = VirtualClock()
    for move in (clock.advance, clock.suspend):
        with pytest.raises(ValueError, match="seconds"):
            move(seconds)


def test_drift_makes_all_clocks_run_faster_by_parts_per_million() -> None:
    with Simulation(0) as sim:
        host = sim.host("a", drift_ppm=200.0, wall=5000.0)
        clock: Clock = host.clock
        start = clock.monotonic()
        sim.run_for(10_000.0)
        assert clock.monotonic() - start == pytest.approx(10_002.0)
        assert clock.boottime() - start == pytest.approx(10_002.0)
        assert clock.wall() == pytest.approx(15_002.0)
        host.drift_ppm = -1000.0
        assert host.drift_ppm == -1000.0
        assert clock.monotonic() - start == pytest.approx(10_002.0)
        sim.run_for(1000.0)
        assert clock.monotonic() - start == pytest.approx(10_002.0 + 999.0)


@pytest.mark.parametrize("ppm", [-1e6, -2e6, float("nan")])
def test_drift_that_would_stop_time_is_refused(ppm: float) -> None:
    with Simulation(0) as sim, pytest.raises(ValueError, match="drift_ppm"):
        sim.host("a", drift_ppm=ppm)


def test_hosts_start_at_readings_of_their_own() -> None:
    with Simulation(0) as sim:
        readings = {sim.host(name).clock.monotonic() for name in "abcd"}
    assert len(readings) > 1


def test_the_wall_clock_jumps_alone() -> None:
    with Simulation(0) as sim:
        host = sim.host("a", wall=100.0)
        before = (host.clock.monotonic(), host.clock.boottime())
        host.jump_wall(-30.0)
        assert host.clock.wall() == 70.0
        assert (host.clock.monotonic(), host.clock.boottime()) == before


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["drift", "suspend", "wake", "stop", "resume", "stall"]),
            st.floats(0.0, 1e5),
        ),
        max_size=30,
    )
)
def test_clocks_are_continuous_whatever_befalls_the_host(changes: list[tuple[str, float]]) -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        clock = host.clock
        actions: dict[str, Callable[[float], None]] = {
            "drift": lambda amount: setattr(host, "drift_ppm", amount - 5e4),
            "suspend": lambda _: host.suspend(),
            "wake": lambda _: host.wake(),
            "stop": lambda _: host.stop(),
            "resume": lambda _: host.resume(),
            "stall": lambda amount: host.stall(amount / 100),
        }
        asleep = 0.0
        for kind, amount in changes:
            monotonic, boottime, wall = clock.monotonic(), clock.boottime(), clock.wall()
            actions[kind](amount)
            if kind != "stall":
                assert (clock.monotonic(), clock.boottime(), clock.wall()) == (
                    monotonic, boottime, wall,
                )  # fmt: skip
            sim.run_for(amount)
            assert clock.monotonic() >= monotonic
            assert clock.boottime() >= boottime
            if host.suspended:
                assert clock.monotonic() == monotonic
                asleep += clock.boottime() - boottime
            assert clock.boottime() - clock.monotonic() == pytest.approx(asleep, abs=1e-6)


@given(drift=st.floats(-9e5, 9e5), reading=st.floats(0.0, 1e9))
def test_a_timer_is_due_when_the_clock_has_reached_it(drift: float, reading: float) -> None:
    with Simulation(0) as sim:
        clock = sim.host("a", drift_ppm=drift).clock
        target = clock.monotonic() + reading
        when = clock.true_time_of(target)
        sim.run_for(when)
        assert 0.0 <= clock.monotonic() - target < 1e-6


def test_rounding_never_leaves_a_timer_just_short() -> None:
    with Simulation(0) as sim:
        clock = sim.host("a", drift_ppm=33.3).clock
        for step in range(10_000):
            target = clock.monotonic() + 0.1 * step
            when = clock.true_time_of(target)
            assert clock._monotonic_at(when) >= target


def test_a_timer_of_a_suspended_machine_is_never_due() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        host.suspend()
        assert host.clock.true_time_of(host.clock.monotonic() + 1.0) == math.inf
