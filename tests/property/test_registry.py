"""The index of the registry beside a naive list, and streams of transitions beside lookups.

The list holds items as plain values, and a lookup compares all of them. A stream begins with the
items that match its template; the transitions that follow, applied to these, must at any time give
the items that match.
"""

import json
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.registry.index import ItemIndex, TemplateIndex
from leasehold.registry.messages import (
    item_message,
    item_of,
    stored_item,
    template_message,
    template_of,
    version_of,
)
from leasehold.registry.state import (
    EVERYTHING,
    AttributeSet,
    Descriptor,
    Health,
    Item,
    ItemVersion,
    ServiceType,
    Template,
    Transition,
    add_attributes,
    attribute_set,
    modify_attributes,
    set_attributes,
    transition,
)
from tests.property.support import effort

IDS = [f"00000000-0000-0000-0000-00000000000{digit}" for digit in range(6)]
TYPES = {"a": (), "b": ("a",), "c": ("b", "a"), "d": ("a",)}
KINDS = {"K": (), "L": ("K",), "M": ("L", "K"), "N": ()}
FIELDS = ["f", "g"]
VALUES: list[Any] = [1, 1.0, True, "x", [1]]

types = st.lists(st.sampled_from(sorted(TYPES)), max_size=2).map(
    lambda names: tuple(ServiceType(name, TYPES[name]) for name in names)
)
sets = st.builds(
    lambda kind, fields: attribute_set(kind, fields, KINDS[kind]),
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(VALUES), max_size=2),
)
ids = st.sampled_from(IDS)
descriptors = st.none() | st.builds(
    Descriptor, st.sampled_from("tu"), st.just("json"), st.sampled_from([b"1", b"2"])
)
items = st.builds(
    Item,
    ids,
    types,
    st.lists(sets, max_size=3).map(lambda found: tuple(dict.fromkeys(found))),
    st.just("h:1"),
    descriptors,
    st.sampled_from(Health),
)
templates = st.one_of(
    st.just(EVERYTHING),
    ids.map(Template),
    types.map(lambda found: Template("", found)),
    st.sampled_from(sorted(KINDS)).map(lambda kind: Template("", (), (AttributeSet(kind),))),
    sets.map(lambda each: Template("", (), (each,))),
    st.builds(Template, st.just("") | ids, types, st.lists(sets, max_size=2).map(tuple)),
)
"""Most have one condition: those with more match little."""


def encoded(value: str) -> str:
    """A value with its type: 1, 1.0 and true are equal in Python, and differ here."""
    return repr(json.loads(value))


def naive_match(template: Template, item: Item) -> bool:
    names = [name for each in item.types for name in [each.name, *TYPES[each.name]]]
    found = [
        ({each.kind, *KINDS[each.kind]}, {name: encoded(text) for name, text in each.fields})
        for each in item.attributes
    ]
    return (
        template.id in ("", item.id)
        and {each.name for each in template.types} <= set(names)
        and all(
            [
                fields
                for kinds, fields in found
                if wanted.kind in kinds
                and {**fields, **{name: encoded(text) for name, text in wanted.fields}} == fields
            ]
            for wanted in template.attributes
        )
    )


class Stream(NamedTuple):
    """Transitions for a template, applied to what matched at the start."""

    template: Template
    items: dict[str, Item]


