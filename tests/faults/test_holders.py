"""Real holders of leases on a real server; both are stopped and killed.

An outage that is shorter than the TTL is seen in the log only. In a longer one every holder's check
fails before its key is granted to another client: the clock is one that all processes share.

An outage begins when the server has stopped: a renewal may still be answered while the signal is on
its way. TTLs are multiples of the time that the start of a server takes, so that a busy machine
has longer ones.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import leasehold
from leasehold import Client, Key
from leasehold.clock import SYSTEM_CLOCK
from tests.faults.lasting_server import LastingServer
from tests.support.servers import POLL_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")

ROOT = Path(__file__).parents[2]
HOLDERS = 3
SHORT_TTL_S = 8.0
SHORT_TTL_IN_STARTS = 2
"""A renewal takes far less work than a start; there is more than the time of one start for it."""
LONG_TTL_S = 15.0
LONG_TTL_IN_STARTS = 10
"""Of these the outage takes one, and all holders must renew in the six before their last third."""
DEADLINE_S = 60.0
"""For everything that does not wait for a term; a term, which grows with the load, is added."""
now = SYSTEM_CLOCK.boottime


@dataclass
class HolderProcess:
    """A holder, and what it has written down so far."""

    process: "subprocess.Popen[str]"
    log: Path
    passed: list[float] = field(default_factory=list)
    until: float = 0.0
    lost: str = ""
    lost_at: float = 0.0

    def read(self) -> None:
        """Take down what it says, until its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, at, rest = line.rstrip("\n").split(" ", 2)
            if what == "held":
                self.passed.append(float(at))
                self.until = float(rest)
            else:
                self.lost_at, self.lost = float(at), rest


@contextmanager
def holders(endpoint: str, ttl_s: float, directory: Path) -> Iterator[list[HolderProcess]]:
    """Run holders of one key each."""
    started: list[HolderProcess] = []
    readers: list[threading.Thread] = []
    try:
        for number in range(HOLDERS):
            log = directory / f"holder-{number}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(  # noqa: S603  our own program
                    [
                        *(sys.executable, "-W", "error", "-m", "tests.faults.holder_process"),
                        *(endpoint, f"held/{number}", str(ttl_s)),
                    ],
                    stdout=subprocess.PIPE,
                    stderr=output,
                    text=True,
                    cwd=ROOT,
                )
            started.append(HolderProcess(process, log))
            readers.append(threading.Thread(target=started[-1].read, daemon=True))
            readers[-1].start()
        wait_until(lambda: all(each.passed for each in started), "all hold their leases")
        yield started
    finally:
        for each in started:
            each.process.kill()
        for each, reader in zip(started, readers, strict=True):
            each.process.wait(DEADLINE_S)
            reader.join(DEADLINE_S)
            assert each.process.stdout is not None
            each.process.stdout.close()


def wait_until(condition: Callable[[], bool], what: str, ttl_s: float = 0.0) -> None:
    give_up_at = time.monotonic() + DEADLINE_S + ttl_s
    while not condition():
        assert time.monotonic() < give_up_at, f"never: {what}"
        time.sleep(POLL_S)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LastingServer]:
    started = LastingServer(tmp_path)
    yield started
    started.close()


def short_ttl_s(server: LastingServer) -> float:
    return max(SHORT_TTL_S, SHORT_TTL_IN_STARTS * server.start_s)


def long_ttl_s(server: LastingServer) -> float:
    return max(LONG_TTL_S, LONG_TTL_IN_STARTS * server.start_s)


async def take_over(endpoint: str, ttl_s: float, at_once: int = HOLDERS) -> list[float]:
    """Wait until each key can be had, and say when it was."""

    async def take(client: Client, key: str) -> float:
        while True:
            try:
                done = await (
                    client.kv.txn(Key(key).is_missing()).then(Key(key).put("taken")).commit()
                )
            except (leasehold.LeaseholdError, TimeoutError):
                continue
            if done.succeeded:
                return now()
            await asyncio.sleep(POLL_S)

    async with asyncio.timeout(DEADLINE_S + ttl_s), leasehold.connect(endpoint) as client:
        return await asyncio.gather(*(take(client, f"held/{n}") for n in range(at_once)))


def run(work: Awaitable[list[float]]) -> list[float]:
    async def given() -> list[float]:
        return await work

    return asyncio.run(given())


def check_nobody_relied_on_what_was_taken(held: list[HolderProcess], taken: list[float]) -> None:
    for holder, taken_at in zip(held, taken, strict=False):
        assert holder.passed[-1] < taken_at


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_an_outage_shorter_than_the_term_is_seen_in_the_log_only(
    server: LastingServer, tmp_path: Path, how: str
) -> None:
    ttl_s = long_ttl_s(server)
    with holders(server.endpoint, ttl_s, tmp_path) as held:
        if how == "stopped":
            server.stop()
            began_at = now()
            time.sleep(1.0)  # this is the fault, not a hope
            server.go_on()
        else:
            server.kill()
            began_at = now()
            server.start()
        outage_s = now() - began_at
        assert outage_s < ttl_s / 2, "the restart took five times as long as the first start"
        wait_until(
            lambda: all(each.until > began_at + ttl_s or each.lost for each in held),
            "all were renewed",
            ttl_s,
        )
        assert [each.lost for each in held] == [""] * HOLDERS
        assert all(each.process.poll() is None for each in held)
        if how == "killed":
            for each in held:
                said = each.log.read_text()
                assert "was lost" in said
                assert "connected again" in said


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_in_a_longer_outage_every_holder_knows_before_anybody_else_is_granted(
    server: LastingServer, tmp_path: Path, how: str
) -> None:
    ttl_s = short_ttl_s(server)
    with holders(server.endpoint, ttl_s, tmp_path) as held:
        if how == "stopped":
            server.stop()
        else:
            server.kill()
        began_at = now()
        wait_until(lambda: all(each.lost for each in held), "all know", ttl_s)
        for each in held:
            assert began_at < each.lost_at
            assert each.passed[-1] <= each.until <= began_at + ttl_s
        if how == "stopped":
            server.go_on()
        else:
            server.start()
        taken = run(take_over(server.endpoint, ttl_s))
        check_nobody_relied_on_what_was_taken(held, taken)


def test_a_holder_that_was_stopped_for_longer_than_its_term_is_told_by_its_first_check(
    server: LastingServer, tmp_path: Path
) -> None:
    ttl_s = short_ttl_s(server)
    with holders(server.endpoint, ttl_s, tmp_path) as held:
        for each in held:
            os.kill(each.process.pid, signal.SIGSTOP)
        taken = run(take_over(server.endpoint, ttl_s))
        for each in held:
            os.kill(each.process.pid, signal.SIGCONT)
        wait_until(lambda: all(each.lost for each in held), "all know")
        check_nobody_relied_on_what_was_taken(held, taken)


def test_a_holder_that_was_killed_is_replaced_after_its_term_and_not_before(
    server: LastingServer, tmp_path: Path
) -> None:
    ttl_s = short_ttl_s(server)
    with holders(server.endpoint, ttl_s, tmp_path) as held:
        held[0].process.kill()
        held[0].process.wait(DEADLINE_S)
        until = held[0].until
        (taken,) = run(take_over(server.endpoint, ttl_s, at_once=1))
        assert until < taken
        assert all(each.lost == "" for each in held[1:])
        check_nobody_relied_on_what_was_taken(held, [taken])
