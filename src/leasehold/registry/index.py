"""The items of a registry, and the templates that wait for them, indexed. Pure.

`ItemIndex` has the items as of a revision. For each type, each kind of attribute sets (bases
included) and each value of a field it has the ids of the items with it. Each condition of a
template names one of these sets of ids, and every match is in all of them: the smallest one is
searched. So a search costs what its most selective condition leaves, not what the registry has.

An item adds at most one id for each name and value that it contains, so its cost is bounded by its
size. That is why the values of fields are indexed without their kind: with it, each value would
count once for every base of its kind.

`TemplateIndex` is the opposite: a template waits under one of its conditions, and a change of an
item concerns the templates under the conditions that the item meets, before or after.
"""

from collections.abc import Collection, Hashable, Iterator
from typing import Generic, TypeAlias, TypeVar

from leasehold.registry.state import Descriptor, Item, ItemVersion, Template

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

Pair: TypeAlias = tuple[str, str]
"""The name of a field, and its value."""


class _Postings(Generic[K]):
    """The ids under each key. A single id is stored without a set: most values are of one item."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[K, str | set[str]] = {}

    def move(self, item_id: str, old: frozenset[K], new: frozenset[K]) -> None:
        """Take an id from the keys that it had, and put it under others."""
        for key in new - old:
            found = self._ids.get(key)
            if found is None:
                self._ids[key] = item_id
            elif isinstance(found, str):
                self._ids[key] = {found, item_id}
            else:
                found.add(item_id)
        for key in old - new:
            found = self._ids[key]
            if isinstance(found, str):
                del self._ids[key]
            else:
                found.remove(item_id)
                if len(found) == 1:
                    self._ids[key] = found.pop()

    def get(self, key: K) -> Collection[str]:
        found = self._ids.get(key, ())
        return (found,) if isinstance(found, str) else found


class ItemIndex:
    """The items of a registry, as of a revision."""

    __slots__ = (
        "_descriptors",
        "_kinds",
        "_pairs",
        "_types",
        "_versions",
        "last_change",
        "revision",
    )

    def __init__(self) -> None:
        self.revision = 0
        """Every change up to this revision is included."""
        self.last_change = 0
        """The revision of the last change."""
        self._versions: dict[str, ItemVersion] = {}
        self._types: _Postings[str] = _Postings()
        self._kinds: _Postings[str] = _Postings()
        self._pairs: _Postings[Pair] = _Postings()
        self._descriptors: _Postings[Descriptor] = _Postings()

    def __len__(self) -> int:
        """The number of items."""
        return len(self._versions)

    def advance(self, revision: int) -> None:
        """Record that every change up to a revision is included. An earlier one has no effect."""
        self.revision = max(self.revision, revision)

    def apply(
        self, item_id: str, version: ItemVersion | None, revision: int
    ) -> tuple[ItemVersion | None, ItemVersion | None]:
        """Put a version of an item in the place of the one before; None if the item is gone.

        Return the version before, and this one. The caller calls `advance` when it has applied
        all changes of the revision. Raises ValueError if the version is of another item.
        """
        if version is not None and version.item.id != item_id:
            raise ValueError(f"a version of item {item_id!r} was expected, got {version.item.id!r}")
        before = self._versions.get(item_id)
        if before is None and version is None:
            return None, None
        self.last_change = revision
        if version is None:
            del self._versions[item_id]
        else:
            item_id = version.item.id  # this text is kept anyway; `item_id` would be a copy
            self._versions[item_id] = version
        old = before.item if before else None
        new = version.item if version else None
        if old != new:
            self._types.move(item_id, _types(old), _types(new))
            self._kinds.move(item_id, _kinds(old), _kinds(new))
            self._pairs.move(item_id, _pairs(old), _pairs(new))
            self._descriptors.move(item_id, _descriptors(old), _descriptors(new))
        return before, version

    def get(self, item_id: str) -> ItemVersion | None:
        """Return an item, or None."""
        return self._versions.get(item_id)

    def by_descriptor(self, descriptor: Descriptor) -> str | None:
        """Return the id of the item with a descriptor, the smallest if there are several."""
        return min(self._descriptors.get(descriptor), default=None)

    def matching(self, template: Template) -> list[ItemVersion]:
        """Return the items that match a template, in no particular order."""
        sets = [self._types.get(wanted.name) for wanted in template.types]
        if template.id:
            sets.append((template.id,) if template.id in self._versions else ())
        for attributes in template.attributes:
            sets.append(self._kinds.get(attributes.kind))
            sets.extend(self._pairs.get(pair) for pair in attributes.fields)
        candidates = min(sets, key=len, default=self._versions)
        found = [self._versions[item_id] for item_id in candidates]
        if len(sets) <= 1:  # there is no further condition
            return found
        return [version for version in found if template.matches(version.item)]


class TemplateIndex(Generic[V]):
    """Values with templates, such as registrations for events. Each value has one template."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        # The inner dictionaries are sets that keep the order in which values were added.
        self._values: dict[_Condition, dict[V, None]] = {}

    def add(self, template: Template, value: V) -> None:
        """Add a value with its template."""
        self._values.setdefault(_condition(template), {})[value] = None

    def remove(self, template: Template, value: V) -> None:
        """Remove a value that was added with this template; KeyError if it was not."""
        condition = _condition(template)
        values = self._values[condition]
        del values[value]
        if not values:
            del self._values[condition]

    def concerned(self, before: ItemVersion | None, after: ItemVersion | None) -> list[V]:
        """Return the values whose templates may match an item before or after a change.

        Each once. A template of a value that is not returned matches neither.
        """
        met = {
            condition: None
            for version in (before, after)
            if version is not None
            for condition in _conditions(version.item)
        }
        return [value for condition in met for value in self._values.get(condition, ())]


_Condition: TypeAlias = tuple[str, str | Pair]


def _condition(template: Template) -> _Condition:
    """Return the condition of a template under which it waits, one that few items meet."""
    if template.id:
        return "id", template.id
    if template.types:
        return "type", template.types[0].name
    if template.attributes:
        first = template.attributes[0]
        return ("value", first.fields[0]) if first.fields else ("kind", first.kind)
    return "any", ""


def _conditions(item: Item) -> Iterator[_Condition]:
    """Yield all conditions that an item meets."""
    yield "any", ""
    yield "id", item.id
    for name in item.type_names:
        yield "type", name
    for kind in _kinds(item):
        yield "kind", kind
    for pair in _pairs(item):
        yield "value", pair


# What an item is indexed by; nothing if it is None.


def _types(item: Item | None) -> frozenset[str]:
    return frozenset() if item is None else item.type_names


def _kinds(item: Item | None) -> frozenset[str]:
    sets = () if item is None else item.attributes
    return frozenset(kind for each in sets for kind in (each.kind, *each.bases))


def _pairs(item: Item | None) -> frozenset[Pair]:
    sets = () if item is None else item.attributes
    return frozenset(pair for each in sets for pair in each.fields)


def _descriptors(item: Item | None) -> frozenset[Descriptor]:
    return frozenset() if item is None or item.descriptor is None else frozenset((item.descriptor,))
