"""Real time, real sockets, on the event loops that people run.

The rule that waiting renewals are heard before anything ends must hold whichever of timers, sockets
and callbacks a loop serves first; so it is tested on each of them, by blocking the loop.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

import pytest
import uvloop

from leasehold import (
    FOREVER,
    EndReason,
    ExpiryStrategy,
    FixedPolicy,
    Landlord,
    RenewalManager,
    RenewalNotice,
    UnknownLease,
    exact,
    per_lease,
    polling,
)

TERM_S = 0.3
LONG_TERM_S = 60.0
DEADLINE_S = 60.0
KEPT_TERMS_S = (TERM_S, 1.0, 3.0, 10.0)
"""The longer ones are for a starved loop."""
TRIES_MAX = 20
"""For a loop that was starved for a part of a term before the test had begun."""

Run = Callable[[Coroutine[Any, Any, None]], None]
RUNNERS: list[Run] = [asyncio.run, uvloop.run]
STRATEGIES: list[ExpiryStrategy] = [exact(), polling(0.02), per_lease()]

both_loops = pytest.mark.parametrize("run", RUNNERS, ids=["asyncio", "uvloop"])
all_strategies = pytest.mark.parametrize("expiry", STRATEGIES, ids=repr)


class Owner:
    """Waits for leases to end."""

    def __init__(self) -> None:
        self.ended: list[tuple[object, EndReason, float]] = []
        self._news = asyncio.Event()

    def __call__(self, resource: object, reason: EndReason) -> None:
        self.ended.append((resource, reason, time.monotonic()))
        self._news.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.ended) < count:
                self._news.clear()
                await self._news.wait()


@both_loops
@all_strategies
def test_a_lease_ends_after_its_deadline_and_not_before(run: Run, expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        owner = Owner()
        landlord = Landlord(FixedPolicy(TERM_S), on_ended=owner, expiry=expiry)
        granted_at = time.monotonic()
        for n in range(100):
            landlord.grant(n)
        await owner.wait_for(100)
        assert {resource for resource, _, _ in owner.ended} == set(range(100))
        assert all(at - granted_at >= TERM_S for _, _, at in owner.ended)
        assert len(landlord) == 0

    run(main())


@both_loops
@all_strategies
@pytest.mark.parametrize("stall_s", [0.4, 0.9, 1.6])
def test_renewals_that_wait_in_a_socket_are_heard_before_anything_ends(
    run: Run, expiry: ExpiryStrategy, stall_s: float
) -> None:
    async def main() -> None:
        owner = Owner()
        landlord = Landlord(FixedPolicy(TERM_S), on_ended=owner, expiry=expiry)
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        loop = asyncio.get_running_loop()
        cookie = await _granted_a_while_ago(landlord, owner)
        renewed = loop.create_task(_renew_on_request(reader, landlord, cookie))
        theirs.sendall(b"renew\n")
        time.sleep(stall_s)  # noqa: ASYNC251  the loop is blocked: this is the stall
        await renewed
        assert not owner.ended
        await owner.wait_for(1)
        writer.close()
        await writer.wait_closed()
        theirs.close()

    run(main())


async def _granted_a_while_ago(landlord: Landlord[object], owner: Owner) -> Hashable:
    """Grant a lease, and wait until even the part of a stall that counts is enough to end it."""
    for _ in range(TRIES_MAX):
        granted_at = time.monotonic()
        lease = landlord.grant("desk")
        await asyncio.sleep(0.6 * TERM_S)
        if time.monotonic() - granted_at < 0.9 * TERM_S and not owner.ended:
            return lease.cookie
        with contextlib.suppress(UnknownLease):  # a starved loop has slept past the end
            landlord.cancel(lease.cookie)
        await owner.wait_for(1)
        owner.ended.clear()
    pytest.fail("the loop was starved again and again")


async def _renew_on_request(
    reader: asyncio.StreamReader, landlord: Landlord[object], cookie: Hashable
) -> None:
    assert await reader.readline() == b"renew\n"
    landlord.renew(cookie)


@both_loops
def test_a_manager_keeps_leases_alive_in_real_time(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(term_s: float) -> None:
        owner = Owner()
        landlord = Landlord(FixedPolicy(term_s), on_ended=owner)
        leases = [landlord.grant(n) for n in range(50)]
        async with RenewalManager(rtt=term_s / 6) as manager:
            started_at = time.monotonic()
            for lease in leases:
                manager.renew_for(lease, 4 * term_s)
            await owner.wait_for(50)
        are_kept.append(all(at - started_at >= 3 * term_s for _, _, at in owner.ended))

    are_kept: list[bool] = []
    for term_s in KEPT_TERMS_S:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "leasehold"):
            run(main(term_s))
        if are_kept[-1] and not caplog.records:  # a starved holder may lose its leases
            break
    assert are_kept[-1]
    assert not caplog.records


@both_loops
def test_the_notice_for_a_lease_that_its_grantor_has_ended_has_the_error(run: Run) -> None:
    """The alarm for the end that has moved must not come before the outcome of the call."""

    async def main() -> None:
        notices: list[RenewalNotice] = []
        with Landlord[int](FixedPolicy(LONG_TERM_S)) as landlord:
            leases = [landlord.grant(number) for number in range(2)]
            async with RenewalManager(rtt=0.1) as manager, asyncio.timeout(DEADLINE_S):
                for lease in leases:  # renewed at once: a stall ends no lease before the call
                    manager.renew_until(lease, FOREVER, LONG_TERM_S, notices.append, due_at=0.0)
                landlord.cancel(leases[0].cookie)
                while not notices:  # noqa: ASYNC110  a listener is no event
                    await asyncio.sleep(0.001)
        assert notices[0].lease == leases[0]
        assert isinstance(notices[0].error, UnknownLease)

    run(main())
