"""A lease that lives while its holder does: granted, renewed, in jeopardy, lost."""

import asyncio
import itertools
import logging
from typing import Any

import pytest

from leasehold import Client, HeldLease, LeaseLost
from leasehold.errors import CallFailed, Closed, EndReason, UnknownLease
from leasehold.leases.holder_view import session_margin_s
from leasehold.sessions import lease_keeper
from leasehold.testing import Host
from tests.support.scripted_engine import ScriptedEngine, play

pytestmark = pytest.mark.filterwarnings("ignore:lease .* was garbage-collected:ResourceWarning")
"""Many scenes leave the end of their leases to the client, which is closed after them."""

TTL_S = 9.0
MARGIN_S = 0.9
TRUSTED_S = TTL_S - MARGIN_S
GRAIN_S = 0.01
"""Timers are kept to within this."""


def test_a_lease_is_granted_kept_and_ended_with_the_block() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        async with client.lease(TTL_S) as lease:
            for _ in range(100):
                await asyncio.sleep(1.0)
                lease.check()
                assert lease.is_held
                assert engine.alive() == {lease.id}
        assert not engine.alive()
        assert not lease.is_held
        assert not lease.lost
        with pytest.raises(LeaseLost, match="its holder ended it"):
            lease.check()

    play(scene)


def test_a_lease_that_was_awaited_is_kept_until_it_is_ended() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        await asyncio.sleep(10 * TTL_S)
        lease.check()
        await lease.end()
        await lease.end()
        assert not engine.alive()
        assert len(engine.times_of("revoke")) == 1

    play(scene)


def test_a_term_counts_from_when_it_was_asked_for() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        engine.delay_s = 2.0
        asked_at = host.clock.boottime()
        lease = await client.lease(TTL_S)
        assert host.clock.boottime() == asked_at + 2.0
        assert lease.remaining == pytest.approx(TRUSTED_S - 2.0)
        renewal_at = asked_at + TTL_S / 3
        await asyncio.sleep(TTL_S / 3 + 0.5)  # the answer comes 2 s after it was asked for
        assert lease.remaining == pytest.approx(TRUSTED_S - 2.5)
        assert engine.times_of("renew") == pytest.approx([renewal_at], abs=GRAIN_S)

    play(scene)


