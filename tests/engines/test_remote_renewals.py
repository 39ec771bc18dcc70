"""Renewals by etcd's keep-alive stream, against a server that says what a test wants."""

import asyncio

import pytest

from leasehold import CallFailed, Closed, ConnectionLost, HistoryLost, UnknownLease
from leasehold.engine.remote import etcd_leases
from leasehold.engine.remote.caller import UNANSWERED_S
from leasehold.errors import Status, is_definite
from leasehold.grpc.protocol import RpcError
from leasehold.leases.holder_view import session_margin_s
from leasehold.testing.simulation import run_virtual
from leasehold.wire import rpc_pb2 as pb
from tests.engines.scripted import KEEP_ALIVE, RANGE, ScriptedChannel, ScriptedStream, header


def answer(stream: ScriptedStream, lease: int, ttl: int = 10, cluster: int = 7) -> None:
    stream.say(pb.LeaseKeepAliveResponse(header=header(1, cluster), ID=lease, TTL=ttl))


async def heard(stream: ScriptedStream) -> int:
    return (await stream.heard(pb.LeaseKeepAliveRequest)).ID


async def settle() -> None:
    await asyncio.sleep(0.001)


def test_the_stream_asks_for_a_leader() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            renewal = asyncio.ensure_future(engine.renew(5))
            stream = await channel.opened(KEEP_ALIVE)
            assert ("hasleader", "true") in stream.metadata
            assert await heard(stream) == 5
            answer(stream, 5)
            assert await renewal == 10.0

    run_virtual(main)


def test_an_answer_belongs_to_the_oldest_send_and_who_asks_later_has_another() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            first = asyncio.ensure_future(engine.renew(5))
            stream = await channel.opened(KEEP_ALIVE)
            assert await heard(stream) == 5
            later = [asyncio.ensure_future(engine.renew(5)) for _ in range(3)]
            await settle()
            assert stream.is_quiet, "at most one renewal of a lease is outstanding"
            answer(stream, 5, 10)
            assert await first == 10.0
            assert not any(each.done() for each in later)
            assert await heard(stream) == 5
            answer(stream, 5, 20)
            assert await asyncio.gather(*later) == [20.0] * 3
            assert stream.is_quiet

    run_virtual(main)


def test_a_late_answer_is_given_to_who_asks_again_less_the_time_since_it_was_sent() -> None:
    async def main() -> None:
        channel = ScriptedChannel(has_others=False)
        async with await channel.engine() as engine:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await engine.renew(5)
            stream = await channel.opened(KEEP_ALIVE)
            assert await heard(stream) == 5
            again = asyncio.ensure_future(engine.renew(5))
            another = asyncio.ensure_future(engine.renew(5))
            await settle()
            assert stream.is_quiet, "a slow server is not asked for the same again and again"
            await asyncio.sleep(3)
            answer(stream, 5, 10)  # to the first one, whose term began two seconds before
            term_s = await again
            trusted_s = term_s - session_margin_s(term_s)
            assert trusted_s == pytest.approx(10.0 - session_margin_s(10.0) - 2.0, abs=0.01)
            assert await heard(stream) == 5
            answer(stream, 5, 20)
            assert await another == 20.0

    run_virtual(main)


def test_a_late_answer_whose_term_is_over_is_no_answer() -> None:
    async def main() -> None:
        channel = ScriptedChannel(has_others=False)
        async with await channel.engine() as engine:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await engine.renew(5)
            stream = await channel.opened(KEEP_ALIVE)
            await asyncio.sleep(9)
            again = asyncio.ensure_future(engine.renew(5))
            await settle()
            answer(stream, 5, 10)
            with pytest.raises(TimeoutError, match="after the end of the new term"):
                await again

    run_virtual(main)


def test_a_new_stream_starts_with_nothing_outstanding() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            lost = asyncio.ensure_future(engine.renew_all([5, 6]))
            stream = await channel.opened(KEEP_ALIVE)
            assert [await heard(stream), await heard(stream)] == [5, 6]
            channel.lose()
            failures = (await lost).failures
            assert {type(error) for error in failures.values()} == {ConnectionLost}
            again = asyncio.ensure_future(engine.renew(5))
            stream = await channel.opened(KEEP_ALIVE)
            assert await heard(stream) == 5
            answer(stream, 6, 99)  # nobody has asked here
            answer(stream, 5, 10)
            assert await again == 10.0

    run_virtual(main)


