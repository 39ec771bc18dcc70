"""Messages of the discovery service, for servers and clients."""

from collections.abc import Iterable
from typing import Final

from leasehold.discovery.announced import Registrar
from leasehold.discovery.locators import groups_of
from leasehold.discovery.state import ALL_GROUPS, Groups
from leasehold.wire import discovery_pb2 as pb
from leasehold.wire import registry_pb2

KIND: Final = 1
"""The kind of all events of the service: one sequence of numbers for each registration."""


def groups_message(groups: Iterable[str] | None) -> pb.GroupNames:
    """Return the message of wanted groups. TypeError: one of them is not a str."""
    names = groups_of(groups)
    if names is ALL_GROUPS:
        return pb.GroupNames(all=True)
    return pb.GroupNames(names=sorted(names))


def groups_in(message: pb.GroupNames) -> Groups:
    """Return the wanted groups of a message. ValueError: names and all groups, or a long name."""
    if message.all and message.names:
        raise ValueError("groups must have `all` or `names`, not both")
    return groups_of(None if message.all else message.names)


def registrar_info(registrar: Registrar, groups: Iterable[str] = ()) -> bytes:
    """Return the message of a registrar; without groups where these are kept beside it."""
    return registry_pb2.RegistrarInfo(
        id=registrar.id,
        groups=groups,
        groups_number=registrar.groups_number,
        endpoints=registrar.endpoints,
        cluster=registrar.cluster,
    ).SerializeToString()


def registrar_in(message: bytes) -> Registrar:
    """Return the registrar of a message. Raises DecodeError."""
    info = registry_pb2.RegistrarInfo.FromString(message)
    return Registrar(
        info.id, frozenset(info.groups), info.groups_number, tuple(info.endpoints), info.cluster
    )


def found_message(registrar: Registrar) -> pb.FoundRegistrar:
    """Return the message of a registrar that is found, encoded for itself."""
    return pb.FoundRegistrar(
        id=registrar.id, groups=sorted(registrar.groups), registrar=registrar_info(registrar)
    )
