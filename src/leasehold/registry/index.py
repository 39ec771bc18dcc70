"""The items of a registry, and the templates that wait for them, indexed. Pure.

`ItemIndex` has the items as of a revision. For each type, each kind of attribute sets (bases
included) and each value of a field it has the ids of the items with it. Each condition of a
template names one of these sets of ids, and every match is in all of them: the smallest one is
searched. So a search costs what its most selective condition leaves, not what the registry has.

A search of many items takes several steps, and other work runs between them. The index may change
meanwhile, and the result is still that of the revision at which the search began. For this, items
and large sets of ids are divided into parts, by the hash of the id. A step takes one part. An item
that changes before its part is taken leaves the version that it had to each search under way:
`_Search.before`.

An item adds at most one id for each name and value that it contains, so its cost is bounded by its
size. That is why the values of fields are indexed without their kind: with it, each value would
count once for every base of its kind.

`TemplateIndex` is the opposite: a template waits under one of its conditions, and a change of an
item concerns the templates under the conditions that the item meets, before or after.
"""

from collections.abc import Collection, Generator, Hashable, Iterator, Sequence
from itertools import chain
from typing import Final, Generic, TypeAlias, TypeVar

from leasehold.registry.state import EVERYTHING, Descriptor, Item, ItemVersion, Template

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

Pair: TypeAlias = tuple[str, str]
"""The name of a field, and its value."""


PARTS: Final = 512
"""Parts of the items, and of large sets of ids. A part of a million items takes about 1 ms."""

LARGE: Final = 8_192
"""Ids in a set that is divided into parts."""

STEP: Final = 100
"""Items in one step of a search, at most."""


def _part(item_id: str) -> int:
    return hash(item_id) % PARTS


class _LargeSet:
    """Many ids, in parts."""

    __slots__ = ("_count", "parts")

    def __init__(self, ids: Collection[str]) -> None:
        self.parts: list[set[str]] = [set() for _ in range(PARTS)]
        self._count = len(ids)
        for item_id in ids:
            self.parts[_part(item_id)].add(item_id)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.parts)

    def __contains__(self, item_id: object) -> bool:
        return isinstance(item_id, str) and item_id in self.parts[_part(item_id)]

    def add(self, item_id: str) -> None:
        self.parts[_part(item_id)].add(item_id)
        self._count += 1

    def remove(self, item_id: str) -> None:
        self.parts[_part(item_id)].remove(item_id)
        self._count -= 1


class _Postings(Generic[K]):
    """The ids under each key. A single id is stored without a set: most values are of one item."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[K, str | set[str] | _LargeSet] = {}

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
                if isinstance(found, set) and len(found) >= LARGE:
                    self._ids[key] = _LargeSet(found)
        for key in old - new:
            found = self._ids[key]
            if isinstance(found, str):
                del self._ids[key]
            else:
                found.remove(item_id)
                if isinstance(found, _LargeSet):
                    if len(found) < LARGE // 2:
                        self._ids[key] = set(found)
                elif len(found) == 1:
                    self._ids[key] = found.pop()

    def get(self, key: K) -> Collection[str]:
        found = self._ids.get(key, ())
        return (found,) if isinstance(found, str) else found


class _Search:
    """A search under way."""

    __slots__ = ("before", "taken")

    def __init__(self) -> None:
        self.taken = 0
        """The number of parts that were taken."""
        self.before: dict[str, ItemVersion | None] = {}
        """For items that have changed before their parts were taken: the version at the start."""


class ItemIndex:
    """The items of a registry, as of a revision."""

    __slots__ = (
        "_descriptors",
        "_kinds",
        "_pairs",
        "_searches",
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
        self._versions: list[dict[str, ItemVersion]] = [{} for _ in range(PARTS)]
        self._searches: list[_Search] = []
        self._types: _Postings[str] = _Postings()
        self._kinds: _Postings[str] = _Postings()
        self._pairs: _Postings[Pair] = _Postings()
        self._descriptors: _Postings[Descriptor] = _Postings()

    def __len__(self) -> int:
        """The number of items."""
        return sum(map(len, self._versions))

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
            raise ValueError(f"version must be of item {item_id!r}, got one of {version.item.id!r}")
        part = _part(item_id)
        versions = self._versions[part]
        before = versions.get(item_id)
        if before is None and version is None:
            return None, None
        self.last_change = revision
        for search in self._searches:
            if part >= search.taken:
                search.before.setdefault(item_id, before)
        if version is None:
            del versions[item_id]
        else:
            item_id = version.item.id  # this text is kept anyway; `item_id` would be a copy
            versions[item_id] = version
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
        return self._versions[_part(item_id)].get(item_id)

    def by_descriptor(self, descriptor: Descriptor) -> str | None:
        """Return the id of the item with a descriptor, the smallest if there are several."""
        return min(self._descriptors.get(descriptor), default=None)

    def matching(self, template: Template) -> list[ItemVersion]:
        """Return the items that match a template, in no particular order."""
        return [version for step in self.search(template) for version in step]

    def few_matching(self, template: Template) -> Sequence[ItemVersion] | None:
        """Return the items that match a template, or None if more than `STEP` must be compared."""
        candidates, condition = self._candidates(template)
        if candidates is None or len(candidates) > STEP:
            return None
        versions = [self._versions[_part(item_id)][item_id] for item_id in candidates]
        if condition is EVERYTHING:
            return versions
        return [version for version in versions if condition.matches(version.item)]

    def search(self, template: Template) -> Generator[Sequence[ItemVersion], None, None]:
        """Yield the items that match a template, in no particular order, up to `STEP` at a time.

        The index may change between two steps: the items are those at the first step.
        """
        candidates, condition = self._candidates(template)
        if candidates is None or isinstance(candidates, _LargeSet):
            yield from self._search_parts(template, candidates, condition)
        else:
            versions = [self._versions[_part(item_id)][item_id] for item_id in candidates]
            yield from _steps(versions, condition)

    def _candidates(self, template: Template) -> tuple[Collection[str] | None, Template]:
        """Return the ids that may match, None for all, and the other conditions for these."""
        sets = [self._types.get(wanted.name) for wanted in template.types]
        if template.id:
            sets.append((template.id,) if self.get(template.id) is not None else ())
        for attributes in template.attributes:
            sets.append(self._kinds.get(attributes.kind))
            sets.extend(self._pairs.get(pair) for pair in attributes.fields)
        return min(sets, key=len, default=None), template if len(sets) > 1 else EVERYTHING

    def _search_parts(
        self, template: Template, candidates: _LargeSet | None, condition: Template
    ) -> Iterator[Sequence[ItemVersion]]:
        """Search all items, or the candidates. Those that have changed since the start follow."""
        search = _Search()
        before = search.before
        self._searches.append(search)
        try:
            for number, versions in enumerate(self._versions):
                ids = versions if candidates is None else candidates.parts[number]
                taken = [versions[item_id] for item_id in ids if item_id not in before]
                search.taken = number + 1
                yield from _steps(taken, condition)
        finally:
            self._searches.remove(search)
        yield from _steps([each for each in before.values() if each is not None], template)


def _steps(versions: Sequence[ItemVersion], template: Template) -> Iterator[Sequence[ItemVersion]]:
    """Yield the versions that match a template, in steps."""
    for first in range(0, len(versions), STEP):
        step = versions[first : first + STEP]
        if template is EVERYTHING:
            yield step
        else:
            yield [version for version in step if template.matches(version.item)]


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


# The index keys of an item; none if it is None.


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
