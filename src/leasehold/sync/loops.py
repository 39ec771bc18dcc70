"""The event loop of the thread: uvloop where there is one, else that of asyncio."""

import asyncio
import socket
from functools import partial
from typing import Any, TypeAlias

Found: TypeAlias = list[tuple[Any, ...]]


def new_loop() -> asyncio.AbstractEventLoop:
    """Make the best loop that there is."""
    try:
        import uvloop  # noqa: PLC0415  it is not there on every platform
    except ImportError:
        return asyncio.new_event_loop()

    class Loop(uvloop.Loop):
        """One that starts no threads in libuv.

        uvloop finds hosts in such threads, also if they are given by number. libuv waits for them
        when the process ends; in a forked child, which does not have them, it crashes instead.
        """

        async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Found:
            """Find a host: in a thread of ours, or if it is given by number, in none."""
            number = {**hints, "flags": hints.get("flags", 0) | socket.AI_NUMERICHOST}
            try:
                return list(socket.getaddrinfo(host, port, **number))
            except socket.gaierror:
                ask = partial(socket.getaddrinfo, host, port, **hints)
                return list(await self.run_in_executor(None, ask))

    return Loop()
