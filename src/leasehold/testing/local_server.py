"""A real server in this process, for tests: over a real socket, with every kind of absence.

It has an event loop and a thread of its own, so tests may be plain functions or coroutines, and a
client that waits for it does not keep it from answering.
"""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

if TYPE_CHECKING:
    from datetime import timedelta

    from leasehold.client.client import Client
    from leasehold.pending import Pending
    from leasehold.server.app import LeaseholdServer

HOST: Final = "127.0.0.1"

ANSWER_S: Final = 30.0
"""How long anything that is asked of the server's thread may take."""

FROZEN_MAX_S: Final = 600.0
"""A test that was ended in the middle leaves no thread behind for longer."""

T = TypeVar("T")


class LocalServer:
    """A Leasehold server on a free port of 127.0.0.1, which keeps nothing on disk.

    with LocalServer() as server:
        client = leasehold.sync.connect(server.endpoint)

    While it is stopped or frozen, its port stays its own. It may be used from any thread.
    """

    def __init__(self) -> None:
        """Begin to serve, with no keys and no leases."""
        self._place = _Place()
        self.port: int = self._place.port
        """Where it serves, whenever it does."""
        self._thaw = threading.Event()
        self._thaw.set()
        self._is_closed = False
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._ending: asyncio.Event
        self._server: LeaseholdServer
        self._thread = threading.Thread(target=self._run, name="leasehold server", daemon=True)
        self._thread.start()
        try:
            self._loop.result(ANSWER_S)
        except BaseException:
            self._place.close()
            raise

    @property
    def endpoint(self) -> str:
        """The address for clients, as `leasehold.connect` takes it."""
        return f"{HOST}:{self.port}"

    def connect(self, *, timeout: "float | timedelta | None" = None) -> "Pending[Client]":
        """Give a client for the caller's own event loop: to be awaited, or entered."""
        from leasehold.client.connecting import connect  # noqa: PLC0415  it is long
        from leasehold.client.patience import TIMEOUT_S  # noqa: PLC0415

        return connect(self.endpoint, timeout=TIMEOUT_S if timeout is None else timeout)

    # What may go wrong with a server.

    def stop(self) -> None:
        """Be out of reach: connections are cut, and new ones refused.

        Keys are kept. Leases run on, and end at their time.
        """
        self._ask(self._server.leave())

    def start(self) -> None:
        """Be back, on the same port."""
        self._ask(self._serve())

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Be out of reach while the block runs."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def hang_up(self) -> None:
        """Cut all connections. Whoever comes again is let in."""
        self._ask(_called(self._server.hang_up))

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Do nothing while the block runs: connections are taken, and nobody is answered.

        As a process that got SIGSTOP, or a machine that is swapping. No lease ages meanwhile.
        """
        frozen = threading.Event()

        def freeze() -> None:
            frozen.set()
            self._thaw.wait(FROZEN_MAX_S)

        self._thaw.clear()
        self._loop.result().call_soon_threadsafe(freeze)
        try:
            if not frozen.wait(ANSWER_S):
                raise TimeoutError(f"the server is busy, for {ANSWER_S:g} s now")
            yield
        finally:
            self._thaw.set()

    def wipe(self) -> None:
        """Put an empty server in its place, with another cluster id: as if its disk was lost."""
        self._ask(self._wipe())

    # How it begins and ends.

    def close(self) -> None:
        """Serve no more."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thaw.set()
        self._loop.result().call_soon_threadsafe(self._ending.set)
        self._thread.join(ANSWER_S)
        self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LocalServer {self.endpoint}{', closed' if self._is_closed else ''}>"

    # In its thread.

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if self._loop.done():
                raise
            self._loop.set_exception(error)

    async def _main(self) -> None:
        self._ending = asyncio.Event()
        self._server = _new_server()
        try:
            await self._serve()
            self._loop.set_result(asyncio.get_running_loop())
            await self._ending.wait()
        finally:
            await self._end_server()

    async def _serve(self) -> None:
        await self._server.start(HOST, self.port)

    async def _wipe(self) -> None:
        await self._end_server()
        self._server = _new_server()
        await self._serve()

    async def _end_server(self) -> None:
        await self._server.leave()  # else it would wait for streams that are open
        await self._server.close()

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            work.close()
            raise RuntimeError(f"{self!r} serves no more: make another one")
        return asyncio.run_coroutine_threadsafe(work, self._loop.result()).result(ANSWER_S)


class _Place:
    """A port that stays ours.

    Else another process could get it while the server is stopped. Where a socket that does not
    listen is in the way of one that does, which is so everywhere but on Linux, it is let go.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, 0))
        self.port: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """Let it go."""
        self._socket.close()


def _new_server() -> "LeaseholdServer":
    from leasehold.server.app import LeaseholdServer  # noqa: PLC0415  it is long
    from leasehold.server.settings import Settings  # noqa: PLC0415

    return LeaseholdServer(Settings(directory=None))


async def _called(function: Callable[[], None]) -> None:
    function()
