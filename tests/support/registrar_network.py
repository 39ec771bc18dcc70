"""A simulated network of registrars, for the discovery service: calls and announcements.

    network = RegistrarNetwork(sim)
    network.add("R", groups="a")    # it announces itself from now on
    network.join("R", "a b")        # it changes its groups, and announces that
    network.silence("R")            # its announcements are lost; it answers calls
    network.kill("R")               # it is gone, without a goodbye
    view = network.view(host)       # a `DiscoveryNetwork` for a process on that host

The registrar `R` has the endpoints `r:2379` and `r-alias:2379`, so `leasehold://r` is a locator of
it. Announcements are repeated, like those of multicast DNS, and answer a process that begins to
browse. A view does not outlive its process.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from leasehold.discovery.announced import Announcement, Registrar
from leasehold.discovery.locators import Locator
from leasehold.errors import ConnectFailed
from leasehold.testing import Host, Simulation

TTL_S: Final = 120.0
REPEAT_S: Final = TTL_S / 2


@dataclass(eq=False)
class SimulatedRegistrar:
    """A registrar with one server."""

    id: str
    groups: frozenset[str]
    endpoints: tuple[str, ...]
    number: int = 1
    """Rises when the groups change."""
    is_up: bool = True
    is_announcing: bool = True
    """Whether its announcements arrive."""
    is_cut_off: bool = False
    """Whether calls have no answer, and announcements do not arrive."""
    is_hanging: bool = False
    """Whether calls are neither answered nor refused."""

    @property
    def is_heard(self) -> bool:
        """Whether its announcements arrive now."""
        return self.is_up and self.is_announcing and not self.is_cut_off

    @property
    def answers(self) -> bool:
        """Whether it answers a call now."""
        return self.is_up and not self.is_cut_off and not self.is_hanging

    @property
    def locator(self) -> Locator:
        """Its first endpoint as a locator."""
        return Locator(self.endpoints[0].partition(":")[0])

    def describe(self) -> Registrar:
        """Return what it answers."""
        return Registrar(self.id, self.groups, self.number, self.endpoints, f"cluster of {self.id}")


class RegistrarNetwork:
    """Registrars, and the processes that call them and receive their announcements."""

    def __init__(self, sim: Simulation, delay_s: float = 0.01) -> None:
        self._sim = sim
        self.delay_s = delay_s
        """How long an announcement takes, and a call."""
        self.answer_s = 0.0
        """How much longer a call takes."""
        self.registrars: dict[str, SimulatedRegistrar] = {}
        self.at: dict[str, str] = {}
        """The registrar at each endpoint."""
        self.views: list[NetworkView] = []
        self.calls: list[tuple[float, str]] = []
        """The calls that were made: times and endpoints."""
        sim.after(REPEAT_S, self._repeat)

    def __getitem__(self, name: str) -> SimulatedRegistrar:
        return self.registrars[name]

    def view(self, host: Host) -> "NetworkView":
        """Return the network as a process on a host sees it."""
        made = NetworkView(self, host)
        self.views.append(made)
        return made

    # Registrars.

    def add(self, name: str, groups: str = "a", *, announces: bool = True) -> SimulatedRegistrar:
        """Start a registrar; `groups` are separated by spaces, and `public` is the public one."""
        host = name.lower()
        endpoints = (f"{host}:2379", f"{host}-alias:2379")
        made = SimulatedRegistrar(name, groups_in(groups), endpoints, is_announcing=announces)
        self.registrars[name] = made
        self.at.update(dict.fromkeys(endpoints, name))
        self.announce(name)
        return made

    def announce(self, name: str) -> None:
        """Send an announcement now, if it can arrive."""
        for view in self.views:
            self._send(view, name)

    def join(self, name: str, groups: str) -> None:
        """Change the groups of a registrar; it announces that."""
        registrar = self[name]
        registrar.groups, registrar.number = groups_in(groups), registrar.number + 1
        self.announce(name)

    def silence(self, name: str) -> None:
        """Lose the announcements of a registrar from now on."""
        self[name].is_announcing = False

    def cut(self, name: str) -> None:
        """Cut a registrar off from the network."""
        self[name].is_cut_off = True

    def kill(self, name: str) -> None:
        """End a registrar without a goodbye."""
        self[name].is_up = False

    def stop(self, name: str) -> None:
        """End a registrar in order: it sends a goodbye."""
        self.say_goodbye(name)
        self[name].is_up = False

    def say_goodbye(self, name: str) -> None:
        """Send a goodbye of a registrar, which may still answer."""
        if self[name].is_heard:
            for view in self.views:
                view.deliver(lambda view=view: view.withdrawn(name))  # type: ignore[misc]

    def restore(self, name: str) -> None:
        """End everything that ails a registrar; it announces itself."""
        registrar = self[name]
        registrar.is_up = registrar.is_announcing = True
        registrar.is_cut_off = registrar.is_hanging = False
        self.announce(name)

    def replace(self, endpoint: str, name: str) -> None:
        """Have another registrar answer at an endpoint."""
        self.at[endpoint] = name

    def calls_to(self, name: str, since: float = 0.0) -> list[float]:
        """Return when a registrar was called, successfully or not."""
        endpoints = self[name].endpoints
        return sorted({at for at, endpoint in self.calls if endpoint in endpoints and at >= since})

    # Announcements.

    def _repeat(self) -> None:
        for name in self.registrars:
            self.announce(name)
        self._sim.after(REPEAT_S, self._repeat)

    def _send(self, view: "NetworkView", name: str) -> None:
        registrar = self[name]
        if registrar.is_heard:
            sent = Announcement(name, name, registrar.endpoints, registrar.number, TTL_S)
            self._sim.after(self.delay_s, partial(view.deliver, lambda: view.announced(sent)))

    def browsed(self, view: "NetworkView") -> None:
        """Have all registrars answer a process that begins to browse."""
        for name in self.registrars:
            self._send(view, name)

    async def call(self, endpoint: str) -> Registrar:
        """Call what is at an endpoint."""
        self.calls.append((self._sim.now, endpoint))
        await asyncio.sleep(self.delay_s / 2)
        registrar = self.registrars.get(self.at.get(endpoint, ""))
        if registrar is not None and (registrar.is_hanging or registrar.is_cut_off):
            await asyncio.get_running_loop().create_future()
        if registrar is None or not registrar.is_up:
            raise ConnectFailed(f"cannot connect to {endpoint}")
        answer = registrar.describe()
        await asyncio.sleep(self.delay_s / 2 + self.answer_s)
        return answer


class NetworkView:
    """The network of one process: a `DiscoveryNetwork`."""

    def __init__(self, network: RegistrarNetwork, host: Host) -> None:
        self._network = network
        self._host = host
        self._incarnation = host.incarnation
        self._is_browsing = self.is_closed = False
        self.announced: Callable[[Announcement], None]
        self.withdrawn: Callable[[str], None]

    def deliver(self, message: Callable[[], None]) -> None:
        """Deliver an announcement or a goodbye, if the process still browses."""
        is_same = self._host.incarnation == self._incarnation and not self._host.down
        if is_same and self._is_browsing and not self.is_closed:
            self._host.deliver(message)

    async def describe(self, endpoint: str) -> Registrar:
        return await self._network.call(endpoint)

    def browse(
        self, announced: Callable[[Announcement], None], withdrawn: Callable[[str], None]
    ) -> None:
        assert not self._is_browsing, "a process browses once"
        self.announced, self.withdrawn = announced, withdrawn
        self._is_browsing = True
        self._network.browsed(self)

    async def close(self) -> None:
        self.is_closed = True


def groups_in(text: str) -> frozenset[str]:
    """Return names of groups that are separated by spaces; `public` is the public one."""
    return frozenset("" if name == "public" else name for name in text.split())
