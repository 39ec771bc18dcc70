"""Calls that put a key under a name, and are answered when no older one is left there.

What `Lock` and `Campaign` have in common. A caller that goes away while it waits takes its key with
it, unless another call waits for the same one; and so does a lease that was granted for the call.
When the server stops, keys stay as they are, and their leases decide.

Whatever these services refuse has the status UNKNOWN, as in etcd, which gets there through a client
of its own.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final, NamedTuple

from leasehold.core.keyspace import Item
from leasehold.core.ops import Delete, Grant, Put, Revoke
from leasehold.errors import Closed, JournalFailed, LeaseholdError, Status, UnknownLease
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.routes import Speaker
from leasehold.server.etcd.desk import STOPPED, Desk
from leasehold.server.etcd.lines import Line, Lines, bounds

SESSION_TTL_S: Final = 60.0
"""The term of a lease that is granted for a caller who names none."""


def unknown(text: str, position: int = 0) -> RpcError:
    """Refuse a call in the way of these services."""
    return RpcError(Status.UNKNOWN, text, position)


@contextmanager
def refusing(desk: Desk) -> Iterator[None]:
    """Refuse what cannot be done in etcd's words, and in the way of these services."""
    try:
        try:
            yield
        except LeaseholdError as error:
            desk.refuse(error)
    except RpcError as error:
        raise unknown(error.message, error.position) from error


def key_of(name: bytes, lease: int) -> bytes:
    """Give the key that a lease has under a name."""
    return b"%b/%b" % (name, f"{lease:x}".encode())


class OneRequest:
    """The handler of a call that has one request, and is answered by whoever has the answer.

    It has no task, unless it comes while an operation is under way in steps.
    """

    def __init__(self, desk: Desk, lines: Lines, speaker: Speaker) -> None:
        self._desk = desk
        self._store = desk.store
        self._lines = lines
        self._speaker = speaker
        self._message: bytes | None = None
        self._entering: asyncio.Task[None] | None = None

    def heard(self, message: bytes) -> None:
        """Take the request."""
        if self._message is not None:
            raise RpcError(Status.INTERNAL, "a second message in a unary call")
        self._message = message

    def ended(self) -> None:
        """Begin: there is nothing more to come."""
        message, self._message = self._message, b""
        if message is None:
            raise RpcError(Status.INTERNAL, "a unary call without a message")
        if self._store.is_busy:
            self._entering = self._lines.spawn(self._begin_later(message))
        else:
            self.begin(message)

    async def _begin_later(self, message: bytes) -> None:
        try:
            await self._desk.runtime.enter()
            self.begin(message)
        except (Closed, JournalFailed):
            self._speaker.end(RpcError(Status.UNAVAILABLE, STOPPED))
        except Exception as error:  # noqa: BLE001  every failure is somebody's answer
            self._speaker.fail(error)
        self._speaker.flush_soon()

    def begin(self, message: bytes) -> None:
        """Do what the request asks for, while no operation is under way in steps."""
        raise NotImplementedError

    def relieved(self) -> None:
        """Do nothing: there is one answer, whether there is room or not."""

    def gone(self) -> None:
        """Learn that the call is over."""
        if self._entering is not None:
            self._entering.cancel()

    def failed(self, error: LeaseholdError) -> None:
        """Learn that what it waits for cannot be found out."""
        self._speaker.end(unknown(f"leasehold: {error}"))
        self._speaker.flush_soon()


class Wanted(NamedTuple):
    """What a call claims: a place under a name, for a lease, or (0) for one of its own."""

    name: bytes
    lease: int
    value: bytes = b""


class Claimed(NamedTuple):
    """The key that a call has."""

    name: bytes
    key: bytes
    lease: int
    created: int
    """Its create revision."""
    at_revision: int
    """The revision at which it was claimed, and what must be durable before that is told."""
    position: int


