"""The state of discovery: which registrars are wanted, announced, called and found. Pure.

A registrar is *found* once it has answered a call. It stays found as long as it is *covered*: by a
wanted group, if its servers were announced on the network, or by a wanted locator that it has
answered at. It is discarded with its last cover.

A `Search` leads to calls, one at a time. There are two kinds:

- one for each wanted locator. It is called until a registrar answers, with the waits of
  `LOCATOR_WAITS_S`, and again when that registrar is lost or discarded.
- one for each registrar that was announced (`announced.py`). An announcement is a hint: the
  registrar is called, and counts only if it answers with the same id. The answer has its groups. It
  is called again when an announcement has another number of the groups, and when all announcements
  have ended: by a goodbye, or because none was received for the TTL of the last one. Such a
  *silent* registrar is kept if it answers, and called again later; if not, it is lost.

| why a registrar is not found any more | event | afterwards |
|---|---|---|
| `discard` | discarded | both kinds of search continue after a wait |
| its locators and groups are not wanted any more | discarded | none |
| it left the wanted groups, and no locator covers it | discarded | called when its groups change |
| it is silent, and does not answer | discarded | its locators are called immediately |

A registrar that is found by locator only is never lost: its client calls `discard`.

Times are seconds. A result of a call has no effect after a change such as a discard.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from leasehold.basics.durations import NEVER
from leasehold.discovery.announced import (
    CALL_GAP_S,
    AnnouncedRegistrars,
    AnnouncedSearch,
    Announcement,
    Registrar,
    is_unconfirmed,
)
from leasehold.discovery.discard_waits import DiscardWaits
from leasehold.discovery.searches import Call, LocatorSearch, Search

L = TypeVar("L", bound=Hashable)
"""A locator."""

Groups: TypeAlias = frozenset[str] | None
"""Names of groups, or `ALL_GROUPS`. The public group has the empty name."""

ALL_GROUPS: Final = None
"""Every group; it also finds registrars that are in none."""

NO_GROUPS: Final[frozenset[str]] = frozenset()

LOCATOR_WAITS_S: Final = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0)
"""The waits after failed calls; the last one repeats."""

SILENT_WAITS_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
"""The waits between calls to a silent registrar that answers, and then the TTL of announcements.

