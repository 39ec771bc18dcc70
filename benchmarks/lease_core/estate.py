"""A landlord with a number of live leases, and beside it a control of plain dict and heap.

Costs are processor time of the thread, which a scheduler that has other work to do leaves alone.
The control has as many objects, under the same cookies, touched in the same order, and does the
least that any program must do for the same purpose. What it costs more at a million than at a
thousand is the price of memory, not of leases.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random
from time import sleep
from time import thread_time_ns as cpu_ns

from benchmarks.lease_core.children import resident_bytes
from benchmarks.lease_core.collector import CollectorMeter
from leasehold import DurationPolicy, EndReason, Landlord
from leasehold.leases.expiry_strategies import SLICE

LONG_TERM_S = 100_000.0
"""What a renewal asks for: more than is left of any lease."""

SHORT_TERM_S = 0.150
"""For leases that are to expire: above the landlord's tick, so that no timer is set for each."""

NAP_S = 0.100
"""Slept twice to let them end; below the gap that a landlord takes for a stall of its own."""


def long_terms(rng: Random, count: int) -> list[float]:
    """Terms that land anywhere in the queue, and never end here."""
    return [rng.uniform(LONG_TERM_S / 2, LONG_TERM_S) for _ in range(count)]


def heed(_resource: object, _reason: EndReason) -> None:
    """Called when a lease ended, as for every owner."""


def make_landlord() -> Landlord[object]:
    """A landlord as most programs have it: the default strategy, the default cookies, an owner."""
    policy = DurationPolicy(maximum=LONG_TERM_S, default=LONG_TERM_S)
    return Landlord(policy, on_ended=heed)


