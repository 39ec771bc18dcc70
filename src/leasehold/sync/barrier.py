"""`Barrier` for blocking code."""

from leasehold.client.patience import Timeout
from leasehold.recipes import barrier as on_loop
from leasehold.recipes.token import Token
from leasehold.sync.loop_thread import LoopThread


class Barrier:
    """Opens for so many at a time. A handle: it costs nothing until it is waited at."""

    __slots__ = ("_barrier", "_thread")

    def __init__(self, thread: LoopThread, barrier: on_loop.Barrier) -> None:
        self._thread = thread
        self._barrier = barrier

    @property
    def name(self) -> str:
        """What it is called."""
        return self._barrier.name

    @property
    def parties(self) -> int:
        """How many it opens for."""
        return self._barrier.parties

    def wait(self, timeout: Timeout = None) -> Token:
        """Wait until all are there, and give the token of the opening, the same to each of them.

        `timeout` is how long to wait for others: None for as long as it takes, 0 only if this is
        the last of them. `TimeoutError` then: it was not opened for this one. Who is interrupted
        may have been counted.
        """
        return self._thread.run(lambda: self._barrier.wait(timeout))
