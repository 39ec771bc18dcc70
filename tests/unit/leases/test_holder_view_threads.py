"""A holder's view of a lease, asked for by one thread while another one changes it.

Each change is stopped at each of its lines, and the end is read there; and each reading is stopped
at each of its lines, and the change made there. What the threads of a real program could see is one
of these.
"""

import copy
import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

from leasehold.leases import holder_view as module
from leasehold.leases.holder_view import Holding, Send

Change = Callable[[Holding, list[Send]], object]


def _at_each_line(function: Callable[[], Any], do: Callable[[int], None]) -> Any:
    """Call a function, and before each line of the module, do something else."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            sys.settrace(None)
            do(lines)
            sys.settrace(trace)
            lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return function()
    finally:
        sys.settrace(before)


def _random_change(random: Random, sends: int) -> Change:
    """Draw what may happen to a lease next."""
    now = random.uniform(100.0, 120.0)
    term_s = random.choice([1.0, 5.0, 10.0, 20.0])
    which = random.randrange(sends) if sends else 0

    def send(holding: Holding, under_way: list[Send]) -> None:
        under_way.append(holding.send(term_s, now))

    def end(holding: Holding, _: list[Send]) -> None:
        holding.end_at(now)

    if not sends:
        return random.choice([send, send, end])
    return random.choice(
        [
            send,
            end,
            lambda holding, under_way: holding.answered(under_way.pop(which), term_s),
            lambda holding, under_way: holding.answered(under_way.pop(which), term_s),
            lambda holding, under_way: holding.failed(under_way.pop(which), definite=False),
            lambda holding, under_way: holding.failed(under_way.pop(which), definite=True),
        ]
    )


def _ends_seen(holding: Holding, sends: list[Send], change: Change) -> tuple[set[float], float]:
    """Give the ends that may be read while a change is made, and the end after it."""
    seen: set[float] = set()
    changed, of_changed = copy.deepcopy((holding, sends))
    _at_each_line(lambda: change(changed, of_changed), lambda _: seen.add(changed.end))
    for line in range(10):  # of the reading
        read, of_read = copy.deepcopy((holding, sends))

        def change_there(at: int, line: int = line, pair: Any = (read, of_read)) -> None:
            if at == line:
                change(*pair)

        seen.add(_at_each_line(lambda read=read: read.end, change_there))  # type: ignore[misc]
    return seen, changed.end


@pytest.mark.parametrize("seed", range(40))
def test_another_thread_never_sees_an_end_that_lies_later_than_before_and_after(seed: int) -> None:
    random = Random(seed)
    holding = Holding(100.0, 10.0)
    sends: list[Send] = []
    for _ in range(15):
        change = _random_change(random, len(sends))
        before = holding.end
        seen, after = _ends_seen(holding, sends, change)
        assert max(seen) <= max(before, after)
        change(holding, sends)
        assert holding.end == after
