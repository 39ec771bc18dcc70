"""Keep-alive over a connection whose answers carry no number, as etcd's do.

Holders keep one connection to their landlord and send a lease's cookie down it; the landlord
answers with the cookie and the new term. Which request an answer belongs to is for `SendLedger` to
say. Connections break, and answers are late: the holder must never trust longer than the landlord.
"""

import asyncio
from collections.abc import Hashable

from leasehold import ConnectionLost, Duration, UnknownLease
from leasehold.basics.durations import Requested
from leasehold.engine.remote.send_ledger import SendLedger
from leasehold.testing import Connection, Faults, Simulation
from tests.simulation.oracle import Violation
from tests.simulation.remote import RemoteLease, Route, rent
from tests.simulation.world import Setting, World

TERM_S = 5.0
LEASES_PER_HOLDER = 4
FAST_LINK = Faults(delay=(0.001, 0.01))
JERKY_LINK = Faults(loss=0.05, delay=(0.001, 0.05), spike=0.2, spike_delay=(0.2, 2.5))


class KeepAliveStream:
    """A holder's connection for keep-alives, opened anew when it broke."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._connection: Connection | None = None
        self._ledger: SendLedger[Hashable, asyncio.Future[Duration]] = SendLedger()
        self._answered = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    async def renew(self, cookie: Hashable, requested: Requested) -> Duration:
        """Ask for a new term, once no older request for this lease is unanswered here."""
        connection = await self._connect()
        answer: asyncio.Future[Duration] = asyncio.get_running_loop().create_future()
        while not self._ledger.sent(cookie, answer):
            self._answered.clear()
            await self._answered.wait()
            connection = await self._connect()
        connection.send((cookie, requested))
        return await answer

    async def _connect(self) -> Connection:
        async with self._connecting:
            if self._connection is None:
                self._connection = await self.route.network.connect(
                    self.route.holder, self.route.landlord, "keepalive"
                )
                self._ledger = SendLedger()
                loop = asyncio.get_running_loop()
                self._reader = loop.create_task(self._read(self._connection))
            return self._connection

    async def _read(self, connection: Connection) -> None:
        try:
            while True:
                cookie, granted = await connection.receive()
                self._settle(self._ledger.answered(cookie), granted)
        except (OSError, EOFError):
            self._connection = None
            for _, answer in self._ledger.broken():
                self._settle(answer, ConnectionLost("the keep-alive connection broke"))

    def _settle(self, answer: asyncio.Future[Duration] | None, outcome: object) -> None:
        self._answered.set()
        if answer is None or answer.done():
            return
        if isinstance(outcome, BaseException):
            answer.set_exception(outcome)
        else:
            assert isinstance(outcome, float)
            answer.set_result(outcome)


class StreamLease(RemoteLease):
    """A lease that is renewed over a keep-alive stream."""

    stream: KeepAliveStream

    async def ask_renew(self, requested: Requested) -> Duration:
        return await self.stream.renew(self.cookie, requested)


def keep_alive(seed: int) -> World:
    """Holders renew over streams that stutter and break; nobody trusts too long, or gets stuck."""
    setting = Setting(holders=2, terms=(TERM_S,), faults=JERKY_LINK, managed=False)
    with Simulation(seed) as sim:
        world = World(sim, setting)
        world.network.listen(world.host, "keepalive", lambda conn: _answer(world, conn))
        held: dict[tuple[str, int], RemoteLease] = {}
        for holder in world.holders:
            stream = KeepAliveStream(holder.route)
            for number in range(LEASES_PER_HOLDER):
                holder.host.start(_hold, world, stream, (holder.host.name, number), held)
        for _ in range(40):
            sim.run_for(sim.random.uniform(1.0, 10.0))
            longest_s = sim.random.choice((1.0, 8.0, 60.0))
            world.cut_off(sim.random.choice(world.holders), sim.random.uniform(0.3, longest_s))
        world.network.heal()
        world.network.default = FAST_LINK
        sim.run_for(60.0)
        for lease in held.values():
            if lease.remaining == 0.0:
                raise Violation(f"{lease!r} is not renewed over a healthy link")
        world.crash_all()
        world.wind_down()
    return world


async def _answer(world: World, connection: Connection) -> None:
    """What the landlord does with a keep-alive connection."""
    try:
        while True:
            cookie, requested = await connection.receive()
            outcome = world.landlord.renew_all([(cookie, requested)]).outcomes[0]
            if not isinstance(outcome, BaseException):
                world.oracle.promised(cookie, outcome)
            connection.send((cookie, outcome))
    except (OSError, EOFError):
        return


async def _hold(
    world: World,
    stream: KeepAliveStream,
    slot: tuple[str, int],
    held: dict[tuple[str, int], RemoteLease],
) -> None:
    """Hold a lease, for ever; a new one when it is lost."""
    while True:
        (rented,) = await rent(stream.route, [slot], TERM_S)
        lease = StreamLease(stream.route, rented.cookie, rented.term, rented.sent_at)
        lease.stream = stream
        held[slot] = world.oracle.held[lease.cookie] = lease
        try:
            while True:
                await _renew_impatiently(world, lease)
        except UnknownLease:
            continue


async def _renew_impatiently(world: World, lease: RemoteLease) -> None:
    """Renew soon, and give up on the answer early: it may still come."""
    await asyncio.sleep(world.sim.random.uniform(0.2, 2.0))
    try:
        async with asyncio.timeout(0.5):
            await lease.renew(TERM_S)
    except (OSError, EOFError):
        return
