"""One direction of a connection: everything arrives, once, in order, or waits.

Theory of operation. What was pushed stands in one queue. Each item also has an *arrival*, an
event with a delay of its own, prolonged by a retransmission for every loss it draws. An arrival
hands over the head of the queue, whichever item it was made for: that is what keeps the order.
An arrival that finds the link cut is spent without effect; when the link is whole again, items
that have no arrival left get new ones.
"""

from collections import deque
from collections.abc import Callable

from leasehold.testing.host import Host
from leasehold.testing.packets import Packets

RETRANSMIT_S = 0.2  # how much later a packet comes for each time it was lost
MAX_RETRANSMITS = 10  # for one packet; a link that loses all is better described by a cut


class Stream:
    """Carries callbacks from `src` to `dst`; each runs when its message arrives."""

    def __init__(self, packets: Packets, src: Host, dst: Host) -> None:
        self.src = src
        self.dst = dst
        self._packets = packets
        self._queue: deque[Callable[[], None]] = deque()
        self._arrivals = 0
        self._last_arrival = 0.0

    def push(self, arrive: Callable[[], None]) -> None:
        """Send one item after all that were sent before."""
        self._queue.append(arrive)
        self._packets.counters.sent += 1
        self.route_changed()

    def drop(self) -> None:
        """Forget what has not arrived."""
        self._packets.counters.lost += len(self._queue)
        self._queue.clear()

    def route_changed(self) -> None:
        """See to it that every item arrives, if the link lets it."""
        if not self._packets.blocked(self.src, self.dst):
            while self._arrivals < len(self._queue):
                self._schedule_arrival()

    def _schedule_arrival(self) -> None:
        world = self._packets.world
        soonest = world.now + self._packets.delay(self.src, self.dst) + self._retransmissions_s()
        # Never before an earlier item: the head of the queue would arrive too soon for it.
        self._last_arrival = max(self._last_arrival, soonest)
        self._arrivals += 1
        world.carry(self._last_arrival - world.now, self._arrive)

    def _retransmissions_s(self) -> float:
        loss, counters = self._packets.faults(self.src, self.dst).loss, self._packets.counters
        losses = 0
        while losses < MAX_RETRANSMITS and loss and self._packets.world.random.random() < loss:
            losses += 1
        counters.sent += losses
        counters.lost += losses
        return losses * RETRANSMIT_S

    def _arrive(self) -> None:
        self._arrivals -= 1
        if self._queue and not self._packets.blocked(self.src, self.dst):
            self._packets.counters.delivered += 1
            self._queue.popleft()()
