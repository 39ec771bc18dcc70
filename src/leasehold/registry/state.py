"""Items of the registry, templates, and how they match. Pure.

An item has an id, types, attribute sets, an endpoint and a descriptor. Types and kinds of attribute
sets are names: the client that registers an item writes the names of all base types and base kinds
into it, and the registrar compares names. Values of fields are canonical JSON texts, so two values
are equal if their texts are: 1, 1.0 and true are different values.

An item matches a template if
- the template has no id, or the id of the item;
- the item has every type of the template, as a type or as a base of one;
- for each attribute set of the template, the item has at least one of that kind, or of a kind
  derived from it, whose fields have all values that the template has.

A change of an item, from one state to the next, is one of three transitions for a template. Each is
at most one event.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from typing import Any, Final, NamedTuple

MAX_ITEM_BYTES: Final = 256 * 1024
"""The size of an item, encoded."""

MAX_NAME: Final = 256
"""Characters in the name of a type, kind or field."""

MAX_SETS: Final = 256
"""Attribute sets of an item."""

MAX_NAMES: Final = 1_024
"""Names of types and of their bases, in an item or a template; as many of kinds and their bases."""

MAX_FIELDS: Final = 4_096
"""Fields of all attribute sets of an item."""

MAX_CONDITIONS: Final = 64
"""Types, attribute sets and fields of a template: each is compared with an item."""

MAX_UPDATES: Final = 32
"""Updates in one change of attributes."""


MAX_GROUPS: Final = 1_000
"""Groups of a registrar."""

MAX_GROUP_CHARS: Final = 256
"""Characters in the name of a group."""

MAX_SHOWN: Final = 100
"""Characters of a refused value that an error message shows."""


class Health(IntEnum):
    """The health of a service, as the process that registered it has found it."""

    PASSING = 0
    FAILING = 1
    MAINTENANCE = 2


class Transition(IntFlag):
    """How an item has changed, for a template."""

    MATCH_NOMATCH = 1
    """It matched, and does not any more."""
    NOMATCH_MATCH = 2
    """It matches now."""
    MATCH_MATCH = 4
    """It matched and still does, and has changed."""


ALL_TRANSITIONS: Final = (
    Transition.MATCH_NOMATCH | Transition.NOMATCH_MATCH | Transition.MATCH_MATCH
)


@dataclass(frozen=True, slots=True)
class ServiceType:
    """The name of a type of services, and the names of all its base types."""

    name: str
    bases: tuple[str, ...] = ()

    def is_type(self, name: str) -> bool:
        """Return whether it is a type, or is derived from it."""
        return name == self.name or name in self.bases


@dataclass(frozen=True, slots=True)
class AttributeSet:
    """Attributes of a kind: the values of its fields. Also a template of attributes.

    `fields` are pairs of a name and a canonical JSON text, sorted by name; see `attribute_set`.
    """

    kind: str
    fields: tuple[tuple[str, str], ...] = ()
    bases: tuple[str, ...] = ()

    def is_kind(self, kind: str) -> bool:
        """Return whether it is of a kind, or of one that is derived from it."""
        return kind == self.kind or kind in self.bases

    def matches(self, template: "AttributeSet") -> bool:
        """Return whether it is of the kind of a template, and has all its values."""
        return self.is_kind(template.kind) and all(map(self.fields.__contains__, template.fields))

    def updated(self, update: "AttributeSet") -> "AttributeSet":
        """Return it with the values of the fields that an update has."""
        return replace(
            self, fields=tuple(sorted({**dict(self.fields), **dict(update.fields)}.items()))
        )


def canonical(value: Any, what: str = "a value") -> str:
    """Return the canonical JSON text of a value, which error messages call `what`.

    Raises ValueError for a value that JSON does not have, None included: a field that is None has
    no value.
    """
    if value is None:
        raise ValueError(f"{what} must not be None: omit the field")
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        text.encode()  # raises for half of a surrogate pair
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be valid UTF-8, got {repr(value)[:MAX_SHOWN]}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} must be a JSON value: {error}") from None
    return text


def attribute_set(kind: str, fields: Mapping[str, Any], bases: Iterable[str] = ()) -> AttributeSet:
    """Return an attribute set; fields that are None are left out."""
    texts = {name: canonical(value) for name, value in fields.items() if value is not None}
    return AttributeSet(kind, tuple(sorted(texts.items())), tuple(bases))


@dataclass(frozen=True, slots=True)
class Descriptor:
    """How a service is used: a value of some type, encoded."""

    type: str
    encoding: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Item:
    """A service, as it is registered."""

    id: str
    types: tuple[ServiceType, ...] = ()
    attributes: tuple[AttributeSet, ...] = ()
    endpoint: str = ""
    descriptor: Descriptor | None = None
    health: Health = Health.PASSING

    @property
    def type_names(self) -> frozenset[str]:
        """The names of its types and of all their bases."""
        return frozenset(name for each in self.types for name in (each.name, *each.bases))

    @property
    def is_passing(self) -> bool:
        """Whether it is for use."""
        return self.health is Health.PASSING


@dataclass(frozen=True, slots=True)
class Template:
    """Which items are wanted. An empty one matches everything."""

    id: str = ""
    types: tuple[ServiceType, ...] = ()
    attributes: tuple[AttributeSet, ...] = ()

    def matches(self, item: Item) -> bool:
        """Return whether an item matches."""
        if self.id and self.id != item.id:
            return False
        # Loops, since a lookup may compare a million items: generators take twice as long.
        for wanted_type in self.types:
            for each_type in item.types:
                if each_type.is_type(wanted_type.name):
                    break
            else:
                return False
        for wanted in self.attributes:
            for each in item.attributes:
                if each.matches(wanted):
                    break
            else:
                return False
        return True


EVERYTHING: Final = Template()


class ItemVersion(NamedTuple):
    """An item as it is stored at some revision."""

    item: Item
    registration: str
    """Identifies the registration: a later one of the same item has another."""
    lease: int
    ttl_s: float
    """The TTL of the lease, if it was granted for this item; 0 for a lease of the client."""
    revision: int
    """When its key was written last."""
    encoded: bytes = b""
    """The item as a message, as it was read; empty if it was not read."""


def transition(
    template: Template, before: ItemVersion | None, after: ItemVersion | None
) -> Transition | None:
    """Return the transition of an item with respect to a template; None if there is no event.

    An item that is written again unchanged, such as for a new lease, has not changed.
    """
    matched = before is not None and template.matches(before.item)
    matches = after is not None and template.matches(after.item)
    if matched and matches:
        assert before is not None
        assert after is not None
        is_same = before.registration == after.registration and before.item == after.item
        return None if is_same else Transition.MATCH_MATCH
    if matched:
        return Transition.MATCH_NOMATCH
    return Transition.NOMATCH_MATCH if matches else None


# Changes of attributes.


def without_duplicates(sets: Iterable[AttributeSet]) -> tuple[AttributeSet, ...]:
    """Return attribute sets in order, each once."""
    return tuple(dict.fromkeys(sets))


def add_attributes(item: Item, sets: Iterable[AttributeSet]) -> Item:
    """Return the item with further attribute sets."""
    return replace(item, attributes=without_duplicates((*item.attributes, *sets)))


def set_attributes(item: Item, sets: Iterable[AttributeSet]) -> Item:
    """Return the item with these attribute sets in the place of its own."""
    return replace(item, attributes=without_duplicates(sets))


def modify_attributes(
    item: Item, templates: Sequence[AttributeSet], updates: Sequence[AttributeSet | None]
) -> Item:
    """Return the item with its attribute sets updated that match templates.

    All templates are compared with the sets as they were before. A set that matches several
    templates gets all their updates; if one of these is None the set is deleted.
    """
    if len(templates) != len(updates):
        raise ValueError(
            f"templates and updates must have the same length, got {len(templates)} and "
            f"{len(updates)}"
        )
    for template, update in zip(templates, updates, strict=True):
        if update is not None and not template.is_kind(update.kind):
            raise ValueError(
                f"an update of attribute sets of kind {template.kind} must be of that kind or one "
                f"of its bases, got {update.kind}"
            )
    changed: list[AttributeSet] = []
    for each in item.attributes:
        new: AttributeSet | None = each
        for template, update in zip(templates, updates, strict=True):
            if each.matches(template) and new is not None:
                new = None if update is None else new.updated(update)
        if new is not None:
            changed.append(new)
    return replace(item, attributes=without_duplicates(changed))


# Browsing: over items that match a template.


def browse_types(items: Iterable[Item], template: Template, prefix: str = "") -> list[str]:
    """Return the most specific types of items, except the types of the template and their bases.

    With a prefix: the most specific ones whose names begin with it. Sorted.
    """
    excluded = {name for each in template.types for name in (each.name, *each.bases)}
    wanted = {each.name for each in template.types}
    found: set[str] = set()
    for item in items:
        known = excluded.union(*(each.bases for each in item.types if each.name in wanted))
        names = {name for name in item.type_names - known if name.startswith(prefix)}
        bases = {base for each in item.types if each.name in names for base in each.bases}
        found |= names - bases
    return sorted(found)


def browse_kinds(items: Iterable[Item], template: Template) -> list[str]:
    """Return the kinds of the attribute sets that match none of the template's. Sorted."""
    return sorted(
        {
            each.kind
            for item in items
            for each in item.attributes
            if not any(each.matches(wanted) for wanted in template.attributes)
        }
    )


