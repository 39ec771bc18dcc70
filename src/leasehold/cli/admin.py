"""`leasehold admin`: the server's own services; groups, registrars to join, attributes, leases."""

import argparse
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leasehold.basics.durations import seconds_of
from leasehold.cli import argument_types
from leasehold.cli.argument_types import shown_term
from leasehold.cli.connection import finish_with_client, print_note, require_leasehold
from leasehold.cli.leased_objects import seconds_json
from leasehold.cli.output import emit_json, emit_lines, facts
from leasehold.cli.parser import OK, Commands, add_group, epilog
from leasehold.cli.registry import parse_attribute
from leasehold.cli.registry_views import set_json, shown_set, shown_text
from leasehold.cli.settings.error_texts import shown
from leasehold.cli.settings.value_types import FOREVER_WORD

if TYPE_CHECKING:
    from leasehold.admin.client import Admin, AdministeredService
    from leasehold.basics.durations import Duration
    from leasehold.client.client import Client
    from leasehold.registry.state import AttributeSet

_EPILOG: Final = """\
examples:
  leasehold admin add-groups payments orders
  leasehold admin groups
  leasehold admin show

The settings are stored, and apply to all servers of a cluster. Clients find the
registrar by its groups, with `leasehold discover`.
"""

_MEMBERSHIP: Final = {
    "add-groups": ("add_member_groups", "add the registrar to groups", "payments orders"),
    "set-groups": ("set_member_groups", "replace all groups of the registrar", "payments"),
    "remove-groups": ("remove_member_groups", "remove the registrar from groups", "payments"),
}
_SERVICE_HELP: Final = "name of a service, such as registrar, renewal or discovery"
_PUBLIC: Final = '""'
_DEFAULT_WORD: Final = "default"

Change: TypeAlias = "Callable[[str, Iterable[Any]], Awaitable[AdministeredService]]"


def add_command(commands: Commands) -> None:
    """Add `admin` and its subcommands."""
    group = add_group(
        commands,
        "admin",
        summary="show and change the configuration of a server's services",
        description="Show and change the groups of a registrar, by which clients find it, and for "
        "each service the registrars that it joins, its attributes and its longest lease term.",
        epilog=_EPILOG,
    )
    _add_membership(group)
    parser = group.add_parser(
        "show",
        help="show the configuration of services",
        description="Show the configuration of a service, or of all services.",
        epilog=epilog(
            """
            leasehold admin show
            leasehold admin show renewal --json
            """
        ),
    )
    parser.add_argument("service", nargs="?", default="", metavar="SERVICE", help=_SERVICE_HELP)
    finish_with_client(parser, _show)
    for add in (_add_groups, _add_locators, _add_attributes, _add_lease_bound):
        add(group)


# Groups of the registrar.


def _add_membership(group: Commands) -> None:
    parser = group.add_parser(
        "groups",
        help="show the groups of the registrar",
        description='Show the groups of the registrar. The public group is shown as "".',
        epilog=epilog("leasehold admin groups"),
    )
    finish_with_client(parser, _run_membership)
    parser.set_defaults(change="", groups=[])
    for name, (change, what, example) in _MEMBERSHIP.items():
        parser = group.add_parser(
            name,
            help=what,
            description=f"{what.capitalize()}. Servers announce the change immediately.",
            epilog=epilog(f"leasehold admin {name} {example}"),
        )
        parser.add_argument(
            "groups",
            nargs="*" if name == "set-groups" else "+",
            metavar="NAME",
            help='name of a group; "" is the public group',
        )
        finish_with_client(parser, _run_membership)
        parser.set_defaults(change=change)


