"""Lease out a resource of your own, and watch a holder lose it when it stops renewing."""

import asyncio
import time

from leasehold import DurationPolicy, EndReason, Landlord, RenewalManager, UnknownLease

start = time.monotonic()


def say(what: str) -> None:
    """Print what happens, with the time."""
    print(f"{time.monotonic() - start:4.1f} s  {what}")


def taken_back(desk: str, reason: EndReason) -> None:
    """Hear from the landlord that a lease is over."""
    say(f"{desk} is free again: {reason}")


async def main() -> None:
    """Rent two desks; renew one of them, for a while."""
    policy = DurationPolicy(maximum=60, default=1)
    with Landlord(policy, on_ended=taken_back) as landlord:
        ada = landlord.grant("desk 1")
        bob = landlord.grant("desk 2")
        say(f"ada and bob have a desk each, for {ada.remaining:.0f} s unless they renew")

        async with RenewalManager(rtt=0.1) as manager:
            manager.renew_for(ada, 3, renew_duration=1)
            say("ada has hers renewed for 3 s, bob forgets about his")
            await asyncio.sleep(2)
            try:
                await bob.renew()
            except UnknownLease as error:
                say(f"bob is too late: {error.reason}")
            await asyncio.sleep(1.5)
        say(f"desks still taken: {len(landlord)}")


if __name__ == "__main__":
    asyncio.run(main())
