"""Accepting connections on a listening socket, with or without TLS.

The event loops would do it as well, but they limit nothing, and without a free file descriptor they
either retry all the time or close the connections that they accept.

With TLS a connection goes through these states:

    silent      accepted; the client has not sent anything. Costs a file descriptor and no work, so
                the oldest is closed when there are too many
    queued      the client has sent something, and other handshakes are under way
    handshake   at most `MAX_HANDSHAKES`. None of them is closed for a new one: in a storm of
                reconnects those that began first are nearly done
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from leasehold.basics.event_loop import RunningLoop
from leasehold.basics.sockets import PendingProtocol, keep_alive, peer_of
from leasehold.serving.limited_log import LimitedLog

logger = logging.getLogger(__name__)

MAX_HANDSHAKES: Final = 256
"""TLS handshakes under way on one socket: each takes about a millisecond of CPU time, so they are
all done long before a client times out."""

MAX_SILENT: Final = 1024
"""Connections for TLS on one socket whose client has sent nothing."""

ACCEPTS_PER_TURN: Final = 50
"""Connections that are accepted in one turn of the event loop."""

EXHAUSTED_S: Final = 1.0
"""How long nothing is accepted after the system had no room for another connection."""

_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class ConnectionSlots(Protocol):
    """Limits the number of connections. `serving.admission` implements it for a whole server."""

    def admit(self, peer: str, make_room: Callable[[], bool]) -> bool:
        """Take a slot for a new connection; return False if it has to be refused.

        `make_room` is the last resort: it returns a slot, or False if it cannot.
        """
        ...

    def release(self) -> None:
        """Return a slot."""
        ...

    def make_room(self) -> bool:
        """Close an idle connection; return False if there is none."""
        ...


PendingMaker = Callable[[], PendingProtocol[asyncio.BaseProtocol]]


class Acceptor:
    """Accepts connections on one socket; with TLS each gets its protocol after the handshake.

    `tls` may be replaced at any time: the next handshakes use the new one.
    """

    def __init__(
        self,
        sock: socket.socket,
        make_pending: PendingMaker,
        tls: ssl.SSLContext | None,
        handshake_s: float,
        shutdown_s: float,
        slots: ConnectionSlots,
    ) -> None:
        self.tls = tls
        self._sock = sock
        self._make_pending = make_pending
        self._handshake_s = handshake_s
        self._shutdown_s = shutdown_s
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._log = LimitedLog(logger, RunningLoop())
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        """In the order of their arrival, each with the timer for the end of its handshake."""
        self._queued: dict[socket.socket, tuple[asyncio.TimerHandle, str]] = {}
        self._handshakes: dict[asyncio.Task[None], PendingProtocol[asyncio.BaseProtocol]] = {}
        self._handing_over: dict[asyncio.Task[None], PendingProtocol[asyncio.BaseProtocol]] = {}
        """Connections without TLS; done within a turn or two of the event loop."""
        self._not_begun: set[socket.socket] = set()
        """Those whose task has not run yet."""
        self._alarm: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept nothing more; close connections without a protocol, and leave all others alone.

        The task of a connection may outlast the arrival at its protocol by a turn of the event
        loop. It must not be cancelled then: uvloop would close the connection without calling
        `connection_lost`, and the protocol would wait for that.
        """
        if self._alarm is not None:
            self._alarm.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        for connection in [*self._silent, *self._queued]:
            self._give_up(connection)
        for task, pending in [*self._handshakes.items(), *self._handing_over.items()]:
            if pending.protocol is None:
                task.cancel()
        for connection in self._not_begun:  # the task of these never runs
            connection.close()
            self._slots.release()

    def _listen(self) -> None:
        self._alarm = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._rest(error)
                return
            self._begin(connection, peer_of(address))

    def _rest(self, error: OSError) -> None:
        """Accept nothing for a while: the socket stays readable, and the loop would never rest."""
        self._log.warning("no connection can be accepted: %s", error.strerror)
        self._slots.make_room()
        self._loop.remove_reader(self._sock)
        self._alarm = self._loop.call_later(EXHAUSTED_S, self._listen)

    def _begin(self, connection: socket.socket, peer: str) -> None:
        if not self._slots.admit(peer, self._give_up_silent):
            connection.close()
            return
        connection.setblocking(False)
        keep_alive(connection)
        if self.tls is None:
            task = self._let_in_soon(connection, peer, self._handing_over)
            task.add_done_callback(self._handing_over.pop)
            return
        if len(self._silent) >= MAX_SILENT:
            self._log.warning(
                "%d clients have not begun their TLS handshake: closing the oldest", MAX_SILENT
            )
            self._give_up_silent()
        alarm = self._loop.call_later(self._handshake_s, self._give_up, connection)
        self._silent[connection] = alarm
        self._loop.add_reader(connection, self._heard, connection, peer)

    # Before the handshake.

    def _heard(self, connection: socket.socket, peer: str) -> None:
        """Queue a client that has sent something."""
        self._loop.remove_reader(connection)
        self._queued[connection] = (self._silent.pop(connection), peer)
        self._start_handshakes()

    def _give_up_silent(self) -> bool:
        """Close the connection that has been silent for longest; return False if there is none."""
        oldest = next(iter(self._silent), None)
        if oldest is not None:
            self._give_up(oldest)
        return oldest is not None

    def _give_up(self, connection: socket.socket) -> None:
        """Close a connection whose handshake has not begun."""
        if (alarm := self._silent.pop(connection, None)) is not None:
            self._loop.remove_reader(connection)
        else:
            alarm, _ = self._queued.pop(connection)
        alarm.cancel()
        connection.close()
        self._slots.release()

    # The handshake.

    def _start_handshakes(self) -> None:
        while self._queued and len(self._handshakes) < MAX_HANDSHAKES:
            connection = next(iter(self._queued))
            alarm, peer = self._queued.pop(connection)
            alarm.cancel()
            task = self._let_in_soon(connection, peer, self._handshakes)
            task.add_done_callback(self._handshake_ended)

    def _handshake_ended(self, task: "asyncio.Task[None]") -> None:
        del self._handshakes[task]
        self._start_handshakes()

    def _let_in_soon(
        self,
        connection: socket.socket,
        peer: str,
        under_way: "dict[asyncio.Task[None], PendingProtocol[asyncio.BaseProtocol]]",
    ) -> "asyncio.Task[None]":
        pending = self._make_pending()
        self._not_begun.add(connection)
        task = self._loop.create_task(self._let_in(connection, peer, pending))
        under_way[task] = pending
        return task

    async def _let_in(
        self, connection: socket.socket, peer: str, pending: PendingProtocol[asyncio.BaseProtocol]
    ) -> None:
        """Hand a connection to its protocol, which then owns its slot."""
        self._not_begun.discard(connection)
        tls = self.tls
        try:
            await self._loop.connect_accepted_socket(
                lambda: pending,
                connection,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self._handshake_s,
                ssl_shutdown_timeout=None if tls is None else self._shutdown_s,
            )
        except ssl.SSLError as error:
            self._log.log(logging.INFO, "the TLS handshake with %s failed: %s", peer, error)
        except OSError as error:  # `TimeoutError`, too
            logger.debug("the connection from %s was not made: %s", peer, error)
        finally:
            if pending.protocol is None:
                self._slots.release()
