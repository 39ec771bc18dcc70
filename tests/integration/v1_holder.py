"""A program that holds a lease of a landlord elsewhere, and keeps it alive, for tests."""

import asyncio
import sys

from leasehold import FOREVER, RemoteLandlord, RenewalManager, RenewalNotice


async def main(address: str, resource: str) -> None:
    """Hold a lease of half a second until it is lost, and say why."""
    lost: asyncio.Queue[RenewalNotice] = asyncio.Queue()
    async with RemoteLandlord(address) as remote, RenewalManager(rtt=0.05) as manager:
        lease = await remote.grant(resource, 0.5)
        manager.renew_for(lease, FOREVER, 0.5, lost.put_nowait)
        print("holds it", flush=True)
        notice = await lost.get()
        print(f"lost: {notice.error!r}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
