"""Searches of discovery, each of which leads to calls, one at a time. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from leasehold.basics.durations import NEVER


@dataclass(slots=True, eq=False)
class Search:
    """Calls, one at a time, until there is an answer."""

    next_at: float = NEVER
    """When the next call is due."""
    attempts: int = 0
    """Calls that have failed, one after the other."""
    calling: int = 0
    """The number of the call whose result is awaited; 0 if there is none."""
    under_way: int = 0
    """The number of the call that has not ended, also if its result has no effect any more."""
    check_at: float = NEVER
    """When it is called even though a registrar is found: see `DiscoveryState.check_at`."""
    is_checking: bool = False
    """Whether the awaited call is such a check."""

    @property
    def due_at(self) -> float:
        """When the next call is due, for whatever reason."""
        return min(self.next_at, self.check_at)


@dataclass(slots=True, eq=False)
class LocatorSearch(Search):
    """The search at a wanted locator."""

    endpoint: str = ""
    registrar: str = ""
    """The id of the registrar that has answered; empty while there is none."""
    error: Exception | None = None
    """Why the last call has failed."""


class Call(NamedTuple):
    """A call to make; its result is passed to `answered` or `failed`."""

    search: Search
    number: int
    endpoints: tuple[str, ...]
    """One of these has to answer."""
    registrar: str
    """The id that must answer; empty for any."""
    at: float
    is_check: bool
    """Whether it is made for `check_at`."""
