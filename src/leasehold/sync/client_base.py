"""How a client of blocking code is made and closed: the part of `Client` that is not generated."""

from typing import Self, TypeVar

from leasehold.basics.pending import Pending
from leasehold.client import client as on_loop
from leasehold.sync.block_exit import begin, block_exit
from leasehold.sync.blocking_call import BlockingCall
from leasehold.sync.loop_thread import LoopThread, loop_thread

C = TypeVar("C", bound="ClientBase")


class ClientBase:
    """A client on the loop, closed at interpreter exit if not before."""

    def __init__(self, thread: LoopThread, client: on_loop.Client) -> None:
        self._thread = thread
        self._client = client

    def close(self) -> None:
        """End all leases of this client, then close the engine. Does nothing in a forked child."""
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._close)

    async def _close(self) -> None:
        try:
            await self._client.close()
        finally:
            self._thread.clients.discard(self._client)

    def __enter__(self) -> Self:
        self._thread.check_process()
        begin(self, self)
        return self

    def abandon(self) -> None:
        """Have the loop close it, unless it was closed: its block was interrupted."""
        self._thread.post(BlockingCall(self._close).start)

    @block_exit
    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._thread.post(_report_forgotten, self._thread, self._client)


def _report_forgotten(thread: LoopThread, client: on_loop.Client) -> None:
    """Report a client that was garbage-collected; the thread closes it at the end."""
    if client in thread.clients and not thread.is_ending:
        on_loop.report_forgotten(client.engine, client.who, "it is closed when the program ends")


def make_client(kind: type[C], pending: Pending[on_loop.Client]) -> C:
    """Make a client on the loop of this process, and wait for it."""
    pending.handed_over()
    thread = loop_thread()

    async def make() -> on_loop.Client:
        client = await pending
        thread.clients.add(client)
        return client

    async def undo(client: on_loop.Client) -> None:
        thread.clients.discard(client)
        await client.close()

    return kind(thread, thread.run(make, undo=undo))