def test_what_was_given_up_before_it_was_sent_is_not_sent() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            channel.is_up.clear()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await engine.renew_all([5, 6])
            wanted = asyncio.ensure_future(engine.renew(6))
            await settle()
            channel.is_up.set()
            stream = await channel.opened(KEEP_ALIVE)
            assert await heard(stream) == 6
            answer(stream, 6)
            assert await wanted == 10.0
            assert stream.is_quiet

    run_virtual(main)


def test_what_another_one_waits_for_is_sent() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            channel.is_up.clear()
            patient = asyncio.ensure_future(engine.renew(5))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await engine.renew(5)
            channel.is_up.set()
            stream = await channel.opened(KEEP_ALIVE)
            assert await heard(stream) == 5
            answer(stream, 5)
            assert await patient == 10.0

    run_virtual(main)


def test_a_lease_that_may_not_be_sent_any_more_is_not_sent() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        over: set[int] = set()

        def may_send(lease: int) -> None:
            if lease in over:
                raise RuntimeError(f"{lease} is over")

        async with await channel.engine() as engine:
            first = asyncio.ensure_future(engine.renew(5))
            stream = await channel.opened(KEEP_ALIVE)
            assert await heard(stream) == 5
            later = asyncio.ensure_future(engine.renew_all([5, 6], may_send))
            assert await heard(stream) == 6
            over.add(5)  # while its turn has not come: an earlier renewal is outstanding
            answer(stream, 5)
            answer(stream, 6)
            assert await first == 10.0
            renewed = await later
            assert renewed.terms == {6: 10.0}
            assert str(renewed.failures[5]) == "5 is over"
            assert stream.is_quiet

    run_virtual(main)


def test_a_lease_is_sent_if_one_of_its_callers_still_wants_it() -> None:
    async def main() -> None:
        channel = ScriptedChannel()

        def refuse(lease: int) -> None:
            raise RuntimeError(f"{lease} is over")

        async with await channel.engine() as engine:
            one = asyncio.ensure_future(engine.renew_all([5], refuse))
            other = asyncio.ensure_future(engine.renew(5))
            stream = await channel.opened(KEEP_ALIVE)
            assert await heard(stream) == 5
            answer(stream, 5)
            assert (await one).terms == {5: 10.0}
            assert await other == 10.0

    run_virtual(main)


def test_each_lease_has_its_own_answer() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            asking = asyncio.ensure_future(engine.renew_all([5, 6, 7]))
            stream = await channel.opened(KEEP_ALIVE)
            for lease, ttl in ((7, 30), (5, 10), (6, 0)):
                answer(stream, lease, ttl)
            assert not asking.done()
            renewed = await asking
            assert renewed.terms == {5: 10.0, 7: 30.0}
            assert isinstance(renewed.failures[6], UnknownLease)

    run_virtual(main)


@pytest.mark.parametrize("message", ["no leader", "server stopped", "request timed out"])
def test_a_member_that_is_of_no_use_is_left(message: str) -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            renewal = asyncio.ensure_future(engine.renew(5))
            stream = await channel.opened(KEEP_ALIVE)
            stream.end(RpcError(Status.UNAVAILABLE, f"etcdserver: {message}"))
            with pytest.raises(CallFailed, match=message):
                await renewal
            assert len(channel.hung_up) == 1

            def refuse(_: bytes) -> pb.RangeResponse:
                raise RpcError(Status.UNAVAILABLE, f"etcdserver: {message}")

            channel.answers[RANGE] = refuse
            with pytest.raises(CallFailed, match=message):
                await engine.range(b"a")
            assert len(channel.hung_up) > 1

    run_virtual(main)


def test_another_cluster_is_history_lost() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            renewal = asyncio.ensure_future(engine.renew(5))
            stream = await channel.opened(KEEP_ALIVE)
            answer(stream, 5, cluster=8)
            with pytest.raises(HistoryLost):
                await renewal

    run_virtual(main)


# Going to another server.


def test_a_renewal_that_was_given_up_without_an_answer_goes_to_another_server() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await engine.renew(5)
            assert channel.hung_up == ["no response for 2.0 s"]
            stream = await channel.opened(KEEP_ALIVE)
            await settle()
            assert stream.is_over
            again = asyncio.ensure_future(engine.renew(5))
            stream = await channel.opened(KEEP_ALIVE)
            answer(stream, 5)
            assert await again == 10.0

    run_virtual(main)


