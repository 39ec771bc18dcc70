"""Listeners in a process of their own: `python -m benchmarks.events.served ENDPOINTS`.

It prints its endpoints, one line of JSON, and ends when its standard input does. A listener whose
id begins with `hanging` never answers.
"""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping

from benchmarks.common.processes import raise_file_limit
from leasehold.events.client import EventCallback, ListenerService
from leasehold.events.listeners import NOTIFY
from leasehold.events.state import RemoteEvent
from leasehold.grpc.routes import Exchange
from leasehold.serving.grpc_server import GrpcServer

HANGING = "hanging"


async def _hang(_event: RemoteEvent) -> None:
    await asyncio.get_running_loop().create_future()


def _receive(_event: RemoteEvent) -> None:
    pass


class AnyListener(Mapping[str, EventCallback]):
    """Listeners with any id."""

    def __getitem__(self, key: str) -> EventCallback:
        return _hang if key.startswith(HANGING) else _receive

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


async def serve(endpoints: int) -> None:
    """Serve until the standard input ends."""
    raise_file_limit()
    service = ListenerService(AnyListener())
    server = GrpcServer({NOTIFY: Exchange(service.notify)})
    await server.start(["127.0.0.1:0"] * endpoints)
    print(json.dumps([str(address) for address in server.addresses]), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
