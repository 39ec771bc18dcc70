"""Which interests the discovery service of a server accepts, in all of its registrations together.

An interest is counted before it is stored, so that calls that are executed at the same time cannot
exceed a limit together. A counted interest is accepted again: a change that adds nothing new is
not refused, even if there is more than the limits allow, such as after a take-over.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from leasehold.basics.endpoint_list import EVERYTHING, EndpointList
from leasehold.discovery.live_registration import Interests, StoredListener, stored_value
from leasehold.discovery.locators import Locator, check_allowed
from leasehold.discovery.state import ALL_GROUPS, Groups
from leasehold.errors import CallRefused, TooBusy

MAX_INTERESTS_BYTES: Final = 512 * 1024
"""Groups, locators and handback of a registration: its key also has events and registrars."""


@dataclass(frozen=True, slots=True)
class DiscoveryLimits:
    """The limits of the service."""

    registrations: int = 10_000
    handback_bytes: int = 64 * 1024
    groups: int = 1_000
    """Groups of one registration."""
    registration_locators: int = 100
    """Locators of one registration."""
    locators: int = 1_000
    """Different locators of all registrations of a server."""
    interests_bytes: int = 256 * 1024**2
    """Groups, locators and handbacks of all registrations of a server."""
    locators_allowed: EndpointList = EndpointList([EVERYTHING])  # noqa: RUF009  it is not changed


DEFAULT_LIMITS: Final = DiscoveryLimits()


class InterestAdmission:
    """The interests of all registrations of a server.

    `check_groups` raises ImportError if groups cannot be searched for.
    """

    def __init__(self, limits: DiscoveryLimits, check_groups: Callable[[Groups], object]) -> None:
        self.limits = limits
        self._check_groups = check_groups
        self._locators: Counter[Locator] = Counter()
        self._bytes = 0

    def add(self, listener: StoredListener, interests: Interests) -> None:
        """Count the interests of a registration that is stored."""
        self._locators.update(interests.locators)
        self._bytes += _size_bytes(listener, interests)

    def remove(self, listener: StoredListener, interests: Interests) -> None:
        """Undo `add`."""
        self._locators.subtract(interests.locators)
        for locator in interests.locators:
            if not self._locators[locator]:
                del self._locators[locator]
        self._bytes -= _size_bytes(listener, interests)

    @contextmanager
    def admitted(
        self, listener: StoredListener, interests: Interests, before: Interests | None = None
    ) -> Iterator[None]:
        """Count interests, in the place of those `before`; undo that if the block fails.

        Raises ValueError, `PermissionDenied`, `CallRefused` or `TooBusy` if they are refused.
        """
        self._check(listener, interests, before)
        self.add(listener, interests)
        try:
            yield
        except BaseException:
            self.remove(listener, interests)
            raise
        if before is not None:
            self.remove(listener, before)

    def _check(
        self, listener: StoredListener, interests: Interests, before: Interests | None
    ) -> None:
        limits, groups, locators = self.limits, interests.groups, interests.locators
        if len(listener.handback) > limits.handback_bytes:
            raise ValueError(
                f"handback must have at most {limits.handback_bytes:,} bytes, "
                f"got {len(listener.handback):,}"
            )
        if groups is not ALL_GROUPS and len(groups) > limits.groups:
            raise ValueError(f"there must be at most {limits.groups:,} groups, got {len(groups):,}")
        if len(locators) > limits.registration_locators:
            raise ValueError(
                f"there must be at most {limits.registration_locators:,} locators, got "
                f"{len(locators):,}"
            )
        size_bytes = _size_bytes(listener, interests)
        if size_bytes > MAX_INTERESTS_BYTES:
            raise ValueError(
                f"groups, locators and handback must have at most {MAX_INTERESTS_BYTES:,} bytes "
                f"together, got {size_bytes:,}"
            )
        added_bytes = size_bytes - (0 if before is None else _size_bytes(listener, before))
        if added_bytes > 0 and self._bytes + added_bytes > limits.interests_bytes:
            raise TooBusy(
                f"all registrations of the discovery service have {self._bytes:,} bytes of groups, "
                f"locators and handbacks; at most {limits.interests_bytes:,} are allowed"
            )
        for locator in locators:
            check_allowed(limits.locators_allowed, locator)
        new = sum(locator not in self._locators for locator in locators)
        if new and len(self._locators) + new > limits.locators:
            raise TooBusy(
                f"all registrations of the discovery service have {len(self._locators):,} "
                f"locators; at most {limits.locators:,} are allowed"
            )
        try:
            self._check_groups(groups)
        except ImportError as error:
            raise CallRefused(f"the server cannot find registrars by group: {error}") from None


def _size_bytes(listener: StoredListener, interests: Interests) -> int:
    alone = Interests(interests.groups, interests.locators)
    return len(stored_value(listener, alone, 0, (), 0.0))