async def _run_membership(client: "Client", arguments: argparse.Namespace) -> int:
    require_leasehold(client, "leasehold admin")
    if arguments.change:
        groups = await getattr(client.admin, arguments.change)(arguments.groups)
    else:
        groups = await client.admin.member_groups()
    if arguments.json:
        emit_json({"groups": list(groups.names), "groups_number": groups.number})
    else:
        emit_lines(map(_shown_group, groups.names))
        if not groups.number:
            print_note("note: no groups were ever set: the registrar is not announced")
        elif not groups.names:
            print_note(
                "note: the registrar has no groups: only clients that look for all groups find it"
            )
    return OK


def _shown_group(name: str) -> str:
    return shown_text(name) if name else _PUBLIC


# Services.


def _add_change(
    group: Commands,
    name: str,
    *,
    summary: str,
    description: str,
    examples: str,
    notes: str = "",
) -> argparse.ArgumentParser:
    parser = group.add_parser(
        name, help=summary, description=description, epilog=epilog(examples, notes=notes)
    )
    parser.add_argument("service", metavar="SERVICE", help=_SERVICE_HELP)
    return parser


def _add_edits(
    parser: argparse.ArgumentParser, parse: Callable[[str], Any], metavar: str, what: str
) -> "argparse._MutuallyExclusiveGroup":
    """Add options of which one kind must be given."""
    parser.usage = "%(prog)s SERVICE [options]"
    edits = parser.add_mutually_exclusive_group(required=True)
    for flag, text in (
        ("add", f"add {what}"),
        ("remove", f"remove {what}"),
        ("set", f"replace all by {what}"),
    ):
        edits.add_argument(
            f"--{flag}",
            type=parse,
            action="append",
            metavar=metavar,
            help=f"{text}; may be given several times",
        )
    edits.add_argument("--none", action="store_true", help="remove all")
    return edits


def _add_groups(group: Commands) -> None:
    parser = _add_change(
        group,
        "join-groups",
        summary="change the groups whose registrars a service joins",
        description="Change the groups whose registrars a service joins: it is registered with "
        'all of them, present and future. The public group is "".',
        examples="""
        leasehold admin join-groups renewal --remove payments
        leasehold admin join-groups renewal --none
        """,
        notes="Servers find the registrars of a group, as with --add payments, by multicast DNS. "
        "That needs the package zeroconf: install leasehold[discovery].",
    )
    edits = _add_edits(parser, str, "NAME", "a group")
    edits.add_argument("--all", action="store_true", help="join the registrars of all groups")
    _finish_edits(parser, "groups")


def _add_locators(group: Commands) -> None:
    parser = _add_change(
        group,
        "join-locators",
        summary="change the registrars that a service joins by address",
        description="Change the locators of registrars that a service joins: it is registered "
        "with all of them. A locator is leasehold://HOST or leasehold://HOST:PORT, with "
        "leaseholds:// for TLS.",
        examples="""
        leasehold admin join-locators renewal --add leasehold://127.0.0.1:2379
        leasehold admin join-locators renewal --remove leasehold://127.0.0.1:2379
        """,
        notes="A service never joins the registrar of its own servers, which has it in any case.",
    )
    _add_edits(parser, argument_types.locator, "LOCATOR", "a locator")
    _finish_edits(parser, "locators")


def _add_attributes(group: Commands) -> None:
    parser = _add_change(
        group,
        "attributes",
        summary="change the attributes of a service",
        description="Change the attributes by which clients find a service, at its own registrar "
        "and at those that it joins.",
        examples="""
        leasehold admin attributes renewal --add Location:floor=3
        leasehold admin attributes renewal --set 'Location:{"floor": 3, "room": 1}'
        leasehold admin attributes renewal --remove Location
        """,
        notes="--remove removes all attribute sets of the kind that have the given values.",
    )
    _add_edits(parser, _attribute_set, "KIND[:FIELD=VALUE]", "an attribute set")
    _finish_edits(parser, "attributes")


