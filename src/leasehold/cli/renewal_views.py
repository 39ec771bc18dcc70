"""`leasehold renewal list` and `renewal watch`."""

import argparse
import contextlib
from typing import TYPE_CHECKING, Any, Final

from leasehold.basics.durations import seconds_of
from leasehold.cli import argument_types
from leasehold.cli.argument_types import shown_term
from leasehold.cli.connection import finish_with_client, print_note
from leasehold.cli.leased_objects import (
    MAILBOX,
    RENEWAL_SET,
    RETRIED,
    listener_text,
    remaining_text,
    run_watch,
    seconds_json,
)
from leasehold.cli.output import emit_json, emit_lines, facts, shown_bytes, table
from leasehold.cli.parser import NOT_THERE, OK, Commands, epilog
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from leasehold.basics.durations import Duration
    from leasehold.client.client import Client
    from leasehold.events.client import Mailbox
    from leasehold.leases.lease import Lease
    from leasehold.renewal.client import ListenerInfo, RenewalSet, SetInfo

_SET_HEADS: Final = ("SET", "REMAINING", "LEASES", "WARNINGS TO", "FAILURES TO", "LAST ERROR")
_MEMBER_HEADS: Final = ("LEASE", "REMAINING", "TTL", "GRANTOR", "KIND", "ENDPOINTS")

WARNING: Final = 1
FAILURE: Final = 2
"""Kinds of events of a set."""


# List.


def _add_list(group: Commands) -> None:
    parser = group.add_parser(
        "list",
        help="list sets, or the leases of a set",
        description=(
            "List all renewal sets of the cluster, or one set with its leases and their ends as "
            "they were last recorded."
        ),
        epilog=epilog(
            """
            leasehold renewal list
            leasehold renewal list $(leasehold renewal create --print-id-only) --json
            """,
            NOT_THERE,
        ),
    )
    RENEWAL_SET.add_id(parser, "?")
    finish_with_client(parser, _list)


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    if arguments.id is not None:
        found = await RENEWAL_SET.found(client, arguments.id)
        await _list_members(found, is_json=arguments.json)
        return OK
    RENEWAL_SET.check_server(client)
    infos = await client.renewal_sets()
    if arguments.json:
        emit_json({"sets": list(map(_set_json, infos))})
    else:
        emit_lines(table(_SET_HEADS, map(_set_row, infos)))
    return OK


def _set_row(info: "SetInfo") -> tuple[Any, ...]:
    return (
        info.id,
        remaining_text(info.remaining),
        info.members,
        _listener(info, WARNING),
        _listener(info, FAILURE),
        shown_bytes(info.last_error.encode()),
    )


def _listener(info: "SetInfo", kind: int) -> str:
    """Format the listener for a kind of event, and the events that it has not received."""
    found = next((each for each in info.listeners if each.kind == kind and each.id), None)
    return "" if found is None else listener_text(found.endpoint, found.id, found.undelivered)


def _set_json(info: "SetInfo") -> dict[str, Any]:
    return {
        "id": info.id,
        "remaining": seconds_json(info.remaining),
        "members": info.members,
        "listeners": list(map(_listener_json, info.listeners)),
        "last_error": info.last_error or None,
    }


def _listener_json(info: "ListenerInfo") -> dict[str, Any]:
    return {
        "event": {WARNING: "expiration_warning", FAILURE: "renewal_failure"}.get(info.kind),
        "number": info.number,
        "endpoint": info.endpoint or None,
        "id": info.id or None,
        "undelivered": info.undelivered,
        "last_error": info.last_error or None,
    }


async def _list_members(renewals: "RenewalSet", *, is_json: bool) -> None:
    from leasehold.errors import LeaseUnmarshalError
    from leasehold.renewal.event_json import reference_as_json

    info = await renewals.info()
    undecodable: list[dict[str, Any]] = []
    try:
        leases = await renewals.leases()
    except LeaseUnmarshalError as error:
        leases = list(error.leases)
        undecodable = [
            {**reference_as_json(data), "undecodable": str(why)}
            for data, why in zip(error.marshalled, error.exceptions, strict=True)
        ]
    members = [*map(_member_json, leases), *undecodable]
    if is_json:
        emit_json({"set": _set_json(info), "members": members})
        return
    shown = [
        ("set", info.id),
        ("remaining", remaining_text(info.remaining)),
        ("leases", info.members),
        ("warnings to", _listener(info, WARNING)),
        ("failures to", _listener(info, FAILURE)),
        ("last error", shown_bytes(info.last_error.encode())),
    ]
    rows = [*map(_member_row, leases), *map(_undecodable_row, undecodable)]
    emit_lines([*facts(shown), "", *table(_MEMBER_HEADS, rows)])