class Claim(OneRequest):
    """A call that waits for its turn."""

    OUT: ClassVar[str]
    """What a caller is told whose key is gone."""

    def __init__(self, desk: Desk, lines: Lines, speaker: Speaker) -> None:
        super().__init__(desk, lines, speaker)
        self._claimed: Claimed | None = None
        self._line: Line | None = None
        self._granted = 0
        """The lease that was granted for this call, until it is answered."""

    def read(self, message: bytes) -> Wanted:
        """Read the request."""
        raise NotImplementedError

    def answer(self, claimed: Claimed, revision: int) -> bytes:
        """Make the answer, once it is its turn as of a revision."""
        raise NotImplementedError

    def reclaim(self, key: bytes, lease: int, item: Item, value: bytes) -> int:
        """Claim a key that is there already; give the position that this is durable at."""
        return 0

    def begin(self, message: bytes) -> None:
        """Get in line."""
        wanted = self.read(message)
        with refusing(self._desk):
            self._desk.check_room(len(message))
            self._lines.chores.do_now(key_of(wanted.name, wanted.lease))
            if self._store.is_busy:  # a lease goes with very many keys
                self._entering = self._lines.spawn(self._begin_later(message))
                return
            is_alone = self._check_others(wanted)
            self._grant(wanted)
            self._claimed = claimed = self._claim(wanted, self._granted or wanted.lease)
        if is_alone:
            self._say(claimed.at_revision, claimed.position)
            return
        self._line = self._lines.of(wanted.name)
        if self._line.wait(claimed.key, self):
            self._say(claimed.at_revision, claimed.position)

    def _check_others(self, wanted: Wanted) -> bool:
        """Say whether there are no other keys; if there are, see that the call can wait."""
        others = self._store.keyspace.count(*bounds(wanted.name))
        if others and wanted.lease:
            own = self._store.keyspace.get(key_of(wanted.name, wanted.lease))
            others -= own is not None
        if others:
            self._lines.check_room(wanted.name)
        return not others

    def _grant(self, wanted: Wanted) -> None:
        if not wanted.lease:
            (self._granted, _), _ = self._store.apply(Grant(0, SESSION_TTL_S))

    def _claim(self, wanted: Wanted, lease: int) -> Claimed:
        store = self._store
        key = key_of(wanted.name, lease)
        item = store.keyspace.get(key)
        if item is None:
            (revision, _), position = store.apply(Put(key, wanted.value, lease))
            return Claimed(wanted.name, key, lease, revision, revision, position)
        if store.is_range_durable(*bounds(wanted.name)):
            revision, position = store.durable_revision, 0
        else:
            revision, position = store.revision, store.position_of(store.revision)
        position = max(position, self.reclaim(key, lease, item, wanted.value))
        return Claimed(wanted.name, key, lease, item[1], revision, position)

    def _say(self, revision: int, position: int) -> None:
        assert self._claimed is not None, "it was claimed before"
        self._granted = 0  # it is the caller's now
        self._speaker.answer_and_end(self.answer(self._claimed, revision), position)
        self._flush(position)

    def _flush(self, position: int) -> None:
        if position <= self._desk.gate.released:
            self._speaker.flush_soon()

    # What happens while it waits.

    def is_first(self, revision: int, position: int) -> None:
        """Answer: it is its turn."""
        self._say(revision, position)

    def is_out(self, position: int) -> None:
        """Refuse: its key is gone, with its lease or without."""
        self._speaker.end(unknown(self.OUT, position))
        self._flush(position)

    def gone(self) -> None:
        """Get out of line if it is still there."""
        super().gone()
        claimed, lease = self._claimed, self._granted
        was_last = False
        if self._line is not None and claimed is not None:
            was_last = self._line.leave(claimed.key, self)
        if lease:
            self._lines.chores.do_soon(
                b"" if claimed is None else claimed.key, lambda: self._revoke(lease)
            )
        elif was_last and claimed is not None:
            self._lines.chores.do_soon(claimed.key, lambda: self._withdraw(claimed))

    def _revoke(self, lease: int) -> None:
        try:
            self._store.apply(Revoke(lease))
        except UnknownLease:
            return  # it has ended by itself

    def _withdraw(self, claimed: Claimed) -> None:
        item = self._store.keyspace.get(claimed.key)
        if item is not None and item[1] == claimed.created:
            self._store.apply(Delete(claimed.key))
