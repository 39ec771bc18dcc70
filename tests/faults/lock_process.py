"""A process with several clients, which read, pause and write under locks until it is told to end.

    python -m tests.faults.lock_process '{"name": …}'       see `Settings`

It ends when its standard input does: each worker goes on until it was once admitted to each lock's
counter, to show that it still can, and the clients are closed.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

import leasehold
import leasehold.sync
from leasehold import LeaseLost, Token
from leasehold.clock import SYSTEM_CLOCK

How = Literal["wait", "ask", "ask again", "block", "give up"]

HOW: Final[tuple[How, ...]] = ("wait", "wait", "ask", "ask again", "block", "block", "give up")
HOST: Final = "127.0.0.1"
WAIT_MAX_S: Final = 4.0
PAUSE_MAX_S: Final = 0.02
QUIET: Final = 0.2
IN_A_ROW: Final = 5
"""How often the quiet lock is wanted instead of another, and how many times then."""
LOSSES: Final = (LeaseLost, TimeoutError)
"""What may happen to who locks while there are faults; anything else is a defect."""

now = SYSTEM_CLOCK.boottime
Message = dict[str, Any]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Settings:
    """What a process is to do."""

    name: str
    endpoints: list[str]
    port: int
    """Of the resource."""
    locks: list[str]
    """Which everybody wants."""
    quiet: list[str]
    """Another one for each client, which few want: it is often found in the cache."""
    kind: Literal["async", "sync"]
    clients: int
    workers: int
    """Of each client."""
    ttl_s: float
    seed: int
    is_locking: bool = True


@dataclass(frozen=True)
class Plan:
    """One attempt, with all that is left to chance."""

    lock: str
    how: How
    wait_s: float
    cache: bool
    pause_s: float
    """Between the read and the write."""
    rest_s: float
    """Afterwards."""
    late: bool
    """Whether to check once more before the write."""


class Guarding(Protocol):
    """As much of a guard as is used here."""

    @property
    def token(self) -> Token: ...
    @property
    def key(self) -> bytes: ...
    def check(self) -> None: ...
    def release(self) -> None: ...


class NoGuard:
    """What who does not lock has instead of a guard."""

    token = Token(1, 1)
    key = b""

    def check(self) -> None:
        """Find nothing wrong."""

    def release(self) -> None:
        """Do nothing."""


class Visit:
    """What one guard says to the resource."""

    def __init__(self, name: str, guard: Guarding, plan: Plan) -> None:
        self.since = now()
        self._name = name
        self._guard = guard
        self._plan = plan
        self._checked = 0.0

    def check(self) -> None:
        """Have the guard checked."""
        at = now()
        self._guard.check()
        self._checked = at

    def message(self, what: Literal["read", "write"], value: int = 0) -> Message:
        """Write what is sent."""
        return {
            "what": what,
            "lock": self._plan.lock,
            "token": str(self._guard.token),
            "guard": self._name,
            "key": self._guard.key.decode(),
            "late": self._plan.late,
            "value": value,
            "since": self.since,
            "checked": self._checked,
        }


class Worker:
    """What workers of both kinds have in common."""

    def __init__(self, settings: Settings, number: int, finishing: threading.Event) -> None:
        self.settings = settings
        client, worker = divmod(number, settings.workers)
        self._name = f"{settings.name}:{client}:{worker}"
        self._quiet = settings.quiet[client]
        self._rng = random.Random(f"{settings.seed} {self._name}")
        self._finishing = finishing
        self._guards = 0
        self._is_admitted = False

    def plans(self) -> Iterator[Plan]:
        """Plan one attempt after the other, up to the end of this worker."""
        while not self._finishing.is_set():
            if self._rng.random() < QUIET:
                for _ in range(IN_A_ROW):
                    yield replace(self._plan(self._quiet), rest_s=0.0)
            else:
                yield self._plan(self._rng.choice(self.settings.locks))
        for lock in self.settings.locks:
            self._is_admitted = False
            while not self._is_admitted:
                yield replace(self._plan(lock), how="block", wait_s=WAIT_MAX_S)

    def _plan(self, lock: str) -> Plan:
        rng = self._rng
        how = rng.choice(HOW)
        return Plan(
            lock,
            how,
            rng.uniform(0.0, 0.1 if how == "give up" else WAIT_MAX_S),
            rng.random() < 0.8,
            rng.uniform(0.0, PAUSE_MAX_S),
            rng.uniform(0.0, PAUSE_MAX_S),
            rng.random() < 0.5,
        )

    def visit(self, guard: Guarding, plan: Plan) -> Visit:
        """Begin to use a guard."""
        self._guards += 1
        visit = Visit(f"{self._name}:{self._guards}", guard, plan)
        visit.check()
        return visit

    def wrote(self, answer: int | None) -> None:
        """Note whether a write was admitted."""
        self._is_admitted = answer is not None

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Be connected to the resource."""
        with (
            socket.create_connection((HOST, self.settings.port)) as connection,
            connection.makefile("rwb", buffering=0) as self._stream,
        ):
            yield

    def use(self, guard: Guarding, plan: Plan) -> None:
        """Count up, and let nothing else of this thread come in between."""
        visit = self.visit(guard, plan)
        value = self._ask(visit.message("read"))
        if value is None:
            return
        time.sleep(plan.pause_s)
        if plan.late:
            visit.check()
        self.wrote(self._ask(visit.message("write", value + 1)))

    def _ask(self, message: Message) -> int | None:
        self._stream.write(json.dumps(message).encode() + b"\n")
        return _answer_of(self._stream.readline())


