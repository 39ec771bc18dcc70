"""Which items match a template, what a change is for it, changes of attributes, and browsing."""

from typing import Any

import pytest

from leasehold.registry.state import (
    EVERYTHING,
    AttributeSet,
    Health,
    Item,
    ItemVersion,
    ServiceType,
    Template,
    Transition,
    add_attributes,
    attribute_set,
    browse_kinds,
    browse_types,
    browse_values,
    canonical,
    modify_attributes,
    set_attributes,
    transition,
)

A = "00000000-0000-0000-0000-00000000000a"
B = "00000000-0000-0000-0000-00000000000b"

PRINTER = ServiceType("acme.Printer", ("acme.Device", "Service"))
DEVICE = ServiceType("acme.Device", ("Service",))
SERVICE = ServiceType("Service")
SCANNER = ServiceType("acme.Scanner", ("acme.Device", "Service"))


def tag(text: str) -> AttributeSet:
    return attribute_set("Tag", {"tag": text})


def room(**fields: Any) -> AttributeSet:
    return attribute_set("Room", fields, ["Location"])


ITEM = Item(A, (PRINTER, DEVICE, SERVICE), (tag("red"), room(floor=3, name="west")))


def with_types(*types: ServiceType) -> Template:
    return Template("", types)


def with_sets(*sets: AttributeSet) -> Template:
    return Template("", (), sets)


# Matching.


def test_an_empty_template_matches_everything() -> None:
    assert EVERYTHING.matches(ITEM)
    assert EVERYTHING.matches(Item(B))


def test_an_id_must_be_equal_if_it_is_given() -> None:
    assert Template(A).matches(ITEM)
    assert not Template(B).matches(ITEM)


def test_a_type_matches_the_type_itself_and_what_is_derived_from_it() -> None:
    assert with_types(PRINTER).matches(ITEM)
    assert with_types(ServiceType("Service")).matches(ITEM)
    assert not with_types(SCANNER).matches(ITEM)
    assert not with_types(PRINTER).matches(Item(A, (DEVICE, SERVICE)))


def test_only_the_name_of_a_wanted_type_is_compared() -> None:
    assert with_types(ServiceType("acme.Printer", ("Unknown",))).matches(ITEM)
    assert not with_types(ServiceType("Unknown", ("acme.Printer",))).matches(ITEM)


def test_every_type_must_be_one_of_the_items() -> None:
    assert with_types(PRINTER, SERVICE).matches(ITEM)
    assert not with_types(PRINTER, SCANNER).matches(ITEM)
    assert with_types(PRINTER, SCANNER).matches(Item(A, (PRINTER, SCANNER)))


def test_names_are_compared_whole_and_with_case() -> None:
    assert not with_types(ServiceType("acme.Print")).matches(ITEM)
    assert not with_types(ServiceType("acme.printer")).matches(ITEM)
    assert not with_sets(AttributeSet("tag")).matches(ITEM)


def test_for_each_attribute_set_of_the_template_the_item_has_one() -> None:
    assert with_sets(tag("red"), room(floor=3)).matches(ITEM)
    assert not with_sets(tag("red"), tag("blue")).matches(ITEM)
    assert with_sets(tag("red"), tag("blue")).matches(add_attributes(ITEM, [tag("blue")]))


def test_one_set_may_match_several_of_the_template() -> None:
    assert with_sets(room(floor=3), room(name="west"), AttributeSet("Room")).matches(ITEM)


def test_all_given_fields_must_be_equal_in_one_set() -> None:
    assert with_sets(room(floor=3, name="west")).matches(ITEM)
    assert not with_sets(room(floor=3, name="east")).matches(ITEM)
    both = Item(A, (), (room(floor=3, name="east"), room(floor=4, name="west")))
    assert not with_sets(room(floor=3, name="west")).matches(both)


def test_a_field_that_is_left_out_matches_anything() -> None:
    assert with_sets(room(name="west")).matches(ITEM)
    assert with_sets(AttributeSet("Room")).matches(ITEM)
    assert with_sets(room(floor=None, name="west")).matches(ITEM)


