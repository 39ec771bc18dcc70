"""How a channel gets its connection, and the next one: in virtual time."""

import asyncio
from itertools import pairwise
from random import Random

import pytest

from leasehold.basics.backoff import BASE_S, FACTOR, MAX_S
from leasehold.errors import ConnectFailed, ConnectionLost, Status
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_protocol import LINGER_S, ClientProtocol, MakeConnection
from leasehold.grpc.connecting import GREETING_S, SETTLED_S
from leasehold.grpc.endpoints import Endpoint
from leasehold.grpc.protocol import RpcError
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode
from leasehold.testing.loop import HostLoop
from leasehold.testing.simulation import run_virtual
from tests.support.raw_server import PATH, Net, VirtualTransport, echoing

TICK_S = 0.02


def now() -> float:
    return asyncio.get_running_loop().time()


def tasks() -> int:
    return len(asyncio.all_tasks())


def timers() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HostLoop)
    return sum(not entry[3].cancelled() for entry in loop._timers)


def serving() -> Net:
    net = Net()
    net.serve = echoing
    return net


def channel_to(net: Net, *addresses: str) -> Channel:
    return Channel(addresses or ("a:1",), connect=net.connect, random=Random(1))


# One connection.


def test_nothing_is_connected_before_the_first_call() -> None:
    async def main() -> None:
        net = serving()
        channel = channel_to(net)
        await asyncio.sleep(1)
        assert (net.dialed, channel.address) == ([], None)
        assert await channel.unary(PATH, b"x") == b"x"
        assert (net.dialed, str(channel.address)) == (["a:1"], "a:1")
        await channel.close()
        assert channel.address is None

    run_virtual(main)


def test_first_calls_at_the_same_time_share_one_connection() -> None:
    async def main() -> None:
        net = serving()
        net.delay_s = 1.0
        async with channel_to(net) as channel:
            answers = await asyncio.gather(*[channel.unary(PATH, b"%d" % n) for n in range(50)])
            assert answers == [b"%d" % n for n in range(50)]
            assert net.dialed == ["a:1"]

    run_virtual(main)


def test_a_connection_is_ready_when_the_servers_settings_have_come() -> None:
    async def main() -> None:
        net = serving()
        net.silent.add("a:1")
        async with channel_to(net) as channel:
            begun = now()
            with pytest.raises(ConnectFailed, match=r"a:1: no HTTP/2 SETTINGS received within 5 s"):
                await channel.ready()
            assert now() - begun == pytest.approx(GREETING_S)
            assert net.transports[0].is_closing()
            assert not channel._dispatcher.connector._connections  # type: ignore[union-attr]

    run_virtual(main)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", r"HTTP/1.1, not HTTP/2 \(HTTP/1.1 400 Bad Request\)"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "uses TLS on this port"),
        (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            r"a:1: .* HTTP/2 \(gRPC\): it sent 'SSH-2\.0-OpenSSH_9\.6'; is it the right port",
        ),
        (b"-ERR unknown command 'PRI'\r\n", "a:1: the server does not speak HTTP/2"),
        (b"\xff" * 500, "is it the right port"),
        (b"\0\0\0\1\0\0\0\0\0", "broke a rule of HTTP/2"),
    ],
)
def test_who_is_no_server_of_http2_is_called_by_name(said: bytes, expected: str) -> None:
    async def main() -> None:
        net = serving()
        net.silent.add("a:1")
        net.serve = None
        async with channel_to(net) as channel:
            waiting = asyncio.ensure_future(channel.ready())
            (await net.made.get()).server.send(said)
            with pytest.raises(ConnectFailed, match=expected):
                await waiting

    run_virtual(main)


def test_a_server_that_hangs_up_at_once_is_no_connection() -> None:
    async def main() -> None:
        net = serving()
        net.silent.add("a:1")
        async with channel_to(net) as channel:
            waiting = asyncio.ensure_future(channel.ready())
            (await net.made.get()).hang_up()
            with pytest.raises(ConnectFailed, match="the server closed the connection"):
                await waiting

    run_virtual(main)


def test_nor_is_one_that_says_good_bye_with_its_greeting() -> None:
    async def main() -> None:
        net = Net()
        net.serve = lambda server: server.good_bye(0, ErrorCode.NO_ERROR, "too many clients")
        async with channel_to(net) as channel:
            with pytest.raises(ConnectFailed, match="too many clients"):
                await channel.unary(PATH, b"x")
            assert len(net.dialed) == 1

    run_virtual(main)


