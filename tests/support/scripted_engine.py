"""An engine that does as it is told: leases in virtual time, with answers late, lost or wrong.

    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        engine.is_silent = True  # from now on no call is answered
        ...

    play(scene)

It knows leases only; what else is asked of it is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from leasehold import Client
from leasehold.clock import Clock
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.values import (
    DeleteResult,
    Features,
    LeaseInfo,
    Limits,
    PutResult,
    RangeResult,
    Renewed,
    TxnResult,
)
from leasehold.errors import ConnectionLost, EndReason, LeaseExists, UnknownLease
from leasehold.testing import Host, current_host, run_virtual


class Call(NamedTuple):
    """A call that was made."""

    name: str
    leases: tuple[int, ...]
    at: float


class ScriptedEngine(Engine):
    """Leases that end on a given clock, and calls that meet with whatever a test wants."""

    limits = Limits()
    features = Features()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[int, tuple[float, float]] = {}
        self.calls: list[Call] = []
        self.puts: list[tuple[bytes, int | None]] = []
        self.given_up: list[str] = []
        self.delay_s = 0.0
        """How long each call takes, the half of it before anything is done."""
        self.failure: Exception | None = None
        """What each call gets instead of an answer; nothing is done."""
        self.loses_answers = False
        """Whether calls are done, and the connection is lost then."""
        self.is_silent = False
        """Whether calls are done, and not answered."""
        self.is_deaf = False
        """Whether calls are neither done nor answered."""
        self.is_closed = False
        self.refusal: Exception | None = None
        """What `check` raises."""
        self.said = ""

    # What a test looks at.

    def alive(self) -> set[int]:
        """Return the leases that are there."""
        now = self._clock.boottime()
        return {lease for lease, (_, end) in self._ends.items() if now < end}

    def end_of(self, lease: int) -> float:
        """Return the end of a lease, on the clock."""
        return self._ends[lease][1]

    def times_of(self, name: str) -> list[float]:
        """Give when a method was called."""
        return [call.at for call in self.calls if call.name == name]

    # What an engine does.

    @property
    def trouble(self) -> str:
        return self.said

    def give_up_connection(self, why: str) -> None:
        self.given_up.append(why)

    @property
    def cluster_id(self) -> int:
        return 0xC1

    def check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        await self._arrive("grant", lease)
        if lease in self.alive():
            raise LeaseExists(lease)
        self._ends[lease] = (ttl, self._clock.boottime() + ttl)
        await self._answer()
        return LeaseInfo(lease, ttl, ttl, None, 0)

    async def renew(self, lease: int) -> float:
        await self._arrive("renew", lease)
        try:
            term_s = self._renew(lease)
        finally:
            await self._answer()
        return term_s

    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        wanted = list(leases)
        await self._arrive("renew_all", *wanted)
        terms: dict[int, float] = {}
        failures: dict[int, Exception] = {}
        for lease in wanted:
            try:
                terms[lease] = self._renew(lease)
            except UnknownLease as error:
                failures[lease] = error
        await self._answer()
        return Renewed(terms, failures)

    def _renew(self, lease: int) -> float:
        if lease not in self.alive():
            raise UnknownLease(lease, EndReason.EXPIRED)
        ttl_s = self._ends[lease][0]
        self._ends[lease] = (ttl_s, self._clock.boottime() + ttl_s)
        return ttl_s

    async def revoke(self, lease: int) -> int:
        await self._arrive("revoke", lease)
        was_there = lease in self.alive()
        self._ends.pop(lease, None)
        await self._answer()
        if not was_there:
            raise UnknownLease(lease)
        return 1

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        await self._arrive("time_to_live", lease)
        if lease not in self.alive():
            raise UnknownLease(lease)
        ttl_s, end = self._ends[lease]
        return LeaseInfo(lease, ttl_s, end - self._clock.boottime(), () if keys else None, 0)

    async def put(self, key: bytes, value: bytes | None, *, lease: int | None = 0) -> PutResult:
        await self._arrive("put")
        self.puts.append((key, lease))
        await self._answer()
        return PutResult(1, None)

    async def close(self) -> None:
        self.is_closed = True

    async def _arrive(self, name: str, *leases: int) -> None:
        self.check()
        self.calls.append(Call(name, leases, self._clock.boottime()))
        await asyncio.sleep(self.delay_s / 2)
        if self.is_deaf:
            await asyncio.get_running_loop().create_future()
        if self.failure is not None:
            raise self.failure

    async def _answer(self) -> None:
        await asyncio.sleep(self.delay_s / 2)
        if self.is_silent:
            await asyncio.get_running_loop().create_future()
        if self.loses_answers:
            raise ConnectionLost("the connection was lost")

    async def range(self, key: bytes, end: bytes = b"", **_options: Any) -> RangeResult:
        raise NotImplementedError

    async def delete(self, key: bytes, end: bytes = b"", **_options: Any) -> DeleteResult:
        raise NotImplementedError

    async def txn(self, *_parts: Any, **_named: Any) -> TxnResult:
        raise NotImplementedError

    async def compact(self, revision: int, *, wait: bool = False) -> int:
        raise NotImplementedError

    def watch(self, key: bytes, end: bytes = b"", **_options: Any) -> Watch:
        raise NotImplementedError

    async def leases(self) -> Sequence[LeaseInfo]:
        return [await self.time_to_live(lease) for lease in sorted(self.alive())]

    def recover(self) -> None:
        """Be well from now on."""
        self.is_deaf = self.is_silent = self.loses_answers = False
        self.failure = self.refusal = None
        self.delay_s = 0.0


WITHIN_S: Final = 100_000.0
"""How long a scene may take, in virtual time."""

Scene: TypeAlias = Callable[[Client, ScriptedEngine, Host], Awaitable[None]]


def play(scene: Scene, seed: int = 0) -> None:
    """Run a test in virtual time, with a client on such an engine; it must leave no lease."""

    async def main() -> None:
        host = current_host()
        engine = ScriptedEngine(host.clock)
        client = Client(engine, clock=host.clock, random=Random(seed))
        async with asyncio.timeout(WITHIN_S):
            await scene(client, engine, host)
        engine.recover()
        await client.close()
        assert not engine.alive(), "a lease was left behind"

    run_virtual(main, seed=seed)
