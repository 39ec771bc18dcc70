"""Locks of ours and of etcdctl in one line, on both servers: whoever holds it, nobody else does."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import leasehold
import leasehold.sync
from leasehold.basics.lease_ids import shown_lease
from tests.conformance.client import Client, Granter
from tests.conformance.etcdctl import RUN_S, Etcdctl, Names, Running
from tests.conformance.locks import Locks
from tests.support.serve_command import command
from tests.support.servers import RunningServer

DENIED = 7
EACH = 4
"""How many of each kind contend."""

ADD = """
import pathlib, sys, time
file = pathlib.Path(sys.argv[1])
before = int(file.read_text())
time.sleep(0.1)
file.write_text(str(before + 1))
"""
"""Counts wrongly if two do it at the same time."""


@pytest.fixture
def locks(client: Client) -> Locks:
    return Locks(client)


@contextmanager
def leasehold_going_on(server: RunningServer, *arguments: str) -> Iterator[Running]:
    """Run `leasehold` beside the test."""
    with subprocess.Popen(  # noqa: S603  our own command
        [*command(*arguments), "--endpoint", server.endpoint],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def end(process: Running) -> None:
    process.process.send_signal(signal.SIGTERM)
    process.process.wait(RUN_S)


def denied(server: RunningServer, name: str) -> str:
    """Ask for a lock that somebody has; give what is said of that."""
    done = subprocess.run(  # noqa: S603  our own command
        command("lock", name, "--endpoint", server.endpoint, "--wait", "0", "--", "true"),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == DENIED, done
    return done.stderr


def test_a_lock_of_etcdctl_is_waited_for_and_its_lease_is_named(
    server: RunningServer, etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    with etcdctl.going_on("lock", names.lock) as theirs:
        [key] = theirs.lines(1)
        lease = shown_lease(int(key.rpartition("/")[2], 16))
        assert denied(server, names.lock) == (
            f"leasehold: {names.lock!r} is held by lease {lease}\n"
        )
        with leasehold_going_on(server, "lock", names.lock) as ours:
            pairs = locks.waiting(names.lock.encode(), 2)
            assert not ours.has_said(0.2)
            end(theirs)
            mine, token = ours.lines(2)
            assert mine.encode() == pairs[1].key
            assert token == f"{pairs[1].create_revision}-1"
            end(ours)
    locks.waiting(names.lock.encode(), 0)


def test_etcdctl_waits_for_a_lock_of_ours(
    server: RunningServer, etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    with leasehold_going_on(server, "lock", names.lock) as ours:
        ours.lines(2)
        with etcdctl.going_on("lock", names.lock) as theirs:
            pairs = locks.waiting(names.lock.encode(), 2)
            assert not theirs.has_said(0.2)
            end(ours)
            assert theirs.lines(1) == [pairs[1].key.decode()]
            end(theirs)
    locks.waiting(names.lock.encode(), 0)


def test_counting_hinders_no_lock_of_etcdctl(
    server: RunningServer, etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    name = names.lock
    with (
        leasehold.sync.connect(server.endpoint, name="ours") as ours,
        leasehold.sync.connect(server.endpoint) as reader,
    ):
        guard = ours.lock(name, count=True).acquire()
        with etcdctl.going_on("lock", name) as theirs:
            pairs = locks.waiting(name.encode(), 2)
            assert reader.count_acquisitions(name, recall_timeout=RUN_S) == ({name: 1}, {})
            assert not theirs.has_said(0.2), "its key is still the second one"
            guard.release()
            assert theirs.lines(1) == [pairs[1].key.decode()]
            counted = reader.count_acquisitions(name)
            assert counted.counts == {}
            assert counted.not_reached[name].known == 1
            assert counted.not_reached[name].why == "its holder does not count acquisitions"
            end(theirs)
        locks.waiting(name.encode(), 0)
        with etcdctl.going_on("lock", name) as theirs:
            assert len(theirs.lines(1)) == 1, "it does not wait for the stored count"
            end(theirs)
        assert reader.remove_count(name) == 1


def test_what_is_done_under_locks_of_both_is_done_one_after_the_other(
    server: RunningServer,
    etcdctl: Etcdctl,
    locks: Locks,
    grant: Granter,
    names: Names,
    tmp_path: Path,
) -> None:
    file = tmp_path / "count"
    file.write_text("0")
    add = ("--", sys.executable, "-c", ADD, str(file))
    gate = locks.lock(names.lock.encode(), grant())
    processes = []
    for _ in range(EACH):
        ours = command("lock", names.lock, "--endpoint", server.endpoint, "-q", *add)
        theirs = etcdctl.command("lock", names.lock, *add)
        processes += [subprocess.Popen(each) for each in (ours, theirs)]  # noqa: S603
    locks.waiting(names.lock.encode(), 2 * EACH + 1)
    locks.unlock(gate.key)
    for process in processes:
        assert process.wait(RUN_S) == 0
    assert int(file.read_text()) == 2 * EACH


def test_an_idle_cached_lock_yields_to_etcdctl(
    server: RunningServer, etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    async def scenario() -> None:
        async with leasehold.connect(server.endpoint, session_ttl=600.0) as client:
            async with client.lock(names.lock) as first:
                token = first.token
            locks.waiting(names.lock.encode(), 1)  # it is kept
            with etcdctl.going_on("lock", names.lock) as theirs:
                await asyncio.to_thread(theirs.lines, 1)  # long before our session ends
                again = asyncio.ensure_future(client.lock(names.lock).acquire())
                await asyncio.to_thread(locks.waiting, names.lock.encode(), 2)
                assert not again.done()
                await asyncio.to_thread(end, theirs)
                guard = await asyncio.wait_for(again, RUN_S)
            assert guard.token > token
            guard.release()

    asyncio.run(scenario())


def test_a_lock_in_use_does_not_yield_to_etcdctl(
    server: RunningServer, etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    async def scenario() -> None:
        async with leasehold.connect(server.endpoint) as client:
            guard = await client.lock(names.lock).acquire()
            with etcdctl.going_on("lock", names.lock) as theirs:
                await asyncio.to_thread(locks.waiting, names.lock.encode(), 2)
                assert not await asyncio.to_thread(theirs.has_said, 0.3)
                guard.check()
                guard.release()
                await asyncio.to_thread(theirs.lines, 1)
                await asyncio.to_thread(end, theirs)

    asyncio.run(scenario())


# Elections.


def test_etcdctl_and_ours_lead_one_after_the_other_and_hear_of_each_other(
    server: RunningServer, etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    name = names.elect
    with (
        etcdctl.going_on("elect", name, "theirs") as theirs,
        leasehold_going_on(server, "elect", name, "--listen") as we_hear,
    ):
        their_key, _ = theirs.lines(2)
        assert we_hear.lines(2) == [their_key, "theirs"]
        with (
            leasehold_going_on(server, "elect", name, "ours", "-q") as ours,
            etcdctl.going_on("elect", "-l", name) as they_hear,
        ):
            assert they_hear.lines(2) == [their_key, "theirs"]
            locks.waiting(name.encode(), 2)
            assert not ours.has_said(0.2)
            end(theirs)
            our_key, value = ours.lines(2)
            assert value == "ours"
            assert they_hear.lines(2) == we_hear.lines(2) == [our_key, "ours"]
            end(they_hear)
            with etcdctl.going_on("elect", name, "again") as again:
                locks.waiting(name.encode(), 2)
                assert not again.has_said(0.2)
                end(ours)
                again_key, _ = again.lines(2)
                assert we_hear.lines(2) == [again_key, "again"]
                end(again)
        end(we_hear)
    locks.waiting(name.encode(), 0)
