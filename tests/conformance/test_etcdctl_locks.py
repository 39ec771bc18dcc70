"""etcdctl's lock and elect, which go through keys, leases and watches, on both servers."""

import signal
import sys

import pytest

from tests.conformance.client import Client, Granter
from tests.conformance.etcdctl import RUN_S, Etcdctl, Names, Running
from tests.conformance.locks import Locks

PYTHON = ("--", sys.executable, "-c")


@pytest.fixture
def locks(client: Client) -> Locks:
    return Locks(client)


def end(process: Running) -> int:
    """Tell it to end, and wait until it has."""
    process.process.send_signal(signal.SIGTERM)
    return process.process.wait(RUN_S)


def test_a_lock_is_held_until_sigterm(etcdctl: Etcdctl, locks: Locks, names: Names) -> None:
    name = names.lock.encode()
    with etcdctl.going_on("lock", names.lock) as holding:
        [key] = holding.lines(1)
        [pair] = locks.waiting(name, 1)
        assert key.encode() == pair.key == b"%b/%x" % (name, pair.lease)
        end(holding)
        locks.waiting(name, 0)


def test_two_contenders_have_a_lock_one_after_the_other(
    etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    name = names.lock.encode()
    with etcdctl.going_on("lock", names.lock) as first:
        [key] = first.lines(1)
        with etcdctl.going_on("lock", names.lock) as second:
            pairs = locks.waiting(name, 2)
            assert not second.has_said(0.1)
            end(first)
            assert second.lines(1) == [pairs[1].key.decode()]
            assert pairs[0].key.decode() == key
            end(second)


def test_a_lock_is_held_for_a_command(etcdctl: Etcdctl, locks: Locks, names: Names) -> None:
    script = "import os; print(os.environ['ETCD_LOCK_KEY'], int(os.environ['ETCD_LOCK_REV']) > 0)"
    done = etcdctl.run("lock", names.lock, *PYTHON, script)
    assert done.returncode == 0, done.stderr
    key, has_revision = done.stdout.split()
    assert (key.startswith(f"{names.lock}/"), has_revision) == (True, "True")
    locks.waiting(names.lock.encode(), 0)


def test_a_command_that_fails_has_the_lock_released(
    etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    done = etcdctl.run("lock", names.lock, *PYTHON, "raise SystemExit(3)")
    assert done.returncode == 3
    locks.waiting(names.lock.encode(), 0)


def test_etcdctl_waits_for_a_lock_of_the_service_and_the_other_way_round(
    etcdctl: Etcdctl, locks: Locks, grant: Granter, names: Names
) -> None:
    name = names.lock.encode()
    owner = locks.lock(name, grant())
    with etcdctl.going_on("lock", names.lock) as contender:
        locks.waiting(name, 2)
        waiting = locks.begin_lock(name, grant())
        locks.waiting(name, 3)
        assert not contender.has_said(0.1)
        locks.unlock(owner.key)
        contender.lines(1)
        assert not waiting.is_done
        end(contender)
        waiting.answer()


def test_elect_leads_and_listens(
    etcdctl: Etcdctl, locks: Locks, grant: Granter, names: Names
) -> None:
    name = names.elect.encode()
    with etcdctl.going_on("elect", names.elect, "first") as first:
        key, value = first.lines(2)
        assert (value, locks.leader(name).kv.key.decode()) == ("first", key)
        waiting = locks.begin_campaign(name, grant(), b"second")
        second = locks.waiting(name, 2)[1].key.decode()
        with etcdctl.going_on("elect", "-l", names.elect) as listening:
            assert listening.lines(2) == [key, "first"]
            end(first)
            assert listening.lines(2) == [second, "second"]
            leader = waiting.answer().leader
            locks.proclaim(leader, b"more")
            assert listening.lines(2) == [second, "more"]
            end(listening)


def test_the_service_observes_what_etcdctl_elects(
    etcdctl: Etcdctl, locks: Locks, names: Names
) -> None:
    name = names.elect.encode()
    with locks.observe(name) as observing:
        with etcdctl.going_on("elect", names.elect, "one") as first:
            key, _ = first.lines(2)
            assert observing.next()[1:] == (key.encode(), b"one")
            end(first)
        with etcdctl.going_on("elect", names.elect, "two") as second:
            key, _ = second.lines(2)
            assert observing.next()[1:] == (key.encode(), b"two")
            end(second)
