"""Slots for long reads: how many answers are being built or unsent at a time.

Theory of operation. A long read takes a slot before it begins and keeps it until its answer was
sent, or its stream is over. There are `MAX_READS` slots for the whole server. Reads that find none
wait in a queue for each connection, and the queues are served round robin. A connection that has a
slot gets another one only while no connection without one waits, and never the last one; not before
its last answer is built, and not while it holds `MAX_HELD_OF_CONNECTION_BYTES`. So one connection
takes no more memory than that and one answer (`keyspace.answer_size`).

A read whose peer takes less than `MIN_TAKEN_BYTES` in `PATIENCE_S` loses its slot; so does every
read that has had its slot for `PATIENCE_S` while others wait. Otherwise a few slow peers would
block all others. The answer stays until the peer takes it or the stream is reset. If answers
without a slot exceed `MAX_HELD_BYTES`, the oldest of them are reset before another read begins.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from leasehold.basics.event_loop import EventLoop, LoopTimer
from leasehold.errors import Status
from leasehold.grpc.error_details import BUSY
from leasehold.grpc.protocol import RpcError

MAX_READS: Final = 4
"""Long reads at a time: each may block the event loop for a slice of 2 ms."""

MAX_QUEUED: Final = 4096
"""Long reads of all connections that may wait for a slot; further ones are refused."""

MAX_QUEUED_OF_CONNECTION: Final = 1024
"""Those of one connection: as many as it may have streams, unless that limit was raised."""

PATIENCE_S: Final = 10.0
"""How long a peer may take too little of a long answer before the slot goes to another read."""

MIN_TAKEN_BYTES: Final = 64 * 1024
"""How much of it a peer must take in that time."""

MAX_HELD_BYTES: Final = 256 * 1024 * 1024
"""Bytes of built and unsent long answers of the whole server. A single one may be larger."""

MAX_HELD_OF_CONNECTION_BYTES: Final = 16 * 1024 * 1024
"""The limit for one connection above which none of its reads begins: as much as it may have unsent
without having its other calls refused (`ConnectionLimits.max_unsent_bytes`)."""

NOT_TAKEN: Final = "the answers on this connection are not taken; read them, or open another one"
_REFUSED: Final = "too many long reads are waiting; try again later"


class Slot:
    """One long read, from the moment that it may begin until its answer was sent.

    `left` returns how much of the answer is unsent, and `reset` drops it.
    """

    __slots__ = (
        "_alarm",
        "_left",
        "_slots",
        "connection",
        "held_bytes",
        "is_built",
        "is_lost",
        "is_slow",
        "reset",
    )

    def __init__(self, slots: "ReadSlots", connection: object) -> None:
        self._slots = slots
        self.connection = connection
        self.held_bytes = 0
        self.is_built = False
        self.is_lost = False
        """Whether the slot was given to another read."""
        self.is_slow = False
        """Whether the slot was lost because the peer takes too little of the answer."""
        self.reset: Callable[[], None] | None = None
        self._left: Callable[[], int] | None = None
        self._alarm: LoopTimer | None = None

    def holds(
        self, size_bytes: int, loop: EventLoop, left: Callable[[], int], reset: Callable[[], None]
    ) -> None:
        """Count an answer that is built, and check periodically how much of it is taken."""
        self.held_bytes = size_bytes
        self.reset = reset
        self._left = left
        self._watch(loop, size_bytes)
        self._slots.built(self)

    def _watch(self, loop: EventLoop, left_before: int) -> None:
        self._alarm = loop.call_later(PATIENCE_S, lambda: self._look(loop, left_before))

    def _look(self, loop: EventLoop, left_before: int) -> None:
        assert self._left is not None
        left = self._left()
        self.is_slow = left > 0 and left_before - left < MIN_TAKEN_BYTES
        if self.is_slow or (left > 0 and self._slots.queued):
            self._alarm = None
            self.is_lost = True
            self._slots.lost(self)
        else:
            self._watch(loop, left)

    def release(self) -> None:
        """End the read; only the first call counts."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        slots, self._slots = self._slots, _NONE
        if slots is not _NONE:
            slots.released(self)


