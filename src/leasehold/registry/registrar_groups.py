"""The groups of the registrar, which all servers of its cluster share.

They are in the key `leasehold/registrar` once they were set.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from leasehold.engine.interface import Engine
from leasehold.registry.state import check_groups
from leasehold.services.shared_value import SharedValue
from leasehold.wire import registry_pb2 as pb

REGISTRAR_KEY: Final = b"leasehold/registrar"
"""The key of the registrar's groups."""


class MemberGroups(NamedTuple):
    """The groups of a registrar, and their number, which rises when they change."""

    names: tuple[str, ...] = ()
    number: int = 0


class RegistrarGroups:
    """The groups of a registrar, which all servers of its cluster share."""

    def __init__(self, engine: Engine) -> None:
        self._shared = SharedValue(
            engine, REGISTRAR_KEY, MemberGroups(), decode=_decoded, encode=_encoded
        )

    async def get(self) -> MemberGroups:
        """Return the groups; none if they were never set."""
        return (await self._shared.read()).value

    async def set(self, names: Iterable[str]) -> MemberGroups:
        """Set the groups, and return them with their number; equal ones change nothing.

        Setting none to a registrar that never had groups is a change: it is then announced.
        """
        wanted = check_groups(names)
        return await self.update(lambda _: wanted)

    async def update(self, change: Callable[[tuple[str, ...]], Iterable[str]]) -> MemberGroups:
        """Change the groups; `change` returns the new ones, and may be called several times."""

        def changed(groups: MemberGroups) -> MemberGroups:
            names = check_groups(change(groups.names))
            is_same = names == groups.names and groups.number
            return groups if is_same else MemberGroups(names, groups.number + 1)

        return (await self._shared.update(changed)).value


def _encoded(groups: MemberGroups) -> bytes:
    info = pb.RegistrarInfo(groups=groups.names, groups_number=groups.number)
    return info.SerializeToString()


def _decoded(value: bytes) -> MemberGroups:
    info = pb.RegistrarInfo.FromString(value)
    return MemberGroups(tuple(info.groups), info.groups_number)