def _attribute_set(text: str) -> "AttributeSet":
    from leasehold.registry.state import attribute_set

    kind, _, rest = text.partition(":")
    if kind and rest.startswith("{"):
        try:
            return attribute_set(kind, json.loads(rest))
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"{shown(text)} is not an attribute set: {error}; write KIND:{{...}} with a JSON "
                "object"
            ) from None
    kind, fields = parse_attribute(text)
    return attribute_set(kind, dict(fields))


def _add_lease_bound(group: Commands) -> None:
    parser = _add_change(
        group,
        "lease-bound",
        summary="change the longest term of the leases of a service",
        description="Change the longest term of the leases that a service grants. Leases that are "
        "longer already keep their ends.",
        examples="""
        leasehold admin lease-bound renewal 90m
        leasehold admin lease-bound renewal default
        """,
        notes="The registrar grants leases of items and of registrations for events, the renewal "
        "service those of renewal sets and mailboxes.",
    )
    parser.add_argument(
        "bound",
        type=_bound,
        metavar="TIME",
        help=f"such as 90m; or {FOREVER_WORD}; or {_DEFAULT_WORD}, for that of the server's "
        "settings",
    )
    finish_with_client(parser, _run_change)
    parser.set_defaults(part="lease_bound")


def _bound(text: str) -> "Duration | None":
    from leasehold.admin.config import check_bound

    if text == _DEFAULT_WORD:
        return None
    found = argument_types.term_or_forever(text)
    try:
        return check_bound(found)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).replace("FOREVER", FOREVER_WORD)) from None


# Running.


def _finish_edits(parser: argparse.ArgumentParser, part: str) -> None:
    finish_with_client(parser, _run_change)
    parser.set_defaults(part=part, all=False)


async def _run_change(client: "Client", arguments: argparse.Namespace) -> int:
    require_leasehold(client, "leasehold admin")
    service = await _changed(client.admin, arguments)
    if arguments.json:
        emit_json(_json(service))
    else:
        emit_lines(_lines(service))
    return OK


async def _changed(admin: "Admin", arguments: argparse.Namespace) -> "AdministeredService":
    if arguments.part == "lease_bound":
        return await admin.set_lease_bound(arguments.service, arguments.bound)
    if arguments.all:
        return await admin.set_groups(arguments.service, None)
    for verb in ("add", "remove"):
        given = getattr(arguments, verb)
        if given is not None:
            change: Change = getattr(admin, f"{verb}_{arguments.part}")
            return await change(arguments.service, given)
    change = getattr(admin, f"set_{arguments.part}")
    return await change(arguments.service, arguments.set or ())


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    require_leasehold(client, "leasehold admin")
    admin = client.admin
    if arguments.service:
        services = [await admin.service(arguments.service)]
    else:
        services = await admin.services()
    if arguments.json:
        emit_json({"services": list(map(_json, services))})
    else:
        blocks = ("\n".join(_lines(service)) for service in services)
        emit_lines("\n\n".join(blocks).splitlines())
    return OK


def _lines(service: "AdministeredService") -> list[str]:
    groups = "all" if service.groups is None else ", ".join(map(_shown_group, service.groups))
    bound = shown_term(seconds_of(service.lease_bound))
    return facts(
        [
            ("service", shown_text(service.name)),
            ("type", shown_text(service.type)),
            ("id", service.id),
            ("groups to join", groups or "none"),
            ("locators to join", ", ".join(map(str, service.locators)) or "none"),
            ("attributes", shown_text("; ".join(map(shown_set, service.attributes))) or "none"),
            ("lease bound", f"{bound} (of the settings)" if service.is_default_bound else bound),
        ]
    )


def _json(service: "AdministeredService") -> dict[str, Any]:
    return {
        "service": service.name,
        "type": service.type,
        "id": service.id,
        "groups": None if service.groups is None else list(service.groups),
        "locators": list(map(str, service.locators)),
        "attributes": list(map(set_json, service.attributes)),
        "lease_bound_s": seconds_json(service.lease_bound),
        "is_default_bound": service.is_default_bound,
    }
