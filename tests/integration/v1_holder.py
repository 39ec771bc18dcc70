"""A program that holds a lease of a landlord elsewhere, and keeps it alive, for tests."""

import asyncio
import sys

from leasehold import FOREVER, RemoteLandlord, RenewalManager, RenewalNotice


async def main(address: str, resource: str, term: str = "0.5") -> None:
    """Hold a lease of so many seconds until it is lost, and say why."""
    term_s = float(term)
    lost: asyncio.Queue[RenewalNotice] = asyncio.Queue()
    async with RemoteLandlord(address) as remote, RenewalManager(rtt=0.05) as manager:
        lease = await remote.grant(resource, term_s)
        manager.renew_for(lease, FOREVER, term_s, lost.put_nowait)
        print("holds it", flush=True)
        notice = await lost.get()
        print(f"lost: {notice.error!r}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
