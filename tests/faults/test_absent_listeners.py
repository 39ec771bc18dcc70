"""Events for listeners that are down or stopped, and events in a server that is killed."""

import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

import leasehold
from leasehold import FOREVER, Client, RemoteLandlord
from leasehold.clock import SYSTEM_CLOCK
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.events.client import Mailbox
from leasehold.events.state import EventTarget
from leasehold.landlord.remote_landlord import RemoteLease
from leasehold.renewal.client import ListenerInfo, RenewalSet
from tests.faults.renewal_processes import Program, Server, eventually, on_a_loop
from tests.support.serve_command import command
from tests.support.servers import HOST, free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")

PRINTS_NUMBER: Final = "import json, sys; print(json.load(sys.stdin)['number'], flush=True)"


class ListenerProcess:
    """`listener_process.py`, at the same address and with the same id after each start."""

    def __init__(self, log: Path, stack: ExitStack) -> None:
        self.target = EventTarget(f"{HOST}:{free_port()}", secrets.token_hex(16))
        self._log = log
        self._stack = stack
        self.start()

    def start(self) -> None:
        arguments = (self.target.endpoint, self.target.id)
        self.program = self._stack.enter_context(
            Program.python("listener_process.py", *arguments, log=self._log)
        )
        assert self.program.line() == "ready", self.program.log_tail()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the events since its start, without repetitions."""
        received = [int(line) for line in self.program.lines[1:]]
        return list(dict.fromkeys(received))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as started:
        yield started


class Failures:
    """Adds leases that have ended to sets: a failure event each, immediately."""

    def __init__(self, client: Client) -> None:
        assert isinstance(client.engine, RemoteEngine)
        self.channel = client.engine.channel
        self._landlord = RemoteLandlord(self.channel)

    async def fail(self, renewals: RenewalSet) -> None:
        now = SYSTEM_CLOCK.boottime()
        gone = RemoteLease(self._landlord, "desks", secrets.token_hex(8), 0.0, now)
        await renewals.renew_for(gone, FOREVER)

    async def fail_when_watched(self, renewals: RenewalSet) -> None:
        """The same, as soon as there is a listener: events are not kept for a later one."""
        await eventually(lambda: _is_watched(renewals))
        await self.fail(renewals)


async def _is_watched(renewals: RenewalSet) -> bool:
    return any(each.id for each in (await renewals.info()).listeners)


async def listener_of(renewals: RenewalSet) -> ListenerInfo:
    (found,) = (each for each in (await renewals.info()).listeners if each.number)
    return found


@on_a_loop
async def test_listeners_that_are_down_or_stopped_get_their_events_in_order_later(
    tmp_path: Path, stack: ExitStack
) -> None:
    server = stack.enter_context(Server(tmp_path))
    down, stopped, healthy = (
        ListenerProcess(tmp_path / f"listener-{each}", stack) for each in range(3)
    )
    async with leasehold.connect(server.endpoint) as client:
        failures = Failures(client)
        sets = []
        for listener in (down, stopped, healthy):
            renewals = await client.renewal_set(600.0)
            await renewals.set_failure_listener(listener.target)
            await failures.fail(renewals)
            await eventually(lambda listener=listener: listener.numbers == [1])  # type: ignore[misc]
            sets.append(renewals)
        await eventually(lambda: _all_delivered(sets, 1))  # the listeners have answered, too

        down.program.kill()
        stopped.program.stop()
        for count in (2, 3):
            for renewals in sets:
                await failures.fail(renewals)
            await eventually(lambda count=count: healthy.numbers[-1] == count)  # type: ignore[misc]
            assert (await listener_of(sets[1])).undelivered == count - 1
        assert (await listener_of(sets[0])).undelivered == 2
        assert healthy.numbers == [1, 2, 3]

        down.start()
        stopped.program.go_on()
        await eventually(lambda: stopped.numbers == [1, 2, 3])
        await eventually(lambda: down.numbers == [2, 3])
        await eventually(lambda: _all_delivered(sets, 3))


async def _all_delivered(sets: list[RenewalSet], count: int) -> bool:
    found = [await listener_of(renewals) for renewals in sets]
    return all(each.undelivered == 0 and each.number == count for each in found)


@on_a_loop
async def test_events_and_their_numbers_outlive_a_killed_server(
    tmp_path: Path, stack: ExitStack
) -> None:
    server = stack.enter_context(Server(tmp_path))
    listener = ListenerProcess(tmp_path / "listener", stack)
    async with leasehold.connect(server.endpoint) as client:
        failures = Failures(client)
        mailbox = await Mailbox.create(failures.channel, 600.0)
        kept, sent = await client.renewal_set(600.0), await client.renewal_set(600.0)
        await kept.set_failure_listener(mailbox, b"kept")
        await sent.set_failure_listener(listener.target, b"sent")
        listener.program.kill()
        for _ in range(3):
            await failures.fail(kept)
            await failures.fail(sent)
        await eventually(lambda: _has_events(mailbox, 3))
        (before,) = [await mailbox.read()]
        await mailbox.acknowledge(before[0].position)

        server.kill()
        listener.start()
        server.start()
        await eventually(lambda: _has_events(mailbox, 2))
        await eventually(lambda: listener.numbers == [1, 2, 3])
        await failures.fail(kept)
        await failures.fail(sent)
        await eventually(lambda: _has_events(mailbox, 3))
        await eventually(lambda: listener.numbers == [1, 2, 3, 4])
        after = await mailbox.read()
        assert after[:2] == before[1:]
        assert [each.event.number for each in after] == [2, 3, 4]
        assert {each.event.handback for each in after} == {b"kept"}
        assert {each.event.source for each in after} == {kept.id}


async def _has_events(mailbox: Mailbox, count: int) -> bool:
    return (await mailbox.status()).events == count


@on_a_loop
async def test_a_watch_starts_its_command_for_events_that_came_while_it_was_dead(
    tmp_path: Path, stack: ExitStack
) -> None:
    server = stack.enter_context(Server(tmp_path))
    async with leasehold.connect(server.endpoint) as client:
        failures = Failures(client)
        mailbox = await Mailbox.create(failures.channel, 600.0)
        renewals = await client.renewal_set(600.0)
        words = command(
            *("renewal", "watch", renewals.id, "--mailbox", mailbox.id),
            *("--endpoint", server.endpoint, "--", sys.executable, "-c", PRINTS_NUMBER),
        )
        watch = stack.enter_context(Program(words, tmp_path / "watch-log"))
        await failures.fail_when_watched(renewals)
        assert watch.line() == "1"
        await eventually(lambda: _has_events(mailbox, 0))
        watch.kill()
        for _ in range(2):
            await failures.fail(renewals)
        await eventually(lambda: _has_events(mailbox, 2))
        server.kill()
        server.start()
        watch = stack.enter_context(Program(words, tmp_path / "watch-log"))
        assert [watch.line(number) for number in (0, 1)] == ["2", "3"]
        await eventually(lambda: _has_events(mailbox, 0))
