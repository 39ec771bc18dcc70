"""The services of a cluster's own servers, as items of its registry.

All servers on one engine are one registrar. The id of the registrar, and those of the other
services, follow from that of the cluster, so they need no keys.

The services are items without an end: they exist as long as a server answers. The key of such an
item has the attributes of the service, once some were set.
"""

import hashlib
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from leasehold.engine.interface import Engine
from leasehold.registry.messages import item_key, item_message, item_of, stored_item, version_of
from leasehold.registry.state import (
    AttributeSet,
    Item,
    ItemVersion,
    ServiceType,
    set_attributes,
)
from leasehold.services.shared_value import SharedValue

REGISTRAR: Final = "registrar"
RENEWAL: Final = "renewal"
DISCOVERY: Final = "discovery"

SERVICES: Final[Mapping[str, str]] = {
    REGISTRAR: "leasehold.Registrar",
    RENEWAL: "leasehold.RenewalService",
    DISCOVERY: "leasehold.DiscoveryService",
}
"""The services of a server, and the types of their items. The id of each item follows from the
name; the registrar is the first."""

NAMESPACE: Final = UUID("6f0b7c1e-58a5-5c0e-9d0e-2d4b3a1c7f10")
"""Of ids that are derived from other values."""


def derived_id(*parts: bytes) -> str:
    """Return the id that follows from some bytes: a UUID of version 5."""
    digest = hashlib.sha1(NAMESPACE.bytes + b"/".join(parts), usedforsecurity=False).digest()
    return str(UUID(bytes=digest[:16], version=5))


def service_id(cluster: int, service: str) -> str:
    """Return the id of the item of a service of a cluster's servers."""
    return derived_id(service.encode(), b"%016x" % cluster)


def registrar_id(cluster: int) -> str:
    """Return the id of the registrar of a cluster."""
    return service_id(cluster, REGISTRAR)


def own_items(cluster: int, endpoint: str = "") -> dict[str, Item]:
    """Return the items of the services of a cluster's servers by id, without their attributes."""
    items = {}
    for service, type_name in SERVICES.items():
        item_id = service_id(cluster, service)
        items[item_id] = Item(item_id, (ServiceType(type_name),), endpoint=endpoint)
    return items


def own_ids(cluster: int) -> frozenset[str]:
    """Return the ids of the items of the services of a cluster's servers."""
    return frozenset(own_items(cluster))


def service_attributes(engine: Engine, service: str) -> SharedValue[tuple[AttributeSet, ...]]:
    """Return the attributes of a service, which are stored in the key of its item."""
    item_id = service_id(engine.cluster_id, service)
    item = own_items(engine.cluster_id)[item_id]

    def encode(attributes: tuple[AttributeSet, ...]) -> bytes:
        checked = item_of(item_message(set_attributes(item, attributes)))
        return stored_item(ItemVersion(checked, "", 0, 0.0, 0))

    def decode(value: bytes) -> tuple[AttributeSet, ...]:
        return version_of(value, 0, 0).item.attributes

    return SharedValue(engine, item_key(item_id), (), decode=decode, encode=encode)
