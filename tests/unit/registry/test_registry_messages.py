"""Items, templates and attribute sets as messages: round trips, and everything that is refused."""

import pytest

from leasehold.registry.messages import (
    ITEMS,
    MAX_ENDPOINT,
    SHARED_BYTES,
    change_of,
    check_item_id,
    encoded_item,
    item_key,
    item_message,
    item_of,
    set_message,
    set_of,
    sets_of,
    stored_item,
    template_message,
    template_of,
    type_of,
    version_of,
)
from leasehold.registry.state import (
    EVERYTHING,
    MAX_ITEM_BYTES,
    MAX_NAME,
    MAX_SETS,
    AttributeSet,
    Descriptor,
    Health,
    Item,
    ItemVersion,
    ServiceType,
    Template,
    attribute_set,
)
from leasehold.wire import registry_pb2 as pb

ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
TYPES = (ServiceType("web", ("service", "thing")), ServiceType("other"))
SETS = (attribute_set("Tag", {"tag": "rot", "n": 1.0}, ["Label"]), AttributeSet("Empty"))
ITEM = Item(ID, TYPES, SETS, "http://a:80", Descriptor("t", "json", b"\x00{}"), Health.MAINTENANCE)


@pytest.mark.parametrize("item", [ITEM, Item(""), Item(ID, health=Health.FAILING)])
def test_an_item_survives_its_message(item: Item) -> None:
    message = pb.ServiceItem.FromString(item_message(item).SerializeToString())
    assert item_of(message) == item


@pytest.mark.parametrize("template", [EVERYTHING, Template(ID, TYPES, SETS)])
def test_a_template_survives_its_message(template: Template) -> None:
    message = pb.ItemTemplate.FromString(template_message(template).SerializeToString())
    assert template_of(message) == template


@pytest.mark.parametrize("attributes", SETS)
def test_an_attribute_set_survives_its_message(attributes: AttributeSet) -> None:
    assert set_of(set_message(attributes)) == attributes


@pytest.mark.parametrize("ttl_s", [0.0, 0.5, 10.0, 86400.0])
def test_a_stored_item_is_read_with_its_lease_and_revision(ttl_s: float) -> None:
    version = ItemVersion(ITEM, "0123456789abcdef", 77, ttl_s, 5)
    read = version_of(stored_item(version), 77, 5)
    assert read == version._replace(encoded=read.encoded)
    assert item_of(pb.ServiceItem.FromString(read.encoded)) == ITEM
    assert encoded_item(read) == read.encoded
    assert item_of(pb.ServiceItem.FromString(encoded_item(version))) == ITEM


def test_an_equal_item_is_stored_as_equal_bytes() -> None:
    fields = [(str(number), "1") for number in range(20)]
    stored = {
        stored_item(ItemVersion(Item(ID, (), (AttributeSet("K", tuple(order)),)), "r", 1, 1.0, 1))
        for order in (fields, fields[::-1])
    }
    assert len(stored) == 1


def test_the_key_of_an_item_has_its_id() -> None:
    assert item_key(ID) == ITEMS + ID.encode()


def test_an_id_is_made_canonical() -> None:
    assert check_item_id(ID.upper()) == ID
    assert check_item_id("{" + ID.replace("-", "") + "}") == ID
    assert item_of(pb.ServiceItem(id=ID.upper())).id == ID
    assert template_of(pb.ItemTemplate(id=ID.upper())).id == ID


@pytest.mark.parametrize("text", ["x", "", ID[:-1], ID + "0", "x" * 10_000])
def test_an_id_that_is_not_a_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a UUID") as refused:
        check_item_id(text)
    assert len(str(refused.value)) < 120


def test_values_are_made_canonical() -> None:
    message = pb.AttributeSet(kind="K", fields={"b": ' { "y" : 1, "x" : 2 } ', "a": '"\\u00e4"'})
    assert set_of(message).fields == (("a", '"ä"'), ("b", '{"x":2,"y":1}'))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "null",
        "NaN",
        "Infinity",
        "-Infinity",
        "1 2",
        "[" * 100_000,
        "1e999",
        '"\\ud800"',
    ],
)
def test_a_value_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="field 'f' must "):
        set_of(pb.AttributeSet(kind="K", fields={"f": text}))


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME + 1)])
def test_an_empty_or_long_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name of a type"):
        type_of(pb.ServiceType(name=name))
    with pytest.raises(ValueError, match="name of a base type"):
        type_of(pb.ServiceType(name="t", bases=[name]))
    with pytest.raises(ValueError, match="kind of an attribute set"):
        set_of(pb.AttributeSet(kind=name))
    with pytest.raises(ValueError, match="name of a base kind"):
        set_of(pb.AttributeSet(kind="K", bases=[name]))
    with pytest.raises(ValueError, match="name of a field"):
        set_of(pb.AttributeSet(kind="K", fields={name: "1"}))
    with pytest.raises(ValueError, match="type of a descriptor"):
        item_of(pb.ServiceItem(descriptor=pb.ServiceDescriptor(type=name)))


def test_the_longest_name_is_accepted() -> None:
    assert type_of(pb.ServiceType(name="x" * MAX_NAME)).name == "x" * MAX_NAME


def test_too_many_attribute_sets_are_refused() -> None:
    message = pb.AttributeSet(kind="K")
    assert len(sets_of([message] * MAX_SETS)) == MAX_SETS
    with pytest.raises(ValueError, match=f"at most {MAX_SETS} attribute sets, got {MAX_SETS + 1}"):
        sets_of([message] * (MAX_SETS + 1))


