"""One `RenewalManager` with many leases of one landlord, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import process_time, thread_time

from leasehold import (
    FOREVER,
    DurationPolicy,
    Landlord,
    LandlordLease,
    Lease,
    RenewalManager,
)
from leasehold.basics.durations import Duration, Requested
from leasehold.leases.lease import Outcome
from leasehold.testing import Host, Simulation

TERM_S = 60.0
PORTIONS = 100
"""The leases are granted in so many portions, spread over one term."""


@dataclass(slots=True)
class Minute:
    """One minute of virtual time."""

    calls: int = 0
    leases: int = 0
    largest: int = 0
    cpu_s: float = 0.0
    turn_max_s: float = 0.0
    """The longest turn of the event loop, in processor time."""

    def count(self, leases: int) -> None:
        """Note a renewal call."""
        self.calls += 1
        self.leases += leases
        self.largest = max(self.largest, leases)


@dataclass(slots=True)
class Managed:
    """What a manager did."""

    leases: int
    lost: int = 0
    minutes: list[Minute] = field(default_factory=list)


class _CountedLease(LandlordLease):
    """Counts the calls that its landlord gets."""

    minutes: list[Minute] = []  # noqa: RUF012  one for all leases, set by the run

    async def ask_renew(self, requested: Requested) -> Duration:
        self.minutes[-1].count(1)
        return await super().ask_renew(requested)

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        self.minutes[-1].count(len(wants))
        return await super().ask_renew_all(wants)


class _TimedSimulation(Simulation):
    """Notes how long turns take, in processor time."""

    turn_max_s = 0.0

    def _take_turn(self, host: Host) -> None:
        start = thread_time()
        super()._take_turn(host)
        self.turn_max_s = max(self.turn_max_s, thread_time() - start)


def measure_manager(leases: int, minutes: int) -> Managed:
    """Let a manager keep `leases` leases for so many minutes, after a first one to grant them."""
    result = Managed(leases, minutes=[Minute()])
    _CountedLease.minutes = result.minutes
    with _TimedSimulation(seed=0) as sim:
        host = sim.host("holder")
        keeper = host.call(_Keeper, host, leases)
        for number in range(PORTIONS):
            sim.after(number * TERM_S / PORTIONS, lambda: host.call(keeper.grant_portion))
        sim.run_for(TERM_S)
        result.minutes.clear()
        for _ in range(minutes):
            result.minutes.append(Minute())
            sim.turn_max_s, cpu_s = 0.0, process_time()
            sim.run_for(60.0)
            result.minutes[-1].cpu_s = process_time() - cpu_s
            result.minutes[-1].turn_max_s = sim.turn_max_s
        result.lost = keeper.granted - len(keeper.landlord)
        host.call(keeper.close)
    return result


class _Keeper:
    def __init__(self, host: Host, leases: int) -> None:
        self.landlord: Landlord[None] = Landlord(
            DurationPolicy(maximum=TERM_S, default=TERM_S),
            lease_factory=_CountedLease,
            clock=host.clock,
        )
        self.granted = 0
        self._manager = RenewalManager(clock=host.clock)
        self._portion = max(1, leases // PORTIONS)

    def grant_portion(self) -> None:
        for _ in range(self._portion):
            self._manager.renew_until(self.landlord.grant(None, TERM_S), FOREVER)
        self.granted += self._portion

    def close(self) -> None:
        self._manager.close()
        self.landlord.close()