class Plain:
    """What the control keeps for a lease."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


@dataclass(frozen=True, slots=True)
class Built:
    """What it took to grow to a number of leases, with the collector as Python starts it."""

    grant_ns: float
    collector_ns: float
    resident_bytes: float | None
    """All three for each lease."""


class Estate:
    """So many live leases, and what can be done to them; each method returns the time it took."""

    def __init__(self, size: int, *, with_control: bool = True) -> None:
        self.size = size
        self.rng = Random(size)
        self.landlord = make_landlord()
        self.cookies: list[object] = []
        self.built = self._build()
        self.control: dict[object, Plain] = {}
        self.control_heap: list[tuple[float, int, object]] = []
        for number, cookie in enumerate(self.cookies if with_control else ()):
            deadline = self.rng.uniform(LONG_TERM_S / 2, LONG_TERM_S)
            self.control[cookie] = Plain(deadline)
            self.control_heap.append((deadline, number, cookie))
        heapify(self.control_heap)

    def _build(self) -> Built:
        terms = long_terms(self.rng, self.size)
        grant, cookies = self.landlord.grant, self.cookies
        meter, before = CollectorMeter(), resident_bytes()
        start_ns = cpu_ns()
        for term in terms:
            cookies.append(grant(None, term).cookie)
        took_ns = cpu_ns() - start_ns
        after = resident_bytes()
        meter.close()
        grown = None if before is None or after is None else (after - before) / self.size
        return Built(took_ns / self.size, meter.total_ns / self.size, grown)

    def draw(self, count: int) -> list[object]:
        """Cookies in random order, some more than once."""
        return self.rng.choices(self.cookies, k=count)

    def run_of(self, count: int) -> list[object]:
        """Neighbours, in the order in which they were granted."""
        start = self.rng.randrange(max(1, len(self.cookies) - count + 1))
        return self.cookies[start : start + count]

    def take_out(self, count: int) -> list[object]:
        """Remove cookies at random from those that are known as live."""
        taken = []
        for _ in range(count):
            at = self.rng.randrange(len(self.cookies))
            self.cookies[at], self.cookies[-1] = self.cookies[-1], self.cookies[at]
            taken.append(self.cookies.pop())
        return taken

    # The landlord.

    def renew(self, cookies: list[object]) -> int:
        """Renew one by one."""
        renew = self.landlord.renew
        start_ns = cpu_ns()
        for cookie in cookies:
            renew(cookie, LONG_TERM_S)
        return cpu_ns() - start_ns

    def renew_all(self, cookies: list[object]) -> int:
        """Renew in one call."""
        wants = [(cookie, LONG_TERM_S) for cookie in cookies]
        start_ns = cpu_ns()
        result = self.landlord.renew_all(wants)
        took_ns = cpu_ns() - start_ns
        assert not result.failures
        return took_ns

    def grant(self, terms: list[float]) -> int:
        """Grant, one by one; the new leases are known as live."""
        grant = self.landlord.grant
        start_ns = cpu_ns()
        leases = [grant(None, term) for term in terms]
        took_ns = cpu_ns() - start_ns
        self.cookies.extend(lease.cookie for lease in leases)
        return took_ns

    def cancel(self, cookies: list[object]) -> int:
        """Cancel, one by one."""
        cancel = self.landlord.cancel
        start_ns = cpu_ns()
        for cookie in cookies:
            cancel(cookie)
        return cpu_ns() - start_ns

    def expire(self, count: int) -> int:
        """Let so many leases come due among all the others, and run the expiry step for them."""
        landlord, reap = self.landlord, self.landlord.reap
        live = len(landlord)
        for _ in range(count):
            landlord.grant(None, SHORT_TERM_S)
        self.wait_until_due()
        start_ns = cpu_ns()
        while reap(SLICE):
            pass
        took_ns = cpu_ns() - start_ns
        assert len(landlord) == live, "the leases were due, and should have ended"
        return took_ns

    def wait_until_due(self) -> None:
        """Sleep past the short term, and let all of it count.

        The loop does not run meanwhile: a stall for the landlord, but no holder is waiting here.
        """
        clock, monotonic = self.landlord.table.clock, self.landlord.monotonic
        until = clock.elapse(monotonic()) + SHORT_TERM_S
        while clock.now <= until or clock.earliest_end(SHORT_TERM_S) > clock.now:
            sleep(NAP_S)
            clock.elapse(monotonic())
        clock.polled(clock.cuts)

    # The control.

    def control_write(self, cookies: list[object]) -> int:
        """Look up and write an attribute: what a renewal cannot do without."""
        table, now, term = self.control, self.rng.random(), LONG_TERM_S
        start_ns = cpu_ns()
        for cookie in cookies:
            table[cookie].deadline = now + term
        return cpu_ns() - start_ns

    def control_insert(self, cookies: list[object], deadlines: list[float]) -> int:
        """Insert into the dict and push on the heap: what a grant cannot do without."""
        table, heap, number = self.control, self.control_heap, len(self.control_heap)
        pairs = list(zip(cookies, deadlines, strict=True))
        start_ns = cpu_ns()
        for cookie, deadline in pairs:
            table[cookie] = Plain(deadline)
            number += 1
            heappush(heap, (deadline, number, cookie))
        return cpu_ns() - start_ns

    def control_delete(self, cookies: list[object]) -> int:
        """Delete from the dict: what a cancellation cannot do without."""
        table = self.control
        start_ns = cpu_ns()
        for cookie in cookies:
            del table[cookie]
        return cpu_ns() - start_ns

    def control_pop(self, cookies: list[object]) -> int:
        """Pop from the heap and delete from the dict: what an expiry cannot do without."""
        self.control_insert(cookies, [self.rng.random() for _ in cookies])
        table, heap = self.control, self.control_heap
        start_ns = cpu_ns()
        while heap[0][0] <= 1.0:
            del table[heappop(heap)[2]]
        return cpu_ns() - start_ns

    def control_tidy(self) -> None:
        """Drop the heap entries of what was deleted, once they are many."""
        if len(self.control_heap) > self.size + self.size // 2:
            table = self.control
            self.control_heap = [entry for entry in self.control_heap if entry[2] in table]
            heapify(self.control_heap)
