"""Registrars that servers have announced: which are recorded, and where they are called. Pure.

Any host on the network can send announcements. False ones cost a bounded number of calls, and do
not displace true ones:

- A registrar that has answered a call is *confirmed*. If there are too many, one that is not
  confirmed is removed for a new one: the one that was announced least recently, and those whose
  calls have failed before the others. Confirmed ones are not removed.
- The same holds for the servers of a registrar; a server is confirmed if it announces an endpoint
  of a registrar that has answered.
- The TTL of an unconfirmed server is clamped to `UNCONFIRMED_TTL_S`, or to the last TTL of the
  registrar's servers if that is longer.
- Endpoints that have answered are called first, then those of the servers in turn: the first one of
  each server, then the second ones. Those that do not fit into one call are in the next one.
"""

from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Final, NamedTuple

from leasehold.basics.durations import NEVER
from leasehold.discovery.searches import Search

MIN_TTL_S: Final = 1.0
MAX_TTL_S: Final = 86_400.0
"""TTLs of announcements are clamped to this range."""

UNCONFIRMED_TTL_S: Final = 120.0
"""The longest TTL of a server at which no registrar has answered."""

CALL_GAP_S: Final = 1.0
"""The shortest wait for a call because of another number of the groups, or of further endpoints,
after a call that has failed, or whose answer had another number than announced."""

MAX_REGISTRARS: Final = 1_000
"""Registrars that are recorded."""

MAX_SERVERS: Final = 64
"""Servers of a registrar that are recorded."""

MAX_ENDPOINTS: Final = 16
"""Endpoints that are called together."""


@dataclass(frozen=True, slots=True)
class Registrar:
    """The description that a registrar has sent. Equality is by id."""

    id: str
    groups: frozenset[str] = field(default=frozenset(), compare=False)
    groups_number: int = field(default=0, compare=False)
    """Rises when the groups change."""
    endpoints: tuple[str, ...] = field(default=(), compare=False)
    """Where it is reached: first the address at which it has answered."""
    cluster: str = field(default="", compare=False)


class Announcement(NamedTuple):
    """The announcement of one server of a registrar."""

    server: str
    """Identifies the server."""
    registrar: str
    endpoints: tuple[str, ...]
    groups_number: int
    ttl_s: float


@dataclass(slots=True)
class AnnouncedServer:
    """The last announcement of a server."""

    endpoints: tuple[str, ...]
    groups_number: int
    at: float
    ttl_s: float
    until: float = NEVER
    """When it ends."""


