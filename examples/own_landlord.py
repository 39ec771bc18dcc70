"""Lease out seats that are rows of a database, with a landlord of your own."""

import asyncio
import sqlite3
import time
from collections.abc import Hashable

from leasehold import (
    ANY,
    FOREVER,
    Duration,
    DurationLike,
    Grantor,
    LandlordLease,
    LeaseBatch,
    LeaseDenied,
    RenewalManager,
    UnknownLease,
)

MAX_S = 3.0


class BoxOffice(Grantor[str]):
    """Grants leases on seats. A lease is a row, and its cookie the name of the seat."""

    name = "box office"

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute("CREATE TABLE leases (seat TEXT PRIMARY KEY, ends REAL)")

    def grant(self, resource: str, duration: DurationLike = ANY) -> LandlordLease:
        """Lease a seat out, unless it is taken."""
        term = _term(duration)
        changed = self.database.execute(
            "INSERT INTO leases VALUES (?1, ?2) ON CONFLICT (seat) DO UPDATE SET ends = ?2"
            " WHERE ends <= ?3",
            (resource, time.monotonic() + term, time.monotonic()),
        )
        if not changed.rowcount:
            raise LeaseDenied(f"{resource} is taken")
        return LandlordLease(self, resource, term)

    def renew(self, cookie: Hashable, duration: DurationLike) -> Duration:
        """Begin a new term, if the lease has not ended."""
        term = _term(duration)
        changed = self.database.execute(
            "UPDATE leases SET ends = ? WHERE seat = ? AND ends > ?",
            (time.monotonic() + term, cookie, time.monotonic()),
        )
        if not changed.rowcount:
            raise UnknownLease(cookie)
        return term

    def cancel(self, cookie: Hashable) -> None:
        """End a lease now."""
        self.renew(cookie, 0)


def _term(duration: DurationLike) -> float:
    return min(float(duration), MAX_S) if isinstance(duration, int | float) else MAX_S


async def main() -> None:
    """Take three seats; keep two of them."""
    office = BoxOffice()
    ada, bob, eve = (office.grant(seat) for seat in ("A1", "A2", "A3"))
    async with RenewalManager(rtt=0.3) as manager:
        for lease in (ada, bob):
            manager.renew_until(lease, FOREVER)
        await asyncio.sleep(4)
        for lease in (ada, bob, eve):
            print(f"{lease.cookie}: {'held' if lease.remaining else 'free'}")
        try:
            office.grant("A1")
        except LeaseDenied as error:
            print(error.why)
    await LeaseBatch({ada: ANY, bob: ANY}).cancel_all()
    print(f"A1 again, for {office.grant('A1').term:.0f} s")


if __name__ == "__main__":
    asyncio.run(main())
