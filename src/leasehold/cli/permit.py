"""`leasehold permit`: grant, check, revoke and list permits."""

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli import argument_types
from leasehold.cli.argument_types import shown_id, shown_remaining, shown_term
from leasehold.cli.connection import finish_with_client
from leasehold.cli.output import emit_json, emit_lines, number, print_whether, shown_bytes, table
from leasehold.cli.parser import DENIED, NOT_THERE, OK, Commands, add_group, epilog
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.locks.permit import Permit

_GROUP_EPILOG: Final = """\
example:
  leasehold permit grant anna reports/2031 read --ttl 60
  leasehold permit list

A permit ends with its lease: a subject that cannot renew the lease loses its
rights.
"""

_SUBJECT: Final = argument_types.name("subject", "anna")
_RESOURCE: Final = argument_types.name("resource", "reports/2031")
_RIGHT: Final = argument_types.name("right", "read")
_HEADS: Final = ("SUBJECT", "RESOURCE", "RIGHTS", "LEASE", "ENDS AT", "REMAINING", "GRANTED BY")


def add_command(commands: Commands) -> None:
    """Add `permit` and its subcommands."""
    group = add_group(
        commands,
        "permit",
        summary="grant, check, revoke and list permits",
        description="Rights that end with a lease, on a Leasehold server or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_add_grant, _add_check, _add_revoke, _add_list):
        add(group)


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", type=_SUBJECT, metavar="SUBJECT", help="subject of the permit, such as a user"
    )
    parser.add_argument(
        "resource",
        type=_RESOURCE,
        metavar="RESOURCE",
        help="resource of the permit, such as a path",
    )


# Grant.


def _add_grant(group: Commands) -> None:
    parser = group.add_parser(
        "grant",
        help="grant rights for a limited time",
        description=(
            "Grant a subject rights on a resource, for a TTL or as long as a lease lasts. They "
            "replace the rights that the subject had on the resource."
        ),
        epilog=epilog(
            """
            leasehold permit grant anna reports/2031 read write --ttl 8h
            leasehold lease grant 60 --id 7a31
            leasehold permit grant worker-7 queue take --lease 7a31
            """,
            NOT_THERE,
            notes="With --ttl a new lease is granted, which the subject can keep alive with "
            "`leasehold lease keep`. It is revoked when the permit is replaced or revoked, unless "
            "other keys are attached to it.",
        ),
    )
    _add_names(parser)
    parser.add_argument(
        "rights", type=_RIGHT, nargs="+", metavar="RIGHT", help="rights to grant, such as read"
    )
    until = parser.add_mutually_exclusive_group(required=True)
    until.add_argument(
        "--ttl",
        type=argument_types.term_s,
        metavar="TIME",
        help="grant a new lease with this TTL, in seconds or such as 8h",
    )
    until.add_argument(
        "--lease",
        type=argument_types.lease_id,
        metavar="ID",
        help="attach the permit to this lease",
    )
    parser.add_argument(
        "--by",
        type=argument_types.name("name", "ops"),
        metavar="NAME",
        help="name to record as the grantor (default: host name and process id)",
    )
    parser.add_argument("--print-id-only", action="store_true", help="print only the lease id")
    finish_with_client(parser, _grant)


async def _grant(client: "Client", arguments: argparse.Namespace) -> int:
    permit = await client.permits.grant(
        arguments.subject,
        arguments.resource,
        arguments.rights,
        arguments.ttl,
        lease=arguments.lease,
        granted_by=arguments.by,
    )
    if arguments.print_id_only:
        emit_lines([shown_id(permit.lease)])
    elif arguments.json:
        emit_json(_json(permit))
    else:
        term_s = await _term_s(client, permit, arguments.ttl)
        term = "" if term_s is None else f", in {shown_term(term_s)}"
        emit_lines(
            [
                f"{_shown(permit.subject)} has on {_shown(permit.resource)}: {_rights(permit)}",
                f"until lease {shown_id(permit.lease)} ends{term} unless it is renewed",
            ]
        )
    return OK


async def _term_s(client: "Client", permit: "Permit", asked_s: float | None) -> float | None:
    """Return the granted TTL: an etcd grants whole seconds, and not below its minimum."""
    if asked_s is None:
        return None
    try:
        return (await client.lease_info(permit.lease)).ttl
    except (LeaseholdError, OSError):  # the permit was granted, and that must be printed
        return asked_s


# Check.


