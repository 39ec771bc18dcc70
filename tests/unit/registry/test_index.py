"""The index of items and the index of templates."""

import pytest

from leasehold.registry.index import STEP, ItemIndex, TemplateIndex
from leasehold.registry.state import (
    EVERYTHING,
    AttributeSet,
    Descriptor,
    Item,
    ItemVersion,
    ServiceType,
    Template,
    attribute_set,
)

A = "00000000-0000-0000-0000-00000000000a"
B = "00000000-0000-0000-0000-00000000000b"
C = "00000000-0000-0000-0000-00000000000c"


def version(
    item_id: str,
    types: tuple[ServiceType, ...] = (),
    attributes: tuple[AttributeSet, ...] = (),
    descriptor: Descriptor | None = None,
) -> ItemVersion:
    return ItemVersion(Item(item_id, types, attributes, "", descriptor), "r", 1, 10.0, 1)


def found(index: ItemIndex, template: Template) -> list[str]:
    matching = sorted(each.item.id for each in index.matching(template))
    few = index.few_matching(template)
    assert few is None or sorted(each.item.id for each in few) == matching
    return matching


WEB = ServiceType("web", ("service",))
RED = attribute_set("Tag", {"tag": "red"}, ["Label"])
BLUE = attribute_set("Tag", {"tag": "blue"}, ["Label"])


def test_an_item_is_found_by_every_condition_of_a_template() -> None:
    index = ItemIndex()
    index.apply(A, version(A, (WEB,), (RED,)), 5)
    index.apply(B, version(B, (WEB,), (BLUE,)), 6)
    index.apply(C, version(C), 7)
    assert found(index, EVERYTHING) == [A, B, C]
    assert found(index, Template(A)) == [A]
    assert found(index, Template("", (ServiceType("service"),))) == [A, B]
    assert found(index, Template("", (WEB,), (RED,))) == [A]
    assert found(index, Template("", (), (AttributeSet("Label"),))) == [A, B]
    assert found(index, Template("", (), (attribute_set("Label", {"tag": "blue"}),))) == [B]
    assert found(index, Template(A, (), (BLUE,))) == []
    assert found(index, Template("", (ServiceType("other"),))) == []
    assert found(index, Template("00000000-0000-0000-0000-00000000000d")) == []


def test_a_value_is_found_only_in_a_set_of_its_kind() -> None:
    index = ItemIndex()
    index.apply(A, version(A, (), (attribute_set("Other", {"tag": "red"}), BLUE)), 1)
    assert found(index, Template("", (), (RED,))) == []


def test_apply_returns_the_versions_before_and_after() -> None:
    index = ItemIndex()
    first, second = version(A, (WEB,)), version(A, (), (RED,))
    assert index.apply(A, first, 1) == (None, first)
    assert index.apply(A, second, 2) == (first, second)
    assert index.get(A) is second
    assert index.apply(A, None, 3) == (second, None)
    assert index.apply(A, None, 4) == (None, None)
    assert index.get(A) is None
    assert index.last_change == 3


def test_a_version_of_another_item_is_refused_and_changes_nothing() -> None:
    index = ItemIndex()
    with pytest.raises(ValueError, match="version must be of item"):
        index.apply(A, version(B), 1)
    assert (len(index), index.last_change) == (0, 0)


def test_a_replaced_item_is_not_found_by_what_it_had() -> None:
    index = ItemIndex()
    descriptor = Descriptor("t", "json", b"1")
    index.apply(A, version(A, (WEB,), (RED,), descriptor), 1)
    index.apply(A, version(A, (), (BLUE,)), 2)
    assert found(index, Template("", (WEB,))) == []
    assert found(index, Template("", (), (RED,))) == []
    assert found(index, Template("", (), (BLUE,))) == [A]
    assert index.by_descriptor(descriptor) is None


def test_a_removed_item_leaves_nothing_behind() -> None:
    index = ItemIndex()
    for item_id in (A, B, C):
        index.apply(item_id, version(item_id, (WEB,), (RED,), Descriptor("t", "", b"")), 1)
    for item_id in (B, A, C):
        index.apply(item_id, None, 2)
    assert len(index) == 0
    for postings in (index._types, index._kinds, index._pairs, index._descriptors):
        assert postings._ids == {}


