"""A client that hands its leases over to a renewal service and then waits to be killed.

    python renewal_owner.py SERVICE TERM_S NAME=ENDPOINT ...

`NAME` is `desks` for the landlord of `renewal_landlord.py`; any other is an etcd or a Leasehold
server, where the key `NAME` is put under the lease. Writes one JSON line to standard output: the
ids of the set and of its mailbox, which receives the failures.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack

import leasehold
from leasehold import FOREVER, RemoteLandlord
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.events.client import Mailbox


async def main(service: str, term_s: float, grantors: list[str]) -> None:
    """Hand one lease of each grantor over."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(leasehold.connect(service))
        renewals = await client.renewal_set(600.0)
        assert isinstance(client.engine, RemoteEngine)
        mailbox = await Mailbox.create(client.engine.channel, 600.0)
        await renewals.set_failure_listener(mailbox, b"owner")
        held = []
        for name, _, endpoint in (each.partition("=") for each in grantors):
            if name == "desks":
                landlord = await stack.enter_async_context(RemoteLandlord(endpoint))
                desk = await landlord.grant(name, term_s)
                await renewals.renew_for(desk, FOREVER, term_s)
            else:
                other = await stack.enter_async_context(leasehold.connect(endpoint))
                lease = await other.lease(term_s)
                await other.kv.put(name, "held", lease=lease)
                await renewals.renew_for(lease, FOREVER)
                held.append(lease)
        line = {"set": renewals.id, "mailbox": mailbox.id}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
