"""Slots for connections: who makes room for a newcomer."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from leasehold.serving.admission import (
    MAX_CANDIDATES,
    MAX_CONNECTIONS,
    MAX_PARTING,
    RESERVED_FILES,
    SEARCH_S,
    Admission,
    connections_for,
)
from leasehold.serving.limited_log import LimitedLog
from tests.support.virtual_loop import VirtualLoop


@dataclass(eq=False)
class Connection:
    idle_since: float | None = None
    events: list[str] = field(default_factory=list)

    def part(self) -> None:
        self.events.append("part")
        self.idle_since = None

    def cut_off(self) -> None:
        self.events.append("cut off")


class House:
    def __init__(self, size: int) -> None:
        self.loop = VirtualLoop()
        self.there: list[Connection] = []
        log = LimitedLog(logging.getLogger("test"), self.loop)
        self.admission = Admission(self.there, size, self.loop, log)

    def come(self, idle_since: float | None) -> Connection | None:
        if not self.admission.admit("a peer"):
            return None
        self.there.append(Connection(idle_since))
        return self.there[-1]

    def leave(self, connection: Connection) -> None:
        self.there.remove(connection)
        self.admission.left(connection)


def test_connections_that_are_closed_for_others_or_refused_are_counted() -> None:
    house = House(2)
    assert house.come(1.0)
    assert house.come(None)
    assert (house.admission.evicted, house.admission.refused) == (0, 0)
    assert house.come(None)
    assert (house.admission.evicted, house.admission.refused) == (1, 0)
    house.loop.pass_time(2 * SEARCH_S)
    assert house.come(None) is None
    assert (house.admission.evicted, house.admission.refused) == (1, 1)

    def give_up_silent() -> bool:
        house.admission.release()
        return True

    assert house.admission.admit("a peer", give_up_silent)
    assert (house.admission.evicted, house.admission.refused) == (2, 1)


def test_the_one_that_is_idle_for_longest_makes_room() -> None:
    house = House(3)
    late, busy, early = house.come(5.0), house.come(None), house.come(1.0)
    assert late is not None
    assert busy is not None
    assert early is not None
    assert house.come(None)
    assert (late.events, busy.events, early.events) == ([], [], ["part"])
    assert house.admission.taken == 3
    house.leave(early)
    assert house.admission.taken == 3
    house.leave(busy)
    assert house.admission.taken == 2


def test_without_an_idle_one_a_newcomer_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    house = House(1)
    busy = house.come(None)
    assert busy
    assert house.come(None) is None
    assert "refused a connection from a peer" in caplog.text
    busy.idle_since = 3.0
    house.loop.pass_time(SEARCH_S)
    assert house.come(None)
    assert busy.events == ["part"]


def test_the_last_resort_returns_a_slot() -> None:
    house = House(1)
    assert house.come(None)

    def give_up() -> bool:
        house.admission.release()
        return True

    assert house.admission.admit("a peer", give_up)
    assert house.admission.taken == 1


def test_those_that_do_not_leave_are_limited() -> None:
    house = House(MAX_PARTING + 10)
    first = [house.come(float(number)) for number in range(MAX_PARTING + 10)]
    for _ in first:
        assert house.come(None)
    events = [each.events for each in first if each]
    assert events == [["part", "cut off"]] * 10 + [["part"]] * MAX_PARTING
    for each in first:
        assert each
        house.leave(each)
    assert house.admission.taken == MAX_PARTING + 10


def test_a_storm_of_newcomers_searches_rarely() -> None:
    searches = 0

    class Counted(list[Connection]):
        def __iter__(self) -> Iterator[Connection]:
            nonlocal searches
            searches += 1
            return super().__iter__()

    house = House(4 * MAX_CANDIDATES)
    house.admission._connections = there = Counted()
    house.there = there
    for number in range(4 * MAX_CANDIDATES):
        house.come(float(number))
    for _ in range(4 * MAX_CANDIDATES):
        assert house.come(None)
    assert searches <= 5
    for _ in range(1000):
        assert house.come(None) is None
    assert searches <= 6


def test_the_limit_on_files_limits_connections() -> None:
    assert connections_for(1024) == 1024 - RESERVED_FILES
    assert connections_for(100) == 50
    assert connections_for(1) == 1
    assert connections_for(10**9) == MAX_CONNECTIONS
