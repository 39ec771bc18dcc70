"""Groups of registrars, and locators, the addresses of registrars.

A group is a name; the public group has the empty name. `ALL_GROUPS` stands for every group, and
also finds registrars that are in none.

A locator is a value: no name is resolved before discovery.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from leasehold.basics.addresses import EXAMPLE_PORT, MAX_PORT, TcpAddress, parse_address
from leasehold.basics.endpoint_list import EndpointList, normal_endpoint
from leasehold.discovery.state import ALL_GROUPS, Groups
from leasehold.errors import PermissionDenied, UnsupportedOperation
from leasehold.registry.state import check_group

_SCHEMES: Final = {"leasehold": False, "leaseholds": True}
_FORM: Final = (
    "write leasehold://HOST or leasehold://HOST:PORT, with leaseholds:// for TLS, such as "
    f"leasehold://10.0.0.1:{EXAMPLE_PORT}"
)


@dataclass(frozen=True, slots=True)
class Locator:
    """The address of a registrar. Two are equal if their hosts, in lower case, and ports are.

    TLS makes no difference, so a registrar is wanted either with it or without.
    """

    host: str
    port: int = EXAMPLE_PORT
    is_tls: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.host, str):
            raise TypeError(f"host of a locator must be a str, not {self.host!r}")
        if type(self.port) is not int:
            raise TypeError(f"port of a locator must be an int, not {self.port!r}")
        if not 1 <= self.port <= MAX_PORT:
            raise ValueError(f"port of a locator must be from 1 to {MAX_PORT}, got {self.port}")
        TcpAddress(self.host, self.port)  # raises ValueError for a host that is not one
        object.__setattr__(self, "host", self.host.lower())

    @classmethod
    def parse(cls, text: str) -> "Locator":
        """Parse `leasehold://HOST[:PORT]`. Raises ValueError for any other text."""
        if not isinstance(text, str):
            raise TypeError(f"locator must be a str such as 'leasehold://10.0.0.1', not {text!r}")
        scheme, separator, rest = text.partition("://")
        if not separator or scheme.lower() not in _SCHEMES or "/" in rest:
            raise ValueError(f"{text!r} is not a locator: {_FORM}")
        try:
            address = parse_address(f"http://{rest}", EXAMPLE_PORT)
            assert isinstance(address, TcpAddress)
            return cls(address.host, address.port, _SCHEMES[scheme.lower()])
        except ValueError:
            raise ValueError(f"{text!r} is not a locator: {_FORM}") from None

    @property
    def endpoint(self) -> str:
        """The address to connect to; without `https://`, TLS is used if the client has a CA."""
        return str(TcpAddress(self.host, self.port, is_tls=self.is_tls or None))

    def __str__(self) -> str:
        scheme = "leaseholds" if self.is_tls else "leasehold"
        return f"{scheme}://{TcpAddress(self.host, self.port)}"


LocatorLike: TypeAlias = Locator | str


def groups_of(groups: Iterable[str] | None) -> Groups:
    """Return names of groups, each once, or `ALL_GROUPS`. TypeError: one is not a str."""
    return ALL_GROUPS if groups is None else names_of(groups)


def names_of(groups: Iterable[str] | None) -> frozenset[str]:
    """Return names of groups, each once. TypeError: it is None, or one of them is not a str."""
    names = _listed(groups, "groups", "str")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"name of a group must be a str, not {name!r}")
        check_group(name)
    return frozenset(names)


def locators_of(locators: Iterable[LocatorLike]) -> tuple[Locator, ...]:
    """Return locators in order, each once; of equal ones, one with TLS.

    TypeError: it is None, or one of them is not a locator.
    """
    found: dict[Locator, Locator] = {}
    for each in _listed(locators, "locators", "Locator"):
        locator = each if isinstance(each, Locator) else Locator.parse(each)
        if locator.is_tls or locator not in found:
            found[locator] = locator
    return tuple(found.values())


def check_allowed(allowed: EndpointList, locator: Locator) -> None:
    """Raise `PermissionDenied` for a locator that the operator of a server does not allow."""
    if not allowed.allows(normal_endpoint(str(TcpAddress(locator.host, locator.port)))):
        raise PermissionDenied(
            f"locator {locator} is not allowed: the operator of the server allows it with "
            "--discover-at"
        )


# Changes of what is wanted.


class InterestChange(Enum):
    """How wanted groups or locators are changed."""

    ADD = "added to"
    SET = "set to"
    REMOVE = "removed from"


def changed_groups(groups: Groups, change: InterestChange, given: Iterable[str] | None) -> Groups:
    """Return wanted groups after a change; duplicates and unknown names are ignored.

    TypeError: None is given to add or remove. `UnsupportedOperation`: all groups are wanted, so
    none can be added or removed.
    """
    if change is InterestChange.SET:
        return groups_of(given)
    names = names_of(given)
    if groups is None:
        raise UnsupportedOperation(
            f"groups cannot be {change.value} all groups: set the names of the wanted groups"
        )
    return groups | names if change is InterestChange.ADD else groups - names


def changed_locators(
    locators: Iterable[Locator], change: InterestChange, given: Iterable[LocatorLike]
) -> tuple[Locator, ...]:
    """Return wanted locators after a change. TypeError: None is given, or not a locator."""
    wanted = locators_of(given)
    match change:
        case InterestChange.ADD:
            return locators_of((*locators, *wanted))
        case InterestChange.REMOVE:
            return tuple(each for each in locators if each not in wanted)
    return wanted


def _listed(given: Iterable[Any] | None, what: str, kind: str) -> list[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{what} must be a collection of {kind}, such as a list, not {given!r}")
    return list(given)
