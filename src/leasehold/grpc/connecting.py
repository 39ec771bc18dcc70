"""Getting a connection to one of several servers, and replacing it when it is gone.

Theory of operation. At most one connection accepts calls. A caller that needs one while there is
none waits. While there are waiters, a task makes *rounds*: it tries the endpoints one after the
other until one of them works; a slow one does not delay the next (`race`). After a round in which
none worked, waiters without `wait_for_ready` get the error, and there is a pause, which is longer
each time. A caller without `wait_for_ready` that comes during the pause gets the same error
immediately.

A connection that is lost, or that accepts no new calls after a GOAWAY, is replaced when the next
caller needs one, beginning with the next endpoint. If it was short-lived, the next round has to
wait for its pause as well: a server that accepts connections and closes them is not tried all the
time.

A round that has begun is completed even if there are no waiters any more: otherwise callers with a
short timeout would never get a connection that takes longer to make.

In a round, the attempt after one that fails begins immediately. An attempt that takes longer than
usual continues, and the next begins in parallel: a stopped server accepts connections and sends
nothing. The first that succeeds wins; the others are cancelled.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Generic, NamedTuple, TypeVar

from leasehold.basics.backoff import MAX_S, Backoff, exponential
from leasehold.errors import ConnectFailed, fresh
from leasehold.grpc.client_call import Failure
from leasehold.grpc.client_protocol import LINGER_S, ClientProtocol, MakeConnection
from leasehold.grpc.endpoints import Endpoint, dial

logger = logging.getLogger(__name__)

GREETING_S: Final = 5.0
"""The time from the connection to the server's first SETTINGS."""

HEAD_START_S: Final = 0.3
"""How long an endpoint is tried alone before the next one is tried in parallel."""

SETTLED_S: Final = 1.0
"""A connection that has lived this long counts as a good one."""

Connect = Callable[[MakeConnection, Endpoint], Awaitable[ClientProtocol]]
"""Makes a connection; tests have their own."""


async def connect(make_connection: MakeConnection, endpoint: Endpoint) -> ClientProtocol:
    """Connect by socket; raise `ConnectFailed` on failure."""
    _, connection = await dial(lambda: make_connection(endpoint), endpoint.address, endpoint.tls)
    return connection


