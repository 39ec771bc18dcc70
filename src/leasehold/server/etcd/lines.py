"""Who comes first under a name: keys in the order in which they were made.

Theory of operation. A lock or an election is a prefix, and the keys under it stand in line: the
one with the lowest create revision has the lock, or leads. A `Line` is such a line in memory, made
when the first call has to wait for it or watches it, and dropped with the last. It is a watcher of
the prefix, so it is told of every change in the step in which that is made, and looks at nothing
else: a release costs the one whose turn it is and nobody behind it, however long the line; a key
that goes from the middle costs nobody anything; and who has lost the own key learns it at once.

It is told of changes before they are on disk, and so are those who wait here: each time with the
position that must be durable before anybody else hears of it.

A prefix with more than a thousand keys is read in slices. What changes meanwhile is kept, and done
again when the rest is there.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol

from leasehold.core.keyspace import Change, Item
from leasehold.core.ops import Found, Range, SortBy
from leasehold.core.ranges import LONG
from leasehold.engine.runtime import Runtime
from leasehold.engine.slices import Slicer
from leasehold.errors import LeaseholdError, TooBusy
from leasehold.server.etcd.chores import Chores
from leasehold.server.etcd.desk import invalid

MAX_CALLERS: Final = 10_000
"""Calls of a service that wait for their turn, or observe who leads, on all connections.

