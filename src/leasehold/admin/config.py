"""The configuration of a service of a server: its rules, and its key.

A service joins the registrars of groups and at locators (`server.joining`), has attributes, and
bounds the terms of the leases that it grants. The attributes are in the key of the service's item,
the rest is in the key `leasehold/admin/<service>`. There are no keys before the first change.

The rules for groups and locators are those of `Discovery`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from leasehold.basics.durations import (
    FOREVER,
    WIRE_FOREVER_MS,
    Duration,
    DurationLike,
    check_duration,
    to_wire_ms,
)
from leasehold.discovery.discovery_messages import groups_in, groups_message
from leasehold.discovery.locators import (
    InterestChange,
    Locator,
    LocatorLike,
    changed_groups,
    changed_locators,
    locators_of,
)
from leasehold.discovery.state import ALL_GROUPS, NO_GROUPS, Groups
from leasehold.engine.interface import Engine
from leasehold.leases.policies import MAX_TERM_MS
from leasehold.registry.messages import sets_of
from leasehold.registry.own_services import SERVICES
from leasehold.registry.state import MAX_GROUPS, AttributeSet, without_duplicates
from leasehold.services.shared_value import SharedValue
from leasehold.wire import admin_pb2 as pb

ADMIN: Final = b"leasehold/admin/"
"""The prefix of the keys; the rest is the name of the service."""

MAX_LOCATORS: Final = 1_000
"""Locators that a service joins; as many groups (`MAX_GROUPS`)."""

MIN_BOUND_S: Final = 1
"""The lowest bound of leases: the shortest term that etcd has."""

MAX_BOUND_S: Final = MAX_TERM_MS // 1000

Request: TypeAlias = pb.ChangeServiceRequest

_CHANGES: Final = {
    Request.ADD: InterestChange.ADD,
    Request.SET: InterestChange.SET,
    Request.REMOVE: InterestChange.REMOVE,
}

Attributes: TypeAlias = tuple[AttributeSet, ...]


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The configuration of a service, except its attributes."""

    groups: Groups = NO_GROUPS
    locators: tuple[Locator, ...] = ()
    lease_bound: Duration | None = None
    """The longest term of its leases; None for that of the server's settings."""

    @property
    def is_joining(self) -> bool:
        """Whether it joins any registrar."""
        return self.groups != NO_GROUPS or bool(self.locators)


def config_of(engine: Engine, service: str) -> SharedValue[ServiceConfig]:
    """Return the configuration of a service, in its key."""
    key = ADMIN + service.encode()
    return SharedValue(engine, key, ServiceConfig(), decode=_decoded, encode=_encoded)


def check_service(service: str) -> str:
    """Return the name of a service. ValueError: there is none with this name."""
    if service not in SERVICES:
        names = ", ".join(SERVICES)
        raise ValueError(f"unknown service {service[:64]!r}: the services are {names}")
    return service


# Changes.


def config_change(request: Request) -> Callable[[ServiceConfig], ServiceConfig]:
    """Return the change of a request, which is applied to the latest state.

    Raises ValueError if the request is not valid. The change raises `UnsupportedOperation` if
    groups are added to all groups, or removed from them, and ValueError if there are too many.
    """
    change = _checked_change(request)
    match request.WhichOneof("part"):
        case "groups":
            given = groups_in(request.groups)
            if given is ALL_GROUPS and change is not InterestChange.SET:
                raise ValueError("all groups can only be set, neither added nor removed")
            return lambda config: replace(config, groups=_groups(config.groups, change, given))
        case "locators":
            locators = locators_of(request.locators.locators)
            return lambda config: replace(
                config, locators=_locators(config.locators, change, locators)
            )
        case "lease_bound_ms":
            bound = _bound_of(request.lease_bound_ms)
            return lambda config: replace(config, lease_bound=bound)
        case _:
            raise ValueError("part must be given: groups, locators, attributes or lease_bound_ms")


def attributes_change(request: Request) -> Callable[[Attributes], Attributes]:
    """Return the change of attributes of a request, which is applied to the latest state."""
    given = sets_of(request.attributes.sets)
    match _checked_change(request):
        case InterestChange.ADD:
            return lambda current: without_duplicates((*current, *given))
        case InterestChange.REMOVE:
            return lambda current: tuple(
                each for each in current if not any(map(each.matches, given))
            )
    return lambda _: without_duplicates(given)


def _checked_change(request: Request) -> InterestChange:
    if request.operation not in _CHANGES:
        raise ValueError(f"operation must be ADD, SET or REMOVE, got {request.operation}")
    return _CHANGES[request.operation]


def _groups(current: Groups, change: InterestChange, given: Groups) -> Groups:
    changed = changed_groups(current, change, given)
    _check_count(() if changed is ALL_GROUPS else changed, MAX_GROUPS, "groups")
    return changed


def _locators(
    current: tuple[Locator, ...], change: InterestChange, given: tuple[Locator, ...]
) -> tuple[Locator, ...]:
    changed = changed_locators(current, change, given)
    _check_count(changed, MAX_LOCATORS, "locators")
    return changed


def _check_count(given: Iterable[object], most: int, what: str) -> None:
    count = len(list(given))
    if count > most:
        raise ValueError(f"a service joins at most {most:,} {what}, got {count:,}")


def check_bound(bound: DurationLike | None) -> Duration | None:
    """Return a bound of leases. ValueError: it is too low or too high."""
    checked = None if bound is None else check_duration(bound, "bound of leases")
    if checked is None or checked is FOREVER or MIN_BOUND_S <= checked <= MAX_BOUND_S:
        return checked
    raise ValueError(
        f"bound of leases must be from {MIN_BOUND_S:,} to {MAX_BOUND_S:,} s, or FOREVER, "
        f"got {checked:,g} s"
    )


# Messages.


def locator_texts(locators: Iterable[LocatorLike]) -> list[str]:
    """Return locators as texts, each once. TypeError, ValueError: one of them is not a locator."""
    return [str(locator) for locator in locators_of(locators)]


def bound_ms(bound: DurationLike | None) -> int:
    """Return a bound of leases in milliseconds; 0 for None."""
    checked = check_bound(bound)
    return 0 if checked is None else to_wire_ms(checked)


def _bound_of(bound_ms: int) -> Duration | None:
    if bound_ms == 0:
        return None
    return FOREVER if bound_ms == WIRE_FOREVER_MS else check_bound(bound_ms / 1000)


def _encoded(config: ServiceConfig) -> bytes:
    return pb.StoredServiceConfig(
        groups=groups_message(config.groups),
        locators=locator_texts(config.locators),
        lease_bound_ms=bound_ms(config.lease_bound),
    ).SerializeToString()


def _decoded(value: bytes) -> ServiceConfig:
    stored = pb.StoredServiceConfig.FromString(value)
    return ServiceConfig(
        groups_in(stored.groups),
        locators_of(stored.locators),
        _bound_of(stored.lease_bound_ms),
    )
