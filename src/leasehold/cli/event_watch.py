"""Handle the events of a mailbox, one after the other: print each, or start a command for it.

An event stays in the mailbox until it was printed, or its command has ended with exit code 0. A
command that fails is started again with the same event, after the waits with which a server retries
a delivery; later events wait. So an event may be handled twice, and none is skipped.

SIGINT and SIGTERM end the command that runs (SIGTERM, and SIGKILL after `GRACE_S`) and then the
watch. The event of that command stays in the mailbox.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import chain, repeat
from random import Random
from typing import Any, Final, TypeVar

from leasehold.basics.backoff import Backoff, exponential
from leasehold.basics.durations import FOREVER, Duration, seconds_of
from leasehold.cli.argument_types import shown_remaining, shown_term
from leasehold.cli.connection import error_text, print_note
from leasehold.cli.discovery_views import event_as_json as discovery_event_as_json
from leasehold.cli.discovery_views import event_text
from leasehold.cli.lock import GRACE_S
from leasehold.cli.output import emit_json, emit_lines, print_error, shown_bytes
from leasehold.cli.parser import LOST, OK
from leasehold.cli.registry_views import event_as_json as registry_event_as_json
from leasehold.cli.settings.error_texts import shown
from leasehold.cli.supervised_command import (
    NOT_FOUND,
    CommandEnd,
    CommandOutcome,
    SupervisedCommand,
)
from leasehold.discovery.service import NAME as DISCOVERY
from leasehold.errors import LeaseholdError, NoSuchObject, is_definite
from leasehold.events.client import Mailbox, ReceivedEvent, event_as_json, register_decoder
from leasehold.events.state import RETRIES_S
from leasehold.leases.lease import Lease
from leasehold.leases.renewal_manager import RenewalManager
from leasehold.registry.item_events import NAME as REGISTRY
from leasehold.renewal.event_json import payload_as_json
from leasehold.renewal.service import NAME as RENEWAL
from leasehold.sessions.kept_lease import Signal

MAILBOX_TERM_S: Final = 60.0
"""The shortest term that the lease of a watched mailbox is renewed for, and that of a mailbox that
is created for a watch."""

BATCH: Final = 100
"""Events that are read in one call."""

WAIT_S: Final = 10.0
"""How long one call waits for events."""

CALL_RETRIES: Final = exponential(0.1, 5.0)
"""The longest waits after a call that has failed."""

_COMMAND_TERM_S: Final = 60.0

T = TypeVar("T")
StillThere = Callable[[], Awaitable[Duration]]
"""Returns how long the source of the events still exists; raises `NoSuchObject` if it has ended."""


def cannot_run(command: list[str] | None) -> int | None:
    """Print an error if the command does not exist; return the exit code, or None if it does."""
    if command is None or shutil.which(command[0]) is not None:
        return None
    print_error(f"{shown(command[0])} cannot be run: it was not found")
    return NOT_FOUND


@asynccontextmanager
async def kept(*leases: Lease) -> AsyncIterator[None]:
    """Keep the leases of what is watched alive in a block, for their terms, or longer ones."""
    async with RenewalManager() as manager:
        for lease in leases:
            if lease.remaining is not FOREVER:
                term_s = max(seconds_of(lease.remaining), MAILBOX_TERM_S)
                manager.renew_until(lease, FOREVER, term_s)
        yield


class EventWatch:
    """Handles the events of a mailbox until a signal comes, or the mailbox has ended."""

    def __init__(
        self,
        mailbox: Mailbox,
        arguments: argparse.Namespace,
        still_there: StillThere | None = None,
    ) -> None:
        register_decoder(RENEWAL, payload_as_json)
        register_decoder(REGISTRY, registry_event_as_json)
        register_decoder(DISCOVERY, discovery_event_as_json)
        self._mailbox = mailbox
        self._command: list[str] | None = arguments.command
        self._is_json: bool = arguments.json
        self._left: int | None = arguments.count
        self._still_there = still_there
        self._random = Random()  # noqa: S311  spreads retries, keeps no secret
        self._stop = _StopRequest()

    async def run(self) -> int:
        """Handle events; return the exit code."""
        try:
            return await self._run()
        except NoSuchObject as error:
            print_error(error_text(error))
            return LOST

    async def _run(self) -> int:
        after, wait_s = 0, WAIT_S
        while True:
            batch = await self._retried(lambda: self._mailbox.read(after, BATCH, wait_s))  # noqa: B023
            for received in batch:
                code = await self._handle(received)
                if code is not None:
                    return code
                after = received.position
                await self._retried(lambda: self._mailbox.acknowledge(after))  # noqa: B023
                self._left = None if self._left is None else self._left - 1
                if self._left == 0 or self._stop.is_requested:
                    return OK
            if not batch and self._still_there is not None:
                remaining = await self._retried(self._still_there)
                wait_s = min(WAIT_S, seconds_of(remaining) + 0.1)

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until it is answered. The first failure is printed."""
        backoff = Backoff(CALL_RETRIES, self._random)
        is_reported = False
        while True:
            try:
                return await call()
            except (LeaseholdError, OSError) as error:
                if is_definite(error):
                    raise
                if not is_reported:
                    print_error(f"{error_text(error)}; trying again")
                is_reported = True
            await asyncio.sleep(backoff.next_s())

    async def _handle(self, received: ReceivedEvent) -> int | None:
        """Handle one event; return an exit code if the watch is to end before that is done."""
        document = event_as_json(received.event)
        if self._command is None:
            if self._is_json:
                emit_json({"position": received.position, **document})
            else:
                emit_lines([event_line(document)])
            return None
        for wait_s in chain(RETRIES_S, repeat(RETRIES_S[-1])):
            outcome = await self._run_command(self._command, document)
            if outcome.end is CommandEnd.LOST:
                return OK  # stopped by a signal
            if outcome.end is CommandEnd.FAILED:
                print_error(f"{shown(self._command[0])} cannot be run: {outcome.why}")
                return outcome.code
            if outcome.end is CommandEnd.EXITED and outcome.code == 0:
                return None
            if self._stop.is_requested:  # by a signal that came while the command ended
                return OK
            print_note(
                f"event {document['number']}: exit code {outcome.code}; again in "
                f"{shown_term(wait_s)}"
            )
            await asyncio.sleep(wait_s)
        raise AssertionError("the waits do not end")

    async def _run_command(self, command: list[str], document: dict[str, Any]) -> CommandOutcome:
        """Run the command with the event on its standard input."""
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")
            file.seek(0)
            supervised = SupervisedCommand(
                self._stop, command, grace_s=GRACE_S, term_s=_COMMAND_TERM_S
            )
            return await supervised.run({}, stdin=file.fileno(), on_stop=self._stop.request)