@pytest.mark.parametrize(
    ("ttl_s", "margin_s"),
    [(0.06, 0.03), (0.2, 0.05), (0.5, 0.05), (1.0, 0.1), (10.0, 1.0), (20.0, 2.0), (3600.0, 2.0)],
)
def test_the_margin_is_a_tenth_at_least_50_ms_and_at_most_2_s(
    ttl_s: float, margin_s: float
) -> None:
    assert session_margin_s(ttl_s) == pytest.approx(margin_s)

    async def scene(client: Client, _engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(ttl_s)
        assert lease.remaining == pytest.approx(ttl_s - margin_s)

    play(scene)


def test_renewals_are_sent_every_third_of_a_term() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        began_at = host.clock.boottime()
        async with client.lease(TTL_S):
            await asyncio.sleep(4 * TTL_S / 3 + GRAIN_S)
        expected = [began_at + n * TTL_S / 3 for n in (1, 2, 3, 4)]
        assert engine.times_of("renew") == pytest.approx(expected, abs=GRAIN_S)

    play(scene)


@pytest.mark.parametrize("ttl_s", [0.5, TTL_S])
def test_a_renewal_that_fails_is_tried_again_every_twentieth_of_a_term_or_50_ms(
    ttl_s: float,
) -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        began_at = host.clock.boottime()
        lease = await client.lease(ttl_s)
        engine.failure = CallFailed("not now")
        await lease.lost.wait()
        times = engine.times_of("renew")
        assert times[0] == pytest.approx(began_at + ttl_s / 3, abs=GRAIN_S)
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert gaps == pytest.approx([max(0.05, ttl_s / 20)] * len(gaps), abs=GRAIN_S)
        assert times[-1] > lease.holding.end - 2 * gaps[0]

    play(scene)


# Jeopardy.


@pytest.mark.parametrize("trouble", ["deaf", "silent", "failing"])
def test_jeopardy_is_a_renewal_unanswered_for_a_third_of_a_term_told_once(trouble: str) -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        told: list[tuple[HeldLease, float]] = []
        lease = await client.lease(
            TTL_S, on_jeopardy=lambda lease, _: told.append((lease, host.clock.boottime()))
        )
        began_at = host.clock.boottime()
        engine.is_deaf, engine.is_silent = trouble == "deaf", trouble == "silent"
        engine.failure = CallFailed("not now") if trouble == "failing" else None
        await lease.jeopardy.wait()
        late_s = TTL_S / 20 if trouble == "failing" else 0.0
        assert host.clock.boottime() - began_at == pytest.approx(
            2 * TTL_S / 3 + late_s / 2, abs=late_s / 2 + GRAIN_S
        )
        lease.check()
        assert not lease.lost
        await lease.lost.wait()
        assert [lease for lease, _ in told] == [lease]

    play(scene)


def test_jeopardy_is_taken_back_with_an_answer_and_told_again_next_time() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        told: list[BaseException | None] = []
        lease = await client.lease(TTL_S, on_jeopardy=lambda _, error: told.append(error))
        for times in (1, 2):
            engine.failure = CallFailed("not now")
            await lease.jeopardy.wait()
            silent_s = host.clock.boottime() - lease.holding.credited_at
            assert silent_s >= 2 * TTL_S / 3 - GRAIN_S, "it is told too early"
            engine.failure = None
            await asyncio.sleep(TTL_S / 20 + GRAIN_S)
            assert not lease.jeopardy
            assert lease.is_held
            assert [str(error) for error in told] == ["not now"] * times
        await asyncio.sleep(10 * TTL_S)
        lease.check()
        assert len(told) == 2
        assert not lease.lost

    play(scene)


@pytest.mark.parametrize("how", ["revoked", "stalled"])
def test_a_lease_lost_without_jeopardy_sets_both_signals(how: str) -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        told: list[HeldLease] = []
        lease = await client.lease(TTL_S, on_jeopardy=lambda lease, _error: told.append(lease))
        waiting = asyncio.ensure_future(lease.jeopardy.wait())
        await asyncio.sleep(0.1)
        if how == "revoked":
            await engine.revoke(lease.id)
        else:
            host.stop(2 * TTL_S)
        await asyncio.wait_for(waiting, TTL_S)
        assert lease.lost.is_set()
        assert not told, "it was never in jeopardy"

    play(scene)


def test_a_connection_that_is_silent_until_jeopardy_is_given_up_once() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        leases = [await client.lease(TTL_S) for _ in range(20)]
        engine.is_deaf = True
        await leases[0].jeopardy.wait()
        await asyncio.sleep(GRAIN_S)
        assert all(lease.jeopardy for lease in leases)
        assert len(engine.given_up) == 1
        engine.is_deaf = False

    play(scene)


def test_an_outage_that_ends_in_time_is_told_to_the_log_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        told: list[object] = []
        lease = await client.lease(TTL_S, on_loss=lambda *args: told.append(args))
        await asyncio.sleep(TTL_S / 3 - GRAIN_S)
        engine.is_deaf = True
        await asyncio.sleep(TRUSTED_S - TTL_S / 3 - TTL_S / 20)
        engine.is_deaf = False
        await asyncio.sleep(10 * TTL_S)
        lease.check()
        assert not told
        assert not lease.lost
        assert not lease.jeopardy

    with caplog.at_level(logging.INFO, "leasehold"):
        play(scene)
    said = [record.message for record in caplog.records]
    assert any("in jeopardy" in line for line in said)
    assert any("is renewed again" in line for line in said)


# Loss.


def test_it_is_lost_at_its_trusted_end_and_told_once() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        told: list[tuple[HeldLease, BaseException | None]] = []
        began_at = host.clock.boottime()
        lease = await client.lease(TTL_S, on_loss=lambda *args: told.append(args))
        engine.failure = CallFailed("the disk is full")
        await lease.lost.wait()
        assert host.clock.boottime() - began_at == pytest.approx(TRUSTED_S, abs=GRAIN_S)
        assert lease.remaining == 0.0
        assert [lease for lease, _ in told] == [lease]
        assert isinstance(told[0][1], CallFailed)
        with pytest.raises(LeaseLost, match="the disk is full"):
            lease.check()
        engine.failure = None
        await asyncio.sleep(TTL_S)
        assert len(told) == 1
        with pytest.raises(LeaseLost):  # for good, whatever is answered later
            lease.check()

    play(scene)


def test_the_text_of_a_loss_has_no_time_limit_of_a_single_attempt() -> None:
    """An attempt may take half of what is left of the lease, such as 0.06 s."""

    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        engine.is_deaf = True
        await lease.lost.wait()
        with pytest.raises(LeaseLost, match="it expired before it could be renewed") as lost:
            lease.check()
        assert "the renewal request was not answered" in str(lost.value)
        assert "within" not in str(lost.value)

    play(scene)


@pytest.mark.parametrize("how", ["stopped", "suspended", "blocked"])
def test_check_reads_the_clock_before_any_callback_has_run(how: str) -> None:
    async def scene(client: Client, _engine: ScriptedEngine, host: Host) -> None:
        lease = await client.lease(TTL_S)
        if how == "stopped":
            host.stop(TTL_S)
        elif how == "suspended":
            host.suspend(TTL_S)
        else:
            host.stall(TTL_S)
            with pytest.raises(LeaseLost):  # in the same turn
                lease.check()
        await asyncio.sleep(0)  # the process goes on after that, at once
        assert not lease.lost, "the signal was faster: this shows nothing"
        assert lease.remaining == 0.0
        assert not lease.is_held
        with pytest.raises(LeaseLost, match="it expired"):
            lease.check()
        await lease.lost.wait()

    play(scene)


def test_a_suspend_is_noticed_though_timers_slept() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        lease = await client.lease(100.0)
        engine.is_deaf = True
        await asyncio.sleep(1.0)
        host.suspend(100.0)
        woken_at = host.clock.monotonic()
        await lease.lost.wait()
        assert host.clock.monotonic() - woken_at < 2.0

    play(scene)


@pytest.mark.parametrize("reason", list(EndReason))
def test_a_lease_that_the_server_does_not_know_is_lost_at_once(reason: EndReason) -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        lease = await client.lease(TTL_S)
        engine._ends.clear()
        began_at = host.clock.boottime()
        engine.failure = UnknownLease(lease.id, reason)
        await lease.lost.wait()
        assert host.clock.boottime() - began_at == pytest.approx(TTL_S / 3, abs=GRAIN_S)
        said = "no longer has it" if reason is EndReason.UNKNOWN else f"has ended: {reason}"
        with pytest.raises(LeaseLost, match=said):
            lease.check()
        assert engine.times_of("revoke") == []

    play(scene)


def test_a_lease_lost_without_a_word_is_ended_when_there_is_contact_again() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        engine.failure = CallFailed("not now")
        await lease.lost.wait()
        engine._ends[lease.id] = (TTL_S, 1e9)  # as a server that stood still has it
        await asyncio.sleep(1.0)
        engine.failure = None
        await asyncio.sleep(lease_keeper.LOST_S / 10)
        assert not engine.alive()

    play(scene)


def test_an_answer_that_comes_after_the_loss_revives_nothing() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        lease = await client.lease(TTL_S)
        await asyncio.sleep(TTL_S / 3 - GRAIN_S)
        engine.delay_s = 20.0
        await lease.lost.wait()
        host.stall(0.1)
        await asyncio.sleep(30.0)
        assert lease.lost
        assert lease.remaining == 0.0
        with pytest.raises(LeaseLost):
            await lease.renew()

    play(scene)


def test_an_answer_after_its_own_term_is_no_lease() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        engine.delay_s = 1.0
        with pytest.raises(LeaseLost, match="before the answer arrived"):
            await client.lease(0.5)

    play(scene)


@pytest.mark.parametrize("which", ["on_jeopardy", "on_loss"])
def test_a_callback_that_raises_stops_nothing(which: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        def fail(_lease: HeldLease, _error: BaseException | None) -> None:
            raise RuntimeError("the callback is broken")

        callbacks: dict[str, Any] = {which: fail}
        broken = await client.lease(TTL_S, **callbacks)
        told: list[object] = []
        other = await client.lease(TTL_S, on_loss=lambda *args: told.append(args))
        engine.failure = CallFailed("not now")
        await broken.lost.wait()
        await other.lost.wait()
        assert len(told) == 1

    play(scene)
    assert "the callback is broken" in caplog.text


@pytest.mark.slow
def test_a_thousand_leases_are_renewed_in_few_calls() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        engine.delay_s = 0.001
        leases = [await client.lease(TTL_S) for _ in range(1000)]
        assert len(engine.times_of("renew_all")) == 0
        await asyncio.sleep(10 * TTL_S)
        for lease in leases:
            lease.check()
        calls = [call for call in engine.calls if call.name in ("renew", "renew_all")]
        assert sum(len(call.leases) for call in calls) >= 1000 * 29
        assert len(calls) <= 2 * 30

    play(scene)


def test_a_lease_may_be_renewed_by_hand_for_a_full_term_and_ended_with_0() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        await asyncio.sleep(1.0)
        assert await lease.renew(5.0) == TTL_S
        assert lease.remaining == pytest.approx(TRUSTED_S)
        assert await lease.renew(0) == 0.0
        assert not engine.alive()
        assert not lease.lost

    play(scene)


def test_cancel_ends_it_like_end() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        await lease.cancel()
        assert not engine.alive()
        await asyncio.sleep(TTL_S)
        assert not lease.lost, "it was still renewed"

    play(scene)


def test_a_closed_client_gives_no_lease_and_has_ended_all() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        await client.close()
        assert not engine.alive()
        assert engine.is_closed
        assert not lease.lost
        with pytest.raises(Closed):
            await client.lease(TTL_S)
        with pytest.raises(LeaseLost, match="was closed") as lost:
            lease.check()
        assert isinstance(lost.value.__cause__, Closed)
        await client.close()

    play(scene)
