"""Alarms: conditions that an operator must see, and must clear.

NOSPACE is raised when a request is refused because the quota is used up. From then on every request
that would make the data larger is refused, even if there is room again: a server that takes some
writes and refuses others would be harder to understand than one that waits for its operator.
CORRUPT is raised by operators only, and blocks all changes.

Alarms are kept as a note in the journal, so they survive a restart. An alarm takes effect before
the note is on disk, and ends after that.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final, NamedTuple

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.server.etcd.service_context import ServiceContext, invalid
from leasehold.wire.maintenance_pb2 import (
    CORRUPT,
    NONE,
    NOSPACE,
    AlarmMember,
    AlarmResponse,
)

logger = logging.getLogger(__name__)

MAX_ALARMS: Final = 1_000
"""A client may raise alarms for any member id, so their number is limited."""

NOTE: Final = "alarms"

_NAMES: Final[dict[int, str]] = {NOSPACE: "NOSPACE", CORRUPT: "CORRUPT"}


class EtcdAlarm(NamedTuple):
    """An alarm and its member."""

    member: int
    kind: int

    def __str__(self) -> str:
        # As Go prints the message: zero fields are left out.
        member = f"memberID:{self.member} " if self.member else ""
        return f"{member}alarm:{_NAMES[self.kind]} "


class Alarms:
    """The alarms of one server."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        journal = context.runtime.journal
        self._own = EtcdAlarm(journal.identity.member_id, NOSPACE)
        noted = AlarmResponse.FromString(journal.notes.get(NOTE, b""))
        self.raised = [EtcdAlarm(each.memberID, each.alarm) for each in noted.alarms]
        """The raised alarms that are on disk, the oldest first."""
        self._turn = asyncio.Lock()
        self._raising: asyncio.Task[None] | None = None
        context.store.on_no_space = self._no_space
        self._act_on(self.raised)

    def of_kind(self, kind: int) -> list[EtcdAlarm]:
        """Return the alarms of a kind; NONE means all of them."""
        return [alarm for alarm in self.raised if kind in (NONE, alarm.kind)]

    def reason(self, excluded: Collection[str] = ()) -> str:
        """Return why this server is not healthy, in etcd's words; empty if it is."""
        for alarm in self.raised:
            if _NAMES[alarm.kind] not in excluded:
                return f"ALARM {_NAMES[alarm.kind]}"
        return ""

    async def activate(self, alarm: EtcdAlarm) -> list[EtcdAlarm]:
        """Raise an alarm, if it is not raised already; return it."""
        check_kind(alarm.kind)
        if alarm.kind == NONE:
            return []
        async with self._turn:
            if alarm not in self.raised:
                if len(self.raised) >= MAX_ALARMS:
                    why = f"leasehold: {MAX_ALARMS} alarms are raised; deactivate some first"
                    raise RpcError(Status.RESOURCE_EXHAUSTED, why)
                await self._change([*self.raised, alarm])
                logger.warning("alarm raised: %s", alarm)
        return [alarm]

    async def deactivate(self, alarm: EtcdAlarm) -> list[EtcdAlarm]:
        """Clear an alarm; return it, if it was raised."""
        check_kind(alarm.kind)
        async with self._turn:
            if alarm not in self.raised:
                return []
            await self._change([each for each in self.raised if each != alarm])
            logger.warning("alarm disarmed: %s", alarm)
        return [alarm]

    async def _change(self, alarms: list[EtcdAlarm]) -> None:
        """Store the new alarms; until they are on disk, old and new alarms are in effect."""
        self._act_on([*self.raised, *alarms])
        noted = AlarmResponse(alarms=[message_of(alarm) for alarm in alarms]).SerializeToString()
        try:
            await self._context.do(lambda journal: journal.note(NOTE, noted))
            self.raised = alarms
        finally:
            self._act_on(self.raised)

    def _act_on(self, alarms: list[EtcdAlarm]) -> None:
        kinds = {alarm.kind for alarm in alarms}
        self._context.store.cap(is_capped=NOSPACE in kinds)
        self._context.is_corrupt = CORRUPT in kinds

    def _no_space(self) -> None:
        """Raise the alarm for the first refusal; for later ones it is raised or about to be."""
        if self._raising is None and self._own not in self.raised:
            self._raising = asyncio.get_running_loop().create_task(self._raise_own())

    async def _raise_own(self) -> None:
        try:
            await self.activate(self._own)
        except RpcError as error:  # the next refusal retries
            logger.error("the alarm for lack of space could not be raised: %s", error)
        finally:
            self._raising = None


def message_of(alarm: EtcdAlarm) -> AlarmMember:
    """Return an alarm as etcd's message."""
    return AlarmMember(memberID=alarm.member, alarm=alarm.kind)  # type: ignore[arg-type]


def check_kind(kind: int) -> None:
    """Refuse an unknown kind of alarm. A real etcd crashes, and cannot be restarted."""
    if kind not in (NONE, NOSPACE, CORRUPT):
        raise invalid(f"unknown alarm {kind}; use NOSPACE (1) or CORRUPT (2)")
