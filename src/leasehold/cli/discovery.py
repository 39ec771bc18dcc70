"""`leasehold discovery`: registrars that the server finds for absent clients.

`discovery_views` has the commands `list` and `watch`.
"""

import argparse
import contextlib
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli import argument_types
from leasehold.cli.connection import RefusedError, finish, finish_with_client, with_client
from leasehold.cli.discovery_views import (
    EXAMPLE,
    LOCATOR_HELP,
    VIEWS,
    add_locator,
    group_lines,
)
from leasehold.cli.leased_objects import MAILBOX, REGISTRATION
from leasehold.cli.output import emit_json, emit_lines, print_error, print_whether
from leasehold.cli.parser import NOT_THERE, OK, USAGE_ERROR, Commands, add_group, epilog
from leasehold.errors import LeaseholdError, LookupUnmarshalError, UnsupportedOperation

if TYPE_CHECKING:
    from leasehold.client.client import Client

_GROUP_HELP: Final = 'name of a group; "" is the public group; may be given several times'

_GROUP_EPILOG: Final = """\
example:
  id=$(leasehold discovery register --group payments --print-id-only)
  leasehold discovery locators $id --add leasehold://127.0.0.1:2379
  leasehold discovery list $id

The server finds registrars on behalf of a client, and puts an event into a
mailbox for each one that is discovered or discarded. A registration ends with
its lease. `leasehold discover` finds registrars from this machine instead.
"""


def add_command(commands: Commands) -> None:
    """Add `discovery` and its subcommands."""
    group = add_group(
        commands,
        "discovery",
        summary="register with the discovery service of a server",
        description="Registrations of the discovery service of a Leasehold server.",
        epilog=_GROUP_EPILOG,
    )
    changes = (_add_groups, _add_locators, _add_discard)
    for add in (_add_register, _add_renew, *changes, *VIEWS, _add_destroy):
        add(group)


# Register.


def _add_register(group: Commands) -> None:
    parser = group.add_parser(
        "register",
        help="create a registration",
        description=(
            "Create a registration: the server finds registrars of groups and at locators, and "
            "puts events about them into a mailbox. Print the ids of both."
        ),
        epilog=epilog(
            """
            leasehold discovery register --group payments --group orders
            leasehold discovery register --locator leasehold://127.0.0.1:2379
            """,
            NOT_THERE,
            notes="Every client that has the id can use the registration. A renewal set keeps it "
            "and its mailbox alive: `leasehold renewal add SET --discovery ID --for forever`, and "
            "the same with --mailbox. Groups need the package zeroconf on the server.",
        ),
    )
    groups = parser.add_mutually_exclusive_group()
    groups.add_argument("--group", action="append", default=[], metavar="NAME", help=_GROUP_HELP)
    groups.add_argument(
        "--all-groups", action="store_true", help="registrars of all groups and of no group"
    )
    add_locator(parser)
    parser.add_argument(
        "--mailbox",
        type=MAILBOX.id_type,
        metavar="ID",
        help="mailbox for the events (default: a new one, for the same duration)",
    )
    parser.add_argument(
        "--handback",
        type=argument_types.key_bytes,
        default=b"",
        metavar="TEXT",
        help="text that is returned with each event",
    )
    REGISTRATION.add_term(parser)
    parser.add_argument("--print-id-only", action="store_true", help="print only the id")
    finish(parser, _register)


def _register(arguments: argparse.Namespace) -> int:
    if not (arguments.group or arguments.all_groups or arguments.locator):
        print_error("no registrar is wanted: write --group, --all-groups or --locator")
        return USAGE_ERROR

    async def work(client: "Client") -> int:
        REGISTRATION.check_server(client)
        if arguments.mailbox:
            mailbox = await client.mailbox(id=arguments.mailbox)
        else:
            mailbox = await client.mailbox(arguments.term)
        try:
            made = await client.discovery_service.register(
                None if arguments.all_groups else arguments.group,
                arguments.locator,
                listener=mailbox,
                handback=arguments.handback,
                duration=arguments.term,
            )
        except LeaseholdError:
            if not arguments.mailbox:
                with contextlib.suppress(LeaseholdError, OSError):  # it ends with its lease
                    await mailbox.lease.cancel()
            raise
        REGISTRATION.print_created(arguments, made, mailbox.id)
        return OK

    return with_client(arguments, work)


# Renew.


def _add_renew(group: Commands) -> None:
    REGISTRATION.add_renew(
        group,
        description="Renew the lease of a registration. That of its mailbox is not renewed.",
        example=f"{EXAMPLE}leasehold discovery renew $id --duration 2h",
    )


# Groups and locators.


