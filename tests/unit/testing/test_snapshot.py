"""Copies of what goes over the network."""

from dataclasses import dataclass
from typing import Any

import pytest

from leasehold.testing.packets import Snapshot


class Refusal(OSError):
    """An OSError with a constructor of its own."""

    def __init__(self, host: str) -> None:
        super().__init__(111, f"refused by {host}")
        self.host = host


@pytest.mark.parametrize("value", [None, 1, "x", [1, {"a": (2, 3)}], {"s": {1, 2}}])
def test_plain_values_are_equal_to_their_copies(value: Any) -> None:
    assert Snapshot(value).copy() == value


def test_a_snapshot_is_of_its_moment_and_gives_a_new_copy_each_time() -> None:
    value = [1]
    snapshot = Snapshot(value)
    value.append(2)
    first = snapshot.copy()
    first.append(3)
    assert snapshot.copy() == [1]


def test_local_classes_and_functions_go_by_reference() -> None:
    @dataclass
    class Local:
        number: int

    def function() -> None: ...

    original = Local(1)
    copy, same = Snapshot((original, function)).copy()
    assert copy == original
    assert copy is not original
    assert same is function


def test_exceptions_keep_message_arguments_attributes_and_notes() -> None:
    error = Refusal("b")
    error.add_note("a note")
    copies = Snapshot({"failed": [error]}).copy()["failed"]
    (copy,) = copies
    assert copy is not error
    assert type(copy) is Refusal
    assert (str(copy), copy.args, copy.errno, copy.host) == (
        str(error), error.args, 111, "b",
    )  # fmt: skip
    assert copy.__notes__ == ["a note"]


def test_exception_groups_are_copied_with_their_members() -> None:
    group = Snapshot(ExceptionGroup("both", [Refusal("a"), KeyError("k")])).copy()
    assert isinstance(group, ExceptionGroup)
    assert [str(error) for error in group.exceptions] == ["[Errno 111] refused by a", "'k'"]
