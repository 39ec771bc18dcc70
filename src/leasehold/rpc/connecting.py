"""Getting a connection to one of several servers, and the next one when that is gone.

Theory of operation. There is at most one line that takes calls. Whoever needs one while there is
none waits, and as long as anybody does, a task makes *rounds*: it tries the endpoints one after the
other until one of them works; one that takes its time does not hold up the next (`racing`). After a
round in which none did, those who are not prepared to wait are told why, and there is a pause,
which is longer each time. Who comes during the pause and is not prepared to wait is told the same
at once.

A line that is lost, or that takes no new calls because its server has said good-bye, is replaced
when somebody needs one, beginning with the next endpoint. If it has not lived for a while the next
round has to wait for its pause as well: a server that takes connections and hangs up is not asked
all the time.

A round that has begun is brought to its end even if nobody waits for it any more: else callers with
little time would never get a connection that takes longer to make.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Final

from leasehold.errors import ConnectFailed
from leasehold.rpc.backoff import MAX_S, Backoff
from leasehold.rpc.client_call import Failure
from leasehold.rpc.client_protocol import LINGER_S, ClientProtocol, MakeLine
from leasehold.rpc.dialing import dial
from leasehold.rpc.endpoints import Endpoint
from leasehold.rpc.racing import Lost, race
from leasehold.stored_errors import fresh

logger = logging.getLogger(__name__)

GREETING_S: Final = 5.0
"""From the connection to the server's first SETTINGS."""

HEAD_START_S: Final = 0.3
"""How long an endpoint is tried alone; then the next one is tried beside it."""

SETTLED_S: Final = 1.0
"""A connection that has lived for so long was a good one."""

Connect = Callable[[MakeLine, Endpoint], Awaitable[ClientProtocol]]
"""How a connection is made; tests have a way of their own."""


async def connect(make_line: MakeLine, endpoint: Endpoint) -> ClientProtocol:
    """Connect by socket; raises `ConnectFailed`."""
    _, line = await dial(lambda: make_line(endpoint), endpoint.address, endpoint.tls)
    return line


