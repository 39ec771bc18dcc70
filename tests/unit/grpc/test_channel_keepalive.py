"""Servers that are silent are asked whether they are there: in virtual time."""

import asyncio
from contextlib import suppress
from typing import cast

import pytest

from leasehold.errors import ConnectionLost
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_connection import ClientConnection
from leasehold.grpc.client_protocol import LATE_S, KeepAlive
from leasehold.grpc.protocol import RpcError
from leasehold.http2 import frames
from leasehold.http2.frames import Setting
from leasehold.testing.loop import HostLoop
from leasehold.testing.simulation import current_host, run_virtual
from tests.support.raw_server import PATH, Net, RawServer, echoing


def now() -> float:
    return asyncio.get_running_loop().time()


def pings(server: RawServer) -> int:
    return len([each for each in server.heard(frames.PING) if not each.flags & frames.ACK])


async def connected(net: Net, **options: float | None) -> tuple[Channel, RawServer]:
    channel = Channel("a:1", connect=net.connect, **options)  # type: ignore[arg-type]
    await channel.ready()
    return channel, net.transports[0].server


def test_a_server_that_answers_pings_may_take_its_time() -> None:
    async def main() -> None:
        channel, server = await connected(Net())
        async with channel:
            call = asyncio.ensure_future(channel.unary(PATH, b"x"))
            await asyncio.sleep(9.9)
            assert pings(server) == 0
            await asyncio.sleep(0.2)
            assert pings(server) == 1
            await asyncio.sleep(100)
            assert pings(server) == 11
            server.answer(1, b"at last")
            assert await call == b"at last"

    run_virtual(main)


def test_one_that_does_not_is_lost() -> None:
    async def main() -> None:
        channel, server = await connected(Net())
        async with channel:
            server.answers_pings = False
            begun = now()
            with pytest.raises(ConnectionLost, match="a:1 was lost: no answer to a ping for 5 s"):
                await channel.unary(PATH, b"x", timeout=60)
            assert now() - begun == pytest.approx(15.0)
            assert channel.address is None

    run_virtual(main)


def test_so_is_one_whose_callers_give_up_one_after_the_other() -> None:
    async def main() -> None:
        channel, server = await connected(Net())
        async with channel:
            server.answers_pings = False
            await asyncio.sleep(1)
            begun = now()
            while channel.address is not None and now() - begun < 60:
                with suppress(RpcError, ConnectionLost):
                    await channel.unary(PATH, b"x", timeout=4)
            assert now() - begun == pytest.approx(15.0)

    run_virtual(main)


def without_room() -> Net:
    net = Net()
    net.settings = {Setting.MAX_CONCURRENT_STREAMS: 0}
    return net


def test_so_is_one_that_dies_while_calls_wait_until_it_has_room() -> None:
    async def main() -> None:
        net = without_room()
        channel, server = await connected(net)
        async with channel:
            call = asyncio.ensure_future(channel.unary(PATH, b"x"))
            await asyncio.sleep(100)
            assert pings(server) == 10
            server.answers_pings = False
            net.settings, net.serve = {}, echoing
            async with asyncio.timeout(20):
                assert await call == b"x", "by the next server"

    run_virtual(main)


def test_so_is_one_that_dies_when_it_has_room_for_those_that_waited() -> None:
    async def main() -> None:
        channel, server = await connected(without_room())
        async with channel:
            call = asyncio.ensure_future(channel.unary(PATH, b"x"))
            await asyncio.sleep(100)
            server.answers_pings = False
            server.greet({Setting.MAX_CONCURRENT_STREAMS: 10})
            with pytest.raises(ConnectionLost, match="no answer to a ping"):
                async with asyncio.timeout(20):
                    await call

    run_virtual(main)


def test_the_times_can_be_chosen_and_it_can_be_switched_off() -> None:
    async def main() -> None:
        channel, server = await connected(Net(), keepalive=2.0, keepalive_timeout=0.5)
        async with channel:
            server.answers_pings = False
            begun = now()
            with pytest.raises(ConnectionLost, match=r"a ping for 0.5 s"):
                await channel.unary(PATH, b"x")
            assert now() - begun == pytest.approx(2.5)
        channel, server = await connected(Net(), keepalive=None)
        async with channel:
            call = asyncio.ensure_future(channel.unary(PATH, b"x"))
            await asyncio.sleep(1000)
            assert pings(server) == 0
            call.cancel()

    run_virtual(main)


