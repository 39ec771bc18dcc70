"""Items of the registry, and events of it, in the output of commands."""

import json
from typing import TYPE_CHECKING, Any

from leasehold.cli.output import shown_bytes

if TYPE_CHECKING:
    from leasehold.events.state import RemoteEvent
    from leasehold.registry.state import AttributeSet, Item


def event_as_json(event: "RemoteEvent") -> dict[str, Any]:
    """Return the payload of an event of the registry as values of JSON."""
    from leasehold.registry.item_watch import decoded_item
    from leasehold.registry.state import Transition
    from leasehold.wire import registry_pb2 as pb

    payload = pb.ItemEvent.FromString(event.payload)
    if not payload.transition:
        return {"event": "resync"}
    item = decoded_item(payload.item) if payload.item else None
    return {
        "event": "item",
        "transition": Transition(payload.transition).name,
        "id": payload.id,
        "item": item_json(item) if payload.item else None,
    }


def item_json(item: "Item | None") -> dict[str, Any]:
    """Return an item as values of JSON; None is one that cannot be decoded."""
    if item is None:
        return {"undecodable": True}
    shown_item: dict[str, Any] = {
        "id": item.id,
        "health": item.health.name.lower(),
        "endpoint": item.endpoint,
        "types": [each.name for each in item.types],
        "attributes": list(map(set_json, item.attributes)),
    }
    if item.descriptor is not None:
        shown_item["descriptor"] = item.descriptor.type
    return shown_item


def set_json(attributes: "AttributeSet") -> dict[str, Any]:
    """Return an attribute set as values of JSON."""
    fields = {name: json.loads(text) for name, text in attributes.fields}
    return {"kind": attributes.kind, "fields": fields}


def item_row(item: "Item | None") -> tuple[str, ...]:
    """Return an item as the cells of a table; None is one that cannot be decoded."""
    if item is None:
        return ("(cannot be decoded)", "", "", "", "")
    return (
        item.id,
        item.health.name.lower(),
        shown_text(item.endpoint),
        shown_text(", ".join(each.name for each in item.types)),
        shown_text("; ".join(map(shown_set, item.attributes))),
    )


def shown_set(attributes: "AttributeSet") -> str:
    """Format an attribute set for people; names and values are not escaped."""
    fields = ", ".join(f"{name}={text}" for name, text in attributes.fields)
    return f"{attributes.kind}({fields})"


def shown_text(text: str) -> str:
    """Format a text for people, in one line."""
    return shown_bytes(text.encode())
