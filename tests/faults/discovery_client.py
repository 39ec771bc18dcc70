"""A client of the discovery service that keeps its own set of registrars, by events only.

    discovery_client.py ENDPOINT GROUP

It prints a line of JSON after each event: the number, the ids in its set, and those that the
service has then.
"""

import asyncio
import json
import sys

import leasehold


async def main(endpoint: str, group: str) -> None:
    mine: set[str] = set()
    number = 0
    async with leasehold.connect(endpoint) as client:
        mailbox = await client.mailbox(3600)
        service = client.discovery_service
        made = await service.register([group], listener=mailbox, duration=3600)
        position = 0
        while True:
            try:
                received = await mailbox.read(position, wait=5.0)
            except leasehold.ConnectionLost:  # it was stopped, or its connection has ended
                continue
            for each in received:
                event = service.event(each.event)
                ids = {registrar.id for registrar in event.registrars()}
                if event.is_discarded:
                    assert ids <= mine, "only registrars that were discovered"
                    mine -= ids
                else:
                    assert not ids & mine, "each once, until it is discarded"
                    mine |= ids
                assert event.number == number + 1, "no gap"
                number = event.number
                position = each.position
                await mailbox.acknowledge(position)
            found = {registrar.id for registrar in await made.registrars()}
            print(json.dumps([number, sorted(mine), sorted(found)]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