def _member_json(lease: "Lease") -> dict[str, Any]:
    from leasehold.renewal.event_json import reference_as_json
    from leasehold.renewal.references import identity_of

    return {
        **reference_as_json(identity_of(lease).encode()),
        "remaining": seconds_json(lease.remaining),
        "ttl": seconds_json(lease.term),
    }


def _member_row(lease: "Lease") -> tuple[Any, ...]:
    shown = _member_json(lease)
    name = shown.get("id") or shown.get("cookie") or shown.get("cookie_base64") or ""
    return (
        shown_bytes(name.encode()),
        remaining_text(lease.remaining),
        shown_term(seconds_of(lease.term)),
        shown_bytes(shown["grantor"].encode()),
        shown["kind"],
        shown_bytes(", ".join(shown["endpoints"]).encode()),
    )


def _undecodable_row(shown: dict[str, Any]) -> tuple[Any, ...]:
    return ("(undecodable)", "", "", "", "", shown_bytes(shown["undecodable"].encode()))


# Watch.


def _add_watch(group: Commands) -> None:
    parser = RENEWAL_SET.add_watch(
        group,
        _watch,
        summary="print the events of a set, or start a command for each",
        description=(
            "Wait for events of a set: for each lease that could not be kept alive and, with "
            "--warn, before the set ends. Print each event, or start a command with the event as "
            "JSON on its standard input."
        ),
        example="leasehold renewal watch $(leasehold renewal create --print-id-only) --warn 10m",
        notes=f"A command that ends with exit code 0 acknowledges its event. {RETRIED} A set has "
        "one listener for failures and one for warnings: a second watch takes over. Events that "
        "are not acknowledged when the watch ends are lost unless --mailbox is given. The exit "
        "code is 6 if the set has ended.",
    )
    parser.add_argument(
        "--warn",
        type=argument_types.term_or_0_s,
        metavar="TIME",
        help="send a warning this long before the set ends, such as 10m",
    )
    parser.add_argument(
        "--mailbox",
        type=MAILBOX.id_type,
        metavar="ID",
        help="use this mailbox, which outlives the command, instead of a new one",
    )


def _watch(arguments: argparse.Namespace) -> int:
    from leasehold.cli.event_watch import MAILBOX_TERM_S, EventWatch, kept

    async def work(client: "Client") -> int:
        renewals = await RENEWAL_SET.found(client, arguments.id)
        if arguments.mailbox:
            mailbox = await client.mailbox(id=arguments.mailbox)
        else:
            mailbox = await client.mailbox(MAILBOX_TERM_S)
        try:
            await renewals.set_failure_listener(mailbox)
            if arguments.warn is not None:
                await renewals.set_warning_listener(mailbox, arguments.warn)
            print_note(f"watching renewal set {renewals.id} with mailbox {mailbox.id}")

            async def still_there() -> "Duration":
                return (await renewals.info()).remaining

            async with kept(mailbox.lease):
                return await EventWatch(mailbox, arguments, still_there).run()
        finally:
            if not arguments.mailbox:
                await _leave(renewals, mailbox)

    return run_watch(arguments, work)


async def _leave(renewals: "RenewalSet", mailbox: "Mailbox") -> None:
    """Remove the listeners that are still the mailbox, and end the mailbox."""
    with contextlib.suppress(LeaseholdError, OSError):  # both end with their leases
        listeners = {
            each.kind for each in (await renewals.info()).listeners if each.id == mailbox.id
        }
        if WARNING in listeners:
            await renewals.clear_warning_listener()
        if FAILURE in listeners:
            await renewals.clear_failure_listener()
    with contextlib.suppress(LeaseholdError, OSError):
        await mailbox.lease.cancel()


VIEWS: Final = (_add_list, _add_watch)