All who observe one election are told of a change in one step: some 40 ms for so many."""

MAX_NAME_BYTES: Final = 16 * 1024
"""The name of a lock or an election: it is kept for each call that waits."""

MAX_IN_LINE: Final = 1_000_000
"""Keys in all lines of a service; a call that would need a further line is refused."""

_CREATED: Final = 1  # in an item


class Waiter(Protocol):
    """A call that waits until no key is left that was made before its own."""

    def is_first(self, revision: int, position: int) -> None:
        """Learn that it is its turn, as of a revision."""
        ...

    def is_out(self, position: int) -> None:
        """Learn that its key is gone."""
        ...

    def failed(self, error: LeaseholdError) -> None:
        """Learn that nobody will know whose turn it is."""
        ...


class Observer(Protocol):
    """A call that is told who comes first."""

    def leads(self, first: Item, revision: int, position: int) -> None:
        """Learn who comes first as of a revision, or that this one has changed."""
        ...

    def failed(self, error: LeaseholdError) -> None:
        """Learn that nobody will know."""
        ...


def bounds(name: bytes) -> tuple[bytes, bytes]:
    """Give the range of the keys that stand in line for a name."""
    return name + b"/", name + b"0"


class Lines:
    """All lines of a service in which somebody waits."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._lines: dict[bytes, Line] = {}
        self.monotonic = runtime.store.leases.monotonic
        self.callers = 0
        self.in_line = 0
        """How many keys stand in all lines together."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.chores = Chores(runtime)

    def __len__(self) -> int:
        return len(self._lines)

    def check_room(self, name: bytes) -> None:
        """Refuse a call that would have to wait if there are too many of them."""
        if len(name) > MAX_NAME_BYTES:
            raise invalid(f"name must have at most {MAX_NAME_BYTES} bytes, got {len(name)}")
        if self.callers >= MAX_CALLERS:
            raise TooBusy(f"{self.callers} calls wait for their turn, which is the most")
        if name not in self._lines:
            in_line = self.in_line + self._store.keyspace.count(*bounds(name))
            if in_line > MAX_IN_LINE:
                why = f"{in_line} keys would stand in line; {MAX_IN_LINE} may, under all names"
                raise TooBusy(why)

    def of(self, name: bytes) -> "Line":
        """Give the line for a name; not while an operation is under way in steps."""
        line = self._lines.get(name)
        if line is None:
            line = Line(self, name)
            query = Range(line.key, line.end, sort_by=SortBy.CREATE_REVISION)
            read = self._store.read(query)  # before anybody can stand in it
            self._lines[name] = line
            self._store.watchers.join(line)
            if read is None:
                query.revision = self._store.revision  # whatever comes later is told
                self._store.pins[query.revision] += 1
                self.spawn(self._read_long(line, query))
            else:
                line.begin(read[0], read[0].revision, read[1])
        return line

    async def _read_long(self, line: "Line", query: Range) -> None:
        try:
            found, _ = await self._runtime.reader.scan(query)
        except LeaseholdError as error:
            self.drop(line)  # whoever comes later tries again
            line.failed(error)
            return
        finally:
            self._unpin(query.revision)
        if self._lines.get(line.name) is line:  # else all have gone meanwhile
            revision = self._store.revision
            line.begin(found, revision, self._store.position_of(revision))

    def _unpin(self, revision: int) -> None:
        pins = self._store.pins
        pins[revision] -= 1
        if not pins[revision]:
            del pins[revision]

    def drop(self, line: "Line") -> None:
        """Forget a line that nobody waits in."""
        if self._lines.get(line.name) is line:
            del self._lines[line.name]
        self._store.watchers.discard(line)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done that takes a while."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class Line:
    """The keys under one name, those who wait for the turn of theirs, and those who look on."""

    __slots__ = (
        "_callers",
        "_early",
        "_items",
        "_lines",
        "_observers",
        "_shown",
        "_waiters",
        "end",
        "key",
        "name",
        "next_revision",
    )

    has_room = True
    wants_previous = False

    def __init__(self, lines: Lines, name: bytes) -> None:
        self._lines = lines
        self.name = name
        self.key, self.end = bounds(name)
        self.next_revision = 0
        self._items: OrderedDict[bytes, Item] = OrderedDict()
        self._callers = 0
        self._waiters: dict[bytes, dict[Waiter, None]] = {}
        self._observers: dict[Observer, None] = {}
        self._shown: Item | None = None
        """Who came first when the observers were told last."""
        self._early: list[Sequence[Change]] | None = []
        """What has changed before it was known who stands in line."""

    @property
    def first(self) -> Item | None:
        """Who comes first, if anybody does."""
        return next(iter(self._items.values()), None)

    # Who is here.

    def wait(self, key: bytes, waiter: Waiter) -> bool:
        """Have a call told when it is the turn of its key, which is there; True if it is so now."""
        self._came()
        first = self.first
        if first is not None and first[_CREATED] == self._items[key][_CREATED]:
            return True
        self._waiters.setdefault(key, {})[waiter] = None
        return False

    def observe(self, observer: Observer) -> None:
        """Have a call told who comes first, from now on."""
        self._observers[observer] = None
        self._came()

    def leave(self, key: bytes, waiter: Waiter) -> bool:
        """Let a call go that has waited; True if it did so still, and for its key nobody else."""
        waiting = self._waiters.get(key, {})
        was_last = list(waiting) == [waiter]
        waiting.pop(waiter, None)
        if not waiting:
            self._waiters.pop(key, None)
        self._left()
        return was_last

    def ignore(self, observer: Observer) -> None:
        """Let a call go that has observed."""
        self._observers.pop(observer, None)
        self._left()

    def _came(self) -> None:
        self._callers += 1
        self._lines.callers += 1

    def _left(self) -> None:
        self._lines.callers -= 1
        self._callers -= 1
        if not self._callers:
            self._lines.in_line -= len(self._items)
            self._items.clear()
            self._lines.drop(self)

    # What happens.

    def begin(self, found: Found, revision: int, position: int) -> None:
        """Learn who stood in line when it was read, and who does so as of a revision, which is now.

        Whoever came before is told now, and not of what was in between.
        """
        assert self._early is not None, "this is known already"
        early, self._early = self._early, None
        for item in found.items:
            self._items[item[5]] = item
        self._lines.in_line += len(self._items)
        out: list[Waiter] = []
        for changes in early:
            out += self._take(changes)
        self._tell(out, revision, position)

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Take the changes of one revision, and tell those whom they concern."""
        if self._early is None:
            self._tell(self._take(changes), changes[0].revision, position)
        else:
            self._early.append(changes)
        return True

    def _take(self, changes: Sequence[Change]) -> list[Waiter]:
        """Bring the line up to date; give those who are no longer in it."""
        before = len(self._items)
        out: list[Waiter] = []
        for change in changes:
            if change.item is None:
                self._items.pop(change.key, None)
                out += self._waiters.pop(change.key, ())
            else:
                self._items[change.key] = change.item  # a new one is behind all others
        self._lines.in_line += len(self._items) - before
        return out

    def _tell(self, out: list[Waiter], revision: int, position: int) -> None:
        """Tell those who are out, those whose turn it is, and those who look on."""
        if len(out) > LONG:
            self._lines.spawn(self._tell_in_slices(out, position))
        else:
            for waiter in out:
                waiter.is_out(position)
        first = self.first
        if first is not None:
            self._serve(first, revision, position)
        self._shown = first

    async def _tell_in_slices(self, out: list[Waiter], position: int) -> None:
        """Tell very many who are out; whoever goes away meanwhile does not mind being told."""
        slicer = Slicer(self._lines.monotonic)
        for waiter in out:
            waiter.is_out(position)
            await slicer.pause()

    def _serve(self, first: Item, revision: int, position: int) -> None:
        for key, item in self._items.items():
            if item[_CREATED] != first[_CREATED]:
                break
            for waiter in self._waiters.pop(key, ()):
                waiter.is_first(revision, position)
        if first is not self._shown:
            for observer in self._observers:
                observer.leads(first, revision, position)

    def settle(self) -> None:
        """Do nothing: everybody was told."""

    def joined(self, revision: int, position: int) -> None:
        """Do nothing: it is never behind."""

    def failed(self, error: LeaseholdError) -> None:
        """Learn that it will not be known who comes first."""
        for waiter in [each for waiting in self._waiters.values() for each in waiting]:
            waiter.failed(error)
        for observer in list(self._observers):
            observer.failed(error)

    def cancelled(self, compacted: int) -> None:
        """Do nothing: it is never behind."""