def test_a_given_field_does_not_match_a_set_without_it() -> None:
    assert not with_sets(room(building="a")).matches(ITEM)


def test_a_kind_matches_kinds_that_are_derived_from_it() -> None:
    assert with_sets(attribute_set("Location", {"floor": 3})).matches(ITEM)
    assert not with_sets(room(floor=3)).matches(
        Item(A, (), (attribute_set("Location", {"floor": 3}),))
    )


def test_a_value_of_another_kind_does_not_match() -> None:
    assert not with_sets(attribute_set("Label", {"tag": "red"})).matches(ITEM)


def test_health_is_not_compared() -> None:
    assert with_types(PRINTER).matches(Item(A, (PRINTER,), health=Health.FAILING))


def test_id_types_and_attributes_must_all_match() -> None:
    assert Template(A, (PRINTER,), (tag("red"),)).matches(ITEM)
    assert not Template(B, (PRINTER,), (tag("red"),)).matches(ITEM)
    assert not Template(A, (SCANNER,), (tag("red"),)).matches(ITEM)
    assert not Template(A, (PRINTER,), (tag("blue"),)).matches(ITEM)


# Values.


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (1.0, True), (0, False), (1, "1"), ([1], [True]), ("", []), ([], {})],
)
def test_values_of_different_types_differ(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)
    assert not attribute_set("K", {"f": one}).matches(attribute_set("K", {"f": other}))


def test_the_order_of_keys_makes_no_difference() -> None:
    one, other = {"x": 1, "y": {"b": 1, "a": 2}}, {"y": {"a": 2, "b": 1}, "x": 1}
    assert attribute_set("K", {"f": one}) == attribute_set("K", {"f": other})
    assert attribute_set("K", {"f": 1, "g": 2}) == attribute_set("K", {"g": 2, "f": 1})


def test_the_order_of_elements_makes_a_difference() -> None:
    assert canonical([1, 2]) != canonical([2, 1])


def test_a_field_that_is_none_has_no_value() -> None:
    assert attribute_set("K", {"f": None, "g": 1}) == attribute_set("K", {"g": 1})


@pytest.mark.parametrize(
    "value", [None, float("nan"), float("inf"), b"x", object(), {1, 2}, "\ud800"]
)
def test_a_value_that_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a value must"):
        canonical(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="a value must be a JSON value"):
        canonical(endless)


