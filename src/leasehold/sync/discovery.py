"""The part of `Discovery` that is not generated: its listeners.

They are called in a thread that is not the loop's, one at a time and in order, so they may block,
and call the discovery. None is called after it was removed, or after `close` has returned; a call
that has begun by then is not waited for.
"""

from collections.abc import Callable
from functools import partial
from typing import Self

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.workers import SerialExecutor
from leasehold.discovery.discovery import Discovery as AsyncDiscovery
from leasehold.discovery.discovery import Listener
from leasehold.discovery.state import DiscoveryEvent
from leasehold.sync.client_base import LoopObject
from leasehold.sync.loop_thread import LoopThread, loop_thread


class DiscoveryBase(LoopObject[AsyncDiscovery]):
    """A discovery on the loop, and the thread that calls its listeners."""

    def __init__(self, make: Callable[[], AsyncDiscovery]) -> None:
        self._prepare(loop_thread())
        super().__init__(make)

    def adopt(self, thread: LoopThread, made: AsyncDiscovery) -> Self:
        """Be the counterpart of a discovery that is on the loop already: in place of `__init__`."""
        self._prepare(thread)
        self._thread, self._on_loop = thread, made
        return self

    def _prepare(self, thread: LoopThread) -> None:
        self._calls = SerialExecutor(thread.callbacks)
        self._queues: dict[Listener, Listener] = {}
        """For each listener, the one on the loop, which queues its calls. Changed on the loop."""

    @property
    def on_loop(self) -> AsyncDiscovery:
        """The async discovery."""
        return self._on_loop

    def add_listener(self, listener: Listener, *, changes: bool = False) -> None:
        """Call `listener` with each event, and now with one for everything already found.

        It is a plain function, called in a separate thread. With `changes` it is also called when
        registrars that were found by group have changed their groups.
        """
        if listener is None:
            raise TypeError("listener must be a function, not None")
        check_plain_callback(listener, "listener")

        def add() -> None:
            queue = self._queues.get(listener) or partial(self._queue, listener)
            self._queues[listener] = queue
            self._on_loop.add_listener(queue, changes=changes)

        self._run(add)

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener; one that was not added is ignored."""

        def remove() -> None:
            self._on_loop.remove_listener(self._queues.pop(listener, listener))

        self._run(remove)

    def _queue(self, listener: Listener, event: DiscoveryEvent) -> None:
        self._calls.submit(partial(self._deliver, listener, self._queues[listener], event))

    def _deliver(self, listener: Listener, queue: Listener, event: DiscoveryEvent) -> None:
        if self._queues.get(listener) is queue:  # else it was removed, and maybe added again
            self._notify(listener, event, self)

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self._queues.clear()
