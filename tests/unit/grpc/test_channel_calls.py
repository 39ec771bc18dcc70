"""What becomes of the calls of a channel: deadlines, retries, cancellation; in virtual time."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from leasehold.errors import ConnectFailed, ConnectionLost, HistoryLost, Status
from leasehold.grpc.call_context import parse_timeout
from leasehold.grpc.channel import Channel
from leasehold.grpc.connecting import SETTLED_S
from leasehold.grpc.protocol import RpcError, framed
from leasehold.grpc.retries import MAX_ATTEMPTS
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from leasehold.testing.loop import HostLoop
from leasehold.testing.simulation import run_virtual
from tests.support.raw_server import PATH, Net, RawServer, VirtualTransport, echoing, no_leak

TICK_S = 0.02

Answering = Callable[[RawServer, int], None]


def now() -> float:
    return asyncio.get_running_loop().time()


def timers() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HostLoop)
    return sum(not entry[3].cancelled() for entry in loop._timers)


def channel_to(net: Net, *addresses: str) -> Channel:
    return Channel(addresses or ("a:1",), connect=net.connect, random=Random(1))


def scripted(*steps: Answering) -> Net:
    """A net whose servers answer calls in these ways, in this order, and then with an echo."""
    net, left = Net(), list(steps)

    def serve(server: RawServer) -> None:
        def answer(stream_id: int) -> None:
            if left:
                left.pop(0)(server, stream_id)
            else:
                server.answer(stream_id, bytes(server.requests[stream_id].body[5:]))

        server.on_request = answer

    net.serve = serve
    return net


def executions(net: Net) -> int:
    return sum(len(transport.server.requests) for transport in net.transports)


def transport_of(net: Net, server: RawServer) -> VirtualTransport:
    return next(each for each in net.transports if each.server is server)


def has_nothing_left(channel: Channel) -> bool:
    dispatcher = channel._dispatcher
    assert dispatcher is not None
    connector = dispatcher.connector
    return (
        len(dispatcher.deadlines) == 0
        and not connector._waiters
        and not dispatcher._pauses
        and connector._task is None
        and all(no_leak(each.http2) for each in connector._connections)
        and len(asyncio.all_tasks()) == 1
    )


async def settle() -> None:
    """Let everything happen that is to happen now."""
    for _ in range(10):
        await asyncio.sleep(0)


def refuse(server: RawServer, stream_id: int) -> None:
    server.reset(stream_id, ErrorCode.REFUSED_STREAM)


def silence(_server: RawServer, _stream_id: int) -> None:
    """Do not answer."""


# Deadlines.


def test_a_call_is_over_at_its_deadline_and_the_server_is_told() -> None:
    async def main() -> None:
        net = scripted(silence)
        async with channel_to(net) as channel:
            begun = now()
            with pytest.raises(RpcError) as caught:
                await channel.unary(PATH, b"x", timeout=1.5)
            assert str(caught.value) == f"DEADLINE_EXCEEDED: {PATH}: no answer within 1.5 s"
            assert 1.5 <= now() - begun <= 1.5 + TICK_S
            await settle()
            request = net.transports[0].server.requests[1]
            assert parse_timeout(request.head["grpc-timeout"].encode()) == pytest.approx(1.5)
            assert request.reset == ErrorCode.CANCEL
            assert has_nothing_left(channel)
            assert await channel.unary(PATH, b"next") == b"next"

    run_virtual(main)


def test_the_deadline_of_a_stream_ends_all_of_it() -> None:
    async def main() -> None:
        net = Net()
        async with channel_to(net) as channel:
            begun = now()
            async with channel.stream(PATH, timeout=2.0) as call:
                await settle()
                server = net.transports[0].server
                server.head(1)
                for _ in range(3):
                    server.say(1, b"event")
                    assert await call.receive() == b"event"
                    await asyncio.sleep(0.5)
                with pytest.raises(RpcError, match="no answer within 2 s"):
                    await call.receive()
                assert 2.0 <= now() - begun <= 2.0 + TICK_S
                with pytest.raises(RpcError, match="no answer within 2 s"):
                    await call.send(b"late")
                await settle()
                assert server.requests[1].reset == ErrorCode.CANCEL
                assert has_nothing_left(channel)

    run_virtual(main)


def test_a_channel_can_have_a_time_out_for_all_calls() -> None:
    async def main() -> None:
        net = scripted(silence, silence)
        channel = Channel("a:1", connect=net.connect, default_timeout=0.5)
        async with channel:
            with pytest.raises(RpcError, match=r"within 0.5 s"):
                await channel.unary(PATH, b"x")
            with pytest.raises(RpcError, match=r"within 0.25 s"):
                await channel.unary(PATH, b"x", timeout=0.25)
            async with channel.stream(PATH) as call:
                with pytest.raises(RpcError, match=r"within 0.5 s"):
                    await call.receive()

    run_virtual(main)


def test_what_is_left_of_the_time_is_told_after_waiting_for_a_connection() -> None:
    async def main() -> None:
        net = scripted()
        net.delay_s = 3.0
        async with channel_to(net) as channel:
            await channel.unary(PATH, b"x", timeout=5.0)
            head = net.transports[0].server.requests[1].head
            assert parse_timeout(head["grpc-timeout"].encode()) == pytest.approx(2.0)

    run_virtual(main)


def test_calls_without_a_time_have_none() -> None:
    async def main() -> None:
        net = scripted()
        async with channel_to(net) as channel:
            await channel.unary(PATH, b"x")
            assert "grpc-timeout" not in net.transports[0].server.requests[1].head

    run_virtual(main)


# Retries.


def test_a_refused_call_is_made_again_after_a_pause() -> None:
    async def main() -> None:
        net = scripted(refuse, refuse)
        async with channel_to(net) as channel:
            await channel.ready()
            begun = now()
            assert await channel.unary(PATH, b"x", timeout=10) == b"x"
            assert 0.0 < now() - begun < 0.05
            assert (len(net.dialed), executions(net)) == (1, 3)
            assert has_nothing_left(channel)

    run_virtual(main)


def test_but_not_for_ever() -> None:
    async def main() -> None:
        net = scripted(*[refuse] * 10)
        async with channel_to(net) as channel:
            with pytest.raises(RpcError) as caught:
                await channel.unary(PATH, b"x")
            assert caught.value.status == Status.UNAVAILABLE
            assert f"not executed: {PATH} was tried {MAX_ATTEMPTS} times" in str(caught.value)
            assert "REFUSED_STREAM" in str(caught.value)
            assert executions(net) == MAX_ATTEMPTS
            assert has_nothing_left(channel)

    run_virtual(main)


def test_nor_beyond_its_deadline() -> None:
    async def main() -> None:
        net = scripted(*[refuse] * 10)
        async with channel_to(net) as channel:
            await channel.ready()
            with pytest.raises(RpcError, match=r"DEADLINE_EXCEEDED.*refused the call"):
                await channel.unary(PATH, b"x", timeout=0.015)
            assert has_nothing_left(channel)

    run_virtual(main)


def test_a_call_that_a_good_bye_leaves_out_is_made_on_the_next_connection() -> None:
    async def main() -> None:
        net = scripted(lambda server, _: server.good_bye(0))
        async with channel_to(net, "a:1", "b:2") as channel:
            await channel.ready()
            await asyncio.sleep(SETTLED_S)
            assert await channel.unary(PATH, b"x") == b"x"
            assert net.dialed == ["a:1", "b:2"]

    run_virtual(main)


def test_a_call_that_may_have_been_executed_is_not_made_again() -> None:
    async def main() -> None:
        net = scripted(lambda server, _: transport_of(net, server).hang_up())
        async with channel_to(net) as channel:
            with pytest.raises(ConnectionLost) as caught:
                await channel.unary(PATH, b"x", timeout=10, wait_for_ready=True)
            assert str(caught.value) == (
                f"{PATH}: the connection to a:1 was lost: the server closed the connection"
            )
            await asyncio.sleep(20)
            assert executions(net) == 1

    run_virtual(main)


def test_nor_is_one_that_was_reset_or_got_half_an_answer() -> None:
    async def main() -> None:
        def reset(server: RawServer, stream_id: int) -> None:
            server.reset(stream_id, ErrorCode.INTERNAL_ERROR)

        def halve(server: RawServer, stream_id: int) -> None:
            server.head(stream_id)
            server.send(frames.frame(frames.DATA, 0, stream_id, framed(b"hello")[:6]))
            transport_of(net, server).hang_up(ConnectionResetError(104, "reset by peer"))

        net = scripted(reset, halve)
        async with channel_to(net) as channel:
            with pytest.raises(RpcError, match="INTERNAL"):
                await channel.unary(PATH, b"x", idempotent=True)
            with pytest.raises(ConnectionLost, match="reset by peer"):
                await channel.unary(PATH, b"x")
            assert executions(net) == 2

    run_virtual(main)


def test_unless_its_caller_says_that_it_does_no_harm() -> None:
    async def main() -> None:
        def hang_up(server: RawServer, _: int) -> None:
            transport_of(net, server).hang_up()

        net = scripted(hang_up, hang_up)
        async with channel_to(net) as channel:
            assert await channel.unary(PATH, b"x", idempotent=True) == b"x"
            assert executions(net) == 3

    run_virtual(main)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_call_is_made_on_another_connection_only_once_that_was_looked_at(
    *, is_known: bool
) -> None:
    async def main() -> None:
        def hang_up(server: RawServer, _: int) -> None:
            transport_of(net, server).hang_up()

        made: list[int] = []

        async def look() -> None:
            made.append(executions(net))
            if not is_known:
                raise HistoryLost("another cluster")

        net = scripted(hang_up)
        async with channel_to(net) as channel:
            await channel.ready()
            if is_known:
                assert await channel.unary(PATH, b"x", idempotent=True, prepare=look) == b"x"
            else:
                with pytest.raises(HistoryLost):
                    await channel.unary(PATH, b"x", idempotent=True, prepare=look)
            assert made == [1]
            assert executions(net) == 1 + is_known
            assert has_nothing_left(channel)

    run_virtual(main)


def test_what_may_have_been_executed_is_never_called_unexecuted_later() -> None:
    async def main(then: str) -> None:
        def hang_up(server: RawServer, _: int) -> None:
            transport_of(net, server).hang_up()
            if then == "down":
                net.down.add("a:1")

        net = scripted(hang_up, *[refuse] * 10)
        async with channel_to(net) as channel:
            with pytest.raises(ConnectionLost, match=r"was lost: .*; then: "):
                await channel.unary(PATH, b"x", idempotent=True)

    run_virtual(main, "down")
    run_virtual(main, "refused")


def test_if_there_is_no_next_connection_the_call_was_not_executed() -> None:
    async def main() -> None:
        def good_bye(server: RawServer, _: int) -> None:
            net.down.add("a:1")
            server.good_bye(0)

        net = scripted(good_bye)
        async with channel_to(net) as channel:
            with pytest.raises(ConnectFailed, match="refused"):
                await channel.unary(PATH, b"x")

    run_virtual(main)


def test_a_stream_is_not_made_again_and_says_if_it_was_not_executed() -> None:
    async def main() -> None:
        net = Net()
        async with channel_to(net) as channel:
            await channel.ready()
            server = net.transports[0].server
            async with channel.stream(PATH) as call:
                await settle()
                server.reset(1, ErrorCode.REFUSED_STREAM)
                with pytest.raises(RpcError, match="UNAVAILABLE: not executed"):
                    await call.receive()
            async with channel.stream(PATH) as call:
                await settle()
                net.transports[0].hang_up()
                with pytest.raises(ConnectionLost, match="a:1 was lost"):
                    await call.receive()
            assert len(server.requests) == 2

    run_virtual(main)


def test_metadata_that_can_be_read_once_only_goes_with_each_attempt() -> None:
    async def main() -> None:
        net = scripted(refuse)
        async with channel_to(net) as channel:
            await channel.unary(PATH, b"x", metadata=(pair for pair in [("k", "v")]))
            heads = [request.head for request in net.transports[0].server.requests.values()]
            assert [head["k"] for head in heads] == ["v", "v"]

    run_virtual(main)


# Cancellation.


def test_a_cancelled_call_is_reset_and_nothing_is_left_of_it() -> None:
    async def main() -> None:
        net = scripted(*[silence] * 3)
        async with channel_to(net) as channel:
            await channel.ready()
            calls = [asyncio.ensure_future(channel.unary(PATH, b"x", timeout=5)) for _ in range(3)]
            await settle()
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            await settle()
            assert all(call.cancelled() for call in calls)
            requests = net.transports[0].server.requests.values()
            assert [request.reset for request in requests] == [ErrorCode.CANCEL] * 3
            assert has_nothing_left(channel)

    run_virtual(main)


def test_so_is_one_that_waits_for_room() -> None:
    async def main() -> None:
        net = scripted(silence)
        net.settings = {Setting.MAX_CONCURRENT_STREAMS: 1}
        async with channel_to(net) as channel:
            await channel.ready()
            first = asyncio.ensure_future(channel.unary(PATH, b"x", timeout=5))
            second = asyncio.ensure_future(channel.unary(PATH, b"y", timeout=5))
            await settle()
            second.cancel()
            await asyncio.wait([second])
            with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
                await first
            await settle()
            assert list(net.transports[0].server.requests) == [1]
            assert has_nothing_left(channel)

    run_virtual(main)


def test_one_that_pauses_before_it_is_made_again_can_be_cancelled_too() -> None:
    async def main() -> None:
        net = scripted(*[refuse] * 10)
        async with channel_to(net) as channel:
            await channel.ready()
            before = timers()
            call = asyncio.ensure_future(channel.unary(PATH, b"x"))
            await settle()
            assert channel._dispatcher is not None
            assert channel._dispatcher._pauses
            call.cancel()
            await asyncio.wait([call])
            assert has_nothing_left(channel)
            assert timers() <= before + 1  # of the keep-alive

    run_virtual(main)


def test_an_answer_and_a_cancellation_in_the_same_turn_leave_nothing() -> None:
    async def main() -> None:
        net = Net()
        async with channel_to(net) as channel:
            await channel.ready()
            server = net.transports[0].server
            call = asyncio.ensure_future(channel.unary(PATH, b"x", timeout=5))

            def answer_and_cancel(stream_id: int) -> None:
                server.answer(stream_id)
                call.cancel()

            server.on_request = answer_and_cancel
            await asyncio.wait([call])
            await settle()
            assert has_nothing_left(channel)

    run_virtual(main)


def test_leaving_the_block_of_a_stream_cancels_it() -> None:
    async def main() -> None:
        net = Net()
        async with channel_to(net) as channel:
            async with channel.stream(PATH, timeout=5) as call:
                await call.send(b"one")
            await settle()
            assert net.transports[0].server.requests[1].reset == ErrorCode.CANCEL
            with pytest.raises(RpcError, match="CANCELLED: the block of the call was left"):
                await call.receive()
            with pytest.raises(ZeroDivisionError):
                async with channel.stream(PATH, timeout=5) as call:
                    raise ZeroDivisionError
            await settle()
            assert net.transports[0].server.requests[3].reset == ErrorCode.CANCEL
            assert has_nothing_left(channel)

    run_virtual(main)


def test_another_task_that_sends_is_told_that_the_block_was_left() -> None:
    async def main() -> None:
        net = Net()
        async with channel_to(net) as channel:
            async with channel.stream(PATH) as call:
                sending = asyncio.ensure_future(call.send(bytes(1 << 20)))
                await settle()
            with pytest.raises(RpcError, match="CANCELLED"):
                await sending

    run_virtual(main)


def test_a_block_is_entered_once() -> None:
    async def main() -> None:
        net = Net()
        async with channel_to(net) as channel:
            block = channel.stream(PATH)
            async with block:
                pass
            with pytest.raises(RuntimeError, match="make another one"):
                async with block:
                    pass

    run_virtual(main)


# The end.


def test_closing_cancels_what_is_under_way_and_says_good_bye() -> None:
    async def main() -> None:
        net = scripted(silence, silence)
        net.settings = {Setting.MAX_CONCURRENT_STREAMS: 2}
        channel = channel_to(net)
        await channel.ready()
        calls = [asyncio.ensure_future(channel.unary(PATH, b"x", timeout=9)) for _ in range(2)]
        await settle()
        async with channel.stream(PATH) as waiting:
            begun = now()
            await channel.close()
            assert now() == begun
            for call in calls:
                with pytest.raises(RpcError, match="CANCELLED: the channel was closed"):
                    await call
            with pytest.raises(RpcError, match="CANCELLED: the channel was closed"):
                await waiting.receive()
        await settle()
        assert net.transports[0].server.goaway == ErrorCode.NO_ERROR
        assert net.transports[0].is_closing()
        assert has_nothing_left(channel)
        assert not channel._dispatcher.connector._connections  # type: ignore[union-attr]

    run_virtual(main)


def test_closing_cancels_a_call_that_pauses() -> None:
    async def main() -> None:
        net = scripted(*[refuse] * 10)
        channel = channel_to(net)
        await channel.ready()
        call = asyncio.ensure_future(channel.unary(PATH, b"x"))
        await settle()
        await channel.close()
        with pytest.raises(RpcError, match="CANCELLED: the channel was closed"):
            await call

    run_virtual(main)


# What is sent together.


def test_calls_of_one_turn_leave_in_one_piece() -> None:
    async def main() -> None:
        net = Net()
        net.serve = echoing
        async with channel_to(net) as channel:
            await channel.ready()
            before = net.transports[0].writes
            await asyncio.gather(*[channel.unary(PATH, b"x", timeout=5) for _ in range(64)])
            assert net.transports[0].writes == before + 1

    run_virtual(main)
