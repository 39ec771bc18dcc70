"""`leasehold events`: mailboxes, and the events in them."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli.connection import finish_with_client, print_note, remote
from leasehold.cli.leased_objects import (
    MAILBOX,
    REMOVED,
    remaining_text,
    run_watch,
    seconds_json,
)
from leasehold.cli.output import emit_json, emit_lines, facts, size, table
from leasehold.cli.parser import NOT_THERE, OK, Commands, add_group, epilog

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.wire import events_pb2 as pb

_HEADS: Final = ("MAILBOX", "REMAINING", "EVENTS", "SIZE")

_GROUP_EPILOG: Final = """\
example:
  mailbox=$(leasehold events create --ttl 2h --print-id-only)
  leasehold events list

A mailbox is a queue of events on the server, for a listener that is not always
running. It ends with its lease.
"""


def add_command(commands: Commands) -> None:
    """Add `events` and its subcommands."""
    group = add_group(
        commands,
        "events",
        summary="create and list mailboxes, and start a command for each event",
        description="Mailboxes of a Leasehold server, and the events in them.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_add_create, _add_watch, _add_show, _add_list, _add_destroy):
        add(group)


# Create.


def _add_create(group: Commands) -> None:
    parser = group.add_parser(
        "create",
        help="create a mailbox",
        description="Create a mailbox, and print its id.",
        epilog=epilog(
            """
            leasehold events create
            leasehold events create --ttl 2h --print-id-only
            """,
            notes="`leasehold renewal add SET --mailbox ID` keeps a mailbox alive. Every client "
            "that has the id can read it.",
        ),
    )
    MAILBOX.add_term(parser)
    parser.add_argument("--print-id-only", action="store_true", help="print only the id")
    finish_with_client(parser, _create)


async def _create(client: "Client", arguments: argparse.Namespace) -> int:
    MAILBOX.check_server(client)
    MAILBOX.print_created(arguments, await client.mailbox(arguments.term))
    return OK


# Watch.


def _add_watch(group: Commands) -> None:
    MAILBOX.add_watch(
        group,
        _watch,
        summary="print the events in a mailbox, or start a command for each",
        description=(
            "Print each event that arrives in a mailbox, or start a command with the event as JSON "
            "on its standard input. The lease of the mailbox is renewed meanwhile."
        ),
        example="leasehold events watch $(leasehold events create --print-id-only)",
        notes=f"{REMOVED} The exit code is 6 if the mailbox has ended.",
    )


def _watch(arguments: argparse.Namespace) -> int:
    from leasehold.cli.event_watch import EventWatch, kept

    async def work(client: "Client") -> int:
        mailbox = await MAILBOX.found(client, arguments.id)
        print_note(f"watching mailbox {mailbox.id}")
        async with kept(mailbox.lease):
            return await EventWatch(mailbox, arguments).run()

    return run_watch(arguments, work)


# Show and list.


def _add_show(group: Commands) -> None:
    parser = group.add_parser(
        "show",
        help="show a mailbox",
        description="Show the remaining time of a mailbox, and the number of its events.",
        epilog=epilog(
            "leasehold events show $(leasehold events create --print-id-only)", NOT_THERE
        ),
    )
    MAILBOX.add_id(parser)
    finish_with_client(parser, _show)


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    found = await (await MAILBOX.found(client, arguments.id)).status()
    if arguments.json:
        emit_json(_json(found.id, found.remaining_s, found.events, found.bytes))
    else:
        row = _row(found.id, found.remaining_s, found.events, found.bytes)
        emit_lines(facts(zip((each.lower() for each in _HEADS), row, strict=True)))
    return OK


def _add_list(group: Commands) -> None:
    parser = group.add_parser(
        "list",
        help="list mailboxes",
        description="List all mailboxes of the cluster.",
        epilog=epilog(
            """
            leasehold events list
            leasehold events list --json
            """
        ),
    )
    finish_with_client(parser, _list)


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    MAILBOX.check_server(client)
    found = await _all(client, arguments.timeout)
    values = [(each.id, _seconds(each.remaining_ms), each.events, each.bytes) for each in found]
    if arguments.json:
        emit_json({"mailboxes": [_json(*each) for each in values]})
    else:
        emit_lines(table(_HEADS, (_row(*each) for each in values)))
    return OK


async def _all(client: "Client", timeout_s: float) -> "list[pb.MailboxInfo]":
    from leasehold.events.client import call_mailboxes
    from leasehold.wire import events_pb2 as pb

    request = pb.ListMailboxesRequest()
    found: list[pb.MailboxInfo] = []
    while True:
        page = await call_mailboxes(
            remote(client).channel,
            "List",
            request,
            pb.ListMailboxesResponse,
            timeout=timeout_s,
            idempotent=True,
        )
        found += page.mailboxes
        if not page.next:
            return found
        request.after = page.next


def _seconds(remaining_ms: int) -> float:
    return float("inf") if remaining_ms < 0 else remaining_ms / 1000


def _json(mailbox: str, remaining_s: float, events: int, size_bytes: int) -> dict[str, Any]:
    remaining = seconds_json(remaining_s)
    return {"id": mailbox, "remaining": remaining, "events": events, "bytes": size_bytes}


def _row(mailbox: str, remaining_s: float, events: int, size_bytes: int) -> tuple[Any, ...]:
    return mailbox, remaining_text(remaining_s), events, size(size_bytes)


# Destroy.


def _add_destroy(group: Commands) -> None:
    MAILBOX.add_destroy(
        group,
        consequence="Their events are dropped.",
        example="leasehold events destroy $(leasehold events create --print-id-only)",
    )
