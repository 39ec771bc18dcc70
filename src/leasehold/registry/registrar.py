"""The registrar: the id and the groups that all servers of a cluster have in common.

All servers on one engine are one registrar. Its id follows from that of the cluster, so it needs no
key. Its groups are in the key `leasehold/registrar` once they were set.

The registrar and the other services of these servers are items themselves, without keys and without
an end: they are there as long as a server is there that answers.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from google.protobuf.message import DecodeError

from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue
from leasehold.errors import TooBusy
from leasehold.keyspace.operations import Compare, Put, Range, Relation, Target
from leasehold.registry.state import Item, ServiceType, check_groups
from leasehold.wire import registry_pb2 as pb

REGISTRAR_KEY: Final = b"leasehold/registrar"
"""The key of the registrar's groups."""

REGISTRAR_TYPE: Final = "leasehold.Registrar"
"""The type of the item that the registrar itself is."""

RENEWAL_TYPE: Final = "leasehold.RenewalService"
"""The type of the item that the renewal service is."""

DISCOVERY_TYPE: Final = "leasehold.DiscoveryService"
"""The type of the item that the discovery service is."""

NAMESPACE: Final = UUID("6f0b7c1e-58a5-5c0e-9d0e-2d4b3a1c7f10")
"""Of ids that are derived from other values."""

CALL_S: Final = 10.0
"""The timeout of one call to the engine."""

MAX_CONFLICTS: Final = 100
"""How often a change is repeated because another one came first."""


def derived_id(*parts: bytes) -> str:
    """Return the id that follows from some bytes: a UUID of version 5."""
    digest = hashlib.sha1(NAMESPACE.bytes + b"/".join(parts), usedforsecurity=False).digest()
    return str(UUID(bytes=digest[:16], version=5))


def registrar_id(cluster: int) -> str:
    """Return the id of the registrar of a cluster."""
    return derived_id(b"registrar", b"%016x" % cluster)


def own_items(cluster: int, endpoint: str = "") -> tuple[Item, ...]:
    """Return the items of the services of a cluster's servers; the first is the registrar."""
    renewal = derived_id(b"renewal", b"%016x" % cluster)
    discovery = derived_id(b"discovery", b"%016x" % cluster)
    types = {
        registrar_id(cluster): REGISTRAR_TYPE,
        renewal: RENEWAL_TYPE,
        discovery: DISCOVERY_TYPE,
    }
    return tuple(
        Item(item_id, (ServiceType(name),), endpoint=endpoint) for item_id, name in types.items()
    )


class Groups(NamedTuple):
    """The groups of a registrar, and their number, which rises when they change."""

    names: tuple[str, ...] = ()
    number: int = 0


class RegistrarState:
    """The groups of a registrar, which all servers of its cluster share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self) -> Groups:
        """Return the groups; none if they were never set."""
        return (await self._read())[0]

    async def _read(self) -> tuple[Groups, int]:
        async with time_limit(CALL_S, self._engine):
            found = await self._engine.range(REGISTRAR_KEY)
        return _groups_of(found.pairs)

    async def set(self, names: Iterable[str]) -> Groups:
        """Set the groups, and return them with their number; equal ones change nothing.

        Setting none to a registrar that never had groups is a change: it is then announced.
        """
        wanted = check_groups(names)
        return await self.update(lambda _: wanted)

    async def update(self, change: Callable[[tuple[str, ...]], Iterable[str]]) -> Groups:
        """Change the groups; `change` returns the new ones, and may be called several times."""
        groups, revision = await self._read()
        for _ in range(MAX_CONFLICTS):
            names = check_groups(change(groups.names))
            if names == groups.names and revision:
                return groups
            changed = Groups(names, groups.number + 1)
            value = pb.RegistrarInfo(groups=names, groups_number=changed.number)
            put = Put(REGISTRAR_KEY, value.SerializeToString())
            is_same = Compare(REGISTRAR_KEY, Target.MOD_REVISION, Relation.EQUAL, revision)
            async with time_limit(CALL_S, self._engine):
                done = await self._engine.txn([is_same], [put], [Range(REGISTRAR_KEY)])
            if done.succeeded:
                return changed
            groups, revision = _groups_of(done.results[0].pairs)
        raise TooBusy("the groups of the registrar are changed again and again by others")


def _groups_of(pairs: Sequence[KeyValue]) -> tuple[Groups, int]:
    if not pairs:
        return Groups(), 0
    try:
        info = pb.RegistrarInfo.FromString(pairs[0].value)
    except DecodeError:  # written by another program: it is replaced when groups are set
        info = pb.RegistrarInfo()
    return Groups(tuple(info.groups), info.groups_number), pairs[0].mod_revision