def browse_values(items: Iterable[Item], template: Template, index: int, name: str) -> list[str]:
    """Return the values of a field, in the attribute sets that match one of the template's.

    They are JSON texts, sorted. Raises IndexError if the template has no attribute set `index`, and
    AttributeError if no matching set has the field.
    """
    if not 0 <= index < len(template.attributes):
        raise IndexError(
            f"index must be below the number of attribute sets of the template, "
            f"{len(template.attributes)}, got {index}"
        )
    wanted = template.attributes[index]
    found: set[str] = set()
    sets = 0
    for item in items:
        for each in item.attributes:
            if each.matches(wanted):
                sets += 1
                found.update(text for field_name, text in each.fields if field_name == name)
    if sets and not found:
        raise AttributeError(f"no attribute set of kind {wanted.kind!r} has a field {name!r}")
    return sorted(found)


# Groups of registrars.


def check_group(name: str) -> None:
    """Raise ValueError if the name of a group is too long or cannot be encoded."""
    if len(name) > MAX_GROUP_CHARS:
        raise ValueError(
            f"name of a group must have at most {MAX_GROUP_CHARS} characters, got {len(name):,}"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"name of a group must be valid UTF-8, got {name!r}") from None


def check_groups(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of groups, each once, sorted; ValueError if one is too long or too many."""
    groups = tuple(sorted(set(names)))
    for name in groups:
        check_group(name)
    if len(groups) > MAX_GROUPS:
        raise ValueError(f"there must be at most {MAX_GROUPS:,} groups, got {len(groups):,}")
    return groups