class Connector:
    """Has the line that takes calls, if there is one, and gets one for those who wait."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        loop: asyncio.AbstractEventLoop,
        make_line: MakeLine,
        random: Random,
        connect: Connect = connect,
        pause_max_s: float = MAX_S,
    ) -> None:
        self.line: ClientProtocol | None = None
        """The line that takes calls."""
        self._endpoints = endpoints
        self._loop = loop
        self._make_line = make_line
        self._connect = connect
        self._backoff = Backoff(random, max_s=pause_max_s)
        self._first = 0
        """The endpoint to try first."""
        self._not_before = loop.time()
        """When the next round may begin."""
        self._failure: ConnectFailed | None = None
        """Why the last round has failed, if it has."""
        self._last_error = ""
        self._has_lost = False
        self._waiters: dict[asyncio.Future[ClientProtocol], bool] = {}
        """Each with whether it is prepared to wait until there is a connection."""
        self._task: asyncio.Task[None] | None = None
        self._is_pausing = False
        self._closed: Failure | None = None
        """What those are told who come after the end."""
        self._lines: set[ClientProtocol] = set()
        """All that are not gone."""

    @property
    def last_error(self) -> str:
        """Why there is no connection, as far as that is known."""
        return self._last_error

    # Those who need a line.

    def wait(self, *, wait_for_ready: bool) -> "asyncio.Future[ClientProtocol]":
        """Give a future for the next line, which is to be given back; raises `ConnectFailed`."""
        assert self.line is None, "there is a line"
        if self._closed is not None:  # somebody who wakes up too late
            raise fresh(self._closed)
        if self._failure and not wait_for_ready and self._loop.time() < self._not_before:
            raise fresh(self._failure)
        waiter: asyncio.Future[ClientProtocol] = self._loop.create_future()
        self._waiters[waiter] = wait_for_ready
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        return waiter

    def give_back(self, waiter: "asyncio.Future[ClientProtocol]") -> None:
        """Learn that somebody does not wait any more."""
        self._waiters.pop(waiter, None)
        if not self._waiters and self._is_pausing and self._task is not None:
            self._task.cancel()
            self._task = None

    # Rounds.

    async def _run(self) -> None:
        try:
            while self._waiters and self.line is None:
                await self._pause()
                await self._round()
        except Exception as error:  # noqa: BLE001  whoever waits must hear of it
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
        if isinstance(result, Lost):
            failure = ConnectFailed("; ".join(dict.fromkeys(map(str, result.failures))))
            failure.is_refused = all(each.is_refused for each in result.failures)
            self._fail(failure)
        elif not result.prize.is_ready:  # it was, and is no more
            line = result.prize
            self._fail(ConnectFailed(f"cannot connect to {line.endpoint}: {line.why}"))
        else:
            self._first = (first + result.place) % len(order)
            self._succeed(result.prize)

    async def _open(self, endpoint: Endpoint) -> ClientProtocol:
        self._last_error = self._last_error or f"{endpoint} has not accepted a connection yet"
        try:
            return await self._greeted(endpoint)
        except ConnectFailed as error:
            self._last_error = str(error)
            raise

    async def _greeted(self, endpoint: Endpoint) -> ClientProtocol:
        line = await self._connect(self._make_line, endpoint)
        self._lines.add(line)
        silent = "accepts connections but sends nothing; is it the right port?"
        self._last_error = f"{endpoint} {silent}"
        try:
            async with asyncio.timeout(GREETING_S):
                await line.ready
        except TimeoutError:
            line.abort()
            why = f"no HTTP/2 SETTINGS received within {GREETING_S:g} s"
            said = f"cannot connect to {endpoint}: {why}; it {silent}"
            raise ConnectFailed(said) from None
        except BaseException:
            line.abort()
            raise
        if not line.is_ready:
            why = line.connection.why or "the server closed the connection immediately"
            raise ConnectFailed(f"cannot connect to {endpoint}: {why}")
        return line

    def _succeed(self, line: ClientProtocol) -> None:
        self.line = line
        self._failure = None
        if self._has_lost:
            logger.warning("connected again, to %s", line.endpoint)
        for waiter in self._waiting():
            waiter.set_result(line)

    def _fail(self, failure: ConnectFailed) -> None:
        self._failure = failure
        self._not_before = self._loop.time() + self._backoff.next_s()
        for waiter in self._waiting():
            if not self._waiters[waiter]:
                waiter.set_exception(fresh(failure))
                del self._waiters[waiter]

    def _waiting(self) -> "list[asyncio.Future[ClientProtocol]]":
        return [waiter for waiter in self._waiters if not waiter.done()]

    # What becomes of lines.

    def retired(self, line: ClientProtocol) -> None:
        """Learn that a line takes no new calls."""
        if line is not self.line:
            return
        self.line = None
        self._first = (self._first + 1) % len(self._endpoints)
        self._last_error = f"{line.endpoint}: {line.why}"
        self._has_lost = True
        logger.warning("the connection to %s was lost: %s", line.endpoint, line.why)
        if self._loop.time() - line.since >= SETTLED_S:
            self._backoff.reset()
            self._not_before = self._loop.time()
        else:
            self._not_before = line.since + self._backoff.next_s()

    def gone(self, line: ClientProtocol) -> None:
        """Learn that nothing is left of a line."""
        self._lines.discard(line)

    async def close(self, failure: Failure) -> None:
        """End everything, and every call with a failure."""
        self._closed = failure
        self.line = None
        for waiter in self._waiting():
            waiter.set_exception(fresh(failure))
        self._waiters.clear()
        leaving = list(self._lines)
        for line in leaving:
            line.dismiss(failure)
        ends: list[asyncio.Future[None]] = [line.gone for line in leaving]
        if self._task is not None:
            self._task.cancel()
            ends.append(self._task)
        if ends:
            await asyncio.wait(ends, timeout=2 * LINGER_S)