class _StopRequest:
    """Lets a command run until a signal comes (`supervised_command.HeldRight`)."""

    def __init__(self) -> None:
        self.lost = Signal()
        self._loop = asyncio.get_running_loop()
        self.is_requested = False

    @property
    def remaining(self) -> Duration:
        """How long the command may run."""
        return 0.0 if self.is_requested else FOREVER

    def request(self, _number: int) -> None:
        """End the command; called in a signal handler."""
        self.is_requested = True
        self._loop.call_soon_threadsafe(self.lost.set)


# Events for people.


def event_line(document: dict[str, Any]) -> str:
    """Format an event in one line."""
    payload: dict[str, Any] = document.get("payload", {})
    number, source = document["number"], document["source"]
    match payload.get("event"):
        case "renewal_failure":
            error = payload["error"]
            why = "it has expired" if error is None else f"{error['class']}: {error['message']}"
            lease = shown_reference(payload["lease"])
            line = f"failure {number} of renewal set {source}: {lease} has left: {why}"
        case "expiration_warning":
            remaining = shown_remaining(payload["remaining"])
            line = f"warning {number} of renewal set {source}: it ends in {remaining}"
        case "item":
            line = (
                f"event {number} of the registry: {payload['transition']} of item {payload['id']}"
            )
        case "resync":
            line = f"event {number} of the registry: events were lost, look up again"
        case "discovered" | "discarded":
            line = f"event {number} of discovery registration {source}: {event_text(payload)}"
        case _:
            line = f"event {number} of {document['service']} {source}, kind {document['kind']}"
    return shown_bytes(line.encode(), most=1000)


def shown_reference(reference: dict[str, Any]) -> str:
    """Format the lease of a reference, without the way to it."""
    if "undecodable" in reference:
        return "a lease that cannot be decoded"
    name = reference.get("id") or reference.get("cookie") or reference.get("cookie_base64")
    return f"lease {name} of {reference['grantor']}"