@pytest.mark.parametrize("value", ["\udcff", ["\udcff"], {"a": "\udcff"}])
def test_text_that_is_not_utf8_is_refused_in_plain_words(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^a value must be valid UTF-8, got ") as caught:
        canonical(value)
    assert not isinstance(caught.value, UnicodeError)


# Transitions.


def version(item: Item, registration: str = "r", lease: int = 1, revision: int = 1) -> ItemVersion:
    return ItemVersion(item, registration, lease, 10.0, revision)


RED, BLUE = version(Item(A, (), (tag("red"),))), version(Item(A, (), (tag("blue"),)))
RED_TEMPLATE = with_sets(tag("red"))


def test_an_item_that_begins_to_match() -> None:
    assert transition(RED_TEMPLATE, None, RED) is Transition.NOMATCH_MATCH
    assert transition(RED_TEMPLATE, BLUE, RED) is Transition.NOMATCH_MATCH


def test_an_item_that_ceases_to_match() -> None:
    assert transition(RED_TEMPLATE, RED, None) is Transition.MATCH_NOMATCH
    assert transition(RED_TEMPLATE, RED, BLUE) is Transition.MATCH_NOMATCH


def test_an_item_that_changes_and_still_matches() -> None:
    changed = version(add_attributes(RED.item, [tag("blue")]))
    assert transition(RED_TEMPLATE, RED, changed) is Transition.MATCH_MATCH
    failing = version(Item(A, (), (tag("red"),), health=Health.FAILING))
    assert transition(RED_TEMPLATE, RED, failing) is Transition.MATCH_MATCH


def test_an_item_that_matches_neither_before_nor_after() -> None:
    assert transition(RED_TEMPLATE, BLUE, version(Item(A))) is None
    assert transition(RED_TEMPLATE, BLUE, None) is None
    assert transition(RED_TEMPLATE, None, BLUE) is None
    assert transition(RED_TEMPLATE, None, None) is None


def test_an_item_that_is_written_again_for_a_new_lease_has_not_changed() -> None:
    assert transition(RED_TEMPLATE, RED, version(RED.item, "r", lease=2, revision=9)) is None


def test_registering_an_equal_item_again_is_one_event() -> None:
    assert transition(RED_TEMPLATE, RED, version(RED.item, "s")) is Transition.MATCH_MATCH


# Changes of attributes.


def test_add_is_idempotent() -> None:
    once = add_attributes(ITEM, [tag("blue"), tag("blue")])
    assert once.attributes == (*ITEM.attributes, tag("blue"))
    assert add_attributes(once, [tag("blue"), tag("red")]) == once


def test_set_replaces_all_sets_and_drops_duplicates() -> None:
    changed = set_attributes(ITEM, [tag("blue"), tag("green"), tag("blue")])
    assert changed.attributes == (tag("blue"), tag("green"))
    assert set_attributes(ITEM, []).attributes == ()


def test_modify_changes_only_the_fields_of_the_update() -> None:
    changed = modify_attributes(ITEM, [room(floor=3)], [room(name="east")])
    assert changed.attributes == (tag("red"), room(floor=3, name="east"))


def test_modify_adds_a_field() -> None:
    changed = modify_attributes(ITEM, [AttributeSet("Room")], [room(building="a")])
    assert changed.attributes == (tag("red"), room(floor=3, name="west", building="a"))


def test_modify_compares_with_the_state_before() -> None:
    # The second template matches only what the first update makes.
    changed = modify_attributes(ITEM, [tag("red"), tag("blue")], [tag("blue"), tag("green")])
    assert changed.attributes[0] == tag("blue")
    # The first template still matches for the second update.
    changed = modify_attributes(
        ITEM, [room(floor=3), room(floor=3)], [room(floor=4), room(name="east")]
    )
    assert changed.attributes[1] == room(floor=4, name="east")


def test_modify_applies_all_updates_that_match_a_set_in_order() -> None:
    changed = modify_attributes(
        ITEM, [AttributeSet("Room"), room(name="west")], [room(floor=5), room(floor=6)]
    )
    assert changed.attributes[1] == room(floor=6, name="west")


def test_an_update_of_none_deletes_the_sets_that_match() -> None:
    item = Item(A, (), (tag("red"), tag("blue"), room(floor=1)))
    assert modify_attributes(item, [AttributeSet("Tag")], [None]).attributes == (room(floor=1),)


@pytest.mark.parametrize("order", [1, -1])
def test_a_set_that_is_updated_and_deleted_is_gone(order: int) -> None:
    templates, updates = [tag("red"), tag("red")], [tag("blue"), None]
    assert modify_attributes(ITEM, templates, updates[::order]).attributes == ITEM.attributes[1:]


def test_duplicates_are_dropped_in_the_final_state_only() -> None:
    item = Item(A, (), (room(floor=1, name="a"), room(floor=2, name="a")))
    # After the first update both would be equal; the second still tells them apart.
    changed = modify_attributes(
        item,
        [AttributeSet("Room"), room(floor=2)],
        [room(floor=7), room(name="b")],
    )
    assert changed.attributes == (room(floor=7, name="a"), room(floor=7, name="b"))
    assert modify_attributes(item, [AttributeSet("Room")], [room(floor=7)]).attributes == (
        room(floor=7, name="a"),
    )


def test_an_update_may_be_of_a_base_kind_of_its_template() -> None:
    update = attribute_set("Location", {"floor": 9})
    changed = modify_attributes(ITEM, [room(floor=3)], [update])
    assert changed.attributes[1] == room(floor=9, name="west")


def test_a_template_of_a_base_kind_changes_sets_of_derived_kinds() -> None:
    location = attribute_set("Location", {"floor": 3})
    changed = modify_attributes(ITEM, [location], [attribute_set("Location", {"floor": 9})])
    assert changed.attributes[1] == room(floor=9, name="west")


@pytest.mark.parametrize("template", [tag("red"), attribute_set("Location", {})])
def test_an_update_of_another_or_a_derived_kind_is_refused(template: AttributeSet) -> None:
    with pytest.raises(ValueError, match="must be of that kind or one of its bases"):
        modify_attributes(ITEM, [template], [room(floor=1)])


def test_templates_and_updates_must_have_the_same_length() -> None:
    with pytest.raises(ValueError, match="same length, got 1 and 0"):
        modify_attributes(ITEM, [tag("red")], [])


def test_a_modification_that_matches_nothing_changes_nothing() -> None:
    assert modify_attributes(ITEM, [tag("x")], [tag("y")]) == ITEM


# Browsing.

ITEMS = [
    ITEM,
    Item(B, (SCANNER, DEVICE, SERVICE), (tag("blue"), room(floor=3, name="east"))),
]


def test_browsing_gives_the_most_specific_types_without_duplicates() -> None:
    assert browse_types([*ITEMS, ITEM], EVERYTHING) == ["acme.Printer", "acme.Scanner"]


def test_types_of_the_template_and_their_bases_are_left_out() -> None:
    assert browse_types(ITEMS, with_types(DEVICE)) == ["acme.Printer", "acme.Scanner"]
    assert browse_types([ITEM], with_types(PRINTER)) == []
    # The same if the template names no bases.
    assert browse_types([ITEM], with_types(ServiceType("acme.Printer"))) == []


def test_a_second_branch_of_types_remains() -> None:
    both = Item(A, (PRINTER, SCANNER, DEVICE, SERVICE))
    assert browse_types([both], with_types(PRINTER)) == ["acme.Scanner"]


def test_with_a_prefix_the_most_specific_types_that_begin_with_it() -> None:
    assert browse_types(ITEMS, EVERYTHING, "acme.P") == ["acme.Printer"]
    assert browse_types(ITEMS, EVERYTHING, "acme.D") == ["acme.Device"]
    assert browse_types(ITEMS, EVERYTHING, "S") == ["Service"]
    assert browse_types(ITEMS, with_types(DEVICE), "S") == []
    assert browse_types(ITEMS, EVERYTHING, "x") == []


def test_browsing_gives_the_kinds_that_match_none_of_the_attribute_templates() -> None:
    assert browse_kinds([*ITEMS, ITEM], EVERYTHING) == ["Room", "Tag"]
    assert browse_kinds([ITEM], with_sets(tag("red"))) == ["Room"]
    assert browse_kinds([ITEM], with_sets(AttributeSet("Location"))) == ["Tag"]
    both = add_attributes(ITEM, [tag("blue")])
    assert browse_kinds([both], with_sets(tag("red"))) == ["Room", "Tag"]


def test_browsing_gives_the_distinct_values_of_a_field() -> None:
    template = with_sets(AttributeSet("Tag"), AttributeSet("Location"))
    assert browse_values([*ITEMS, ITEM], template, 0, "tag") == ['"blue"', '"red"']
    assert browse_values(ITEMS, template, 1, "floor") == ["3"]
    assert browse_values(ITEMS, with_sets(room(name="east")), 0, "name") == ['"east"']


def test_values_of_sets_without_the_field_are_left_out() -> None:
    items = [*ITEMS, Item(B, (), (room(building="a"),))]
    assert browse_values(items, with_sets(AttributeSet("Room")), 0, "building") == ['"a"']


@pytest.mark.parametrize("index", [1, -1, 2])
def test_a_wrong_index_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match="index must be below"):
        browse_values(ITEMS, with_sets(AttributeSet("Tag")), index, "tag")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute set of kind 'Tag' has a field 'x'"):
        browse_values(ITEMS, with_sets(AttributeSet("Tag")), 0, "x")


def test_browsing_is_empty_if_nothing_matches() -> None:
    assert browse_types([], EVERYTHING) == []
    assert browse_kinds([], EVERYTHING) == []
    assert browse_values([], with_sets(AttributeSet("Tag")), 0, "tag") == []
