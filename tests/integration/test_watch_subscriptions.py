"""Watch subscriptions over connections that are cut: nothing is missed or delivered twice."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.engine.values import Event
from leasehold.errors import HistoryLost, LeaseholdError
from leasehold.keyspace.operations import Put
from leasehold.locks import watch_subscriptions as module
from leasehold.locks.watch_subscriptions import WatchSubscriptions
from leasehold.testing import LocalServer
from tests.engines.conftest import remote_engine
from tests.support.asynchronous import asynchronous, until

COUNT = 40
ROUNDS = 3


def prefix(number: int) -> bytes:
    return b"jobs/%d/" % number


class Audience:
    """Subscribers of many prefixes, each with a start of its own."""

    def __init__(self, server: LocalServer, engine: RemoteEngine) -> None:
        self.server = server
        self.engine = engine
        self.feeds = WatchSubscriptions(engine)
        self.told: dict[bytes, list[Event]] = {}
        self.due: dict[bytes, list[int]] = {}
        self.gaps: list[LeaseholdError] = []

    async def join(self, number: int) -> None:
        name = prefix(number)
        start = (await self.engine.put(name + b"k", b"")).revision
        told = self.told[name] = []
        self.due[name] = [start]
        self.feeds.subscribe(name, start, told.append, self.gaps.append)

    async def change(self, numbers: Sequence[int]) -> None:
        steps = [Put(prefix(number) + b"k", b"", 0) for number in numbers]
        revision = (await self.engine.txn([], steps)).revision
        for number in numbers:
            self.due[prefix(number)].append(revision)

    async def cut_off(self) -> None:
        """Have connections cut; a read, which is tried again, finds the next one for writes."""
        await asyncio.to_thread(self.server.hang_up)
        await self.engine.range(b"jobs")

    @property
    def watches(self) -> int:
        return len(self.engine._hub._watches)

    async def heard(self) -> None:
        """Wait until everybody has heard of everything; check that nobody has heard more."""
        await until(lambda: all(len(self.told[name]) >= len(self.due[name]) for name in self.due))
        for name, due in self.due.items():
            assert [event.revision for event in self.told[name]] == due
        assert self.gaps == []


@asynccontextmanager
async def audience(server: LocalServer) -> AsyncIterator[Audience]:
    async with await remote_engine([server.endpoint]) as engine:
        there = Audience(server, engine)
        yield there
        await there.feeds.close()
        assert there.watches == 0


@asynchronous
async def test_subscriptions_become_one_watch_while_connections_are_cut() -> None:
    with LocalServer() as server:
        async with audience(server) as there:
            for number in range(COUNT):
                await there.join(number)
                if number % 9 == 8:
                    await there.cut_off()
            for turn in range(ROUNDS):
                await there.change(range(turn, COUNT))
                await there.cut_off()
                await there.change([turn, COUNT - 1])
            await there.heard()
            await until(lambda: there.watches == 1)


@asynchronous
async def test_a_group_is_split_while_connections_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OTHERS_MIN", 10)
    monkeypatch.setattr(module, "OTHERS_EACH", 1)
    with LocalServer() as server:
        async with audience(server) as there:
            for number in range(COUNT):
                await there.join(number)
            await until(lambda: there.watches == 1)
            await there.heard()
            for turn in range(3 * COUNT):
                await there.engine.txn([], [Put(b"jobs/%d" % each, b"", 0) for each in range(9)])
                if turn % 20 == 0:
                    await there.change([turn % COUNT])
                    await there.cut_off()
            await until(lambda: there.watches == COUNT)
            await there.cut_off()
            await there.change(range(COUNT))
            await there.heard()


@asynchronous
async def test_another_keyspace_in_its_place_is_told_to_everybody() -> None:
    with LocalServer() as server:
        async with audience(server) as there:
            for number in range(COUNT):
                await there.join(number)
            await there.heard()
            await asyncio.to_thread(server.wipe)
            await until(lambda: len(there.gaps) == COUNT)
            assert all(isinstance(error, HistoryLost) for error in there.gaps)
