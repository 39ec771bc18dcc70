"""`ClusterSearch`: the one search for all registrations of the discovery service.

A server searches for the sum of all interests. On a cluster the servers share the search: each
writes into a key under its lease what its registrations want and which registrars it has found
(`search_exchange`), and searches for what all of them want. A registration has the registrars that
any server finds.

A registrar that neither the other servers nor this one find any more is called by this server
before it counts as lost. The same holds for one that was found before a restart.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from leasehold.discovery.announced import Registrar
from leasehold.discovery.discard_waits import DiscardWaits
from leasehold.discovery.locators import Locator
from leasehold.discovery.registrar_search import DiscoveryNetwork, RegistrarSearch
from leasehold.discovery.registration import ReachableRegistrar
from leasehold.discovery.state import (
    ALL_GROUPS,
    DISCARDED_LOCATOR_S,
    NO_GROUPS,
    UNANSWERED,
    Groups,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PeerSearch(NamedTuple):
    """The interests of another server of the cluster, and the registrars that it finds."""

    groups: Groups = NO_GROUPS
    locators: frozenset[Locator] = frozenset()
    registrars: Mapping[str, ReachableRegistrar[Locator]] = {}


class ClusterSearch:
    """The search of one server, and what the other servers of its cluster have found.

    `touched` is called with the ids of registrars that may be found in another way than before.
    `needed` returns a registrar that a registration here has by group, as it was last described,
    or None.
    """

    def __init__(
        self,
        network: DiscoveryNetwork,
        touched: Callable[[set[str]], object],
        needed: Callable[[str], Registrar | None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._touched = touched
        self._needed = needed
        self._search = RegistrarSearch(network, self._advanced)
        self._groups: Counter[str] = Counter()
        self._all_groups = 0
        self._locators: Counter[Locator] = Counter()
        self._with_tls: Counter[Locator] = Counter()
        self._applying: asyncio.Handle | None = None
        self._has_failed = False
        self._others: dict[str, PeerSearch] = {}
        self._again: dict[str, asyncio.TimerHandle] = {}
        """When registrars that only other servers find may be discovered again."""
        self._confirmed_at: dict[str, float] = {}
        self.waits = DiscardWaits()
        """Registrars that a client has discarded, and that have not answered a call since."""
        self.on_change: Callable[[], object] = lambda: None
        """Called when the interests, or the registrars that this server finds, have changed."""

    # Interests.

    @property
    def groups(self) -> Groups:
        """The groups that the registrations of this server want."""
        return ALL_GROUPS if self._all_groups else frozenset(self._groups)

    @property
    def locators(self) -> tuple[Locator, ...]:
        """The locators that the registrations of this server want; of equal ones, one with TLS."""
        return tuple(
            Locator(each.host, each.port, is_tls=each in self._with_tls) for each in self._locators
        )

    def check_groups(self, groups: Groups) -> None:
        """Raise ImportError if groups cannot be searched for, because a package is missing."""
        if groups != NO_GROUPS:
            self._search.begin_browsing()

    def add_interest(self, groups: Groups, locators: Iterable[Locator]) -> None:
        """Search for registrars of groups and at locators, as often as it is called."""
        self._count(groups, locators, 1)

    def remove_interest(self, groups: Groups, locators: Iterable[Locator]) -> None:
        """Undo one call of `add_interest`."""
        self._count(groups, locators, -1)

    def _count(self, groups: Groups, locators: Iterable[Locator], step: int) -> None:
        wanted = tuple(locators)
        if groups is ALL_GROUPS:
            self._all_groups += step
        else:
            _count(self._groups, groups, step)
        _count(self._locators, wanted, step)
        _count(self._with_tls, (each for each in wanted if each.is_tls), step)
        self._apply_soon()

    def _apply_soon(self) -> None:
        """Search for the present interests; many changes together are one."""
        if self._applying is None:
            self._applying = self._loop.call_soon(self._apply)

    def _apply(self) -> None:
        self._applying = None
        groups, locators = self.groups, dict.fromkeys(self.locators)
        for other in self._others.values():
            if groups is not ALL_GROUPS:
                groups = None if other.groups is None else groups | other.groups
            locators |= dict.fromkeys(other.locators)
        try:
            self._search.want_groups(groups)
        except ImportError as error:
            if not self._has_failed:
                logger.error("registrars are not found by group: %s", error)
            self._has_failed = True
        self._search.want_locators(locators)
        self.on_change()

    # Registrars.

    def own(self, registrar: str) -> ReachableRegistrar[Locator] | None:
        """Return a registrar that this server finds."""
        found = self._search.state.found(registrar)
        if found is None:
            return None
        at = self._search.state.locators_of(registrar)
        return ReachableRegistrar(found.registrar, found.by_group, frozenset(at), found.answered_at)

    def all_own(self) -> dict[str, ReachableRegistrar[Locator]]:
        """Return all registrars that this server finds."""
        ids = (each.id for each in self._search.state.registrars)
        return {each: reached for each in ids if (reached := self.own(each)) is not None}

    def ids(self) -> set[str]:
        """Return the ids of all registrars that any server finds."""
        found = {each.id for each in self._search.state.registrars}
        return found.union(*(other.registrars for other in self._others.values()))

    def get(self, registrar: str) -> ReachableRegistrar[Locator] | None:
        """Return a registrar that any server finds."""
        found = self.own(registrar)
        for other in self._others.values():
            if (theirs := other.registrars.get(registrar)) is not None:
                found = theirs if found is None else _merged(found, theirs)
        if found is not None and registrar in self._confirmed_at:
            at = max(found.answered_at, self._confirmed_at[registrar])
            return ReachableRegistrar(found.registrar, found.by_group, found.locators, at)
        return found

    def is_by_group(self, registrar: str) -> bool:
        """Return whether any server finds a registrar by group, or assumes so."""
        found = self._search.state.found(registrar)
        if found is not None and found.by_group:
            return True
        others = (other.registrars.get(registrar) for other in self._others.values())
        return any(each is not None and each.by_group for each in others)

    def taken(self, locators: Iterable[Locator], registrar: str) -> list[Locator]:
        """Return those locators at which another registrar answers."""
        return [each for each in locators if self._search.state.at(each) not in ("", registrar)]

    def adopt(self, registrar: Registrar) -> None:
        """Count a registrar as found by group until it does not answer a call."""
        self._search.state.adopt(registrar, self._loop.time())
        self._search.advance()

    def discarded(self, registrar: str) -> None:
        """Record that a client has discarded a registrar, which may not work."""
        now = self._loop.time()
        if self.waits.end(registrar, DISCARDED_LOCATOR_S) < now:
            self.waits.discard(registrar, now)

    def check_at(self, registrar: str, at: float) -> None:
        """Call a registrar again at a time, because an answer since then is needed."""
        if self.own(registrar) is not None:
            self._search.state.check_at(registrar, at, self._loop.time())
            self._search.advance()
        elif registrar not in self._again:
            again = self._loop.call_at(at, self._confirm, registrar)
            self._again[registrar] = again

    def _confirm(self, registrar: str) -> None:
        """Record that other servers find a registrar at the end of its wait."""
        del self._again[registrar]
        if self.get(registrar) is not None:
            self._confirmed_at[registrar] = self._loop.time()
            self._touched({registrar})

    def _advanced(self) -> None:
        if touched := self._search.state.take_touched():
            self._search.state.take_events()
            self._end_waits(touched)
            self._touched(touched)
            self.on_change()

    def _end_waits(self, touched: Iterable[str]) -> None:
        for registrar in touched:
            found = self.own(registrar)
            if found is None:
                self._confirmed_at.pop(registrar, None)
            elif found.answered_at >= self.waits.end(registrar, DISCARDED_LOCATOR_S):
                self.waits.discarded.pop(registrar, None)

    # Other servers.

    def other(self, server: str, peer: PeerSearch | None) -> None:
        """Record the search of another server; None if that server is gone."""
        before = self._others.pop(server, PeerSearch())
        after = PeerSearch() if peer is None else peer
        if peer is not None:
            self._others[server] = peer
        if (before.groups, before.locators) != (after.groups, after.locators):
            self._apply_soon()
        ids = before.registrars.keys() | after.registrars.keys()
        changed = {
            each for each in ids if before.registrars.get(each) != after.registrars.get(each)
        }
        for registrar in changed:
            if self.get(registrar) is None:
                self._confirmed_at.pop(registrar, None)
            known = None if self.is_by_group(registrar) else self._needed(registrar)
            if known is not None:
                self.adopt(known)
        if changed:
            self._touched(changed)

    async def close(self) -> None:
        """Leave the network."""
        for timer in (*self._again.values(), *([self._applying] if self._applying else [])):
            timer.cancel()
        await self._search.close()


def _merged(
    one: ReachableRegistrar[Locator], other: ReachableRegistrar[Locator]
) -> ReachableRegistrar[Locator]:
    latest = max(one, other, key=lambda each: (each.registrar.groups_number, each is one))
    return ReachableRegistrar(
        latest.registrar,
        one.by_group or other.by_group,
        one.locators | other.locators,
        max(one.answered_at, other.answered_at, UNANSWERED),
    )


def _count(counter: Counter[T], values: Iterable[T], step: int) -> None:
    for value in values:
        counter[value] += step
        if not counter[value]:
            del counter[value]
