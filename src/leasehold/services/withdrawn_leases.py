"""Batches whose leases may be withdrawn until they are sent.

A lease may have to be renewed no more while a batch with it waits, such as for a connection. The
sender checks each lease immediately before it sends the batch, and raises `Withdrawn` in place of
sending. The batch is then composed again without the leases that may not be sent.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from leasehold.errors import CallFailed
from leasehold.leases.lease import Outcome

W = TypeVar("W")

COMPOSED: Final = 4
"""How often a batch is composed."""


class Withdrawn(Exception):
    """A batch was not sent, because a lease in it may not be renewed any more."""


async def send_permitted(
    wants: Sequence[W],
    check: Callable[[W], object],
    send: Callable[[Sequence[W]], Awaitable[Sequence[Outcome]]],
) -> list[Outcome]:
    """Send those of a batch that `check` does not raise an exception for; return all outcomes.

    `send` raises `Withdrawn`, or returns it as the outcome of some, if they were not sent.
    """
    outcomes: dict[int, Outcome] = {}
    for _ in range(COMPOSED):
        places = []
        for place, want in enumerate(wants):
            if place not in outcomes:
                try:
                    check(want)
                except Exception as error:  # noqa: BLE001  the outcome of this lease
                    outcomes[place] = error
                else:
                    places.append(place)
        if not places:
            break
        try:
            found = await send([wants[place] for place in places])
        except Withdrawn:
            continue
        sent = zip(places, found, strict=True)
        outcomes |= {place: each for place, each in sent if not isinstance(each, Withdrawn)}
    late = "the request was not sent: other leases in it were withdrawn too often"
    return [
        outcomes[place] if place in outcomes else CallFailed(late) for place in range(len(wants))
    ]
