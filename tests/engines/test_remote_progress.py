"""Progress of an old etcd is told ahead of events: a watch that went on from there would miss them.

The server here is a model of etcd 3.5.1 in what counts: a watch that lags is told its events a few
at a time, while progress says the latest revision at once (etcd's issue 15220). Streams are lost at
any moment. Whatever happens, and in whatever order, every revision is told once, and in order. With
the same server, an engine that takes its word for it misses some: else this would prove nothing.
"""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from leasehold.engine.interface import Watch
from leasehold.testing.simulation import run_virtual, seeds
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb
from tests.engines.scripted import WATCH, ScriptedChannel, ScriptedStream, header

PUTS = 40
END_S = 10.0


class OldEtcd:
    """Revisions that each change the one key that is watched, and whoever watches."""

    def __init__(self, channel: ScriptedChannel, random: Random) -> None:
        self.channel = channel
        self.random = random
        self._next: dict[int, int] = {}
        """What each watch of the stream is told next."""
        self._stream: ScriptedStream | None = None

    async def serve(self) -> None:
        """Take one stream after the other."""
        while True:
            stream = self._stream = await self.channel.opened(WATCH)
            self._next = {}
            while not stream.is_over:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.random.uniform(0.001, 0.05)):
                        self._hear(stream, await stream.heard(pb.WatchRequest))
                self._tell_some(stream)

    def _hear(self, stream: ScriptedStream, request: pb.WatchRequest) -> None:
        now = self.channel.revision
        if request.HasField("create_request"):
            number = request.create_request.watch_id
            self._next[number] = request.create_request.start_revision or now + 1
            stream.say(pb.WatchResponse(header=header(now), watch_id=number, created=True))
        elif request.HasField("progress_request"):
            stream.say(pb.WatchResponse(header=header(now), watch_id=-1))
        else:
            self._next.pop(request.cancel_request.watch_id, None)

    def _tell_some(self, stream: ScriptedStream) -> None:
        for number, start in self._next.items():
            if self.random.random() < 0.3:
                now = header(self.channel.revision)
                stream.say(pb.WatchResponse(header=now, watch_id=number))  # progress, too early
            end = min(start + self.random.randint(0, 3), self.channel.revision + 1)
            pairs = [kv_pb2.KeyValue(key=b"a", mod_revision=each) for each in range(start, end)]
            events = [kv_pb2.Event(kv=pair) for pair in pairs]
            if events:
                now = header(self.channel.revision)
                stream.say(pb.WatchResponse(header=now, watch_id=number, events=events))
            self._next[number] = end


async def run(seed: int, version: str) -> list[int]:
    """Put, lose streams and ask for progress; give what a watch was told."""
    channel, random = ScriptedChannel(version), Random(seed)
    etcd = OldEtcd(channel, random)
    serving = asyncio.ensure_future(etcd.serve())
    told: list[int] = []
    async with await channel.engine() as engine:
        watch = engine.watch(b"a", start=2)
        reader = asyncio.ensure_future(read(watch, told))
        for _ in range(PUTS):
            channel.revision += random.randint(1, 3)
            await asyncio.sleep(random.uniform(0, 0.05))
            if random.random() < 0.3:
                watch.request_progress()
            if random.random() < 0.2:
                channel.lose()
        with suppress(TimeoutError):
            await asyncio.wait_for(reader, END_S)
    serving.cancel()
    expected = list(range(2, channel.revision + 1))
    return [revision for revision in expected if revision not in told] or check(told, expected)


async def read(watch: Watch, told: list[int]) -> None:
    async for each in watch:
        told += [each.revision] if each.events else []


def check(told: list[int], expected: list[int]) -> list[int]:
    assert told == expected
    return []


@pytest.mark.parametrize("seed", seeds(10))
def test_progress_of_an_old_etcd_is_never_where_a_watch_goes_on(seed: int) -> None:
    assert run_virtual(run, seed, "3.5.1") == []


def test_a_watch_that_trusted_it_would_miss_events() -> None:
    missed = [run_virtual(run, seed, "3.5.21") for seed in range(5)]
    assert any(missed)