@dataclass(slots=True, eq=False)
class AnnouncedSearch(Search):
    """The search for a registrar that was announced."""

    registrar: str = ""
    servers: dict[str, AnnouncedServer] = field(default_factory=dict)
    """Those whose announcements have not ended; the last one was announced most recently."""
    endpoints: tuple[str, ...] = ()
    """Of these servers in turn; if all announcements have ended, of the last server."""
    tried: set[str] = field(default_factory=set)
    """The endpoints that were called since all of them were."""
    ttl_s: float = MIN_TTL_S
    """The last TTL."""
    known: Registrar | None = None
    """Its last answer."""
    has_news: bool = True
    """Whether a number of the groups was announced that it has not been asked about."""
    is_outdated: bool = False
    """Whether another number was announced during the call under way."""
    not_before: float = 0.0
    """The earliest time of a call because of another number, or of further endpoints."""
    checks: int = 0
    """How often it has answered since its announcements have ended."""

    @property
    def has_untried(self) -> bool:
        """Whether there are endpoints that the last calls have left out."""
        return not self.tried.issuperset(self.endpoints)

    def choose_endpoints(self) -> tuple[str, ...]:
        """Return the endpoints of the next call."""
        if not self.has_untried:
            self.tried.clear()
        answered = () if self.known is None else self.known.endpoints
        untried = (each for each in self.endpoints if each not in self.tried)
        wanted = (*answered[: MAX_ENDPOINTS // 2], *untried, *answered)
        chosen = tuple(dict.fromkeys(wanted))[:MAX_ENDPOINTS]
        self.tried.update(chosen)
        return chosen

    def confirm(self, registrar: Registrar, now: float) -> None:
        """Record an answer."""
        self.known = registrar
        self.tried.clear()
        number = registrar.groups_number
        has_other = any(each.groups_number != number for each in self.servers.values())
        self.has_news = has_other and self.is_outdated
        if has_other:
            self.not_before = now + CALL_GAP_S
        for server in filter(self._is_confirmed, self.servers.values()):
            self._set_end(server)

    def _is_confirmed(self, server: AnnouncedServer) -> bool:
        return self.known is not None and not set(server.endpoints).isdisjoint(self.known.endpoints)

    def _set_end(self, server: AnnouncedServer) -> None:
        most_s = MAX_TTL_S
        if not self._is_confirmed(server):
            most_s = max(UNCONFIRMED_TTL_S, self.ttl_s)
        self.ttl_s = min(most_s, max(MIN_TTL_S, server.ttl_s))
        server.until = server.at + self.ttl_s

    def add(self, announcement: Announcement, now: float) -> None:
        """Record an announcement."""
        if not self.servers:  # all had ended, or it is new
            self.checks, self.next_at = 0, NEVER
            if not self.is_checking:
                self.calling = 0
        number = announcement.groups_number
        earlier = self.servers.pop(announcement.server, None)
        server = AnnouncedServer(announcement.endpoints, number, now, announcement.ttl_s)
        self.servers[announcement.server] = server
        self._set_end(server)
        self.gather()
        is_other = self.known is None or self.known.groups_number != number
        is_news = is_other and (earlier is None or earlier.groups_number != number)
        if is_news:
            self.has_news = True
            self.is_outdated |= bool(self.calling)
        if not self.calling and (self.has_untried or (is_news and self.known is not None)):
            self.next_at = NEVER  # it is planned again

    def replaceable_server(self) -> str | None:
        """Return the unconfirmed server that was announced least recently."""
        names = (name for name, each in self.servers.items() if not self._is_confirmed(each))
        return next(names, None)

    def drop_endpoints(self, server: AnnouncedServer, registrar: Registrar) -> Registrar:
        """Return the registrar without the endpoints of a server that has left.

        Those that other servers have announced stay, and so do all if no other would be left.
        """
        gone = {*server.endpoints}.difference(self.endpoints)
        left = tuple(each for each in registrar.endpoints if each not in gone)
        return replace(registrar, endpoints=left) if left else registrar

    def gather(self) -> None:
        """Set the endpoints to those of the servers."""
        latest_first = reversed(self.servers.values())
        turns = zip_longest(*(each.endpoints for each in latest_first), fillvalue="")
        self.endpoints = tuple(filter(None, dict.fromkeys(each for turn in turns for each in turn)))
        self.tried.intersection_update(self.endpoints)


def is_unconfirmed(search: Search) -> bool:
    """Return whether a search is for a registrar that was announced and has never answered."""
    return isinstance(search, AnnouncedSearch) and search.known is None


class AnnouncedRegistrars:
    """The registrars that were announced, by id; the last one was announced most recently."""

    def __init__(self) -> None:
        self.searches: dict[str, AnnouncedSearch] = {}
        self._of_servers: dict[str, str] = {}
        """The registrar that each server has announced."""

    def of_server(self, server: str) -> str | None:
        """Return the registrar that a server has announced."""
        return self._of_servers.get(server)

    def add(self, announcement: Announcement, now: float) -> AnnouncedSearch | None:
        """Record an announcement, and return its search; None if there is no room for it."""
        server, registrar = announcement.server, announcement.registrar
        search = self.searches.pop(registrar, None)
        if search is None:
            if len(self.searches) >= MAX_REGISTRARS and not self._make_room():
                return None
            search = AnnouncedSearch(registrar=registrar)
        self.searches[registrar] = search
        if server not in search.servers and len(search.servers) >= MAX_SERVERS:
            replaced = search.replaceable_server()
            if replaced is None:
                return None
            self.remove_server(replaced)
        search.add(announcement, now)
        self._of_servers[server] = registrar
        return search

    def adopt(self, registrar: Registrar, now: float) -> bool:
        """Record a registrar that was found before, to be called now; False without room for it."""
        if registrar.id in self.searches:
            return True
        if len(self.searches) >= MAX_REGISTRARS and not self._make_room():
            return False
        search = AnnouncedSearch(registrar=registrar.id, endpoints=registrar.endpoints)
        search.known, search.has_news, search.next_at = registrar, False, now
        search.ttl_s = UNCONFIRMED_TTL_S
        self.searches[registrar.id] = search
        return True

    def _make_room(self) -> bool:
        """Forget a registrar that has not answered."""
        unconfirmed = (each for each in self.searches.values() if each.known is None)
        idle = [each for each in unconfirmed if not each.calling]
        failed = (each for each in idle if each.attempts)
        if replaced := next(failed, idle[0] if idle else None):
            self.forget(replaced)
        return replaced is not None

    def remove_server(self, server: str) -> tuple[AnnouncedSearch, AnnouncedServer] | None:
        """Remove a server, and return it with the search for its registrar; None if unknown."""
        registrar = self._of_servers.pop(server, None)
        if registrar is None:
            return None
        search = self.searches[registrar]
        removed = search.servers.pop(server)
        if search.servers:
            search.gather()
            if search.known is not None:
                search.known = search.drop_endpoints(removed, search.known)
        return search, removed

    def forget(self, search: AnnouncedSearch) -> None:
        """Remove a registrar, and its servers."""
        search.calling = 0
        for server in search.servers:
            del self._of_servers[server]
        search.servers.clear()
        self.searches.pop(search.registrar, None)
