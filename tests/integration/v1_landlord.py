"""A program with a landlord, for tests: says where it is, then every end of a lease."""

import asyncio
import sys

from leasehold import DurationPolicy, EndReason, Landlord, LeaseRequest, serve_landlord
from leasehold.leases.lease import Lease


async def main(listen: str) -> None:
    """Serve until the process is ended."""

    def say(resource: str, reason: EndReason) -> None:
        print(f"{resource}: {reason}", flush=True)

    landlord = Landlord[str](DurationPolicy(maximum=60.0, default=1.0), on_ended=say)

    def grant(request: LeaseRequest) -> Lease:
        return landlord.grant(request.resource, request.duration)

    async with await serve_landlord(landlord, listen, grant=grant) as server:
        print(server.address, flush=True)
        await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