# Fail-over.


def test_the_next_endpoint_is_tried_at_once() -> None:
    async def main() -> None:
        net = serving()
        net.down.update(("a:1", "b:2"))
        async with channel_to(net, "a:1", "b:2", "c:3") as channel:
            begun = now()
            assert await channel.unary(PATH, b"x") == b"x"
            assert (now(), net.dialed) == (begun, ["a:1", "b:2", "c:3"])
            assert str(channel.address) == "c:3"

    run_virtual(main)


def test_if_none_works_the_error_names_each_and_why() -> None:
    async def main() -> None:
        net = serving()
        net.down.update(("a:1", "b:2"))
        async with channel_to(net, "a:1", "b:2") as channel:
            with pytest.raises(ConnectFailed) as caught:
                await channel.unary(PATH, b"x", timeout=5)
            assert str(caught.value) == (
                "cannot connect to a:1: Connection refused; "
                "cannot connect to b:2: Connection refused"
            )
            assert (tasks(), len(net.dialed)) == (1, 2)

    run_virtual(main)


def test_within_the_pause_the_next_call_fails_at_once_and_after_it_there_is_an_attempt() -> None:
    async def main() -> None:
        net = serving()
        net.down.add("a:1")
        async with channel_to(net) as channel:
            for _ in range(3):
                with pytest.raises(ConnectFailed, match="refused"):
                    await channel.unary(PATH, b"x")
            assert len(net.dialed) == 1
            await asyncio.sleep(BASE_S)
            net.down.clear()
            assert await channel.unary(PATH, b"x") == b"x"

    run_virtual(main)


def test_pauses_grow_as_long_as_nothing_works() -> None:
    async def main() -> None:
        net = serving()
        net.down.add("a:1")
        times: list[float] = []
        connect = net.connect

        async def timed(make_connection: MakeConnection, endpoint: Endpoint) -> ClientProtocol:
            times.append(now())
            return await connect(make_connection, endpoint)

        async with Channel("a:1", connect=timed, random=Random(1)) as channel:
            with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
                await channel.unary(PATH, b"x", timeout=60.0, wait_for_ready=True)
        pauses = [later - earlier for earlier, later in pairwise(times)]
        for number, pause in enumerate(pauses):
            assert 0.0 <= pause <= min(MAX_S, BASE_S * FACTOR**number) + 1e-6
        assert max(pauses) > MAX_S / 2
        assert 12 <= len(times) <= 40

    run_virtual(main)


# Waiting for it.


def test_who_waits_for_ready_gets_through_when_the_server_is_there() -> None:
    async def main() -> None:
        net = serving()
        net.down.add("a:1")
        async with channel_to(net) as channel:
            waiting = asyncio.ensure_future(
                channel.unary(PATH, b"x", timeout=30, wait_for_ready=True)
            )
            await asyncio.sleep(5)
            with pytest.raises(ConnectFailed):
                await channel.unary(PATH, b"impatient")
            net.down.clear()
            assert await waiting == b"x"

    run_virtual(main)


def test_at_its_deadline_it_is_told_why_there_was_no_connection() -> None:
    async def main() -> None:
        net = serving()
        net.down.add("a:1")
        async with channel_to(net) as channel:
            begun = now()
            with pytest.raises(RpcError) as caught:
                await channel.unary(PATH, b"x", timeout=2.5, wait_for_ready=True)
            assert caught.value.status == Status.DEADLINE_EXCEEDED
            assert str(caught.value) == (
                f"DEADLINE_EXCEEDED: {PATH}: no connection within 2.5 s: "
                "cannot connect to a:1: Connection refused"
            )
            assert 2.5 <= now() - begun < 2.5 + TICK_S
            await asyncio.sleep(0)
            assert (tasks(), timers()) == (1, 0)

    run_virtual(main)


def test_a_stream_waits_for_ready_too() -> None:
    async def main() -> None:
        net = Net()
        net.down.add("a:1")
        async with channel_to(net) as channel:
            with pytest.raises(ConnectFailed):
                async with channel.stream(PATH):
                    pass
            with pytest.raises(RpcError, match="no connection within 1 s"):
                async with channel.stream(PATH, timeout=1, wait_for_ready=True):
                    pass
            entering = asyncio.ensure_future(channel.stream(PATH, wait_for_ready=True).__aenter__())
            await asyncio.sleep(1)
            net.down.clear()
            call = await entering
            call.cancel()

    run_virtual(main)


