"""`Discovery`: finds registrars by group and by locator, and reports them to listeners.

The rules are in `state`, and `registrar_search` runs them on the network. This module has the calls
of a program, and passes events to its listeners.
"""

import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Self, TypeAlias

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.event_loop import OwnerLoop
from leasehold.discovery.announced import Registrar
from leasehold.discovery.locators import (
    InterestChange,
    Locator,
    LocatorLike,
    changed_groups,
    changed_locators,
    groups_of,
    locators_of,
)
from leasehold.discovery.registrar_search import DiscoveryNetwork, RealNetwork, RegistrarSearch
from leasehold.discovery.state import NO_GROUPS, DiscoveryEvent, EventKind

logger = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[DiscoveryEvent], object]


class Discovery:
    """Finds registrars of groups and at locators, until it is closed.

        async with Discovery(groups=["payments"], locators=["leasehold://10.0.0.1"]) as discovery:
            discovery.add_listener(print)

    `groups` are names of groups, `ALL_GROUPS` or `NO_GROUPS`; the public group is "". `locators`
    are `Locator`s, or texts such as `leasehold://HOST:PORT`. With a TLS context, such as
    `client_tls(ca)`, every registrar is called over TLS.

    It is made in a running event loop, and begins immediately. After `close`, every call raises
    RuntimeError, and no event is reported.
    """

    def __init__(
        self,
        groups: Iterable[str] | None = NO_GROUPS,
        locators: Iterable[LocatorLike] | None = (),
        *,
        tls: ssl.SSLContext | None = None,
        network: DiscoveryNetwork | None = None,
    ) -> None:
        wanted, places = groups_of(groups), locators_of(() if locators is None else locators)
        self._owner = OwnerLoop("discovery")
        self._listeners: dict[Listener, bool] = {}
        """For each, whether it asked for changed events."""
        self._undelivered: deque[tuple[Listener, DiscoveryEvent]] = deque()
        self._is_delivering = self._is_closed = False
        self._search = RegistrarSearch(
            RealNetwork(tls) if network is None else network, self._report
        )
        self._search.want_groups(wanted)
        self._search.want_locators(places)

    # Results.

    def registrars(self) -> list[Registrar]:
        """Return the registrars that are found, as a new list."""
        self._check()
        return self._search.state.registrars

    def groups(self) -> list[str] | None:
        """Return the wanted groups as a new list, sorted; None for all groups."""
        self._check()
        groups = self._search.state.groups
        return None if groups is None else sorted(groups)

    def locators(self) -> list[Locator]:
        """Return the wanted locators as a new list."""
        self._check()
        return list(self._search.state.locators)

    def discovered_locators(self) -> list[Locator]:
        """Return the wanted locators at which a registrar was found."""
        self._check()
        return [locator for locator, found in self._search.state.locators.items() if found]

    def undiscovered_locators(self) -> list[Locator]:
        """Return the wanted locators at which a registrar is still looked for."""
        self._check()
        return [locator for locator, found in self._search.state.locators.items() if not found]

    def locator_errors(self) -> dict[Locator, Exception]:
        """Return the last error at each wanted locator whose last call has failed."""
        self._check()
        return self._search.state.locator_errors

    # Wanted groups and locators.

    def add_groups(self, groups: Iterable[str]) -> None:
        """Add wanted groups. Raises `UnsupportedOperation` if all groups are wanted."""
        self._change_groups(InterestChange.ADD, groups)

    def set_groups(self, groups: Iterable[str] | None) -> None:
        """Replace the wanted groups; None for all, empty for none."""
        self._change_groups(InterestChange.SET, groups)

    def remove_groups(self, groups: Iterable[str]) -> None:
        """Remove wanted groups. Raises `UnsupportedOperation` if all groups are wanted."""
        self._change_groups(InterestChange.REMOVE, groups)

    def add_locators(self, locators: Iterable[LocatorLike]) -> None:
        """Add wanted locators. One that is wanted without TLS is replaced by one with TLS."""
        self._change_locators(InterestChange.ADD, locators)

    def set_locators(self, locators: Iterable[LocatorLike]) -> None:
        """Replace the wanted locators."""
        self._change_locators(InterestChange.SET, locators)

    def remove_locators(self, locators: Iterable[LocatorLike]) -> None:
        """Remove wanted locators."""
        self._change_locators(InterestChange.REMOVE, locators)

    def _change_groups(self, change: InterestChange, groups: Iterable[str] | None) -> None:
        self._check()
        self._search.want_groups(changed_groups(self._search.state.groups, change, groups))

    def _change_locators(self, change: InterestChange, locators: Iterable[LocatorLike]) -> None:
        self._check()
        wanted = changed_locators(self._search.state.locators, change, locators)
        self._search.want_locators(wanted)

    def discard(self, registrar: Registrar | None) -> None:
        """Drop a registrar that does not work; it is looked for again after a wait.

        None, and a registrar that is not found, are ignored.
        """
        self._check()
        if registrar is not None:
            self._search.discard(registrar.id)

    # Listeners.

    def add_listener(self, listener: Listener, *, changes: bool = False) -> None:
        """Call `listener` with each event, and now with one for everything already found.

        It is a plain function, called in the event loop. With `changes` it is also called when
        registrars that were found by group have changed their groups.
        """
        self._check()
        if listener is None:
            raise TypeError("listener must be a function, not None")
        check_plain_callback(listener, "listener")
        is_new = listener not in self._listeners
        self._listeners[listener] = changes
        if is_new and (found := self._search.state.registrars):
            self._undelivered.append((listener, DiscoveryEvent(EventKind.DISCOVERED, tuple(found))))
            self._deliver()

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener; one that was not added is ignored."""
        self._check()
        self._listeners.pop(listener, None)

    def _deliver(self) -> None:
        """Call listeners in order, also if one of them makes another change."""
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._undelivered:
                listener, event = self._undelivered.popleft()
                if listener not in self._listeners:
                    continue
                try:
                    listener(event)
                except Exception:
                    logger.exception("a listener of discovery has failed: %r", listener)
        finally:
            self._is_delivering = False

    def _report(self) -> None:
        """Deliver the events of a step."""
        self._search.state.take_touched()
        for event in self._search.state.take_events():
            self._undelivered.extend(
                (listener, event)
                for listener, wants_changes in self._listeners.items()
                if wants_changes or event.kind is not EventKind.CHANGED
            )
        self._deliver()

    def _check(self) -> None:
        if self._is_closed:
            raise RuntimeError("the Discovery was closed: create another one")
        self._owner.check()

    async def close(self) -> None:
        """End discovery. Listeners receive no further events, and none about its end."""
        if self._is_closed:
            return
        self._owner.check()
        self._is_closed = True
        self._listeners.clear()
        self._undelivered.clear()
        await self._search.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()
