"""All locks of a client: where they are, and what they have in common."""

import asyncio
import os
import re
import socket
import weakref
from collections.abc import Sequence
from typing import Final

from leasehold.client.patience import Patience
from leasehold.engine.interface import Engine
from leasehold.errors import Closed, UnknownLease
from leasehold.recipes.asker import Asker
from leasehold.recipes.cell import Cell
from leasehold.recipes.events import LockEventKind, LockLog
from leasehold.recipes.feeds import Feeds
from leasehold.recipes.naming import MAX_WHO, text_of
from leasehold.recipes.options import RECALL_S, LockOptions
from leasehold.recipes.sessions import Sessions

COUNTS_AT_ONCE: Final = 64
"""Locks that are asked for their counts at the same time."""

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def this_process() -> str:
    """Say who we are, for those who find our lock in their way."""
    return f"{socket.gethostname()}:{os.getpid()}"


def check_who(who: str) -> str:
    """Check what a client is to be called."""
    if not isinstance(who, str):
        raise TypeError(f"name must be a str, not {who!r}")
    if not 0 < len(who) <= MAX_WHO:
        raise ValueError(f"name must have 1 to {MAX_WHO} characters, not {len(who)}")
    if _CONTROL.search(who):
        raise ValueError(f"name must be text without line ends and control characters, not {who!r}")
    try:
        who.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"name must be text that UTF-8 has, not {who!r}: {error}") from None
    return who


class Locks:
    """The cells of a client, by name."""

    def __init__(self, engine: Engine, sessions: Sessions, patience: Patience) -> None:
        self.engine = engine
        self.sessions = sessions
        self.patience = patience
        self.owner = patience.owner
        self.who = sessions.who
        self.log = LockLog()
        self.defaults = LockOptions(
            cache=True, recall=True, idle_s=sessions.ttl_s, recall_s=RECALL_S
        )
        self.cells: dict[bytes, Cell] = {}
        """May be read in any thread."""
        self.is_forked = False
        self._feeds: Feeds | None = None
        sessions.on_renewed = self._renewed
        sessions.on_jeopardy = self._in_jeopardy
        sessions.on_lost = self._lost
        _all.add(self)

    @property
    def feeds(self) -> Feeds:
        """What happens to the lines of locks."""
        if self._feeds is None:
            self._feeds = Feeds(self.engine)
        return self._feeds

    def check(self) -> None:
        """Refuse to work after the client's end, and in a child process."""
        self.sessions.keeper.check()

    def check_call(self) -> None:
        """Refuse a call after the client's end, in a child process and in another event loop."""
        self.check()
        self.owner.check()

    def check_process(self) -> None:
        """Refuse to work in a child process."""
        if self.is_forked:
            self.engine.check()

    def of(self, name: bytes) -> Cell:
        """Give the cell of a lock, to be used at once: there is never more than one."""
        cell = self.cells.get(name)
        if cell is not None:
            cell.look_at_clock()
            cell = self.cells.get(name)  # with its lock it may have gone
        if cell is None:
            cell = self.cells[name] = Cell(self, name)
        return cell

    def forget_if_unused(self, cell: Cell) -> None:
        """Let a cell go that has nothing to remember."""
        if cell.is_unused() and self.cells.get(cell.name) is cell:
            del self.cells[cell.name]

    async def count(self, name: bytes) -> int:
        """Ask whoever has a lock how often it was acquired: 0 if nobody has it."""
        self.check_call()
        cell = self.of(name)
        if cell.tenure is not None and cell.tenure.is_live:
            return cell.tenure.total
        asker = Asker(cell.text, self.defaults, tries=True, counts=True)
        cell.add(asker)
        try:
            counted = await self.patience.wait(_result(asker), None)
        finally:
            cell.remove(asker)
        assert isinstance(counted, int)
        return counted

    async def count_all(self, names: Sequence[bytes]) -> dict[str, int]:
        """Ask the holders of several locks."""
        turns = asyncio.Semaphore(COUNTS_AT_ONCE)

        async def count(name: bytes) -> int:
            async with turns:
                return await self.count(name)

        wanted = list(dict.fromkeys(names))
        totals = await asyncio.gather(*(count(name) for name in wanted))
        return {text_of(name): total for name, total in zip(wanted, totals, strict=True)}

    async def close(self) -> None:
        """End all of them."""
        _all.discard(self)
        self.sessions.close()
        for cell in list(self.cells.values()):
            cell.close(Closed("the client was closed"))
        if self._feeds is not None:
            await self._feeds.close()

    def abandon(self) -> None:
        """Be of no use in a child process: what is cached is the parent's."""
        self.is_forked = True
        for cell in self.cells.values():
            if cell.tenure is not None:
                cell.tenure.end("it is held by the parent of this process")

    # The session, for the log.

    def _renewed(self) -> None:
        self.log.say("client", LockEventKind.AUTO_RENEWED)

    def _in_jeopardy(self, _error: BaseException | None) -> None:
        self.log.say("client", LockEventKind.DISCONNECTED)

    def _lost(self, error: BaseException | None) -> None:
        if not isinstance(error, UnknownLease):
            self.log.say("client", LockEventKind.RENEWAL_TIMED_OUT)


async def _result(asker: Asker) -> object:
    return await asker.future


_all: "weakref.WeakSet[Locks]" = weakref.WeakSet()


def _forked() -> None:
    for locks in list(_all):
        locks.abandon()


os.register_at_fork(after_in_child=_forked)