def test_an_item_that_is_too_large_is_refused() -> None:
    descriptor = pb.ServiceDescriptor(type="t", data=bytes(MAX_ITEM_BYTES))
    with pytest.raises(ValueError, match="an item must have at most 262,144 bytes, got 262,"):
        item_of(pb.ServiceItem(descriptor=descriptor))


def test_an_endpoint_that_is_too_long_is_refused() -> None:
    assert item_of(pb.ServiceItem(endpoint="x" * MAX_ENDPOINT)).endpoint
    with pytest.raises(ValueError, match="endpoint of an item must have at most 2,048 characters"):
        item_of(pb.ServiceItem(endpoint="x" * (MAX_ENDPOINT + 1)))


def test_an_unknown_health_is_refused() -> None:
    # Field 6, as an enum value that a later version might have.
    with pytest.raises(ValueError, match="health"):
        item_of(pb.ServiceItem.FromString(b"\x30\x07"))


def test_duplicate_attribute_sets_of_an_item_are_dropped() -> None:
    message = pb.AttributeSet(kind="K", fields={"f": "1"})
    same = pb.AttributeSet(kind="K", fields={"f": " 1 "})
    assert item_of(pb.ServiceItem(attributes=[message, same])).attributes == (
        attribute_set("K", {"f": 1}),
    )


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        b"text",
        pb.StoredItem(registration="r").SerializeToString(),
        pb.StoredItem(item=b"\xff").SerializeToString(),
        pb.StoredItem(item=pb.ServiceItem(id="x").SerializeToString()).SerializeToString(),
        pb.StoredItem(
            item=pb.ServiceItem(
                id=ID, attributes=[pb.AttributeSet(kind="K", fields={"f": "{"})]
            ).SerializeToString()
        ).SerializeToString(),
    ],
)
def test_a_value_that_is_not_an_item_cannot_be_decoded(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        version_of(value, 1, 1)


def test_equal_parts_of_items_are_one_object() -> None:
    first, second = (version_of(stored_item(ItemVersion(ITEM, "r", 1, 1.0, 1)), 1, 1) for _ in "ab")
    assert first.item is not second.item
    assert first.item.types[0] is second.item.types[0]
    assert first.item.attributes[0] is second.item.attributes[0]


def test_large_parts_are_not_kept() -> None:
    message = pb.AttributeSet(kind="K", fields={"f": '"' + "x" * SHARED_BYTES + '"'})
    assert set_of(message) == set_of(message)
    assert set_of(message) is not set_of(message)
    long = pb.ServiceType(name="t", bases=["x" * MAX_NAME] * 2)
    assert type_of(long) == type_of(long)
    assert type_of(long) is not type_of(long)


# Limits: each bounds what one request costs.


def _types(count: int) -> list[pb.ServiceType]:
    return [pb.ServiceType(name=f"t{number}") for number in range(count)]


def _sets(count: int, fields: int = 0) -> list[pb.AttributeSet]:
    each = {f"f{number}": "1" for number in range(fields)}
    return [pb.AttributeSet(kind=f"k{number}", fields=each) for number in range(count)]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (pb.ServiceItem(types=_types(1025)), "at most 1,024 types with their bases, got 1,025"),
        (
            pb.ServiceItem(types=[pb.ServiceType(name="t", bases=["b"] * 1024)]),
            "at most 1,024 types with their bases, got 1,025",
        ),
        (pb.ServiceItem(attributes=_sets(257)), "at most 256 attribute sets, got 257"),
        (
            pb.ServiceItem(attributes=[pb.AttributeSet(kind="k", bases=["b"] * 1024)]),
            "at most 1,024 kinds with their bases, got 1,025",
        ),
        (
            pb.ServiceItem(attributes=_sets(1, 4097)),
            "at most 4,096 fields of attribute sets, got 4,097",
        ),
        (
            pb.ServiceItem(descriptor=pb.ServiceDescriptor(type="t", encoding="e" * 257)),
            "encoding of a descriptor must have at most 256 characters, got 257",
        ),
    ],
)
def test_an_item_has_limits(message: pb.ServiceItem, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        item_of(message)


@pytest.mark.parametrize(
    "message",
    [
        pb.ItemTemplate(types=_types(65)),
        pb.ItemTemplate(attributes=_sets(65)),
        pb.ItemTemplate(attributes=_sets(1, 64)),
        pb.ItemTemplate(types=_types(32), attributes=_sets(16, 2)),
    ],
)
def test_a_template_has_at_most_64_conditions(message: pb.ItemTemplate) -> None:
    with pytest.raises(ValueError, match="at most 64 types, attribute sets and fields"):
        template_of(message)


def test_a_change_has_at_most_32_updates() -> None:
    updates = [pb.AttributeUpdate(template=pb.AttributeSet(kind="k"))] * 33
    with pytest.raises(ValueError, match="at most 32 updates in a change, got 33"):
        change_of(pb.ChangeRequest(modify=pb.AttributeUpdates(updates=updates)))


def test_a_stored_item_with_a_negative_ttl_cannot_be_decoded() -> None:
    item = pb.ServiceItem(id=ID).SerializeToString()
    with pytest.raises(ValueError, match="must not be negative, got -1 ms"):
        version_of(pb.StoredItem(item=item, ttl_ms=-1).SerializeToString(), 1, 1)