def test_whatever_comes_in_shows_that_the_server_is_there() -> None:
    async def main() -> None:
        channel, server = await connected(Net())
        server.answers_pings = False
        async with channel, channel.stream(PATH) as call:
            await asyncio.sleep(1)
            server.head(1)
            for _ in range(20):
                await asyncio.sleep(9)
                server.say(1, b"event")
                assert await call.receive() == b"event"
            assert pings(server) == 0
            await asyncio.sleep(12)
            assert pings(server) == 1
            server.say(1, b"event")
            await asyncio.sleep(9)
            assert await call.receive() == b"event"

    run_virtual(main)


def test_a_server_without_calls_is_left_alone_and_has_no_alarm() -> None:
    async def main() -> None:
        channel, server = await connected(Net())
        async with channel:
            for _ in range(3):
                call = asyncio.ensure_future(channel.unary(PATH, b"x"))
                await asyncio.sleep(0.1)
                server.answer(max(server.requests))
                await call
                await asyncio.sleep(1000)
            assert pings(server) == 0
            line = channel._dispatcher.connector.connection  # type: ignore[union-attr]
            assert line is not None
            assert line.keepalive._alarm is None

    run_virtual(main)


def test_the_time_counts_from_when_there_are_calls_again() -> None:
    async def main() -> None:
        channel, server = await connected(Net())
        async with channel:
            first = asyncio.ensure_future(channel.unary(PATH, b"x"))
            await asyncio.sleep(1)
            server.answer(1)
            await first
            await asyncio.sleep(8.5)
            second = asyncio.ensure_future(channel.unary(PATH, b"x"))
            await asyncio.sleep(9.9)
            assert pings(server) == 0
            await asyncio.sleep(0.2)
            assert pings(server) == 1
            second.cancel()

    run_virtual(main)


def test_new_calls_do_not_put_off_the_question() -> None:
    async def main() -> None:
        channel, server = await connected(Net())
        server.answers_pings = False
        async with channel:
            begun = now()
            calls = []
            for _ in range(20):
                calls.append(asyncio.ensure_future(channel.unary(PATH, b"x", timeout=60)))
                await asyncio.sleep(1)
                if calls[0].done():
                    break
            assert now() - begun < 17
            assert "no answer to a ping" in str(calls[0].exception())
            for call in calls[1:]:
                call.cancel()
            await asyncio.wait(calls)
            calls[-1].cancelled() or calls[-1].exception()

    run_virtual(main)


def test_a_lost_connection_leaves_no_alarm() -> None:
    async def main() -> None:
        net = Net()
        channel, _ = await connected(net)
        async with channel:
            call = asyncio.ensure_future(channel.unary(PATH, b"x"))
            await asyncio.sleep(1)
            net.transports[0].hang_up()
            with pytest.raises(ConnectionLost):
                await call
            loop = asyncio.get_running_loop()
            assert isinstance(loop, HostLoop)
            assert not [entry for entry in loop._timers if not entry[3].cancelled()]

    run_virtual(main)


class Silent:
    """A connection whose server says nothing."""

    has_streams = True

    def __init__(self) -> None:
        self.pings = 0

    def ping(self) -> None:
        self.pings += 1


def test_a_process_that_was_asleep_reads_before_it_gives_up() -> None:
    async def main() -> None:
        loop, connection = asyncio.get_running_loop(), Silent()
        lost: list[str] = []
        keepalive = KeepAlive(loop, cast(ClientConnection, connection), 10.0, 5.0, lost.append)
        keepalive.wake()
        await asyncio.sleep(11)
        assert connection.pings == 1
        current_host().stall(LATE_S + 100)
        await asyncio.sleep(1)
        assert not lost
        keepalive.heard_at = loop.time()
        await asyncio.sleep(6)
        assert not lost
        await asyncio.sleep(20)
        assert lost == ["no answer to a ping for 5 s"]

    run_virtual(main)


def test_a_connection_that_is_gone_has_no_alarm() -> None:
    async def main() -> None:
        connection = Silent()
        lost: list[str] = []
        loop = asyncio.get_running_loop()
        keepalive = KeepAlive(loop, cast(ClientConnection, connection), 10.0, 5.0, lost.append)
        keepalive.wake()
        keepalive.stop()
        keepalive.wake()
        await asyncio.sleep(100)
        assert (connection.pings, lost) == (0, [])

    run_virtual(main)
