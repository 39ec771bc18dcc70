"""The state of one registration of the discovery service. Pure.

A registration names groups and locators of registrars. The service finds registrars for all of
its registrations together; this module decides which of them a registration has, and which events
its listener receives. A registrar that a registration has is *covered* in at least one way:

- by group: it was announced on the network, and is in a wanted group;
- by locator: it has answered at a wanted locator. This is recorded, and holds until the locator is
  not wanted any more, or another registrar has answered there.

| change | event |
|---|---|
| it is covered, and was not | discovered, unless it waits after a discard |
| it loses its last cover: an interest was withdrawn, or it left the wanted groups | discarded |
| it is not announced any more, and does not answer: it is *lost* | discarded if it was covered by
  group, also if a locator covers it; it is discovered again when it answers at that |
| the client discards it | discarded; it waits, as `discard_waits` says |

A registrar that is covered by locator only is never lost. After a discard it has to answer a call
that was made after the wait. So has a registrar that another registration has discarded: the
service passes the waits of all registrations as `service_waits`.

Times are seconds.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from leasehold.basics.durations import NEVER
from leasehold.discovery.announced import Registrar
from leasehold.discovery.discard_waits import DiscardWaits
from leasehold.discovery.state import (
    DISCARDED_GROUP_S,
    DISCARDED_LOCATOR_S,
    UNANSWERED,
    EventKind,
    Groups,
)

L = TypeVar("L", bound=Hashable)
"""A locator."""


class Cover(NamedTuple, Generic[L]):
    """The ways in which a registration has a registrar."""

    by_group: bool
    locators: frozenset[L]


@dataclass(frozen=True, slots=True)
class ReachableRegistrar(Generic[L]):
    """A registrar that the service finds now."""

    registrar: Registrar
    by_group: bool
    """Whether it was announced."""
    locators: frozenset[L]
    """The locators at which it answers."""
    answered_at: float
    """When the last call that it has answered was made."""


BY_GROUP: Final[Cover[Any]] = Cover(by_group=True, locators=frozenset())
"""The most frequent cover: registrations share it."""


class RegistrationState(Generic[L]):
    """The interests of a registration, and the registrars that it has.

    A change is made on a copy, which replaces the registration once it is stored.
    """

    __slots__ = ("found", "groups", "locators", "waits")

    def __init__(self, groups: Groups, locators: Iterable[L]) -> None:
        self.groups = groups
        self.locators = tuple(locators)
        self.found: dict[str, Cover[L]] = {}
        """The registrars that it has, by id, in the order in which they were found."""
        self.waits = DiscardWaits()

    def copy(self) -> "RegistrationState[L]":
        """Return a copy to make changes on."""
        made = RegistrationState(self.groups, self.locators)
        made.found = dict(self.found)
        made.waits.discarded = dict(self.waits.discarded)
        made.waits.returned = dict(self.waits.returned)
        return made

    def wants(self, registrar: Registrar) -> bool:
        """Return whether a registrar is in a wanted group."""
        return self.groups is None or not self.groups.isdisjoint(registrar.groups)

    def examine(
        self,
        registrar: str,
        reached: ReachableRegistrar[L] | None,
        taken: Iterable[L],
        service_waits: DiscardWaits,
        now: float,
    ) -> EventKind | None:
        """Compare a registrar with the interests; return the kind of event that results.

        `reached` is None if the service does not find it. `taken` are locators at which other
        registrars answer.
        """
        before = self.found.get(registrar)
        cover = self._cover(reached)
        if before is None:
            if reached is None or reached.answered_at == UNANSWERED:
                return None
            if reached.answered_at < self._check_at(registrar, cover, service_waits):
                return None
            self.found[registrar] = cover
            self.waits.found(registrar, now)
            return EventKind.DISCOVERED
        if before.by_group and self._is_lost(reached):
            del self.found[registrar]
            return EventKind.DISCARDED
        kept = before.locators.intersection(self.locators).difference(taken)
        cover = Cover(cover.by_group, cover.locators | kept)
        if not cover.by_group and not cover.locators:
            del self.found[registrar]
            return EventKind.DISCARDED
        if cover != before:
            self.found[registrar] = cover
        return None

    def _is_lost(self, reached: ReachableRegistrar[L] | None) -> bool:
        """Return whether a registrar that was covered by group is not announced any more.

        One that left the wanted groups is not lost: a locator may cover it.
        """
        return reached is None or (not reached.by_group and self.wants(reached.registrar))

    def _cover(self, reached: ReachableRegistrar[L] | None) -> Cover[L]:
        if reached is None:
            return Cover(by_group=False, locators=frozenset())
        by_group = reached.by_group and self.wants(reached.registrar)
        if by_group and not reached.locators:
            return BY_GROUP
        return Cover(by_group, reached.locators.intersection(self.locators))

    def is_current(self, registrar: str, reached: ReachableRegistrar[L] | None) -> bool:
        """Return whether a registrar that it has is still covered in the same ways."""
        return self._cover(reached) == self.found[registrar]

    def check_at(
        self, registrar: str, reached: ReachableRegistrar[L], service_waits: DiscardWaits
    ) -> float:
        """Return the earliest time of a call whose answer makes a registrar discovered.

        It may have passed. `NEVER` if the registrar is not wanted.
        """
        return self._check_at(registrar, self._cover(reached), service_waits)

    def _check_at(self, registrar: str, cover: Cover[L], service_waits: DiscardWaits) -> float:
        waits = (self.waits, service_waits)
        if cover.by_group and not any(registrar in each.discarded for each in waits):
            return UNANSWERED  # as for nearly all
        times = []
        if cover.by_group:
            times.append(max(each.end(registrar, DISCARDED_GROUP_S) for each in waits))
        if cover.locators:
            times.append(max(each.end(registrar, DISCARDED_LOCATOR_S) for each in waits))
        return min(times, default=NEVER)

    def discard(self, registrar: str, now: float) -> bool:
        """Drop a registrar, by its client; return False if the registration does not have it."""
        if self.found.pop(registrar, None) is None:
            return False
        self.waits.discard(registrar, now)
        return True
