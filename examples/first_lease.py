"""Lease out a resource; a holder that stops renewing loses its lease."""

import asyncio
import time

from leasehold import DurationPolicy, EndReason, Landlord, RenewalManager, UnknownLease

start = time.monotonic()


def say(what: str) -> None:
    """Print a line with the time."""
    print(f"{time.monotonic() - start:4.1f} s  {what}")


def taken_back(desk: str, reason: EndReason) -> None:
    """Report the end of a lease; the landlord calls it."""
    say(f"{desk} is free again: {reason}")


async def main() -> None:
    """Lease two desks; renew one of them for some time."""
    policy = DurationPolicy(maximum=60, default=1)
    with Landlord(policy, on_ended=taken_back) as landlord:
        ada = landlord.grant("desk 1")
        bob = landlord.grant("desk 2")
        say(f"ada and bob have a desk each, for {ada.remaining:.0f} s unless they renew")

        async with RenewalManager(rtt=0.1) as manager:
            manager.renew_for(ada, 3, renew_duration=1)
            say("ada renews her lease for 3 s, bob does not renew")
            await asyncio.sleep(2)
            try:
                await bob.renew()
            except UnknownLease as error:
                say(f"bob is too late: {error.reason}")
            await asyncio.sleep(2)
        say(f"desks still taken: {len(landlord)}")


if __name__ == "__main__":
    asyncio.run(main())
