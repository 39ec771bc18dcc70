"""Alarms: what an operator has to know, and has to switch off.

NOSPACE is raised when something is refused because the quota is used up. From then on whatever
would make the data larger is refused, even if there is room again: a server that takes some writes
and refuses others would be harder to understand than one that waits for its operator. CORRUPT is
raised by operators only, and nothing is changed any more then.

They are kept as a note in the journal, so they outlive a restart. What an alarm forbids is
forbidden before the note is on disk, and allowed again after that.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final, NamedTuple

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.server.etcd.desk import Desk, invalid
from leasehold.wire.maintenance_pb2 import (
    CORRUPT,
    NONE,
    NOSPACE,
    AlarmMember,
    AlarmResponse,
)

logger = logging.getLogger(__name__)

MAX_ALARMS: Final = 1_000
"""A client may raise alarms in the name of any member, so there must be an end."""

NOTE: Final = "alarms"

_NAMES: Final[dict[int, str]] = {NOSPACE: "NOSPACE", CORRUPT: "CORRUPT"}


class Alarm(NamedTuple):
    """An alarm, and whose."""

    member: int
    kind: int

    def __str__(self) -> str:
        # As Go prints the message; nothing is shown that is zero.
        member = f"memberID:{self.member} " if self.member else ""
        return f"{member}alarm:{_NAMES[self.kind]} "


class Alarms:
    """The alarms of one server."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        journal = desk.runtime.journal
        self._own = Alarm(journal.identity.member_id, NOSPACE)
        noted = AlarmResponse.FromString(journal.notes.get(NOTE, b""))
        self.raised = [Alarm(each.memberID, each.alarm) for each in noted.alarms]
        """What is known to be raised, and is on disk; the oldest first."""
        self._turn = asyncio.Lock()
        self._raising: asyncio.Task[None] | None = None
        desk.store.on_no_space = self._no_space
        self._act_on(self.raised)

    def of_kind(self, kind: int) -> list[Alarm]:
        """Give the alarms of a kind; NONE is all of them."""
        return [alarm for alarm in self.raised if kind in (NONE, alarm.kind)]

    def reason(self, excluded: Collection[str] = ()) -> str:
        """Why this server is not healthy, in etcd's words; empty if it is."""
        for alarm in self.raised:
            if _NAMES[alarm.kind] not in excluded:
                return f"ALARM {_NAMES[alarm.kind]}"
        return ""

    async def activate(self, alarm: Alarm) -> list[Alarm]:
        """Raise an alarm, if it is not raised already; give it."""
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

    async def deactivate(self, alarm: Alarm) -> list[Alarm]:
        """Switch an alarm off; give it, if it was raised."""
        check_kind(alarm.kind)
        async with self._turn:
            if alarm not in self.raised:
                return []
            await self._change([each for each in self.raised if each != alarm])
            logger.warning("alarm disarmed: %s", alarm)
        return [alarm]

    async def _change(self, alarms: list[Alarm]) -> None:
        """Note what is raised from now on; until that is on disk, old and new alarms count."""
        self._act_on([*self.raised, *alarms])
        noted = AlarmResponse(alarms=[message_of(alarm) for alarm in alarms]).SerializeToString()
        try:
            await self._desk.do(lambda journal: journal.note(NOTE, noted))
            self.raised = alarms
        finally:
            self._act_on(self.raised)

    def _act_on(self, alarms: list[Alarm]) -> None:
        kinds = {alarm.kind for alarm in alarms}
        self._desk.store.cap(is_capped=NOSPACE in kinds)
        self._desk.is_corrupt = CORRUPT in kinds

    def _no_space(self) -> None:
        """Raise the alarm for the first refusal; the others find it raised, or on its way."""
        if self._raising is None and self._own not in self.raised:
            self._raising = asyncio.get_running_loop().create_task(self._raise_own())

    async def _raise_own(self) -> None:
        try:
            await self.activate(self._own)
        except RpcError as error:  # the next refusal tries again
            logger.error("the alarm for lack of space could not be raised: %s", error)
        finally:
            self._raising = None


def message_of(alarm: Alarm) -> AlarmMember:
    """Give an alarm as etcd's message."""
    return AlarmMember(memberID=alarm.member, alarm=alarm.kind)  # type: ignore[arg-type]


def check_kind(kind: int) -> None:
    """Refuse an alarm that there is not. A real etcd ends, and cannot be started again."""
    if kind not in (NONE, NOSPACE, CORRUPT):
        raise invalid(f"there is no alarm {kind}, only NOSPACE (1) and CORRUPT (2)")
