"""A watch of a mailbox: a signal while its command ends, and a server that is being stopped."""

import argparse
from collections.abc import Mapping
from typing import Any

import pytest

from leasehold.cli import event_watch
from leasehold.cli.connection import error_text
from leasehold.cli.parser import OK
from leasehold.cli.supervised_command import CommandEnd, CommandOutcome
from leasehold.errors import ShardLost
from leasehold.events.client import ReceivedEvent
from leasehold.events.state import RemoteEvent
from tests.support.asynchronous import asynchronous


class FakeMailbox:
    """Has one event, which can be read until it is acknowledged."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.reads = 0

    async def read(self, after: int, _count: int, _wait_s: float) -> list[ReceivedEvent]:
        self.reads += 1
        assert self.reads == 1, "the watch goes on"
        return [ReceivedEvent(after + 1, RemoteEvent("c/other", "s", 1, 1, b"", b""))]

    async def acknowledge(self, position: int) -> None:
        self.acknowledged = position


@pytest.mark.parametrize(("code", "acknowledged"), [(0, 1), (3, 0)])
@asynchronous
async def test_a_signal_that_comes_while_the_command_ends_ends_the_watch(
    monkeypatch: pytest.MonkeyPatch, code: int, acknowledged: int
) -> None:
    class Ending:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def run(self, _environ: Mapping[str, str], *, stdin: int, on_stop: Any) -> Any:
            assert stdin > 0
            on_stop(15)
            return CommandOutcome(CommandEnd.EXITED, code)

    monkeypatch.setattr(event_watch, "SupervisedCommand", Ending)
    mailbox: Any = FakeMailbox()
    arguments = argparse.Namespace(command=["true"], json=False, count=None)
    assert await event_watch.EventWatch(mailbox, arguments).run() == OK
    assert mailbox.acknowledged == acknowledged


def test_a_server_that_is_being_stopped_is_explained() -> None:
    said = error_text(ShardLost(6, "it belongs to another server"))
    assert said.startswith("the server does not serve this at present: it is being started or")
