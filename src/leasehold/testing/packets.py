"""Packets between hosts: lost, doubled, late and out of order, as the link's faults say.

A packet leaves at the sender's present (after its stall, if it is in one; never, if it crashed
before), is lost if the link is cut when it leaves or when it would arrive, and each copy draws a
delay of its own, which is all that reordering needs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from leasehold.testing.faults import LOOPBACK, Cut, Faults
from leasehold.testing.host import Host
from leasehold.testing.world import World


@dataclass(slots=True)
class Counters:
    """What became of the packets so far."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0


class Packets:
    """Carries packets between all pairs of hosts."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.world = world
        self.default = faults
        self.counters = Counters()
        self._links: dict[tuple[str, str], Faults] = {}
        self._cuts: list[Cut] = []

    # Settings.

    def set_link(self, src: Host, dst: Host, faults: Faults | None) -> None:
        """Override the default from `src` to `dst`, or with None go back to it."""
        if faults is None:
            self._links.pop((src.name, dst.name), None)
        else:
            self._links[src.name, dst.name] = faults

    def faults(self, src: Host, dst: Host) -> Faults:
        """What holds from `src` to `dst` now."""
        standard = LOOPBACK if src is dst else self.default
        return self._links.get((src.name, dst.name), standard)

    def cut(self, groups: Iterable[Iterable[Host]], *, one_way: bool) -> None:
        """Add a partition."""
        names = tuple(frozenset(host.name for host in group) for group in groups)
        self._cuts.append(Cut(names, one_way))
        self.world.record(f"cut {[sorted(group) for group in names]} one_way={one_way}")

    def heal(self) -> None:
        """End all partitions."""
        self._cuts.clear()
        self.world.record("heal")

    def blocked(self, src: Host, dst: Host) -> bool:
        """Whether nothing gets from `src` to `dst` now."""
        return src is not dst and any(cut.blocks(src.name, dst.name) for cut in self._cuts)

    # Traffic.

    def send(self, src: Host, dst: Host, what: str, arrive: Callable[[], bool]) -> None:
        """Let the process on `src` send a packet; `arrive` returns whether it was taken."""
        self.when_sent(src, lambda: self.transmit(src, dst, what, arrive))

    def when_sent(self, src: Host, leave: Callable[[], None]) -> None:
        """Run `leave` at the sender's present, unless it is down by then."""
        ahead = src.now - self.world.now
        incarnation = src.incarnation

        def leave_if_alive() -> None:
            if not src.down and src.incarnation == incarnation:
                leave()

        if ahead > 0:
            self.world.carry(ahead, leave_if_alive)
        else:
            leave_if_alive()

    def transmit(self, src: Host, dst: Host, what: str, arrive: Callable[[], bool]) -> None:
        """Put a packet on the wire, whoever it comes from."""
        faults, random = self.faults(src, dst), self.world.random
        self.counters.sent += 1
        copies = 1
        if faults.duplicate and random.random() < faults.duplicate:
            self.counters.duplicated += 1
            copies = 2
        for _ in range(copies):
            if self.blocked(src, dst) or (faults.loss and random.random() < faults.loss):
                self._lose(dst, what)
            else:
                self.world.carry(self.delay(src, dst), lambda: self._arrive(src, dst, what, arrive))

    def delay(self, src: Host, dst: Host) -> float:
        """Draw how long a packet takes."""
        faults, random = self.faults(src, dst), self.world.random
        delay = random.uniform(*faults.delay)
        if faults.spike and random.random() < faults.spike:
            delay += random.uniform(*faults.spike_delay)
        return delay

    def _arrive(self, src: Host, dst: Host, what: str, arrive: Callable[[], bool]) -> None:
        if self.blocked(src, dst) or not arrive():
            self._lose(dst, what)
        else:
            self.counters.delivered += 1
            self.world.record(f"arrives: {what}", dst.name)

    def _lose(self, dst: Host, what: str) -> None:
        self.counters.lost += 1
        self.world.record(f"lost: {what}", dst.name)
