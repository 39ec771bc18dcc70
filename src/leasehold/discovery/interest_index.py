"""An index of registrations: which of them a change of a registrar concerns.

They are kept in the order in which they were added, so that a simulation can be repeated.
"""

from leasehold.discovery.live_registration import LiveRegistration
from leasehold.discovery.locators import Locator
from leasehold.discovery.registration import ReachableRegistrar
from leasehold.discovery.state import ALL_GROUPS


class InterestIndex:
    """The registrations of a server, by their interests and by the registrars that they have."""

    def __init__(self) -> None:
        self._by_group: dict[str | None, dict[LiveRegistration, None]] = {}
        """By name of a wanted group; None for those that want all groups."""
        self._by_locator: dict[Locator, dict[LiveRegistration, None]] = {}
        self._using: dict[str, dict[LiveRegistration, None]] = {}
        """By the id of a registrar that they have."""

    @property
    def registrars(self) -> int:
        """How many registrars the registrations have."""
        return len(self._using)

    def is_used(self, registrar: str) -> bool:
        """Return whether any registration has a registrar."""
        return registrar in self._using

    def registrations_with(self, registrar: str) -> list[LiveRegistration]:
        """Return the registrations that have a registrar."""
        return list(self._using.get(registrar, ()))

    def concerned(
        self, registrar: str, reached: ReachableRegistrar[Locator] | None
    ) -> list[LiveRegistration]:
        """Return the registrations that have a registrar, or may want it as it is found."""
        concerned = dict(self._using.get(registrar, {}))
        if reached is not None:
            if reached.by_group:
                for name in (None, *reached.registrar.groups):
                    concerned |= self._by_group.get(name, {})
            for locator in reached.locators:
                concerned |= self._by_locator.get(locator, {})
        return list(concerned)

    def add_interests(self, live: LiveRegistration) -> None:
        """Add a registration by its wanted groups and locators."""
        groups, locators = live.interests.groups, live.interests.locators
        for name in (None,) if groups is ALL_GROUPS else groups:
            self._by_group.setdefault(name, {})[live] = None
        for locator in locators:
            self._by_locator.setdefault(locator, {})[live] = None

    def remove_interests(self, live: LiveRegistration) -> None:
        """Undo `add_interests`, before they change."""
        groups, locators = live.interests.groups, live.interests.locators
        for name in (None,) if groups is ALL_GROUPS else groups:
            self._by_group[name].pop(live, None)
            if not self._by_group[name]:
                del self._by_group[name]
        for locator in locators:
            self._by_locator[locator].pop(live, None)
            if not self._by_locator[locator]:
                del self._by_locator[locator]

    def add_registrar(self, live: LiveRegistration, registrar: str) -> None:
        """Record that a registration has a registrar."""
        self._using.setdefault(registrar, {})[live] = None

    def remove_registrar(self, live: LiveRegistration, registrar: str) -> bool:
        """Undo `add_registrar`; return whether no other registration has the registrar."""
        using = self._using.get(registrar, {})
        using.pop(live, None)
        return not using and self._using.pop(registrar, None) is not None