def test_a_caller_with_little_time_leaves_a_connection_for_the_next() -> None:
    async def main() -> None:
        net = serving()
        net.delay_s = 1.0
        async with channel_to(net) as channel:
            with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
                await channel.unary(PATH, b"x", timeout=0.3)
            await asyncio.sleep(0.8)
            assert await channel.unary(PATH, b"x", timeout=0.3) == b"x"
            assert len(net.dialed) == 1

    run_virtual(main)


def test_whoever_is_cancelled_while_it_waits_in_a_pause_leaves_nothing_behind() -> None:
    async def main() -> None:
        net = serving()
        net.down.add("a:1")
        async with channel_to(net) as channel:
            calls = [
                asyncio.ensure_future(channel.unary(PATH, b"x", timeout=60, wait_for_ready=True))
                for _ in range(3)
            ]
            await asyncio.sleep(3)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            await asyncio.sleep(0)
            dispatcher = channel._dispatcher
            assert dispatcher is not None
            assert (tasks(), len(dispatcher.deadlines), len(dispatcher.connector._waiters)) == (
                1,
                0,
                0,
            )
            assert timers() <= 1  # of the deadlines
            net.down.clear()
            await asyncio.sleep(MAX_S)
            assert await channel.unary(PATH, b"x") == b"x"

    run_virtual(main)


# The next connection.


async def lose(transport: VirtualTransport, error: Exception | None = None) -> None:
    transport.hang_up(error)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_after_a_loss_the_next_endpoint_comes_first_and_only_when_it_is_needed() -> None:
    async def main() -> None:
        net = serving()
        async with channel_to(net, "a:1", "b:2") as channel:
            await channel.unary(PATH, b"x")
            await asyncio.sleep(SETTLED_S)
            await lose(net.transports[0])
            await asyncio.sleep(10)
            assert (net.dialed, channel.address) == (["a:1"], None)
            assert await channel.unary(PATH, b"y") == b"y"
            assert net.dialed == ["a:1", "b:2"]
            await asyncio.sleep(SETTLED_S)
            await lose(net.transports[1])
            assert await channel.unary(PATH, b"z") == b"z"
            assert net.dialed == ["a:1", "b:2", "a:1"]

    run_virtual(main)


def test_the_log_gives_the_reason_of_a_loss_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        net = serving()
        async with channel_to(net, "a:1") as channel:
            await channel.unary(PATH, b"x")
            await lose(net.transports[0])

    run_virtual(main)
    (said,) = [record.getMessage() for record in caplog.records if "lost" in record.getMessage()]
    assert said == "the connection to a:1 was lost: the server closed the connection"


def test_after_a_good_bye_old_calls_finish_there_and_new_ones_go_to_the_next() -> None:
    async def main() -> None:
        net = Net()
        async with channel_to(net, "a:1", "b:2") as channel:
            await channel.ready()
            old = asyncio.ensure_future(channel.unary(PATH, b"old"))
            await asyncio.sleep(SETTLED_S)
            first = net.transports[0]
            first.server.good_bye(1)
            await asyncio.sleep(0.1)
            assert channel.address is None
            new = asyncio.ensure_future(channel.unary(PATH, b"new"))
            await asyncio.sleep(0.1)
            second = net.transports[1]
            second.server.answer(1, b"from b")
            assert await new == b"from b"
            assert not first.is_closing()
            first.server.answer(1, b"from a")
            assert await old == b"from a"
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert first.is_closing()
            assert net.dialed == ["a:1", "b:2"]
            assert len(channel._dispatcher.connector._connections) == 1  # type: ignore[union-attr]

    run_virtual(main)


def test_a_drained_connection_is_closed_also_if_its_last_call_is_cancelled() -> None:
    async def main() -> None:
        net = Net()
        async with channel_to(net) as channel:
            await channel.ready()
            call = asyncio.ensure_future(channel.unary(PATH, b"old"))
            await asyncio.sleep(0.1)
            net.transports[0].server.good_bye(1)
            await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.wait([call])
            await asyncio.sleep(0.1)
            assert net.transports[0].is_closing()

    run_virtual(main)