They are short at first, since a server that sent a goodbye may answer until it has stopped."""

DISCARDED_LOCATOR_S: Final = 20.0
DISCARDED_GROUP_S: Final = 10.0
"""The first waits after a discard."""

UNANSWERED_CALLS: Final = 6
"""A registrar that was announced and never answered is forgotten after this many failed calls."""

MAX_CALLS: Final = 64
"""Calls that are under way at the same time."""

RESERVED_CALLS: Final = 8
"""Those of them that are kept for registrars that were announced."""

UNCONFIRMED_CALLS: Final = 16
"""Those of them to registrars that were announced and have never answered."""

UNANSWERED: Final = float("-inf")
"""The time of the last answer of a registrar that has not answered in this process."""


class EventKind(Enum):
    """The kind of an event."""

    DISCOVERED = "discovered"
    DISCARDED = "discarded"
    CHANGED = "changed"
    """The groups of a registrar that was found by group are others."""


class DiscoveryEvent(NamedTuple):
    """A change of the registrars that are found."""

    kind: EventKind
    registrars: tuple[Registrar, ...]


@dataclass(slots=True)
class FoundRegistrar:
    """A registrar that is found."""

    registrar: Registrar
    answered_at: float
    """When the last call that it has answered was made."""
    source: Search | None = None
    """The search whose answer has described it."""
    by_group: bool = False


class DiscoveryState(Generic[L]):
    """Decides which calls are made, and which events are sent.

    `shorten` returns a random wait of at most the given one, for calls that are repeated.
    """

    def __init__(self, shorten: Callable[[float], float] = float) -> None:
        self._shorten = shorten
        self.groups: Groups = NO_GROUPS
        """The wanted groups."""
        self._locators: dict[L, LocatorSearch] = {}
        self._announced = AnnouncedRegistrars()
        self._found: dict[str, FoundRegistrar] = {}
        self._waits = DiscardWaits()
        self._touched: set[str] = set()
        """Registrars whose state may have changed since `take_touched`."""
        self._events: list[tuple[EventKind, Registrar]] = []
        self._last_call = 0
        self._under_way: dict[int, bool] = {}
        """The calls that have not ended: whether they are to unconfirmed registrars."""

    # Wanted and found.

    @property
    def locators(self) -> dict[L, str]:
        """The wanted locators, and for each the id of its registrar, empty if none was found."""
        return {locator: search.registrar for locator, search in self._locators.items()}

    @property
    def locator_errors(self) -> dict[L, Exception]:
        """The last error at each locator whose last call has failed."""
        return {locator: each.error for locator, each in self._locators.items() if each.error}

    @property
    def registrars(self) -> list[Registrar]:
        """The registrars that are found, in the order in which they were."""
        return [found.registrar for found in self._found.values()]

    def found(self, registrar: str) -> FoundRegistrar | None:
        """Return a registrar that is found, and how, not to be changed; None if it is not."""
        return self._found.get(registrar)

    def at(self, locator: L) -> str:
        """Return the id of the registrar that was found at a wanted locator; empty if none was."""
        search = self._locators.get(locator)
        return "" if search is None else search.registrar

    def locators_of(self, registrar: str) -> list[L]:
        """Return the wanted locators at which a registrar was found."""
        return [each for each, search in self._locators.items() if search.registrar == registrar]

    def set_groups(self, groups: Groups, now: float) -> None:
        """Replace the wanted groups."""
        self.groups = groups
        for search in list(self._announced.searches.values()):
            found = self._found.get(search.registrar)
            if found is not None and not self._wants(found.registrar):
                self._uncover_group(search.registrar)
            if not search.servers and not self._is_by_group(search.registrar):
                self._announced.forget(search)
            self._plan(search, now)

    def set_locators(self, locators: Mapping[L, str], now: float) -> None:
        """Replace the wanted locators, each with its endpoint.

        A locator with another endpoint than before, such as one with TLS, is a new search.
        """
        before = self._locators
        self._locators = {}
        for locator, endpoint in locators.items():
            is_same = locator in before and before[locator].endpoint == endpoint
            made = LocatorSearch(next_at=now, endpoint=endpoint)
            self._locators[locator] = before.pop(locator) if is_same else made
        for search in before.values():
            search.calling = 0
            self._touched.add(search.registrar)
            self._go_if_uncovered(search.registrar)

    def discard(self, registrar: str, now: float) -> None:
        """Drop a registrar, which did not work for the client. One that is not found is ignored.

        It is found again when it answers a call after a wait, which doubles each time it is
        discarded soon after its return.
        """
        found = self._found.get(registrar)
        if found is None:
            return
        self._waits.discard(registrar, now)
        self._drop(registrar)
        for search in self._searches_at(registrar):
            search.registrar, search.calling = "", 0
            search.next_at = max(now, self._waits.end(registrar, DISCARDED_LOCATOR_S))
            search.attempts = _steps_of(search.next_at - now)
        announced = self._announced.searches.get(registrar)
        if announced is not None:
            announced.calling, announced.attempts, announced.next_at = 0, 0, NEVER
            if announced.servers:
                self._plan(announced, now)
            else:
                self._announced.forget(announced)

    def check_at(self, registrar: str, at: float, now: float) -> None:
        """Call a registrar that is found again at a time, and repeat that until it answers."""
        for locator in self._searches_at(registrar):
            locator.check_at = min(locator.check_at, at)
            locator.attempts = max(locator.attempts, _steps_of(at - now))
        if (announced := self._announced.searches.get(registrar)) is not None:
            announced.check_at = min(announced.check_at, at)

    def adopt(self, registrar: Registrar, now: float) -> None:
        """Take a registrar as found by group: another process has found it, perhaps long ago.

        It is called immediately, and lost if it does not answer.
        """
        self._touched.add(registrar.id)
        if not self._announced.adopt(registrar, now):
            return
        found = self._found.setdefault(registrar.id, FoundRegistrar(registrar, UNANSWERED))
        found.by_group = True
        self._announced.searches[registrar.id].check_at = now

    # Announcements.

    def announced(self, announcement: Announcement, now: float) -> None:
        """Record an announcement of a server."""
        server = announcement.server
        if self._announced.of_server(server) not in (None, announcement.registrar):
            self.withdrawn(server, now)
        search = self._announced.add(announcement, now)
        if search is not None:
            self._plan(search, now)

    def withdrawn(self, server: str, now: float) -> None:
        """Record the goodbye of a server."""
        if (removed := self._announced.remove_server(server)) is None:
            return
        search, gone = removed
        if search.servers:
            if (found := self._found.get(search.registrar)) is not None:
                found.registrar = search.drop_endpoints(gone, found.registrar)
            return
        if self._is_by_group(search.registrar):
            search.checks, search.calling, search.next_at = 0, 0, now
        else:
            self._announced.forget(search)

    # Calls.

    @property
    def next_at(self) -> float:
        """When `due` has something to do, unless a call ends before."""
        return min(self._times(), default=NEVER)

    def _times(self) -> Iterator[float]:
        searches = self._announced.searches.values()
        for search in (*self._locators.values(), *searches):
            if self._may_call(search):
                yield search.due_at
        for announced in searches:
            for server in announced.servers.values():
                yield server.until

    def _may_call(self, search: Search) -> bool:
        most = MAX_CALLS - isinstance(search, LocatorSearch) * RESERVED_CALLS
        if search.under_way or len(self._under_way) >= most:
            return False
        return not is_unconfirmed(search) or sum(self._under_way.values()) < UNCONFIRMED_CALLS

    def due(self, now: float) -> list[Call]:
        """Return the calls to make now, after ending the announcements whose TTL has passed.

        If there are too many, registrars that have answered come first, then those with fewer
        failed calls, then those that were announced last.
        """
        ended = [
            name
            for search in self._announced.searches.values()
            for name, server in search.servers.items()
            if server.until <= now
        ]
        for name in ended:
            self.withdrawn(name, now)
        at_locators = [each for each in self._locators.values() if each.due_at <= now]
        at_locators.sort(key=lambda each: each.attempts)
        calls = [
            self._call(search, (search.endpoint,), "", now)
            for search in at_locators
            if self._may_call(search)
        ]
        waiting = [each for each in self._announced.searches.values() if each.due_at <= now]
        waiting.reverse()
        waiting.sort(key=lambda each: (each.known is None, each.attempts))
        for announced in waiting:
            if self._may_call(announced):
                endpoints = announced.choose_endpoints()
                announced.is_outdated = False
                calls.append(self._call(announced, endpoints, announced.registrar, now))
        return calls

    def _call(self, search: Search, endpoints: tuple[str, ...], registrar: str, now: float) -> Call:
        self._last_call += 1
        search.calling = search.under_way = self._last_call
        search.is_checking = search.check_at <= now
        search.next_at = NEVER
        if search.is_checking:
            search.check_at = NEVER
        self._under_way[self._last_call] = is_unconfirmed(search)
        return Call(search, self._last_call, endpoints, registrar, now, search.is_checking)

    def _ended(self, call: Call) -> bool:
        search = call.search
        self._under_way.pop(call.number, None)
        if search.under_way == call.number:
            search.under_way = 0
        if search.calling != call.number:
            return False
        search.calling, search.is_checking = 0, False
        return True

    def answered(self, call: Call, registrar: Registrar, now: float) -> None:
        """Record an answer; one with another id than the called registrar's is a failure."""
        search = call.search
        if call.registrar not in ("", registrar.id):
            self.failed(call, now)
            return
        if not self._ended(call):
            return
        search.attempts = 0
        if isinstance(search, LocatorSearch):
            self._answered_at_locator(search, registrar, now)
        elif isinstance(search, AnnouncedSearch):
            self._answered_by_group(search, registrar, now)
        if (found := self._found.get(registrar.id)) is not None:
            found.answered_at = max(found.answered_at, call.at)

    def _answered_at_locator(self, search: LocatorSearch, registrar: Registrar, now: float) -> None:
        search.error = None
        allowed_at = max(now, self._waits.end(registrar.id, DISCARDED_LOCATOR_S))
        if registrar.id not in self._found and now < allowed_at:
            search.next_at = allowed_at  # it was discarded, under another spelling
            return
        earlier, search.registrar = search.registrar, registrar.id
        is_source = self._take(registrar, now, search).source is search
        if earlier != registrar.id:  # another registrar has taken its place
            self._touched.add(earlier)
            self._go_if_uncovered(earlier)
        if is_source and not self._wants(registrar):
            self._uncover_group(registrar.id)

    def _answered_by_group(self, search: AnnouncedSearch, registrar: Registrar, now: float) -> None:
        search.confirm(registrar, now)
        if self._wants(registrar):
            self._take(registrar, now, search).by_group = True
        elif registrar.id in self._found:
            self._take(registrar, now, search)
            self._uncover_group(registrar.id)
        if search.servers:
            self._plan(search, now)
            return
        if not self._is_by_group(registrar.id):
            self._announced.forget(search)
            return
        waits = SILENT_WAITS_S[search.checks : search.checks + 1] or (search.ttl_s,)
        search.next_at = now + self._shorten(min(waits[0], search.ttl_s))
        search.checks += 1

    def failed(self, call: Call, now: float, error: Exception | None = None) -> None:
        """Record that a call had no answer."""
        search = call.search
        if not self._ended(call):
            return
        if isinstance(search, LocatorSearch):
            search.error = error
        if isinstance(search, AnnouncedSearch):
            search.not_before = now + CALL_GAP_S
            if not search.servers:
                self._lose(search, now)
                return
            if search.has_untried:
                search.next_at = search.not_before
                if call.is_check:
                    search.check_at = search.not_before
                return
        wait_s = LOCATOR_WAITS_S[min(search.attempts, len(LOCATOR_WAITS_S) - 1)]
        search.attempts += 1
        again_at = now + self._shorten(wait_s)
        if call.is_check:
            search.check_at = again_at
            return
        search.next_at = again_at
        is_useless = search.attempts >= UNANSWERED_CALLS
        if is_useless and isinstance(search, AnnouncedSearch) and search.known is None:
            self._announced.forget(search)

    def take_events(self) -> list[DiscoveryEvent]:
        """Return the events since the last call, in order; those of one kind together."""
        together = groupby(self._events, itemgetter(0))
        taken = [DiscoveryEvent(kind, tuple(each for _, each in some)) for kind, some in together]
        self._events.clear()
        return taken

    def take_touched(self) -> set[str]:
        """Return the ids of registrars that may be found in another way than at the last call."""
        touched, self._touched = self._touched - {""}, set()
        return touched

    # Covers.

    def _wants(self, registrar: Registrar) -> bool:
        return self.groups is None or not self.groups.isdisjoint(registrar.groups)

    def _is_by_group(self, registrar: str) -> bool:
        return registrar in self._found and self._found[registrar].by_group

    def _searches_at(self, registrar: str) -> list[LocatorSearch]:
        return [each for each in self._locators.values() if each.registrar == registrar]

    def _take(self, registrar: Registrar, now: float, search: Search) -> FoundRegistrar:
        """Record an answer of a registrar, which may be the first one.

        It describes the registrar, unless that was described by a search that still finds it: a
        host at another locator may use the id of a registrar. Announced registrars come first.
        """
        self._touched.add(registrar.id)
        found = self._found.get(registrar.id)
        if found is None:
            self._waits.found(registrar.id, now)
            found = self._found[registrar.id] = FoundRegistrar(registrar, UNANSWERED, search)
            self._events.append((EventKind.DISCOVERED, registrar))
            return found
        is_announced = isinstance(search, AnnouncedSearch)
        if not is_announced and search is not found.source and self._is_found_by(found):
            return found
        is_changed = found.registrar.groups != registrar.groups
        found.registrar, found.source = registrar, search
        if is_changed and found.by_group and self._wants(registrar):
            self._events.append((EventKind.CHANGED, registrar))
        return found

    def _is_found_by(self, found: FoundRegistrar) -> bool:
        registrar, source = found.registrar.id, found.source
        if isinstance(source, LocatorSearch):
            return source in self._searches_at(registrar)
        return source is not None and self._announced.searches.get(registrar) is source

    def _uncover_group(self, registrar: str) -> None:
        if self._is_by_group(registrar):
            self._found[registrar].by_group = False
            self._touched.add(registrar)
            self._go_if_uncovered(registrar)

    def _go_if_uncovered(self, registrar: str) -> None:
        found = self._found.get(registrar)
        if found is not None and not found.by_group and not self._searches_at(registrar):
            self._drop(registrar)

    def _drop(self, registrar: str) -> None:
        self._touched.add(registrar)
        self._events.append((EventKind.DISCARDED, self._found.pop(registrar).registrar))

    def _lose(self, search: AnnouncedSearch, now: float) -> None:
        self._announced.forget(search)
        if self._is_by_group(search.registrar):
            self._drop(search.registrar)
            for each in self._searches_at(search.registrar):
                each.registrar, each.attempts, each.next_at = "", 0, now

    def _plan(self, search: AnnouncedSearch, now: float) -> None:
        """Set when a registrar is called, unless it is silent: then it is called in any case."""
        if not search.servers:
            return
        known = search.known
        is_wanted = known is None or (
            self._wants(known) and not self._is_by_group(search.registrar)
        )
        if self.groups == NO_GROUPS or not (search.has_news or is_wanted):
            search.next_at = NEVER
            if not search.is_checking:
                search.calling = 0
        elif not search.calling and search.next_at == NEVER:
            allowed_at = max(now, self._waits.end(search.registrar, DISCARDED_GROUP_S))
            search.next_at = max(allowed_at, search.not_before)


def _steps_of(wait_s: float) -> int:
    return sum(each <= wait_s for each in LOCATOR_WAITS_S)