def test_not_where_there_is_no_other_server_or_it_had_no_time_to_answer() -> None:
    async def main() -> None:
        alone, hurried, new = (
            ScriptedChannel(has_others=False),
            ScriptedChannel(),
            ScriptedChannel(),
        )
        for channel, given_s in ((alone, 5.0), (hurried, UNANSWERED_S / 2), (new, 5.0)):
            async with await channel.engine() as engine:
                loop = asyncio.get_running_loop()
                if channel is new:
                    channel.connected_at = loop.time() + 5.0 - UNANSWERED_S / 2
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(given_s):
                        await engine.renew(5)
                assert channel.hung_up == []

    run_virtual(main)


def test_a_server_that_is_only_slow_with_renewals_is_not_left() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            asking = asyncio.ensure_future(engine.renew_all([5, 6, 7]))
            stream = await channel.opened(KEEP_ALIVE)
            await asyncio.sleep(1)
            answer(stream, 5)
            await asyncio.sleep(1)
            asking.cancel()
            await asyncio.wait([asking])
            assert channel.hung_up == []

    run_virtual(main)


@pytest.mark.parametrize("is_heard", [False, True])
def test_another_call_that_was_given_up_does_so_if_the_server_is_silent(is_heard: bool) -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            await asyncio.sleep(1)
            call = asyncio.ensure_future(engine.put(b"a", b""))
            await asyncio.sleep(2)
            if is_heard:
                channel.heard_at = asyncio.get_running_loop().time()
            call.cancel()
            await asyncio.wait([call])
            assert bool(channel.hung_up) is not is_heard

    run_virtual(main)


def test_whoever_waits_for_renewals_may_have_the_connection_given_up() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            renewal = asyncio.ensure_future(engine.renew(5))
            await channel.opened(KEEP_ALIVE)
            engine.give_up_connection("no answer for a third of a term")
            with pytest.raises(ConnectionLost, match="no answer for a third of a term"):
                await renewal

    run_virtual(main)


# Ends.


def test_a_stream_that_the_server_ends_is_a_connection_lost() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            renewal = asyncio.ensure_future(engine.renew(5))
            (await channel.opened(KEEP_ALIVE)).end()
            with pytest.raises(ConnectionLost, match="ended the renewal stream"):
                await renewal

    run_virtual(main)


def test_a_stream_that_nobody_uses_is_let_go_and_the_next_renewal_has_another() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            for _ in range(3):
                renewal = asyncio.ensure_future(engine.renew(5))
                stream = await channel.opened(KEEP_ALIVE)
                answer(stream, 5)
                assert await renewal == 10.0
                await asyncio.sleep(etcd_leases.IDLE_S + 0.1)
                assert stream.is_over

    run_virtual(main)


@pytest.mark.parametrize("early_s", [0.0, 1e-9, 1e-6])
def test_who_asks_while_it_is_let_go_is_renewed(early_s: float) -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            for turns in range(5):
                renewal = asyncio.ensure_future(engine.renew(5))
                stream = await channel.opened(KEEP_ALIVE)
                assert await heard(stream) == 5
                answer(stream, 5)
                await renewal
                await asyncio.sleep(etcd_leases.IDLE_S - early_s)
                for _ in range(turns):
                    await asyncio.sleep(0)
                serving = asyncio.ensure_future(answer_all(channel, stream))
                assert await engine.renew(5) == 10.0
                await serving
                channel.lose()
                await settle()

    async def answer_all(channel: ScriptedChannel, stream: ScriptedStream) -> None:
        old = asyncio.ensure_future(heard(stream))
        new = asyncio.ensure_future(channel.opened(KEEP_ALIVE))
        await asyncio.wait((old, new), return_when=asyncio.FIRST_COMPLETED)
        answer(new.result() if new.done() else stream, 5)
        for waiting in (old, new):
            waiting.cancel()

    run_virtual(main)


def test_a_defect_of_ours_is_told_aloud_and_says_nothing_of_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            renewal = asyncio.ensure_future(engine.renew(5))
            (await channel.opened(KEEP_ALIVE)).end(ZeroDivisionError("a defect"))
            with pytest.raises(CallFailed, match="ZeroDivisionError") as failed:
                await renewal
            assert not is_definite(failed.value)

    run_virtual(main)
    assert "renewal stream failed" in caplog.text


def test_closing_ends_renewals() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        engine = await channel.engine()
        renewal = asyncio.ensure_future(engine.renew(5))
        await channel.opened(KEEP_ALIVE)
        await settle()
        await engine.close()
        with pytest.raises(Closed):
            await renewal

    run_virtual(main)
