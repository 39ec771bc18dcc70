"""`leasehold discovery list` and `discovery watch`; registrars and their events in output."""

import argparse
from base64 import b64encode
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli import argument_types
from leasehold.cli.connection import RefusedError, finish_with_client, print_note
from leasehold.cli.leased_objects import (
    REGISTRATION,
    REMOVED,
    listener_text,
    remaining_text,
    run_watch,
    seconds_json,
)
from leasehold.cli.output import emit_json, emit_lines, facts, shown_bytes, table
from leasehold.cli.parser import NOT_THERE, OK, Commands, epilog
from leasehold.errors import LookupUnmarshalError

if TYPE_CHECKING:
    from leasehold.basics.durations import Duration
    from leasehold.client.client import Client
    from leasehold.discovery.announced import Registrar
    from leasehold.discovery.client import DiscoveryInfo, DiscoveryRegistration
    from leasehold.events.client import Mailbox
    from leasehold.events.state import RemoteEvent


EXAMPLE: Final = """\
here=leasehold://127.0.0.1:2379
id=$(leasehold discovery register --locator $here --print-id-only)
"""
"""The lines with which examples begin."""

LOCATOR_HELP: Final = (
    "address of a registrar: leasehold://HOST or leasehold://HOST:PORT, with leaseholds:// for "
    "TLS; may be given several times"
)

REGISTRAR_HEADS: Final = ("REGISTRAR", "GROUPS", "ENDPOINTS")
ALL: Final = "(all)"
_PUBLIC: Final = '""'
_HEADS: Final = (
    *("REGISTRATION", "REMAINING", "REGISTRARS", "GROUPS", "LOCATORS", "EVENTS TO"),
    "LAST ERROR",
)


def add_locator(parser: argparse.ArgumentParser) -> None:
    """Add the option for wanted locators."""
    parser.add_argument(
        "--locator",
        type=argument_types.locator,
        action="append",
        default=[],
        metavar="LOCATOR",
        help=LOCATOR_HELP,
    )


# Registrars and events.


def group_lines(groups: Iterable[str] | None) -> list[str]:
    """Format groups, each as a line; None stands for all. The public group has an empty name."""
    return [ALL] if groups is None else [each or _PUBLIC for each in sorted(groups)]


def shown_list(texts: Iterable[object]) -> str:
    """Format several texts in one line, cut if it is long; none of them as a dash."""
    return shown_bytes(",".join(map(str, texts)).encode()) or "-"


def registrar_row(registrar: "Registrar") -> tuple[str, str, str]:
    """Return a registrar as the cells of a table."""
    groups, endpoints = shown_list(group_lines(registrar.groups)), shown_list(registrar.endpoints)
    return shown_bytes(registrar.id.encode()), groups, endpoints


def registrar_json(registrar: "Registrar") -> dict[str, Any]:
    """Return a registrar as values of JSON."""
    return {
        "id": registrar.id,
        "groups": sorted(registrar.groups),
        "groups_number": registrar.groups_number,
        "endpoints": list(registrar.endpoints),
        "cluster": registrar.cluster,
    }


def undecodable_json(error: LookupUnmarshalError) -> list[dict[str, Any]]:
    """Return the registrars that cannot be decoded as values of JSON."""
    return [
        {"registrar_base64": b64encode(data).decode(), "undecodable": str(why)}
        for data, why in zip(error.marshalled, error.exceptions, strict=True)
    ]


def event_as_json(event: "RemoteEvent") -> dict[str, Any]:
    """Return the payload of an event of the discovery service as values of JSON."""
    from leasehold.discovery.registrar_events import RegistrarEvent

    made: RegistrarEvent[None] = RegistrarEvent.of(None, event)
    others: list[dict[str, Any]] = []
    try:
        found = made.registrars()
    except LookupUnmarshalError as error:
        found, others = error.registrars, undecodable_json(error)
    return {
        "event": "discarded" if made.is_discarded else "discovered",
        "registrars": [*map(registrar_json, found), *others],
    }


def event_text(payload: dict[str, Any]) -> str:
    """Format the payload of an event, as `event_as_json` returns it."""
    shown = (each.get("id", "one that cannot be decoded") for each in payload["registrars"])
    return f"{payload['event']} {', '.join(shown)}"