def test_a_server_that_takes_connections_and_loses_them_is_not_asked_all_the_time() -> None:
    async def main() -> None:
        net = Net()
        net.serve = lambda server: setattr(server, "on_request", lambda _: hang_up())

        def hang_up() -> None:
            net.transports[-1].hang_up()

        async with channel_to(net) as channel:
            begun = now()
            while now() - begun < 20:
                with pytest.raises(ConnectionLost):
                    await channel.unary(PATH, b"x")
            assert len(net.dialed) < 20

    run_virtual(main)


def test_a_connection_that_worked_makes_up_for_a_round_that_did_not() -> None:
    async def main() -> None:
        net = serving()
        net.down.add("a:1")
        async with channel_to(net) as channel:
            with pytest.raises(ConnectFailed):
                await channel.ready()
            net.down.clear()
            await channel.ready(wait_for_ready=True)
            await lose(net.transports[0])
            begun = now()
            assert await channel.unary(PATH, b"x") == b"x"
            assert 0 < now() - begun < 1  # it has not lived for a while

    run_virtual(main)


def test_after_a_connection_that_lived_for_a_while_pauses_begin_anew() -> None:
    async def main() -> None:
        net = serving()
        net.down.add("a:1")
        async with channel_to(net) as channel:
            with pytest.raises(RpcError):
                await channel.unary(PATH, b"x", timeout=30, wait_for_ready=True)
            net.down.clear()
            await channel.ready(wait_for_ready=True)
            await asyncio.sleep(SETTLED_S)
            await lose(net.transports[0])
            net.down.add("a:1")
            with pytest.raises(ConnectFailed):
                await channel.ready()
            net.down.clear()
            begun = now()
            await channel.ready(wait_for_ready=True)
            assert now() - begun <= BASE_S

    run_virtual(main)


# The end.


def test_closing_while_it_connects_ends_that() -> None:
    async def main(silent: bool) -> None:
        net = Net()
        if silent:
            net.silent.add("a:1")
        else:
            net.delay_s = 100.0
        channel = channel_to(net)
        call = asyncio.ensure_future(channel.unary(PATH, b"x"))
        await asyncio.sleep(1)
        begun = now()
        await channel.close()
        assert now() - begun < LINGER_S
        with pytest.raises(RpcError, match="CANCELLED: the channel was closed"):
            await call
        assert (tasks(), timers()) == (1, 0)

    run_virtual(main, False)
    run_virtual(main, True)


def test_closing_while_it_pauses_ends_that() -> None:
    async def main() -> None:
        net = Net()
        net.down.add("a:1")
        channel = channel_to(net)
        call = asyncio.ensure_future(channel.unary(PATH, b"x", wait_for_ready=True))
        await asyncio.sleep(1)
        await channel.close()
        with pytest.raises(RpcError, match="CANCELLED: the channel was closed"):
            await call
        assert (tasks(), timers()) == (1, 0)

    run_virtual(main)


def test_a_call_that_a_good_bye_leaves_out_in_the_turn_of_the_closing_is_not_made_again() -> None:
    async def main() -> None:
        net = Net()
        channel = channel_to(net)
        call = asyncio.ensure_future(channel.unary(PATH, b"x"))
        await asyncio.sleep(2 * SETTLED_S)
        [transport] = net.transports
        transport.protocol.data_received(frames.goaway(0, ErrorCode.NO_ERROR))
        await channel.close()
        with pytest.raises(RpcError, match="CANCELLED: the channel was closed"):
            await call
        assert net.dialed == ["a:1"]
        assert (tasks(), timers()) == (1, 0)

    run_virtual(main)


def test_closing_does_not_wait_for_a_server_that_reads_nothing() -> None:
    async def main() -> None:
        net = serving()
        channel = channel_to(net)
        await channel.ready()
        net.transports[0].hangs = True
        begun = now()
        await channel.close()
        assert now() - begun == pytest.approx(LINGER_S)
        assert timers() == 0

    run_virtual(main)


def test_something_wrong_with_connecting_itself_is_told_to_whoever_waits() -> None:
    async def broken(make_connection: MakeConnection, endpoint: Endpoint) -> ClientProtocol:
        raise ValueError("a wrong server name")

    async def main() -> None:
        async with Channel("a:1", connect=broken) as channel:
            with pytest.raises(ValueError, match="a wrong server name"):
                await channel.unary(PATH, b"x", wait_for_ready=True)

    run_virtual(main)