class RegistryMachine(RuleBasedStateMachine):
    """An index beside a list of items."""

    @initialize()
    def create(self) -> None:
        self.index = ItemIndex()
        self.waiting: TemplateIndex[int] = TemplateIndex()
        self.streams: dict[int, Stream] = {}
        self.items: list[ItemVersion] = []
        self.revision = 0

    def _change(self, item_id: str, item: Item | None, registration: str = "") -> None:
        self.revision += 1
        old = [each for each in self.items if each.item.id == item_id]
        self.items = [each for each in self.items if each.item.id != item_id]
        version = None
        if item is not None:
            given = ItemVersion(item, registration, self.revision, 10.0, self.revision)
            version = version_of(stored_item(given), self.revision, self.revision)
            assert version._replace(encoded=b"") == given
            self.items.append(version)
        before, after = self.index.apply(item_id, version, self.revision)
        assert before == (old[0] if old else None)
        assert after == version
        self._tell(before, after)

    def _tell(self, before: ItemVersion | None, after: ItemVersion | None) -> None:
        concerned = self.waiting.concerned(before, after)
        assert len(concerned) == len(set(concerned))
        for number, stream in self.streams.items():
            change = transition(stream.template, before, after)
            if number not in concerned:
                assert change is None
                continue
            changed = after or before
            if change is None or changed is None:
                continue
            item_id = changed.item.id
            assert (item_id in stream.items) == (change is not Transition.NOMATCH_MATCH)
            if change is Transition.MATCH_NOMATCH:
                del stream.items[item_id]
            else:
                assert after is not None
                stream.items[item_id] = after.item

    @rule(item=items)
    def register(self, item: Item) -> None:
        self._change(item.id, item, f"{self.revision}")

    @rule(item_id=ids)
    def expire(self, item_id: str) -> None:
        self._change(item_id, None)

    @precondition(lambda self: self.items)
    @rule(data=st.data(), added=st.lists(sets, max_size=2))
    def add(self, data: st.DataObject, added: list[AttributeSet]) -> None:
        version = data.draw(st.sampled_from(self.items))
        item = add_attributes(version.item, added)
        assert set(item.attributes) == {*version.item.attributes, *added}
        self._change(item.id, item, version.registration)

    @precondition(lambda self: self.items)
    @rule(data=st.data(), new=st.lists(sets, max_size=2))
    def replace_all(self, data: st.DataObject, new: list[AttributeSet]) -> None:
        version = data.draw(st.sampled_from(self.items))
        self._change(version.item.id, set_attributes(version.item, new), version.registration)

    @precondition(lambda self: self.items)
    @rule(data=st.data(), template=sets, update=st.none() | sets)
    def modify(
        self, data: st.DataObject, template: AttributeSet, update: AttributeSet | None
    ) -> None:
        version = data.draw(st.sampled_from(self.items))
        if update is not None:
            update = AttributeSet(template.kind, update.fields, template.bases)
        item = modify_attributes(version.item, [template], [update])
        assert len(set(item.attributes)) == len(item.attributes)
        if update is None:
            assert not any(each.matches(template) for each in item.attributes)
        self._change(item.id, item, version.registration)

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """The key is written again, for another lease."""
        version = data.draw(st.sampled_from(self.items))
        before = {number: dict(stream.items) for number, stream in self.streams.items()}
        self._change(version.item.id, version.item, version.registration)
        assert {number: stream.items for number, stream in self.streams.items()} == before

    @rule(template=templates)
    def look_up(self, template: Template) -> None:
        found = sorted(self.index.matching(template), key=lambda each: each.item.id)
        few = self.index.few_matching(template)
        assert few is None or sorted(few, key=lambda each: each.item.id) == found
        expected = [each for each in self.items if naive_match(template, each.item)]
        assert found == sorted(expected, key=lambda each: each.item.id)

    @precondition(lambda self: len(self.streams) < 8)
    @rule(template=templates)
    def follow(self, template: Template) -> None:
        number = self.revision * 100 + len(self.streams)
        while number in self.streams:
            number += 1
        start = {each.item.id: each.item for each in self.index.matching(template)}
        self.streams[number] = Stream(template, start)
        self.waiting.add(template, number)

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.streams)))
        self.waiting.remove(self.streams.pop(number).template, number)

    @rule(descriptor=descriptors)
    def find_descriptor(self, descriptor: Descriptor | None) -> None:
        if descriptor is not None:
            same = [each.item.id for each in self.items if each.item.descriptor == descriptor]
            assert self.index.by_descriptor(descriptor) == min(same, default=None)

    @invariant()
    def streams_have_the_items_that_match(self) -> None:
        for stream in self.streams.values():
            assert stream.items == {
                each.item.id: each.item
                for each in self.items
                if naive_match(stream.template, each.item)
            }

    @invariant()
    def the_index_has_the_items(self) -> None:
        assert len(self.index) == len(self.items)
        for each in self.items:
            assert self.index.get(each.item.id) == each


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = effort(150, 40)


@given(items)
@effort(100)
def test_an_item_survives_its_message(item: Item) -> None:
    assert (
        item_of(type(item_message(item)).FromString(item_message(item).SerializeToString())) == item
    )


@given(templates)
@effort(100)
def test_a_template_survives_its_message(template: Template) -> None:
    assert template_of(template_message(template)) == template
