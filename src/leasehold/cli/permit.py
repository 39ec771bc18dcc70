"""`leasehold permit`: grant, check, revoke and list permits."""

import argparse
from collections.abc import Callable
from typing import Final

from leasehold.cli import words
from leasehold.cli.connection import add_connection
from leasehold.cli.exits import DENIED, NOT_THERE, epilog
from leasehold.cli.groups import Commands, add_group

_GROUP_EPILOG: Final = """\
example:
  leasehold permit grant anna reports/2031 read --ttl 60
  leasehold permit list

A permit ends with its lease: a subject that cannot renew the lease loses its
rights.
"""

_SUBJECT: Final = words.name("subject", "anna")
_RESOURCE: Final = words.name("resource", "reports/2031")
_RIGHT: Final = words.name("right", "read")


def add_command(commands: Commands) -> None:
    """Add `permit` and all that it can do."""
    group = add_group(
        commands,
        "permit",
        summary="grant, check, revoke and list permits",
        description="Rights that end with a lease, on a Leasehold server or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_grant, _check, _revoke, _list):
        add(group)


def _grant(group: Commands) -> None:
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
        type=words.term_s,
        metavar="TIME",
        help="TTL of a new lease: seconds, or such as 8h",
    )
    until.add_argument(
        "--lease", type=words.lease_id, metavar="ID", help="attach the permit to this lease"
    )
    parser.add_argument(
        "--by",
        type=words.name("name", "ops"),
        metavar="NAME",
        help="recorded as the grantor (default: host and process)",
    )
    parser.add_argument("--print-id-only", action="store_true", help="print only the lease id")
    _finish(parser, "grant")


def _check(group: Commands) -> None:
    parser = group.add_parser(
        "check",
        help="check whether a subject has a right",
        description="Check whether a subject has a right on a resource now.",
        epilog=epilog(
            """
            leasehold permit grant anna reports/2031 read --ttl 60
            leasehold permit check anna reports/2031 read && echo come in
            """,
            DENIED,
        ),
    )
    _add_names(parser)
    parser.add_argument("right", type=_RIGHT, metavar="RIGHT", help="the right, such as read")
    _finish(parser, "check")


def _revoke(group: Commands) -> None:
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
    _finish(parser, "revoke")


def _list(group: Commands) -> None:
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
    _finish(parser, "list")


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", type=_SUBJECT, metavar="SUBJECT", help="such as a user")
    parser.add_argument("resource", type=_RESOURCE, metavar="RESOURCE", help="such as a path")


def _finish(parser: argparse.ArgumentParser, name: str) -> None:
    add_connection(parser)
    parser.set_defaults(run=_runner(name))


def _runner(name: str) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        from leasehold.cli import permit_commands  # noqa: PLC0415  it is long

        return permit_commands.COMMANDS[name](arguments)

    return run