def test_the_revision_moves_only_forwards_and_not_with_a_change() -> None:
    index = ItemIndex()
    index.apply(A, version(A), 7)
    assert (index.revision, index.last_change) == (0, 7)
    index.advance(9)
    index.advance(8)
    assert (index.revision, index.last_change) == (9, 7)


def test_an_item_is_found_by_its_descriptor() -> None:
    index = ItemIndex()
    descriptor = Descriptor("t", "json", b"{}")
    index.apply(B, version(B, (), (), descriptor), 1)
    assert index.by_descriptor(Descriptor("t", "json", b"{}")) == B
    assert index.by_descriptor(Descriptor("t", "json", b"[]")) is None
    assert index.by_descriptor(Descriptor("t", "yaml", b"{}")) is None


def test_of_equal_descriptors_the_smallest_id_is_returned() -> None:
    index = ItemIndex()
    descriptor = Descriptor("t", "json", b"{}")
    for item_id in (C, A, B):
        index.apply(item_id, version(item_id, (), (), descriptor), 1)
    assert index.by_descriptor(descriptor) == A
    index.apply(A, None, 2)
    assert index.by_descriptor(descriptor) == B


def test_a_search_compares_only_the_items_of_its_most_selective_condition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = ItemIndex()
    for number in range(1000):
        item_id = f"00000000-0000-0000-0000-{number:012}"
        zone = attribute_set("Zone", {"zone": number % 10, "rack": number % 100})
        index.apply(item_id, version(item_id, (WEB,), (zone,)), number)
    compared: list[Item] = []
    matches = Template.matches

    def counted(template: Template, item: Item) -> bool:
        compared.append(item)
        return matches(template, item)

    monkeypatch.setattr(Template, "matches", counted)
    wanted = attribute_set("Zone", {"zone": 3, "rack": 13})
    assert len(index.matching(Template("", (WEB,), (wanted,)))) == 10
    assert len(compared) == 10


def test_few_candidates_are_searched_in_one_step_and_many_are_not() -> None:
    index = ItemIndex()
    for number in range(STEP + 1):
        item_id = f"00000000-0000-0000-0000-{number:012x}"
        index.apply(item_id, version(item_id, (WEB,), (RED,) if number else ()), number + 1)
    assert index.few_matching(EVERYTHING) is None
    assert index.few_matching(Template("", (WEB,))) is None
    few = index.few_matching(Template("", (WEB,), (RED,)))
    assert few is not None
    assert len(few) == STEP


def concerned(
    index: TemplateIndex[str], before: ItemVersion | None, after: ItemVersion | None
) -> list[str]:
    return sorted(index.concerned(before, after))


def test_a_change_concerns_the_templates_that_may_match_before_or_after() -> None:
    index: TemplateIndex[str] = TemplateIndex()
    index.add(EVERYTHING, "all")
    index.add(Template(A), "id")
    index.add(Template("", (ServiceType("service"),)), "type")
    index.add(Template("", (), (AttributeSet("Label"),)), "kind")
    index.add(Template("", (), (RED,)), "value")
    full = version(A, (WEB,), (RED,))
    assert concerned(index, None, full) == ["all", "id", "kind", "type", "value"]
    assert concerned(index, full, None) == ["all", "id", "kind", "type", "value"]
    assert concerned(index, None, version(B)) == ["all"]
    assert concerned(index, version(B, (WEB,)), version(B, (), (BLUE,))) == ["all", "kind", "type"]
    assert concerned(index, None, None) == []


def test_each_concerned_value_is_returned_once_in_the_order_of_addition() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    for value in (3, 1, 2):
        index.add(Template("", (WEB, ServiceType("service"))), value)
    full = version(A, (WEB,), (RED,))
    assert index.concerned(full, full) == [3, 1, 2]


def test_a_removed_template_is_not_concerned() -> None:
    index: TemplateIndex[str] = TemplateIndex()
    templates = [EVERYTHING, Template(A), Template("", (WEB,)), Template("", (), (RED,))]
    for template in templates:
        index.add(template, "first")
        index.add(template, "second")
        index.remove(template, "first")
    full = version(A, (WEB,), (RED,))
    assert index.concerned(None, full) == ["second"] * 4
    for template in templates:
        index.remove(template, "second")
    assert index._values == {}
    with pytest.raises(KeyError):
        index.remove(EVERYTHING, "second")
