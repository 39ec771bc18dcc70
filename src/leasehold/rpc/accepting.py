"""Taking connections with TLS off a socket, and shaking hands with so many at a time.

The loops would do it as well, but count nothing: whoever connects and says nothing is held for as
long as a handshake may take, and there is no end to how many do.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

MAX_HANDSHAKES: Final = 1024
"""Handshakes under way on one socket; who comes then is cut off at once."""

AT_ONCE: Final = 100
"""Connections that are taken in one turn of the event loop."""

EXHAUSTED_S: Final = 1.0
"""How long nobody is let in after the system had no room for another connection."""

TELLING_S: Final = 10.0
"""How often it is logged, at most, that clients were refused in TLS."""

_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Lets clients in at one socket, each when its handshake is done."""

    def __init__(
        self,
        sock: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext,
        handshake_s: float,
        shutdown_s: float,
    ) -> None:
        self._sock = sock
        self._factory = factory
        self._tls = tls
        self._handshake_s = handshake_s
        self._shutdown_s = shutdown_s
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self._alarm: asyncio.TimerHandle | None = None
        self._refused = 0
        self._not_let_in = 0
        self._tell_at = 0.0
        self._listen()

    def close(self) -> None:
        """Let nobody in any more; handshakes under way are given up."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        for task in self._tasks:
            task.cancel()

    def _listen(self) -> None:
        self._alarm = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                logger.warning("no connection can be taken: %s", error.strerror)
                self._loop.remove_reader(self._sock)  # else it would be tried all the time
                self._alarm = self._loop.call_later(EXHAUSTED_S, self._listen)
                return
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        if len(self._tasks) >= MAX_HANDSHAKES:
            self._give_up_oldest()
        connection.setblocking(False)
        task = self._loop.create_task(self._shake_hands(connection))
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _give_up_oldest(self) -> None:
        """Make room: whoever is honest takes milliseconds, and has not begun first."""
        if not self._refused:
            logger.warning("%d TLS handshakes are under way: giving up the oldest", MAX_HANDSHAKES)
        self._refused += 1
        oldest = next(iter(self._tasks))
        del self._tasks[oldest]
        oldest.cancel()

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=self._shutdown_s,
            )
        except ssl.SSLError as error:
            self._tell_refused(error)
        except OSError as error:  # `TimeoutError`, too
            logger.debug("a client did not come in: %s", error)

    def _tell_refused(self, error: ssl.SSLError) -> None:
        """Log it, but not for each of very many: whoever sets up TLS needs to know, once."""
        self._not_let_in += 1
        now = self._loop.time()
        if now < self._tell_at:
            logger.debug("a client did not come in: %s", error)
            return
        self._tell_at = now + TELLING_S
        others, self._not_let_in = self._not_let_in - 1, 0
        more = f"; {others} more did not since the last such line" if others else ""
        logger.info("a client did not come in: %s%s", error, more)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if self._refused and len(self._tasks) < MAX_HANDSHAKES * 9 // 10:
            logger.warning("%d handshakes were given up; there is room again", self._refused)
            self._refused = 0
