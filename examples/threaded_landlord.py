"""Lease out a pool of desks to the threads of a blocking program."""

import threading
import time

from leasehold import DurationPolicy, EndReason, LeaseView
from leasehold.sync import Landlord, RenewalManager

free = ["desk 1", "desk 2"]
changed = threading.Condition()


def taken(desk: str, view: LeaseView[str]) -> None:
    """Report a grant; hooks run in a thread of their own."""
    print(f"{desk} is taken for {view.remaining:.1f} s")


def take_back(desk: str, reason: EndReason) -> None:
    """Put a desk back into the pool."""
    print(f"{desk} is free again: {reason}")
    with changed:
        free.append(desk)
        changed.notify()


def work(landlord: Landlord[str]) -> None:
    """Wait for a desk, and end without releasing it."""
    with changed:
        changed.wait_for(lambda: free)
        landlord.grant(free.pop(0), 0.2)


def main() -> None:
    """Run three threads on two desks, one of which is kept for a while."""
    policy = DurationPolicy(maximum=60, default=1)
    with (
        Landlord(policy, on_granted=taken, on_ended=take_back) as landlord,
        RenewalManager(rtt=0.3) as manager,
    ):
        with changed:
            kept = landlord.grant(free.pop(0))
        manager.renew_for(kept, 60, renew_duration=1)  # so it stays taken
        threads = [threading.Thread(target=work, args=(landlord,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(1.5)
        manager.cancel(kept)


if __name__ == "__main__":
    main()