class ReadSlots:
    """The slots of a server."""

    def __init__(self, reads: int = MAX_READS) -> None:
        self._free = self._reads = reads
        self._running: Counter[object] = Counter()
        self._building: set[object] = set()
        """Connections that have an answer being built."""
        self._held: Counter[object] = Counter()
        """The bytes of answers that each connection has not taken."""
        self._queues: dict[object, deque[asyncio.Future[Slot]]] = {}
        self._queued = 0
        self._lost: dict[Slot, None] = {}
        """Reads that have lost their slot, and whose answers are held."""
        self.held_bytes = 0
        """The bytes of answers that are built and not sent completely."""

    @property
    def running(self) -> int:
        """How many reads have a slot."""
        return self._reads - self._free

    @property
    def queued(self) -> int:
        """How many reads wait for one."""
        return self._queued

    def is_slow(self, connection: object) -> bool:
        """Return whether this connection takes too little of an answer that is held."""
        return any(slot.is_slow and slot.connection is connection for slot in self._lost)

    async def acquire(self, connection: object) -> Slot:
        """Wait for a slot; raise `RESOURCE_EXHAUSTED` if too many reads wait already."""
        queue = self._queues.get(connection)
        of_connection = 0 if queue is None else len(queue)
        if self._queued >= MAX_QUEUED or of_connection >= MAX_QUEUED_OF_CONNECTION:
            raise RpcError(Status.RESOURCE_EXHAUSTED, _REFUSED, detail=BUSY)
        waiting: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(connection, deque()).append(waiting)
        self._queued += 1
        self._hand_out()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                waiting.result().release()
            else:
                self._leave(connection, waiting)
            raise

    def _leave(self, connection: object, waiting: "asyncio.Future[Slot]") -> None:
        queue = self._queues.get(connection)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            self._queued -= 1
            if not queue:
                del self._queues[connection]

    def _hand_out(self) -> None:
        while self._free and self._queues:
            connection = self._next()
            if connection is None:
                return
            queue = self._queues.pop(connection)
            waiting = queue.popleft()
            self._queued -= 1
            if queue:
                self._queues[connection] = queue  # behind the others
            if waiting.done():
                continue
            if self._held[connection] >= MAX_HELD_OF_CONNECTION_BYTES:
                error = RpcError(Status.RESOURCE_EXHAUSTED, NOT_TAKEN, detail=BUSY)
                waiting.set_exception(error)
                continue
            self._free -= 1
            self._running[connection] += 1
            self._building.add(connection)
            self._make_room()
            waiting.set_result(Slot(self, connection))

    def _next(self) -> object | None:
        """Choose the next connection: the first that has the fewest slots.

        A slow connection is chosen although it holds much: its reads are refused.
        """
        ready = [
            connection
            for connection in self._queues
            if connection not in self._building
            and (self._held[connection] < MAX_HELD_OF_CONNECTION_BYTES or self.is_slow(connection))
        ]
        if not ready:
            return None
        connection = min(ready, key=self._running.__getitem__)
        return None if self._free == 1 and self._running[connection] else connection

    def _make_room(self) -> None:
        """Reset answers without a slot, oldest first, while too much is held."""
        while self._lost and self.held_bytes > MAX_HELD_BYTES:
            slot = next(iter(self._lost))
            reset = slot.reset
            slot.release()
            if reset is not None:
                reset()

    def built(self, slot: Slot) -> None:
        """Count an answer that is complete: its connection may build another one."""
        slot.is_built = True
        self._building.discard(slot.connection)
        self._held[slot.connection] += slot.held_bytes
        self.held_bytes += slot.held_bytes
        self._hand_out()

    def lost(self, slot: Slot) -> None:
        """Take a slot from a read; its answer is still held."""
        self._lost[slot] = None
        self._give_back(slot)

    def released(self, slot: Slot) -> None:
        """Return the slot of a read that is over, unless it was lost before."""
        if slot.is_built:
            self._drop_held(slot)
        else:
            self._building.discard(slot.connection)
        if slot.is_lost:
            self._lost.pop(slot, None)
            self._hand_out()
        else:
            self._give_back(slot)

    def _drop_held(self, slot: Slot) -> None:
        self.held_bytes -= slot.held_bytes
        self._held[slot.connection] -= slot.held_bytes
        if not self._held[slot.connection]:
            del self._held[slot.connection]

    def _give_back(self, slot: Slot) -> None:
        self._free += 1
        self._running[slot.connection] -= 1
        if not self._running[slot.connection]:
            del self._running[slot.connection]
        self._hand_out()


_NONE: Final = ReadSlots(0)
"""Replaces the slots of a read that is over."""
