"""Blocks that must not outlast their lease: `cancel_on_loss` for threads.

A thread cannot be stopped from outside, but what it waits for can. In a block whose lease is lost,
the call that waits raises `LeaseLost`, or if none does, the next one: once, as a task is cancelled
once. What ends or closes something is let through, because that is how a block is left.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from leasehold.errors import LeaseLost
from leasehold.sync.call import Call


class Body:
    """A block that its thread is in."""

    __slots__ = ("_call", "_is_due", "_is_told", "_loss")

    def __init__(self, loss: Callable[[], LeaseLost]) -> None:
        self._loss = loss
        self._call: Call[Any] | None = None
        self._is_due = False
        self._is_told = False

    def lose(self) -> None:
        """Learn that the lease is lost; on the loop."""
        self._is_due = not self._is_told
        call = self._call
        if call is not None:
            call.cancel()

    def waits_for(self, call: Call[Any] | None) -> None:
        """Note what the thread waits for."""
        self._call = call

    def tell(self, *, is_lost: bool = False) -> None:
        """Raise the loss, if there was one that was not raised before."""
        if (self._is_due or is_lost) and not self._is_told:
            self._is_told = True
            self._is_due = False
            raise self._loss()


class _Blocks(threading.local):
    def __init__(self) -> None:
        self.bodies: list[Body] = []


_blocks = _Blocks()


def bodies() -> Sequence[Body]:
    """Give the blocks that this thread is in, if their leases can be lost."""
    return _blocks.bodies


def enter(body: Body) -> None:
    """Begin a block in this thread."""
    _blocks.bodies.append(body)


def leave(body: Body) -> None:
    """End it."""
    if body in _blocks.bodies:
        _blocks.bodies.remove(body)