class AsyncWorker(Worker):
    """A task.

    One that checks late does so without giving the loop a turn since its read: after a stop of the
    process nobody can have told the guard that it is lost.
    """

    async def run(self, client: leasehold.Client) -> None:
        """Work to the end."""
        with self.connected():
            streams = await asyncio.open_connection(HOST, self.settings.port)
            for plan in self.plans():
                with contextlib.suppress(*LOSSES):
                    await self._attempt(client, plan, streams)
                await asyncio.sleep(plan.rest_s)
            streams[1].close()
            await streams[1].wait_closed()

    async def _attempt(self, client: leasehold.Client, plan: Plan, streams: Streams) -> None:
        if not self.settings.is_locking:
            await self._use(NoGuard(), plan, streams)
            return
        lock = client.lock(plan.lock, cache=plan.cache, timeout=plan.wait_s)
        if plan.how == "block":
            async with lock as guard:
                await self._use(guard, plan, streams)
            return
        async with asyncio.timeout(plan.wait_s if plan.how == "give up" else None):
            guard = await lock.acquire(
                timeout=0 if plan.how == "ask" else None, ask_again=plan.how == "ask again"
            )
        try:
            await self._use(guard, plan, streams)
        finally:
            guard.release()

    async def _use(self, guard: Guarding, plan: Plan, streams: Streams) -> None:
        if plan.late:
            self.use(guard, plan)
            return
        visit = self.visit(guard, plan)
        value = await _ask(streams, visit.message("read"))
        if value is None:
            return
        await asyncio.sleep(plan.pause_s)
        self.wrote(await _ask(streams, visit.message("write", value + 1)))


async def _ask(streams: Streams, message: Message) -> int | None:
    streams[1].write(json.dumps(message).encode() + b"\n")
    return _answer_of(await streams[0].readline())


def _answer_of(line: bytes) -> int | None:
    answer = json.loads(line)
    assert answer is None or isinstance(answer, int)
    return answer


class SyncWorker(Worker):
    """A thread."""

    def run(self, client: leasehold.sync.Client) -> None:
        """Work to the end."""
        with self.connected():
            for plan in self.plans():
                with contextlib.suppress(*LOSSES):
                    self._attempt(client, plan)
                time.sleep(plan.rest_s)

    def _attempt(self, client: leasehold.sync.Client, plan: Plan) -> None:
        if not self.settings.is_locking:
            self.use(NoGuard(), plan)
            return
        lock = client.lock(plan.lock, cache=plan.cache, timeout=plan.wait_s)
        if plan.how == "block":
            with lock as guard:
                self.use(guard, plan)
            return
        guard = lock.acquire(
            timeout=0 if plan.how == "ask" else None, ask_again=plan.how == "ask again"
        )
        try:
            self.use(guard, plan)
        finally:
            guard.release()


async def run_async(settings: Settings, finishing: threading.Event) -> None:
    """Run tasks, several of each client."""
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for each in range(settings.clients):
            client = await stack.enter_async_context(
                leasehold.connect(settings.endpoints, session_ttl=settings.ttl_s)
            )
            for worker in range(settings.workers):
                number = each * settings.workers + worker
                group.create_task(AsyncWorker(settings, number, finishing).run(client))


def run_sync(settings: Settings, finishing: threading.Event) -> None:
    """Run threads, several of each client."""
    count = settings.clients * settings.workers
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        running = []
        for each in range(settings.clients):
            client = stack.enter_context(
                leasehold.sync.connect(settings.endpoints, session_ttl=settings.ttl_s)
            )
            for worker in range(settings.workers):
                number = each * settings.workers + worker
                running.append(pool.submit(SyncWorker(settings, number, finishing).run, client))
        for future in running:
            future.result()


def main() -> None:
    """Do what the settings say."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = Settings(**json.loads(sys.argv[1]))
    finishing = threading.Event()

    def wait_for_the_end() -> None:
        while os.read(0, 1024):
            pass
        finishing.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    if settings.kind == "async":
        asyncio.run(run_async(settings, finishing))
    else:
        run_sync(settings, finishing)


if __name__ == "__main__":
    main()