class Connector:
    """Holds the connection that accepts calls, if there is one, and makes one for waiters."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        loop: asyncio.AbstractEventLoop,
        make_connection: MakeConnection,
        random: Random,
        connect: Connect = connect,
        pause_max_s: float = MAX_S,
    ) -> None:
        self.connection: ClientProtocol | None = None
        """The connection that accepts calls."""
        self._endpoints = endpoints
        self._loop = loop
        self._make_connection = make_connection
        self._connect = connect
        self._backoff = Backoff(exponential(max_s=pause_max_s), random)
        self._first = 0
        """The endpoint to try first."""
        self._not_before = loop.time()
        """When the next round may begin."""
        self._failure: ConnectFailed | None = None
        """Why the last round failed, if it did."""
        self._last_error = ""
        self._has_lost = False
        self._waiters: dict[asyncio.Future[ClientProtocol], bool] = {}
        """Maps each waiter to its `wait_for_ready`."""
        self._task: asyncio.Task[None] | None = None
        self._is_pausing = False
        self._closed: Failure | None = None
        """The failure for callers after `close`."""
        self._connections: set[ClientProtocol] = set()
        """All connections that are not gone."""

    @property
    def last_error(self) -> str:
        """The last reason for being disconnected; empty if none is known."""
        return self._last_error

    # Waiters.

    def wait(self, *, wait_for_ready: bool) -> "asyncio.Future[ClientProtocol]":
        """Return a future of the next connection, for `give_back`; may raise `ConnectFailed`."""
        assert self.connection is None, "there is a connection"
        if self._closed is not None:  # a caller that wakes up too late
            raise fresh(self._closed)
        if self._failure and not wait_for_ready and self._loop.time() < self._not_before:
            raise fresh(self._failure)
        waiter: asyncio.Future[ClientProtocol] = self._loop.create_future()
        self._waiters[waiter] = wait_for_ready
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        return waiter

    def give_back(self, waiter: "asyncio.Future[ClientProtocol]") -> None:
        """Remove a waiter."""
        self._waiters.pop(waiter, None)
        if not self._waiters and self._is_pausing and self._task is not None:
            self._task.cancel()
            self._task = None

    # Rounds.

    async def _run(self) -> None:
        try:
            while self._waiters and self.connection is None:
                await self._pause()
                await self._round()
        except Exception as error:  # noqa: BLE001  waiting callers get it
            for waiter in self._waiting():
                waiter.set_exception(fresh(error))
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _pause(self) -> None:
        self._is_pausing = True
        try:
            await asyncio.sleep(self._not_before - self._loop.time())
        finally:
            self._is_pausing = False

    async def _round(self) -> None:
        """Try all endpoints."""
        first = self._first
        order = [*self._endpoints[first:], *self._endpoints[:first]]
        attempts = [partial(self._open, endpoint) for endpoint in order]
        result = await race(attempts, HEAD_START_S, ClientProtocol.abort)
        if isinstance(result, RaceLost):
            failure = ConnectFailed("; ".join(dict.fromkeys(map(str, result.failures))))
            failure.is_refused = all(each.is_refused for each in result.failures)
            self._fail(failure)
        elif not result.result.is_ready:  # it was ready, and is not any more
            connection = result.result
            self._fail(ConnectFailed(f"cannot connect to {connection.endpoint}: {connection.why}"))
        else:
            self._first = (first + result.place) % len(order)
            self._succeed(result.result)

    async def _open(self, endpoint: Endpoint) -> ClientProtocol:
        self._last_error = self._last_error or f"{endpoint} has not accepted a connection yet"
        try:
            return await self._greeted(endpoint)
        except ConnectFailed as error:
            self._last_error = str(error)
            raise

    async def _greeted(self, endpoint: Endpoint) -> ClientProtocol:
        connection = await self._connect(self._make_connection, endpoint)
        self._connections.add(connection)
        silent = "accepts connections but sends nothing; is it the right port?"
        self._last_error = f"{endpoint} {silent}"
        try:
            async with asyncio.timeout(GREETING_S):
                await connection.ready
        except TimeoutError:
            connection.abort()
            why = f"no HTTP/2 SETTINGS received within {GREETING_S:g} s"
            message = f"cannot connect to {endpoint}: {why}; it {silent}"
            raise ConnectFailed(message) from None
        except BaseException:
            connection.abort()
            raise
        if not connection.is_ready:
            why = connection.http2.why or "the server closed the connection immediately"
            raise ConnectFailed(f"cannot connect to {endpoint}: {why}")
        return connection

    def _succeed(self, connection: ClientProtocol) -> None:
        self.connection = connection
        self._failure = None
        if self._has_lost:
            logger.warning("connected again, to %s", connection.endpoint)
        for waiter in self._waiting():
            waiter.set_result(connection)

    def _fail(self, failure: ConnectFailed) -> None:
        self._failure = failure
        self._not_before = self._loop.time() + self._backoff.next_s()
        for waiter in self._waiting():
            if not self._waiters[waiter]:
                waiter.set_exception(fresh(failure))
                del self._waiters[waiter]

    def _waiting(self) -> "list[asyncio.Future[ClientProtocol]]":
        return [waiter for waiter in self._waiters if not waiter.done()]

    # Called by connections.

    def retired(self, connection: ClientProtocol) -> None:
        """Called when a connection accepts no new calls."""
        if connection is not self.connection:
            return
        self.connection = None
        self._first = (self._first + 1) % len(self._endpoints)
        self._last_error = f"{connection.endpoint}: {connection.why}"
        self._has_lost = True
        logger.warning("the connection to %s was lost: %s", connection.endpoint, connection.why)
        if self._loop.time() - connection.since >= SETTLED_S:
            self._backoff.reset()
            self._not_before = self._loop.time()
        else:
            self._not_before = connection.since + self._backoff.next_s()

    def gone(self, connection: ClientProtocol) -> None:
        """Called when a connection is gone."""
        self._connections.discard(connection)

    async def close(self, failure: Failure) -> None:
        """Close all connections, and end every call with this failure."""
        self._closed = failure
        self.connection = None
        for waiter in self._waiting():
            waiter.set_exception(fresh(failure))
        self._waiters.clear()
        leaving = list(self._connections)
        for connection in leaving:
            connection.dismiss(failure)
        ends: list[asyncio.Future[None]] = [connection.gone for connection in leaving]
        if self._task is not None:
            self._task.cancel()
            ends.append(self._task)
        if ends:
            await asyncio.wait(ends, timeout=2 * LINGER_S)


# Racing attempts.

T = TypeVar("T")


class RaceWon(NamedTuple, Generic[T]):
    """The index of the attempt that succeeded, and its result."""

    place: int
    result: T


class RaceLost(NamedTuple):
    """The errors of all attempts, in their order."""

    failures: list[ConnectFailed]


async def race(
    attempts: Sequence[Callable[[], Coroutine[Any, Any, T]]],
    head_start_s: float,
    discard: Callable[[T], None],
) -> RaceWon[T] | RaceLost:
    """Run attempts until one succeeds; those that fail raise `ConnectFailed`.

    The result of an attempt that succeeds too late is discarded.
    """
    waiting = deque(enumerate(attempts))
    running: dict[asyncio.Task[T], int] = {}
    failures: dict[int, ConnectFailed] = {}
    try:
        while waiting or running:
            if waiting:
                place, attempt = waiting.popleft()
                running[asyncio.get_running_loop().create_task(attempt())] = place
            patience_s = head_start_s if waiting else None
            done, _ = await asyncio.wait(
                running, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in sorted(done, key=running.__getitem__):
                place = running.pop(task)
                try:
                    return RaceWon(place, task.result())
                except ConnectFailed as error:
                    failures[place] = error
        return RaceLost([failures[place] for place in sorted(failures)])
    finally:
        await _give_up(list(running), discard)


async def _give_up(late: "list[asyncio.Task[T]]", discard: Callable[[T], None]) -> None:
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late)
    for task in late:
        if not task.cancelled() and task.exception() is None:
            discard(task.result())
