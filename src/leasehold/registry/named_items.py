"""Services by name: their items, and how one of several is picked. Pure.

A service is an item with its name as type, the descriptor `leasehold.Service`, an attribute set of
the kind `leasehold.Tag` for each tag, and one of the kind `leasehold.Metadata`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from leasehold.registry.codecs import register_type, service_item, service_template
from leasehold.registry.state import (
    AttributeSet,
    Health,
    Item,
    Template,
    Transition,
    attribute_set,
    canonical,
)

TAG: Final = "leasehold.Tag"
METADATA: Final = "leasehold.Metadata"

MAX_FAILURES: Final = 1_000
"""Services with a name whose failures are remembered; the earliest is forgotten first."""

Strategy: TypeAlias = Literal["round_robin", "random", "least_recently_failed"]


@register_type(name="leasehold.Service")
@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The descriptor of a service: two registrations with the same one are one item."""

    name: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class Service:
    """A service that was found."""

    id: str
    name: str
    endpoint: str
    tags: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)


class ServiceChangeKind(Enum):
    """The kind of a change of a service."""

    JOINED = "joined"
    CHANGED = "changed"
    LEFT = "left"


class ServiceChange(NamedTuple):
    """A service has joined, changed or left."""

    kind: ServiceChangeKind
    service: Service
    """As it is now; one that has left, as it was."""


CHANGE_KINDS: Final = {
    Transition.NOMATCH_MATCH: ServiceChangeKind.JOINED,
    Transition.MATCH_MATCH: ServiceChangeKind.CHANGED,
    Transition.MATCH_NOMATCH: ServiceChangeKind.LEFT,
}


def named_item(
    name: str,
    endpoint: str,
    tags: Iterable[str] = (),
    metadata: Mapping[str, Any] | None = None,
    health: Health = Health.PASSING,
) -> Item:
    """Return the item of a service. Raises TypeError or ValueError if an argument is not valid."""
    if not all(isinstance(each, str) for each in (name, endpoint)):
        raise TypeError(f"name and endpoint must be str, not {name!r} and {endpoint!r}")
    if not endpoint:
        raise ValueError(
            "endpoint must not be empty: give the address of the service, such as 10.0.0.1:8080"
        )
    is_one = isinstance(tags, str) or not isinstance(tags, Iterable)
    each_tag = [] if is_one else list(tags)
    if is_one or not all(isinstance(tag, str) for tag in each_tag):
        raise TypeError(f"tags must be a sequence of str, not {tags!r}")
    sets = [attribute_set(TAG, {"tag": tag}) for tag in each_tag]
    if metadata is not None:
        sets += _metadata_sets(metadata)
    return service_item(
        ServiceAddress(name, endpoint),
        types=[name],
        attributes=sets,
        endpoint=endpoint,
        health=health,
    )


def _metadata_sets(metadata: Mapping[str, Any]) -> list[AttributeSet]:
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping of names, not {metadata!r}")
    for name, value in metadata.items():
        if not isinstance(name, str):
            raise TypeError(f"metadata must have names of type str, not {name!r}")
        if value is not None:
            canonical(value, f"metadata {name!r}")  # raises
    return [attribute_set(METADATA, metadata)] if metadata else []


def named_template(name: str, tag: str | None = None) -> Template:
    """Return the template of the services with a name, and with a tag if one is given."""
    if not all(isinstance(each, str) for each in (name, tag or "")):
        raise TypeError(f"name and tag must be str, not {name!r} and {tag!r}")
    sets = [] if tag is None else [attribute_set(TAG, {"tag": tag})]
    return service_template(types=[name], attributes=sets)


def service_of(item: Item, name: str) -> Service:
    """Return the service that an item is, as one with a name."""
    tags: set[str] = set()
    metadata: dict[str, Any] = {}
    for each in item.attributes:
        values = {key: json.loads(text) for key, text in each.fields}
        if each.kind == METADATA:
            metadata |= values
        elif each.kind == TAG and isinstance(values.get("tag"), str):
            tags.add(values["tag"])
    shown = MappingProxyType(metadata)
    return Service(item.id, name, item.endpoint, frozenset(tags), shown)


class Picker:
    """Chooses one service of several, by earlier choices and failures. Pure."""

    def __init__(self, failures: Iterable[str] = ()) -> None:
        """`failures` are the ids of services that have failed before, the latest one last."""
        self._last = ""
        self._failures: dict[str, int] = {}
        """The services that have failed, the latest one last, by a number that rises."""
        self._count = 0
        for each in failures:
            self.failed(each)

    @property
    def failures(self) -> Iterable[str]:
        """The ids of the services that have failed, the latest one last."""
        return self._failures

    def failed(self, service_id: str) -> None:
        """Record that a service has failed."""
        self._count += 1
        self._failures.pop(service_id, None)
        self._failures[service_id] = self._count
        if len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]

    def choose(self, services: Sequence[Service], strategy: Strategy) -> Service | None:
        """Return the next one of the services, or None if there is none."""
        present = {each.id for each in services}
        self._failures = {key: at for key, at in self._failures.items() if key in present}
        if not services:
            return None
        if strategy == "least_recently_failed":
            first = min(self._failures.get(each.id, 0) for each in services)
            services = [each for each in services if self._failures.get(each.id, 0) == first]
        chosen = self._next(services)
        self._last = chosen.id
        return chosen

    def _next(self, services: Sequence[Service]) -> Service:
        ordered = sorted(services, key=lambda each: each.id)
        return next((each for each in ordered if each.id > self._last), ordered[0])


def check_service(service: Service) -> None:
    """Raise TypeError if it is not a service, such as its endpoint."""
    if not isinstance(service, Service):
        raise TypeError(f"service must be a Service, as `pick` returns it, not {service!r}")


def check_strategy(strategy: str) -> None:
    """Raise ValueError if a strategy is not known."""
    if strategy not in get_args(Strategy):
        names = ", ".join(get_args(Strategy))
        raise ValueError(f"strategy must be one of {names}, got {strategy!r}")