def _add_check(group: Commands) -> None:
    parser = group.add_parser(
        "check",
        help="check whether a subject has a right",
        description="Check whether a subject has a right on a resource now.",
        epilog=epilog(
            """
            leasehold permit grant anna reports/2031 read --ttl 60
            leasehold permit check anna reports/2031 read && echo allowed
            """,
            DENIED,
        ),
    )
    _add_names(parser)
    parser.add_argument("right", type=_RIGHT, metavar="RIGHT", help="the right, such as read")
    finish_with_client(parser, _check)


async def _check(client: "Client", arguments: argparse.Namespace) -> int:
    subject, resource, right = arguments.subject, arguments.resource, arguments.right
    is_allowed = await client.permits.check(subject, resource, right, cache=False)
    shown = f"the right {_shown(right)} on {_shown(resource)}"
    yes, no = f"{_shown(subject)} has {shown}", f"{_shown(subject)} does not have {shown}"
    return print_whether(arguments, "allowed", is_allowed, yes, no, DENIED)


# Revoke.


def _add_revoke(group: Commands) -> None:
    parser = group.add_parser(
        "revoke",
        help="revoke a permit",
        description=(
            "Revoke all rights of a subject on a resource. Clients that check permits are notified "
            "immediately."
        ),
        epilog=epilog(
            """
            leasehold permit grant anna reports/2031 read --ttl 60
            leasehold permit revoke anna reports/2031
            """,
            NOT_THERE,
        ),
    )
    _add_names(parser)
    finish_with_client(parser, _revoke)


async def _revoke(client: "Client", arguments: argparse.Namespace) -> int:
    was_there = await client.permits.revoke(arguments.subject, arguments.resource)
    subject, resource = _shown(arguments.subject), _shown(arguments.resource)
    yes = f"the permit of {subject} for {resource} is revoked"
    no = f"{subject} has no permit for {resource}"
    return print_whether(arguments, "revoked", was_there, yes, no, NOT_THERE)


# List.


def _add_list(group: Commands) -> None:
    parser = group.add_parser(
        "list",
        help="list permits",
        description="List all permits, or those of a subject or for a resource, with their ends.",
        epilog=epilog(
            """
            leasehold permit list
            leasehold permit list --subject anna
            leasehold permit list --resource reports/2031 --json
            """
        ),
    )
    parser.add_argument("--subject", type=_SUBJECT, metavar="NAME", help="only of this subject")
    parser.add_argument("--resource", type=_RESOURCE, metavar="NAME", help="only for this resource")
    finish_with_client(parser, _list)


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    permits = await client.permits.list(arguments.subject, arguments.resource)
    if arguments.json:
        emit_json({"permits": [_json(each) | _remaining_json(each) for each in permits]})
    else:
        emit_lines(table(_HEADS, map(_row, permits)))
    return OK


def _remaining_json(permit: "Permit") -> dict[str, Any]:
    remaining_s = _remaining_s(permit)
    return {"remaining_s": None if remaining_s is None else number(remaining_s)}


def _row(permit: "Permit") -> tuple[str, ...]:
    remaining_s = _remaining_s(permit)
    return (
        _shown(permit.subject),
        _shown(permit.resource),
        _rights(permit),
        shown_id(permit.lease),
        _ends_at(permit) or "",
        "" if remaining_s is None else shown_remaining(remaining_s),
        _shown(permit.granted_by),
    )


def _remaining_s(permit: "Permit") -> float | None:
    """Return the time to the wall-clock end of a permit; None if it has none."""
    if permit.ends_at is None:
        return None
    return max(0.0, round((permit.ends_at - datetime.now(UTC)).total_seconds(), 3))


# Permits in the output.


def _json(permit: "Permit") -> dict[str, Any]:
    return {
        "subject": permit.subject,
        "resource": permit.resource,
        "rights": sorted(permit.rights),
        "lease": shown_id(permit.lease),
        "own_lease": permit.own_lease,
        "granted_by": permit.granted_by,
        "revision": permit.revision,
        "ends_at": _ends_at(permit),
    }


def _ends_at(permit: "Permit") -> str | None:
    """Format the end in ISO 8601 and UTC, to the millisecond; None if there is none."""
    if permit.ends_at is None:
        return None
    return permit.ends_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rights(permit: "Permit") -> str:
    return ", ".join(map(_shown, sorted(permit.rights)))


def _shown(text: str) -> str:
    return shown_bytes(text.encode())
