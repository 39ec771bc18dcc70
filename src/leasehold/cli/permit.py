"""`leasehold permit`: grant, check, revoke and list permits."""

import argparse
from collections.abc import Callable
from typing import Final

from leasehold.cli import words
from leasehold.cli.connection import add_connection
from leasehold.cli.exits import DENIED, NOT_THERE, epilog
from leasehold.cli.groups import Commands, add_group
from leasehold.cli.settings.shown import shown

_GROUP_EPILOG: Final = """\
example:
  leasehold permit grant anna reports/2031 read --ttl 60
  leasehold permit list

A permit ends with its lease: whoever has lost contact has lost its rights.
"""


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
            "Grant a subject rights on a resource: for a term, or for as long as a lease lasts. "
            "What it could do there before is replaced."
        ),
        epilog=epilog(
            """
            leasehold permit grant anna reports/2031 read write --ttl 8h
            leasehold lease grant 60 --id 7a31
            leasehold permit grant worker-7 queue take --lease 7a31
            """,
            NOT_THERE,
            notes="With --ttl a lease is begun, which the subject can keep alive: `leasehold lease "
            "keep` does that. It is ended when the permit is replaced or revoked, unless there is "
            "something else under it.",
        ),
    )
    _add_names(parser)
    parser.add_argument(
        "rights", type=_name, nargs="+", metavar="RIGHT", help="what it may do; any names"
    )
    until = parser.add_mutually_exclusive_group(required=True)
    until.add_argument(
        "--ttl", type=words.term_s, metavar="TIME", help="for so long: seconds, or such as 8h"
    )
    until.add_argument(
        "--lease", type=words.lease_id, metavar="ID", help="for as long as this lease lasts"
    )
    parser.add_argument(
        "--by", type=_name, metavar="NAME", help="who grants it (default: host and process)"
    )
    parser.add_argument(
        "--print-id-only", action="store_true", help="print nothing but the id of the lease"
    )
    _finish(parser, "grant")


def _check(group: Commands) -> None:
    parser = group.add_parser(
        "check",
        help="ask whether a subject has a right now",
        description="Ask whether a subject has a right on a resource now.",
        epilog=epilog(
            """
            leasehold permit grant anna reports/2031 read --ttl 60
            leasehold permit check anna reports/2031 read && echo come in
            """,
            DENIED,
        ),
    )
    _add_names(parser)
    parser.add_argument("right", type=_name, metavar="RIGHT", help="what it is to do")
    _finish(parser, "check")


def _revoke(group: Commands) -> None:
    parser = group.add_parser(
        "revoke",
        help="take a permit away",
        description=(
            "Take all rights of a subject on a resource away. Clients that check permits hear of "
            "it at once."
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
        description="List permits: all, or those of a subject or for a resource.",
        epilog=epilog(
            """
            leasehold permit list
            leasehold permit list --subject anna
            leasehold permit list --resource reports/2031 --json
            """
        ),
    )
    parser.add_argument("--subject", type=_name, metavar="NAME", help="of this subject only")
    parser.add_argument("--resource", type=_name, metavar="NAME", help="for this resource only")
    _finish(parser, "list")


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("no name was given: write one, such as anna")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no text: write it in UTF-8") from None
    return text


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", type=_name, metavar="SUBJECT", help="who; any name")
    parser.add_argument("resource", type=_name, metavar="RESOURCE", help="on what; any name")


def _finish(parser: argparse.ArgumentParser, name: str) -> None:
    add_connection(parser)
    parser.set_defaults(run=_runner(name))


def _runner(name: str) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        from leasehold.cli import permit_commands  # noqa: PLC0415  it is long

        return permit_commands.COMMANDS[name](arguments)

    return run