# List.


def _add_list(group: Commands) -> None:
    parser = group.add_parser(
        "list",
        help="list registrations, or the registrars of one",
        description=(
            "List all registrations of the cluster, for its operator, or one registration with the "
            "registrars that are found for it."
        ),
        epilog=epilog(
            f"{EXAMPLE}leasehold discovery list $id\nleasehold discovery list --json",
            NOT_THERE,
        ),
    )
    REGISTRATION.add_id(parser, "?")
    finish_with_client(parser, _list)


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    if arguments.id is not None:
        found = await REGISTRATION.found(client, arguments.id)
        await _list_one(found, is_json=arguments.json)
        return OK
    REGISTRATION.check_server(client)
    infos = await client.discovery_service.registrations()
    if arguments.json:
        emit_json({"registrations": list(map(_info_json, infos))})
    else:
        emit_lines(table(_HEADS, map(_info_row, infos)))
    return OK


async def _list_one(found: "DiscoveryRegistration", *, is_json: bool) -> None:
    info = await found.info()
    others: list[dict[str, Any]] = []
    try:
        registrars = await found.registrars()
    except LookupUnmarshalError as error:
        registrars, others = error.registrars, undecodable_json(error)
    if is_json:
        listed = [*map(registrar_json, registrars), *others]
        emit_json({"registration": _info_json(info), "registrars": listed})
        return
    undecodable = (
        ("(undecodable)", "", shown_bytes(each["undecodable"].encode())) for each in others
    )
    heads = (each.lower() for each in _HEADS)
    rows = [*map(registrar_row, registrars), *undecodable]
    shown = facts(zip(heads, _info_row(info), strict=True))
    emit_lines([*shown, "", *table(REGISTRAR_HEADS, rows)])


def _info_row(info: "DiscoveryInfo") -> tuple[Any, ...]:
    return (
        info.id,
        remaining_text(info.remaining),
        info.registrars,
        shown_list(group_lines(info.groups)),
        shown_list(info.locators),
        listener_text(info.listener.endpoint, info.listener.id, info.undelivered),
        shown_bytes(info.last_error.encode()),
    )


def _info_json(info: "DiscoveryInfo") -> dict[str, Any]:
    return {
        "id": info.id,
        "remaining": seconds_json(info.remaining),
        "registrars": info.registrars,
        "groups": None if info.groups is None else list(info.groups),
        "locators": list(map(str, info.locators)),
        "number": info.number,
        "endpoint": info.listener.endpoint or None,
        "listener": info.listener.id,
        "undelivered": info.undelivered,
        "last_error": info.last_error or None,
    }


# Watch.


def _add_watch(group: Commands) -> None:
    REGISTRATION.add_watch(
        group,
        _watch,
        summary="print the events of a registration, or start a command for each",
        description=(
            "Print each event in the mailbox of a registration, or start a command with the event "
            "as JSON on its standard input. The leases of the registration and of its mailbox are "
            "renewed meanwhile."
        ),
        example=f"{EXAMPLE}leasehold discovery watch $id --count 1",
        notes=f"{REMOVED} Events stay in the mailbox while no watch runs. The exit code is 6 if "
        "the registration or its mailbox has ended.",
    )


def _watch(arguments: argparse.Namespace) -> int:
    from leasehold.cli.event_watch import EventWatch, kept

    async def work(client: "Client") -> int:
        found = await REGISTRATION.found(client, arguments.id)
        mailbox = await _mailbox_of(client, found)
        print_note(f"watching discovery registration {found.id} with mailbox {mailbox.id}")

        async def still_there() -> "Duration":
            return (await found.info()).remaining

        async with kept(mailbox.lease, found.lease):
            return await EventWatch(mailbox, arguments, still_there).run()

    return run_watch(arguments, work)


async def _mailbox_of(client: "Client", found: "DiscoveryRegistration") -> "Mailbox":
    listener = (await found.info()).listener
    if listener.endpoint:
        raise RefusedError(
            f"discovery registration {found.id} sends its events to {listener.endpoint}, not to a "
            "mailbox: watch a registration that was made with a mailbox"
        )
    return await client.mailbox(id=listener.id)


VIEWS: Final = (_add_list, _add_watch)
