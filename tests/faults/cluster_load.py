"""Work for a client of a cluster that is in trouble, and what must be true of it afterwards.

Writers count up, each in a key of its own; a watch is told of all of them; leases are held. A put
that was answered is *acknowledged*; one that failed may have been done or not, and is never tried
again. Afterwards the whole history is read again, by a client that has met with no trouble.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import leasehold
from leasehold import ConnectFailed, ConnectionLost
from leasehold.client.client import Client
from leasehold.engine.interface import Watch
from leasehold.errors import CallFailed
from leasehold.sessions.held_lease import HeldLease

WRITERS: Final = 3
PUT_S: Final = 3.0
PAUSE_S: Final = 0.005
TROUBLE: Final = (ConnectFailed, ConnectionLost, CallFailed, TimeoutError)
"""What a put may meet with while members come and go; anything else is a defect."""

Seen = tuple[bytes, bytes, int]
"""A key, what it was set to, and the revision."""


class Load:
    """The work of one client."""

    def __init__(self, client: Client, start: int) -> None:
        self.client = client
        self.start = start
        """The first revision that the watch is about."""
        self.acknowledged: list[Seen] = []
        self.failures: Counter[str] = Counter()
        self.told: list[Seen] = []
        self.leases: list[HeldLease] = []
        self.lost: list[BaseException | None] = []
        self._writers: list[asyncio.Task[None]] = []
        self._counts = [0] * WRITERS

    async def hold(self, count: int, ttl_s: float) -> None:
        """Take leases, and a key with each."""
        for number in range(count):
            lease = await self.client.lease(ttl_s, on_loss=lambda _, why: self.lost.append(why))
            await self.client.kv.put(f"held/{number}", "", lease=lease)
            self.leases.append(lease)

    def begin_writing(self) -> None:
        """Have everybody count up."""
        loop = asyncio.get_running_loop()
        self._writers = [loop.create_task(self._write(each)) for each in range(WRITERS)]

    async def stop_writing(self) -> None:
        """Have nobody do so."""
        await _stop(*self._writers)

    async def _write(self, writer: int) -> None:
        key = b"load/%d" % writer
        while True:
            self._counts[writer] += 1
            value = b"%d" % self._counts[writer]
            try:
                put = await self.client.kv.put(key, value, timeout=PUT_S)
            except TROUBLE as error:
                self.failures[type(error).__name__] += 1
            else:
                self.acknowledged.append((key, value, put.revision))
            await asyncio.sleep(PAUSE_S)

    async def watch(self, watch: Watch) -> None:
        """Note what is told, without an end."""
        await gather_events(watch, self.told)

    async def progress(self, count: int = 30) -> None:
        """Wait until so many further puts are acknowledged; the deadline is the test's."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:  # noqa: ASYNC110  writers set no event
            await asyncio.sleep(0.02)

    async def check(self, endpoints: list[str]) -> None:
        """Compare with the history, as somebody reads it who was not there."""
        async with leasehold.connect(endpoints) as witness:
            end = await witness.kv.range("load/", prefix=True)
            last = max(pair.mod_revision for pair in end.pairs)
            history = await _history(witness, self.start, last)
            while not self.told or self.told[-1][2] < last:  # noqa: ASYNC110  it arrives soon
                await asyncio.sleep(0.02)
            assert self.told == history, "no event is missed, repeated, or in another place"
            missing = set(self.acknowledged) - set(history)
            assert not missing, "nothing that was acknowledged is lost"
            held = await witness.kv.range("held/", prefix=True)
            assert len(held.pairs) == len(self.leases), "no lease that is renewed lapses"
            assert {pair.version for pair in held.pairs} <= {1}
        assert self.lost == []
        assert all(lease.is_held for lease in self.leases)


async def gather_events(watch: Watch, found: list[Seen], last: int | None = None) -> None:
    """Note the puts of a watch, up to a revision if one is given."""
    async for each in watch:
        for event in each.events:
            assert event.pair is not None
            found.append((event.key, event.pair.value, each.revision))
        if last is not None and each.revision >= last:
            return


async def _history(client: Client, start: int, last: int) -> list[Seen]:
    found: list[Seen] = []
    async with client.kv.watch("load/", prefix=True, start=start) as watch:
        await gather_events(watch, found, last)
    return found


@asynccontextmanager
async def loaded(endpoints: list[str], leases: int, ttl_s: float) -> AsyncIterator[Load]:
    """Have a client at work, until the block ends."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(leasehold.connect(endpoints))
        now = (await client.kv.range("load/", prefix=True)).revision
        load = Load(client, now + 1)
        await load.hold(leases, ttl_s)
        watch = client.kv.watch("load/", prefix=True, start=load.start)
        watching = asyncio.get_running_loop().create_task(load.watch(watch))
        try:
            load.begin_writing()
            await load.progress()
            yield load
            await load.stop_writing()
            await load.check(endpoints)
        finally:
            await load.stop_writing()
            await _stop(watching)


async def _stop(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
