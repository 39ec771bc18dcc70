"""`leasehold events`: mailboxes, and the events in them."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli.argument_types import shown_remaining
from leasehold.cli.connection import (
    finish,
    print_note,
    remote,
    require_leasehold,
    until_signal,
    with_client,
)
from leasehold.cli.output import emit_json, emit_lines, facts, number, size, table
from leasehold.cli.parser import LOST, NOT_THERE, OK, Commands, add_group, epilog
from leasehold.cli.renewal import (
    FOREVER_WORD,
    MAILBOX_ID,
    destroy_each,
    requested_of,
    shown_duration,
    term_or,
)
from leasehold.cli.renewal_views import add_count
from leasehold.errors import NoSuchObject, UnknownLease

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.events.client import Mailbox
    from leasehold.wire import events_pb2 as pb

_MAILBOX_HELP: Final = "id of the mailbox, 32 hexadecimal digits as they are printed"
_HEADS: Final = ("MAILBOX", "REMAINING", "EVENTS", "SIZE")

_GROUP_EPILOG: Final = """\
example:
  mailbox=$(leasehold events create --ttl 2h --print-id-only)
  leasehold events list

A mailbox is a queue of events on the server, for a listener that is not always
there. It ends with its lease.
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


def _add_mailbox(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mailbox", type=MAILBOX_ID, metavar="MAILBOX", help=_MAILBOX_HELP)


async def _found(client: "Client", mailbox_id: str) -> "Mailbox":
    require_leasehold(client, "a mailbox")
    return await client.mailbox(id=mailbox_id)


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
    parser.add_argument(
        "--ttl",
        type=term_or(FOREVER_WORD),
        metavar="TIME",
        help="how long the mailbox lives unless it is renewed, such as 2h, or forever; the server "
        "has a limit (default: the server chooses)",
    )
    parser.add_argument("--print-id-only", action="store_true", help="print only the id")
    finish(parser, _create)


def _create(arguments: argparse.Namespace) -> int:
    from leasehold.basics.durations import seconds_of

    async def work(client: "Client") -> int:
        require_leasehold(client, "a mailbox")
        mailbox = await client.mailbox(requested_of(arguments.ttl))
        term_s = seconds_of(mailbox.lease.term)
        if arguments.print_id_only:
            emit_lines([mailbox.id])
        elif arguments.json:
            ttl = None if term_s == float("inf") else number(term_s)
            emit_json({"id": mailbox.id, "ttl": ttl, "grantor": mailbox.lease.grantor})
        else:
            emit_lines([f"mailbox {mailbox.id} created for {shown_duration(term_s)}"])
        return OK

    return with_client(arguments, work)


# Watch.


def _add_watch(group: Commands) -> None:
    parser = group.add_parser(
        "watch",
        help="print the events in a mailbox, or start a command for each",
        description=(
            "Print each event that arrives in a mailbox, or start a command with the event as JSON "
            "on its standard input. The lease of the mailbox is renewed meanwhile."
        ),
        epilog=epilog(
            """
            leasehold events watch $(leasehold events create --print-id-only)
            """,
            NOT_THERE,
            LOST,
            notes="An event that was printed, or whose command has ended with exit code 0, is "
            "removed from the mailbox. After any other code the command is started again with the "
            "same event, after 1s, 5s, 10s, 1m, 1m and then every 5m, and later events "
            "wait. The exit code is 6 if the mailbox has ended.",
        ),
        takes_command=True,
        usage="leasehold events watch MAILBOX [options] [-- COMMAND...]",
    )
    _add_mailbox(parser)
    add_count(parser)
    finish(parser, _watch)


def _watch(arguments: argparse.Namespace) -> int:
    from leasehold.cli.event_watch import EventWatch, cannot_run, kept

    if (code := cannot_run(arguments.command)) is not None:
        return code

    async def work(client: "Client") -> int:
        mailbox = await _found(client, arguments.mailbox)
        print_note(f"watching mailbox {mailbox.id}")
        async with kept(mailbox.lease):
            return await EventWatch(mailbox, arguments).run()

    return with_client(arguments, until_signal(work))


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
    _add_mailbox(parser)
    finish(parser, _show)


def _show(arguments: argparse.Namespace) -> int:
    async def work(client: "Client") -> int:
        found = await (await _found(client, arguments.mailbox)).status()
        if arguments.json:
            emit_json(_json(found.id, found.remaining_s, found.events, found.bytes))
        else:
            row = _row(found.id, found.remaining_s, found.events, found.bytes)
            emit_lines(facts(zip((each.lower() for each in _HEADS), row, strict=True)))
        return OK

    return with_client(arguments, work)


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
    finish(parser, _list)


def _list(arguments: argparse.Namespace) -> int:
    async def work(client: "Client") -> int:
        require_leasehold(client, "a mailbox")
        found = await _all(client, arguments.timeout)
        values = [(each.id, _seconds(each.remaining_ms), each.events, each.bytes) for each in found]
        if arguments.json:
            emit_json({"mailboxes": [_json(*each) for each in values]})
        else:
            emit_lines(table(_HEADS, (_row(*each) for each in values)))
        return OK

    return with_client(arguments, work)


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
    remaining = None if remaining_s == float("inf") else number(remaining_s)
    return {"id": mailbox, "remaining": remaining, "events": events, "bytes": size_bytes}


def _row(mailbox: str, remaining_s: float, events: int, size_bytes: int) -> tuple[Any, ...]:
    remaining = FOREVER_WORD if remaining_s == float("inf") else shown_remaining(remaining_s)
    return mailbox, remaining, events, size(size_bytes)


# Destroy.


def _add_destroy(group: Commands) -> None:
    parser = group.add_parser(
        "destroy",
        help="end mailboxes",
        description="End mailboxes immediately. Their events are dropped.",
        epilog=epilog(
            "leasehold events destroy $(leasehold events create --print-id-only)", NOT_THERE
        ),
    )
    parser.add_argument(
        "mailboxes", type=MAILBOX_ID, nargs="+", metavar="MAILBOX", help=_MAILBOX_HELP
    )
    finish(parser, _destroy)


def _destroy(arguments: argparse.Namespace) -> int:
    async def end(client: "Client", mailbox_id: str) -> None:
        mailbox = await _found(client, mailbox_id)
        try:
            await mailbox.lease.cancel()
        except UnknownLease:
            raise NoSuchObject("mailboxes", mailbox_id) from None

    return destroy_each(arguments, arguments.mailboxes, "mailbox", end)
