"""Items, templates and attributes as messages, and back. Pure.

Input is checked here: names, sizes, and the values of fields, which are made canonical.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final
from uuid import UUID

from google.protobuf.message import DecodeError

from leasehold.registry.state import (
    MAX_CONDITIONS,
    MAX_FIELDS,
    MAX_ITEM_BYTES,
    MAX_NAME,
    MAX_NAMES,
    MAX_SETS,
    MAX_UPDATES,
    AttributeSet,
    Descriptor,
    Health,
    Item,
    ItemVersion,
    ServiceType,
    Template,
    add_attributes,
    browse_kinds,
    browse_types,
    browse_values,
    canonical,
    modify_attributes,
    set_attributes,
    without_duplicates,
)
from leasehold.wire import registry_pb2 as pb

ITEMS: Final = b"leasehold/items/"
"""The prefix of the keys of items; the rest is the id."""

SHARED: Final = 4096
"""Types, and attribute sets, that are kept after they were decoded. An equal one is the same
object: a million items have few types and tags, and take half the memory."""

SHARED_BYTES: Final = 512
"""The size of a type or an attribute set that is kept."""

MAX_ENDPOINT: Final = 2048
"""Characters in the endpoint of an item."""


def item_key(item_id: str) -> bytes:
    """Return the key of an item."""
    return ITEMS + item_id.encode()


def check_item_id(text: str) -> str:
    """Return the id of an item in its canonical form; ValueError if it is not a UUID."""
    try:
        return str(UUID(text))
    except ValueError:
        raise ValueError(f"id of an item must be a UUID, got {text[:64]!r}") from None


def _check_name(name: str, what: str) -> str:
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError(f"{what} must have 1 to {MAX_NAME} characters, got {len(name)}")
    return name


def type_of(message: pb.ServiceType) -> ServiceType:
    """Return the type of a message; ValueError if a name is empty or too long."""
    make = _type if message.ByteSize() <= SHARED_BYTES else _type.__wrapped__
    return make(message.name, tuple(message.bases))


@lru_cache(SHARED)
def _type(name: str, bases: tuple[str, ...]) -> ServiceType:
    for base in bases:
        _check_name(base, "name of a base type")
    return ServiceType(_check_name(name, "name of a type"), bases)


def set_of(message: pb.AttributeSet) -> AttributeSet:
    """Return the attribute set of a message; ValueError if it is not valid."""
    make = _set if message.ByteSize() <= SHARED_BYTES else _set.__wrapped__
    return make(message.kind, tuple(message.bases), tuple(sorted(message.fields.items())))


@lru_cache(SHARED)
def _set(kind: str, bases: tuple[str, ...], fields: tuple[tuple[str, str], ...]) -> AttributeSet:
    for base in bases:
        _check_name(base, "name of a base kind")
    texts = tuple(
        (_check_name(name, "name of a field"), _canonical_text(name, text)) for name, text in fields
    )
    return AttributeSet(_check_name(kind, "kind of an attribute set"), texts, bases)


def sets_of(messages: Sequence[pb.AttributeSet]) -> tuple[AttributeSet, ...]:
    """Return attribute sets; ValueError if one is not valid, or if there are too many."""
    _check_count(len(messages), MAX_SETS, "attribute sets")
    sets = tuple(map(set_of, messages))
    _check_count(sum(1 + len(each.bases) for each in sets), MAX_NAMES, "kinds with their bases")
    _check_count(sum(len(each.fields) for each in sets), MAX_FIELDS, "fields of attribute sets")
    return sets


def types_of(messages: Sequence[pb.ServiceType]) -> tuple[ServiceType, ...]:
    """Return types; ValueError if one is not valid, or if there are too many."""
    _check_count(sum(1 + len(each.bases) for each in messages), MAX_NAMES, "types with their bases")
    return tuple(map(type_of, messages))


def _check_count(count: int, most: int, what: str) -> None:
    if count > most:
        raise ValueError(f"there must be at most {most:,} {what}, got {count:,}")


def _canonical_text(name: str, text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"field {name!r} must be a JSON value: {error}") from None
    return canonical(value, f"field {name!r}")


def set_message(attributes: AttributeSet) -> pb.AttributeSet:
    """Return the message of an attribute set."""
    return pb.AttributeSet(
        kind=attributes.kind, bases=attributes.bases, fields=dict(attributes.fields)
    )


def _type_message(service_type: ServiceType) -> pb.ServiceType:
    return pb.ServiceType(name=service_type.name, bases=service_type.bases)


def template_of(message: pb.ItemTemplate) -> Template:
    """Return the template of a message; ValueError if it is not valid."""
    conditions = len(message.types) + sum(1 + len(each.fields) for each in message.attributes)
    _check_count(conditions, MAX_CONDITIONS, "types, attribute sets and fields in a template")
    return Template(
        check_item_id(message.id) if message.id else "",
        types_of(message.types),
        sets_of(message.attributes),
    )


def template_message(template: Template) -> pb.ItemTemplate:
    """Return the message of a template."""
    return pb.ItemTemplate(
        id=template.id,
        types=map(_type_message, template.types),
        attributes=map(set_message, template.attributes),
    )


def item_of(message: pb.ServiceItem) -> Item:
    """Return the item of a message, without its duplicate attribute sets; the id may be empty.

    Raises ValueError if it is not valid.
    """
    if message.ByteSize() > MAX_ITEM_BYTES:
        raise ValueError(
            f"an item must have at most {MAX_ITEM_BYTES:,} bytes, got {message.ByteSize():,}"
        )
    if len(message.endpoint) > MAX_ENDPOINT:
        raise ValueError(
            f"endpoint of an item must have at most {MAX_ENDPOINT:,} characters, "
            f"got {len(message.endpoint):,}"
        )
    descriptor = None
    if message.HasField("descriptor"):
        made = message.descriptor
        _check_name(made.type, "type of a descriptor")
        if len(made.encoding) > MAX_NAME:
            raise ValueError(
                f"encoding of a descriptor must have at most {MAX_NAME} characters, "
                f"got {len(made.encoding):,}"
            )
        descriptor = Descriptor(_shared(made.type), _shared(made.encoding), made.data)
    try:
        health = Health(message.health)
    except ValueError:
        raise ValueError(
            f"health of an item must be PASSING, FAILING or MAINTENANCE, got {message.health}"
        ) from None
    return Item(
        check_item_id(message.id) if message.id else "",
        types_of(message.types),
        without_duplicates(sets_of(message.attributes)),
        message.endpoint,
        descriptor,
        health,
    )


@lru_cache(SHARED)
def _shared(text: str) -> str:
    return text


def item_message(item: Item) -> pb.ServiceItem:
    """Return the message of an item."""
    message = pb.ServiceItem(
        id=item.id,
        types=map(_type_message, item.types),
        attributes=map(set_message, item.attributes),
        endpoint=item.endpoint,
        health=item.health.name,
    )
    if (descriptor := item.descriptor) is not None:
        message.descriptor.type = descriptor.type
        message.descriptor.encoding = descriptor.encoding
        message.descriptor.data = descriptor.data
    return message


def change_of(request: pb.ChangeRequest) -> Callable[[Item], Item]:
    """Return the change of a request, which is applied to the latest version of the item."""
    match request.WhichOneof("change"):
        case "add":
            return partial(add_attributes, sets=sets_of(request.add.sets))
        case "set":
            return partial(set_attributes, sets=sets_of(request.set.sets))
        case "modify":
            given = request.modify.updates
            _check_count(len(given), MAX_UPDATES, "updates in a change")
            templates = [set_of(each.template) for each in given]
            updates = [set_of(each.update) if each.HasField("update") else None for each in given]
            modify_attributes(Item(""), templates, updates)  # raises if they do not agree
            return partial(modify_attributes, templates=templates, updates=updates)
        case "health":
            try:
                health = Health(request.health)
            except ValueError:
                raise ValueError(
                    f"health must be PASSING, FAILING or MAINTENANCE, got {request.health}"
                ) from None
            return lambda item: replace(item, health=health)
        case _:
            raise ValueError("change must be given: add, set, modify or health")


def browsed(request: pb.BrowseRequest, items: Sequence[Item], template: Template) -> list[str]:
    """Return the names or values that a request selects from the items that match its template.

    Raises IndexError and AttributeError: see `browse_values`.
    """
    match request.subject:
        case pb.BrowseRequest.TYPES:
            return browse_types(items, template, request.prefix)
        case pb.BrowseRequest.ATTRIBUTE_KINDS:
            return browse_kinds(items, template)
        case pb.BrowseRequest.FIELD_VALUES:
            return browse_values(items, template, request.index, request.field)
        case _:
            raise ValueError(
                f"subject must be TYPES, ATTRIBUTE_KINDS or FIELD_VALUES, got {request.subject}"
            )


def stored_item(version: ItemVersion) -> bytes:
    """Return the value of an item's key."""
    return pb.StoredItem(
        item=item_message(version.item).SerializeToString(deterministic=True),
        registration=version.registration,
        ttl_ms=round(version.ttl_s * 1000),
    ).SerializeToString(deterministic=True)


def version_of(value: bytes, lease: int, revision: int) -> ItemVersion:
    """Return an item from its key's value; ValueError if it cannot be decoded."""
    try:
        stored = pb.StoredItem.FromString(value)
        message = pb.ServiceItem.FromString(stored.item)
    except DecodeError as error:
        raise ValueError(f"stored item cannot be decoded: {error}") from None
    item = item_of(message)
    if not item.id:
        raise ValueError("stored item must have an id")
    if stored.ttl_ms < 0:
        raise ValueError(f"TTL of a stored item must not be negative, got {stored.ttl_ms} ms")
    ttl_s = stored.ttl_ms / 1000
    return ItemVersion(item, stored.registration, lease, ttl_s, revision, stored.item)


def encoded_item(version: ItemVersion) -> bytes:
    """Return an item as a message `ServiceItem`."""
    return version.encoded or item_message(version.item).SerializeToString()


UNDECODABLE: Final = b"\0"
"""The beginning of an answer's item that stands for one that cannot be decoded: not a message."""
