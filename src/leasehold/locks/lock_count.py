"""How often locks were acquired: `client.count_acquisitions`, which does not take the locks.

Theory of operation. An acquisition is counted when a caller receives its guard. At any time each is
counted in exactly one place:

- The lock is in use, or idle in a cache: in the memory of its holder (`Ownership.total`), together
  with the number that the holder got with the lock.
- It was handed over: the transaction that deletes the key of the old owner writes the number into
  the key of the next waiter, if the owner has received that key and it is one of our clients.
  There its new owner reads it.
- The lock was made with `count=True`: instead, that transaction adds the number to the *counter* of
  the lock, a key of its own without a lease (`lock_keys.counter_key`), and the next owner begins
  with 0. So the number survives while the lock is free.
- The session is lost: the numbers of its locks are lost with it. Nothing is counted twice, because
  a number is moved only by the transaction that deletes the key it belongs to.

Only the counter makes the number exact. Without `count=True` it is lost whenever the owner deletes
its key without a known waiter: a waiter that enters during the delete begins with 0, and so does a
waiter whose predecessor closes its client or loses its session. Also, a number that cannot be
written, because of the quota or a permission, is dropped with a warning: the lock is released.

So the total of a lock is its counter plus its holder's number. The counter is changed
only when the key of an owner is deleted. So if both are read while one owner has the lock, they
belong together.

The holder is asked without a key in the queue, which other clients, such as Go's `Mutex`, would
take for a waiter. The reader rewrites the value of the owner's key, with its lease and all it says,
plus `asks`, on condition that the key has not changed, and that the session of its lease belongs to
the client that the value names: so values of other programs are not touched. A candidate of an
election whose value has exactly the form of a lock's cannot be told from a lock. The owner receives
every change below the lock's name anyway, and writes a mark as for waiters with `timeout=0`: its
count, and the revision of the request or a later one. Both rewrites leave the create revision as it
was, so neither changes the queue, and earlier versions ignore both.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.values import KeyValue
from leasehold.errors import Closed, Forked, HistoryLost, LeaseholdError
from leasehold.keyspace.operations import Compare, Put, Range, Relation, Target
from leasehold.locks.lock import LockRegistry
from leasehold.locks.lock_keys import (
    LEASE_HEX,
    Claim,
    counted_name,
    counter_key,
    encoded,
    fields_of,
    stored_count,
    text_of,
    who_has,
)
from leasehold.locks.lock_queue import PAGE, PAGE_GROWTH, LockQueue
from leasehold.locks.queue import modified_at
from leasehold.sessions.session import SESSIONS, hex_of

CONCURRENT_COUNTS: Final = 64
"""Locks that are counted at the same time."""

NAMES_PAGE: Final = 1_000
"""Keys to read at a time in the search for names."""

_LOCK_KEY: Final = re.compile(rb"(.+)/(%b)" % LEASE_HEX, re.DOTALL)


class Uncounted(NamedTuple):
    """A lock whose holder has not returned its count."""

    holder: str
    """Its holder; empty if that is not known."""
    known: int
    """The number of acquisitions that is known without the holder: there may be more."""
    why: str
    """The reason."""


class AcquisitionCounts(NamedTuple):
    """How often locks were acquired, by name."""

    counts: dict[str, int]
    not_reached: dict[str, Uncounted]
    """Locks that could not be counted completely; they are not in `counts`."""


async def count_acquisitions(
    registry: LockRegistry, names: Iterable[bytes], prefix: bytes | None, recall_s: float
) -> AcquisitionCounts:
    """Count the acquisitions of locks: those named, and those below a prefix."""
    context = registry.context
    context.check_call()
    wanted = dict.fromkeys(names)
    if prefix is not None:
        wanted |= dict.fromkeys(await _names_below(registry, prefix))
    turns = asyncio.Semaphore(CONCURRENT_COUNTS)

    async def count(name: bytes) -> int | Uncounted:
        async with turns:
            return await _Count(registry, name, recall_s).run()

    counting = [asyncio.ensure_future(count(name)) for name in wanted]
    try:
        counted = await asyncio.gather(*counting)
    finally:
        for task in counting:
            task.cancel()
    found = {text_of(name): each for name, each in zip(wanted, counted, strict=True)}
    return AcquisitionCounts(
        {name: each for name, each in found.items() if isinstance(each, int)},
        {name: each for name, each in found.items() if isinstance(each, Uncounted)},
    )


async def _names_below(registry: LockRegistry, prefix: bytes) -> Sequence[bytes]:
    """Return the names that begin with a prefix and have a key in a queue, or a counter."""
    context = registry.context
    names: dict[bytes, None] = {}
    for start, is_counter in ((prefix, False), (counter_key(prefix), True)):
        key, end, more = start or b"\0", prefix_end(start), True
        while more:
            keys = Range(key, end, limit=NAMES_PAGE, keys_only=True)  # values may be large
            done = await context.patience.wait(context.engine.txn([], [keys]), None)
            found = done.results[0]
            for pair in found.pairs:
                name = counted_name(pair.key) if is_counter else _lock_of(pair)
                if name.startswith(prefix) and name:
                    names[name] = None
            more = found.more and bool(found.pairs)
            if more:
                key = found.pairs[-1].key + b"\0"
    return list(names)


def _lock_of(pair: KeyValue) -> bytes:
    """Return the name of the lock that a key belongs to; empty if it is another key."""
    match = _LOCK_KEY.fullmatch(pair.key)
    is_lock = match is not None and pair.lease and match[2] == hex_of(pair.lease)
    return match[1] if match is not None and is_lock and match[1] + b"/" != SESSIONS else b""


class _Count:
    """The count of one lock."""

    def __init__(self, registry: LockRegistry, name: bytes, recall_s: float) -> None:
        self._registry = registry
        self._engine: Engine = registry.context.engine
        self._patience = registry.context.patience
        self._name = name
        self._queue = LockQueue(name)
        self._recall_s = recall_s
        self._holder = ""
        self._known = 0

    async def run(self) -> int | Uncounted:
        """Count; the time is limited, also if the lock changes hands repeatedly."""
        limit_s = self._patience.timeout_s + self._recall_s
        try:
            async with asyncio.timeout(limit_s):
                while (counted := await self._look_and_ask()) is None:
                    pass
                return counted
        except (Closed, Forked, HistoryLost):
            raise
        except (LeaseholdError, OSError) as error:  # a timeout is an OSError, too
            return self._not_reached(str(error) or f"no answer within {limit_s:g} s")

    def _not_reached(self, why: str) -> Uncounted:
        return Uncounted(self._holder, self._known, why)

    async def _look_and_ask(self) -> int | Uncounted | None:
        """Return the count; None if the holder has changed in the meantime."""
        stored, owner = await self._look()
        self._known, self._holder = stored, ""
        if owner is None:
            return stored
        lock = self._registry.locks.get(self._name)
        ownership = None if lock is None else lock.ownership
        if ownership is not None and ownership.revision == owner.create_revision:
            return stored + ownership.total
        self._holder = who_has(owner)
        fields = fields_of(owner.value)
        if fields is None or not owner.lease:
            return self._not_reached("its holder does not count acquisitions")
        self._known = stored + int(fields.get("count", 0))
        counted = await self._ask(owner, fields)
        return stored + counted if isinstance(counted, int) else counted

    async def _look(self) -> tuple[int, KeyValue | None]:
        """Read the counter, and the key of the owner, at one revision."""
        limit = PAGE
        while True:
            steps = [Range(counter_key(self._name)), self._queue.page(limit=limit)]
            done = await self._patience.wait(self._engine.txn([], steps), None)
            counter, first = done.results
            owners = self._queue.contenders(first)
            if owners or not first.more:
                return stored_count(next(iter(counter.pairs), None)), next(iter(owners), None)
            limit *= PAGE_GROWTH

    async def _ask(self, owner: KeyValue, fields: dict[str, Any]) -> int | Uncounted | None:
        """Ask the owner, and wait for its answer; None if its key changes before."""
        session = SESSIONS + hex_of(owner.lease)
        who = fields["who"].encode(errors="backslashreplace")  # of any client, so it may be no text
        done = await self._patience.wait(
            self._engine.txn(
                [
                    modified_at(owner.key, owner),
                    Compare(session, Target.VALUE, Relation.EQUAL, who),
                ],
                [Put(owner.key, encoded({**fields, "asks": True}), lease=None)],
                [Range(session)],
            ),
            None,
        )
        if not done.succeeded:
            pairs = done.results[0].pairs
            is_ours = bool(pairs) and pairs[0].value == who
            return None if is_ours else self._not_reached("its holder does not count acquisitions")
        try:
            async with asyncio.timeout(self._recall_s):
                return await self._answer(owner.key, done.revision)
        except TimeoutError:
            return self._not_reached(f"its holder has not answered within {self._recall_s:g} s")

    async def _answer(self, key: bytes, asked_at: int) -> int | None:
        """Wait for the owner's answer to a request; None if it gives the lock up instead."""
        watch = self._engine.watch(key, start=asked_at + 1)
        try:
            async for events in watch:
                for event in events.events:
                    if event.pair is None:
                        return None
                    claim = Claim.decode(event.pair.value)
                    if claim is not None and claim.denies >= asked_at:
                        return claim.count
        finally:
            watch.cancel()
        return None
