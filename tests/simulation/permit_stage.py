"""A server, an administrator who grants permits, a subject, and a gate that checks them.

    with Stage() as stage:
        permit = stage.do(stage.admin, lambda permits: permits.grant("anna", "hall", {"in"}, 10))
        stage.run_for(5.0)
        assert stage.asks(stage.gate)

Each is on a host of its own, with the shipped client, and all is in virtual time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from leasehold import Client
from leasehold.locks.permit import CALLS, PREFIX, names_of
from leasehold.locks.permits import Permits
from leasehold.testing import Faults, Host, Simulation
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import Answer, KeyspaceServer

QUIET: Final = Faults(delay=(0.001, 0.01))
GRAIN_S: Final = 0.1
"""A call takes no longer than this while all is well."""

WITHIN_S: Final = 300.0
NAMES: Final = names_of("anna", "hall")

T = TypeVar("T")


class Line(FarKeyspace):
    """The way to the server of one client, on which something may befall a message."""

    def __init__(self, server: KeyspaceServer, host: Host) -> None:
        super().__init__(server, host)
        self.befalls = ""
        """*unsent*: it never arrives; *unanswered*: it is done, and the connection is lost then;
        *late*: the connection is lost, and it is done after that."""
        self.befalls_in = 0
        """Which message from now on; 0 for none."""
        self.answers_late: dict[str, float] = {}
        """How long answers take, by the name of the call."""
        self.sends_late: dict[str, float] = {}
        """How long it takes until a call is sent."""

    async def _send(self, name: str, *args: Any, **named: Any) -> Answer:
        await asyncio.sleep(self.sends_late.get(name, 0.0))
        befallen = False
        if name != "connect" and self.befalls_in:
            self.befalls_in -= 1
            befallen = not self.befalls_in
        if befallen and self.befalls == "late":
            self.server.straggle((self._connection, name, args, named))
        if befallen and self.befalls != "unanswered":
            raise ConnectionResetError("the connection was lost")
        answer = await super()._send(name, *args, **named)
        if befallen:
            raise ConnectionResetError("the connection was lost")
        await asyncio.sleep(self.answers_late.get(name, 0.0))
        return answer


class User:
    """A client, and the host that it is on."""

    def __init__(self, host: Host, line: Line, client: Client) -> None:
        self.host = host
        self.line = line
        self.client = client

    @property
    def permits(self) -> Permits:
        return self.client.permits

    @property
    def now(self) -> float:
        return self.host.clock.boottime()


class Stage:
    """All of them."""

    def __init__(
        self, seed: int = 0, kind: type[KeyspaceServer] = KeyspaceServer, faults: Faults = QUIET
    ) -> None:
        self.sim = Simulation(seed)
        self.network = self.sim.network(faults)
        self.server = kind(self.sim, self.network, self.sim.host("server"))
        self.revoked_at = -inf
        """When a lease was last ended before its time."""
        self._listen_for_revocations()
        self.admin = self.user("admin")
        self.subject = self.user("subject")
        self.gate = self.user("gate")

    def _listen_for_revocations(self) -> None:
        execute = self.server.execute

        async def listen(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Answer:
            if name == "revoke":
                self.revoked_at = self.sim.now
            return await execute(name, args, named)

        self.server.execute = listen  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        self.sim.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.sim.__exit__(exc_type, exc, traceback)

    def user(self, name: str) -> User:
        host = self.sim.host(name)

        async def connect() -> User:
            line = Line(self.server, host)
            await line.start()
            return User(host, line, Client(line, clock=host.clock, random=self.sim.random))

        return self.wait(host.start(connect))

    def wait(self, task: "asyncio.Task[T]") -> T:
        self.sim.run_until(task.done, within=WITHIN_S)
        return task.result()

    def begin(
        self, user: User, work: Callable[[Permits], Coroutine[Any, Any, T]]
    ) -> "asyncio.Task[T]":
        return user.host.start(work, user.permits)

    def do(self, user: User, work: Callable[[Permits], Coroutine[Any, Any, T]]) -> T:
        return self.wait(self.begin(user, work))

    def run_for(self, seconds: float) -> None:
        self.sim.run_for(seconds)

    def cut(self, user: User) -> None:
        """Cut a client off from the server."""
        self.network.partition({user.host}, {self.server.host})

    # What is asked again and again.

    def grants(self, ttl_s: float, *rights: str) -> int:
        """Have the administrator grant a permit; give its lease."""
        wanted = rights or ("in",)
        permit = self.do(self.admin, lambda permits: permits.grant(*NAMES, wanted, ttl_s))
        return permit.lease

    def asks(self, user: User, right: str = "in", *, timeout: float | None = None) -> bool:
        return self.do(user, lambda permits: permits.check(*NAMES, right, timeout=timeout))

    def keeps(self, user: User, lease: int) -> None:
        """Have a client keep a lease alive."""

        async def keep() -> None:
            await user.client.keep(lease)

        self.wait(user.host.start(keep))

    def renews(self, lease: int) -> None:
        """Renew a lease as a program does that has never heard of permits."""
        self.wait(self.admin.host.start(self.admin.client.engine.renew, lease))

    # What there is at the server.

    def is_there(self) -> bool:
        return NAMES.key in self.server.pairs()

    def useless_leases(self) -> set[int]:
        """Give the leases that no permit is under."""
        used = {pair.lease for key, pair in self.server.pairs().items() if key.startswith(PREFIX)}
        return self.server.lease_ids() - used

    def open_calls(self) -> list[bytes]:
        return [key for key in self.server.pairs() if key.startswith(CALLS)]
