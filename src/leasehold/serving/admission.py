"""How many connections a server has, and which one makes room for a new one.

Every accepted socket has a *slot*, from the start: TLS handshakes, connections that have not sent
anything, HTTP/1.1 and HTTP/2 alike. When all slots are taken, the connection that has been idle for
longest is closed gracefully (GOAWAY), and its slot goes to the new one. A connection with a
stream is never idle, however quiet: a watch, a stream of renewals, a waiting lock. If there is no
idle connection the new one is refused.

A connection that is asked to leave is *parting* until it is gone: it has a moment to finish a call
that was already sent. Such connections have no slot, and their number is limited, too.

A connection is an open file, so the number of slots follows from the limit on open files.
"""

import contextlib
import heapq
import resource
from collections.abc import Callable, Collection
from typing import Final, Protocol

from leasehold.basics.event_loop import EventLoop
from leasehold.serving.limited_log import LimitedLog

MAX_CONNECTIONS: Final = 20_000
"""Connections of one server, if the process may open that many files."""

MAX_PARTING: Final = 32
"""Connections that were asked to leave, and are not gone; above it the first is closed
immediately."""

RESERVED_FILES: Final = 128
"""Files other than connections: the journal, listening sockets, those that are parting, and those
that were cut off in the same turn of the event loop (`accepting.ACCEPTS_PER_TURN`)."""

MAX_CANDIDATES: Final = 256
"""Idle connections that one search finds: a search looks at every connection."""

SEARCH_S: Final = 0.1
"""How long no search is made after one that has found few, and how long its result is used."""


class AdmittedConnection(Protocol):
    """A connection, as far as its slot is concerned."""

    @property
    def idle_since(self) -> float | None:
        """When its last call began or ended; None while it has a stream, or is being closed."""
        ...

    def part(self) -> None:
        """Close the connection gracefully: its slot is given to another one."""
        ...

    def cut_off(self) -> None:
        """Close the connection immediately."""
        ...


def connections_for(files: int) -> int:
    """Return how many connections a process may have that can open this many files."""
    return max(1, min(MAX_CONNECTIONS, files - min(RESERVED_FILES, files // 2)))


def open_files() -> int:
    """Return the limit on open files that is in force (the soft limit)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = MAX_CONNECTIONS + RESERVED_FILES
    return enough if soft == resource.RLIM_INFINITY else soft


def raise_file_limit() -> int:
    """Raise the soft limit as far as connections need it and the hard limit allows; return it.

    It changes the whole process, so only a program that is a server calls it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + RESERVED_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return open_files()


class Admission:
    """The slots of a server."""

    def __init__(
        self,
        connections: Collection[AdmittedConnection],
        max_connections: int,
        loop: EventLoop,
        log: LimitedLog,
    ) -> None:
        self.max_connections = max_connections
        self.taken = 0
        """Slots in use."""
        self.evicted = 0
        """Connections that were closed so far to make room for others."""
        self.refused = 0
        """Connections that were refused so far."""
        self._connections = connections
        self._loop = loop
        self._log = log
        self._without_slot: set[AdmittedConnection] = set()
        """Connections that were asked to leave, and are not gone."""
        self._parting: dict[AdmittedConnection, None] = {}
        """Those of them that are not cut off, in the order in which they were asked."""
        self._candidates: list[AdmittedConnection] = []
        """The last one has been idle for longest."""
        self._search_at = self._stale_at = 0.0

    def admit(self, peer: str, make_room: Callable[[], bool] = bool) -> bool:
        """Take a slot for a new connection; return False if it has to be refused.

        `make_room` is tried last: it returns a slot, or False if it cannot.
        """
        if self.taken >= self.max_connections and not self.make_room():
            if not make_room():
                self.refused += 1
                self._log.warning(
                    "refused a connection from %s: all %d connections are in use, and none is idle",
                    peer,
                    self.max_connections,
                )
                return False
            self.evicted += 1
        self.taken += 1
        return True

    def release(self) -> None:
        """Return a slot."""
        self.taken -= 1

    def make_room(self) -> bool:
        """Close the connection that has been idle for longest; return False if there is none."""
        victim = self._longest_idle()
        if victim is None:
            return False
        self._log.warning(
            "closing the connection that has been idle for longest: all %d are in use",
            self.max_connections,
        )
        self.taken -= 1
        self.evicted += 1
        self._without_slot.add(victim)
        self._parting[victim] = None
        victim.part()
        if len(self._parting) > MAX_PARTING:
            first = next(iter(self._parting))
            del self._parting[first]
            first.cut_off()
        return True

    def left(self, connection: AdmittedConnection) -> None:
        """Note that a connection is gone; its slot is returned unless it was given to another."""
        self._parting.pop(connection, None)
        if connection in self._without_slot:
            self._without_slot.discard(connection)
        else:
            self.release()

    def _longest_idle(self) -> AdmittedConnection | None:
        now = self._loop.now()
        if now >= self._stale_at:
            self._candidates.clear()
        while True:
            while self._candidates:
                candidate = self._candidates.pop()
                if candidate.idle_since is not None and candidate in self._connections:
                    return candidate
            if now < self._search_at:
                return None
            self._search(now)

    def _search(self, now: float) -> None:
        idle = [
            (since, each) for each in self._connections if (since := each.idle_since) is not None
        ]
        first = heapq.nsmallest(MAX_CANDIDATES, idle, key=lambda pair: pair[0])
        self._candidates = [each for _, each in reversed(first)]
        self._stale_at = now + SEARCH_S
        self._search_at = self._stale_at if len(idle) < MAX_CANDIDATES else now
