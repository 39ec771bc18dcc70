"""Turns: large senders one after the other, for a moment each, and then somebody else."""

from collections.abc import Callable
from typing import Any

import pytest

from leasehold.serving.turns import TURN_S, Turns
from tests.support.virtual_loop import VirtualLoop


class Loop(VirtualLoop):
    """A loop whose turns are taken by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Sender:
    """Has so many slices, each of which takes a while."""

    def __init__(self, loop: Loop, name: str, slices: int, cost_s: float, done: list[str]) -> None:
        self._loop, self._name, self._done = loop, name, done
        self.left, self._cost_s = slices, cost_s

    def take_slice(self) -> bool:
        self.left -= 1
        self._done.append(self._name)
        self._loop.pass_time(self._cost_s)
        return self.left > 0


class Fixture:
    def __init__(self) -> None:
        self.loop = Loop()
        self.entered: list[float] = []
        self.turns = Turns(self.loop, lambda: self.entered.append(self.loop.now()))
        self.done: list[str] = []

    def add(self, name: str, slices: int, cost_s: float = TURN_S) -> Sender:
        sender = Sender(self.loop, name, slices, cost_s, self.done)
        self.turns.add(sender)
        return sender


def test_one_who_is_alone_begins_at_once_and_stops_when_the_time_is_up() -> None:
    fixture = Fixture()
    fixture.add("a", 5, TURN_S / 2)
    assert fixture.done == ["a", "a"]
    fixture.loop.turn()
    assert fixture.done == ["a"] * 4
    fixture.loop.turn()
    assert fixture.done == ["a"] * 5
    assert len(fixture.loop.soon) == len(fixture.turns) == 0


def test_several_take_turns_slice_by_slice() -> None:
    fixture = Fixture()
    for name in "abc":
        fixture.add(name, 2)
    assert fixture.done == ["a"], "those who come later wait for the loop"
    for _ in range(5):
        assert len(fixture.loop.soon) == 1, "between two turns everybody else has a chance"
        fixture.loop.turn()
    assert fixture.done == ["a", "a", "b", "c", "b", "c"]
    assert fixture.loop.soon == []


def test_lease_time_is_brought_up_to_date_before_each_slice() -> None:
    fixture = Fixture()
    fixture.add("a", 3, TURN_S / 4)
    assert len(fixture.entered) == 3
    assert fixture.entered == sorted(set(fixture.entered))


def test_a_sender_that_fails_stops_no_other() -> None:
    fixture = Fixture()
    fixture.add("a", 2)
    bad: Any = type("Bad", (), {"take_slice": lambda _: 1 / 0})()
    fixture.turns.add(bad)
    fixture.add("b", 1)
    fixture.loop.turn()
    with pytest.raises(ZeroDivisionError):
        fixture.loop.turn()
    fixture.loop.turn()
    assert fixture.done == ["a", "a", "b"]
    fixture.add("c", 1)
    assert fixture.done[-1] == "c", "and the next one begins at once again"