def _add_groups(group: Commands) -> None:
    parser = group.add_parser(
        "groups",
        usage="leasehold discovery groups ID [options]",
        help="show or change the wanted groups",
        description="Show the groups whose registrars are wanted, after a change if one is given.",
        epilog=epilog(
            f"{EXAMPLE}leasehold discovery groups $id --add payments --add orders\n"
            "leasehold discovery groups $id --remove orders",
            NOT_THERE,
            notes='All groups are shown as (all), the public group as "". With (all), groups '
            "cannot be added or removed: use --set or --none.",
        ),
    )
    REGISTRATION.add_id(parser)
    change = parser.add_mutually_exclusive_group()
    _add_changes(change, str, "NAME", _GROUP_HELP)
    change.add_argument("--all", action="store_true", help="want all groups")
    change.add_argument("--none", action="store_true", help="want no groups")
    finish_with_client(parser, _groups)


def _add_changes(
    change: "argparse._MutuallyExclusiveGroup", kind: Any, metavar: str, form: str
) -> None:
    for option, what in (("--add", "add"), ("--set", "replace all by"), ("--remove", "remove")):
        change.add_argument(
            option, type=kind, action="append", metavar=metavar, help=f"{what}: {form}"
        )


async def _groups(client: "Client", arguments: argparse.Namespace) -> int:
    found = await REGISTRATION.found(client, arguments.id)
    try:
        if arguments.add:
            await found.add_groups(arguments.add)
        elif arguments.remove:
            await found.remove_groups(arguments.remove)
        elif arguments.set or arguments.all or arguments.none:
            await found.set_groups(None if arguments.all else arguments.set or [])
    except UnsupportedOperation:
        raise RefusedError(
            f"discovery registration {found.id} has all groups: replace them with --set or --none"
        ) from None
    groups = await found.groups()
    if arguments.json:
        emit_json({"id": found.id, "groups": groups})
    else:
        emit_lines(group_lines(groups))
    return OK


def _add_locators(group: Commands) -> None:
    parser = group.add_parser(
        "locators",
        usage="leasehold discovery locators ID [options]",
        help="show or change the wanted locators",
        description="Show the locators at which registrars are wanted, after a change if one is "
        "given.",
        epilog=epilog(
            f"{EXAMPLE}leasehold discovery locators $id --add leasehold://10.0.0.1\n"
            "leasehold discovery locators $id --remove $here",
            NOT_THERE,
            notes="The operator of the server may limit the locators with `leasehold serve "
            "--discover-at`.",
        ),
    )
    REGISTRATION.add_id(parser)
    change = parser.add_mutually_exclusive_group()
    _add_changes(change, argument_types.locator, "LOCATOR", LOCATOR_HELP)
    change.add_argument("--none", action="store_true", help="want no locators")
    finish_with_client(parser, _locators)


async def _locators(client: "Client", arguments: argparse.Namespace) -> int:
    found = await REGISTRATION.found(client, arguments.id)
    if arguments.add:
        await found.add_locators(arguments.add)
    elif arguments.remove:
        await found.remove_locators(arguments.remove)
    elif arguments.set or arguments.none:
        await found.set_locators(arguments.set or [])
    locators = list(map(str, await found.locators()))
    if arguments.json:
        emit_json({"id": found.id, "locators": locators})
    else:
        emit_lines(locators)
    return OK


# Discard.


def _add_discard(group: Commands) -> None:
    parser = group.add_parser(
        "discard",
        help="drop a registrar that does not work",
        description="Drop a registrar from a registration. The server looks for it again after a "
        "wait.",
        epilog=epilog(
            f"{EXAMPLE}leasehold discovery watch $id --count 1\n"
            "registrar=$(leasehold discovery list $id | tail -1 | cut -d ' ' -f 1)\n"
            "leasehold discovery discard $id $registrar",
            NOT_THERE,
        ),
    )
    REGISTRATION.add_id(parser)
    example = "9b7e2c1a-3f0d-5a41-8c2e-6d1f0b4a7e55"
    parser.add_argument(
        "registrar",
        type=argument_types.name("registrar", example),
        metavar="REGISTRAR",
        help="id of the registrar, as `leasehold discovery list ID` prints it",
    )
    finish_with_client(parser, _discard)


async def _discard(client: "Client", arguments: argparse.Namespace) -> int:
    from leasehold.discovery.announced import Registrar

    found = await REGISTRATION.found(client, arguments.id)
    registrar = Registrar(arguments.registrar)
    try:
        is_there = registrar in await found.registrars()
    except LookupUnmarshalError:
        is_there = True  # it may be one that cannot be decoded
    await found.discard(registrar)
    yes = f"registrar {registrar.id} is discarded"
    no = f"registrar {registrar.id} is not found by discovery registration {found.id}"
    return print_whether(arguments, "discarded", is_there, yes, no, NOT_THERE)


# Destroy.


def _add_destroy(group: Commands) -> None:
    REGISTRATION.add_destroy(
        group,
        consequence="Their mailboxes are not ended.",
        example=f"{EXAMPLE}leasehold discovery destroy $id",
    )
