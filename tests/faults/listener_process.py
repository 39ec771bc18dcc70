"""A listener for events in a process of its own, at the same address after each start.

    python listener_process.py HOST:PORT ID

Writes `ready`, then the number of each event, one in a line.
"""

import asyncio
import sys

from leasehold.events.client import serve_listener
from leasehold.events.state import RemoteEvent


def write(text: object) -> None:
    """Write a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def received(event: RemoteEvent) -> None:
    """Write the number of an event."""
    write(event.number)


async def main(listen: str, listener_id: str) -> None:
    """Serve until the process is ended."""
    server = await serve_listener(received, listen, listener_id=listener_id)
    write("ready")
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
