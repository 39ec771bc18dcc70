"""`leasehold elect`: lead an election, run a command while leading, or print leaders."""

import argparse

from leasehold.cli import words
from leasehold.cli.connection import add_connection
from leasehold.cli.exits import DENIED, LOST, epilog
from leasehold.cli.groups import Commands
from leasehold.cli.lock import add_denied_code, add_holding, name


def add_command(commands: Commands) -> None:
    """Add `elect` to the commands."""
    parser = commands.add_parser(
        "elect",
        help="lead an election, or print its leader",
        usage="%(prog)s NAME (VALUE [options] [-- COMMAND ...] | --listen)",
        description=(
            "Campaign in an election. Once elected, run a command, resign when it ends, and exit "
            "with its exit code. Without a command, print the key and value of the leadership, and "
            "lead until Ctrl-C or until the end of standard input, if that is a terminal or a "
            "pipe. With --listen, print the key and value of the leader, now and at each change."
        ),
        epilog=epilog(
            """
            leasehold elect chief host-1
            leasehold elect chief host-1 -- sh -c 'echo leads, token $LEASEHOLD_TOKEN'
            leasehold elect chief host-1 -- leasehold elect chief --listen --count 1
            """,
            LOST,
            DENIED,
            notes="If the leadership is lost, the command is ended in the way "
            "`leasehold lock` ends "
            "it. `etcdctl elect` takes part in the same elections.",
        ),
        takes_command=True,
    )
    parser.add_argument("name", type=name, metavar="NAME", help="name of the election")
    parser.add_argument(
        "value",
        type=words.octets,
        nargs="?",
        metavar="VALUE",
        help="value that identifies the leader",
    )
    parser.add_argument(
        "-l", "--listen", action="store_true", help="print leaders until Ctrl-C; do not campaign"
    )
    parser.add_argument(
        "--count", type=words.count, metavar="N", help="with --listen: end after N leaders"
    )
    add_holding(parser, "the leadership")
    add_denied_code(parser, "another client leads")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Lead or listen; return the exit code."""
    from leasehold.cli import elect_commands  # noqa: PLC0415  it is long

    return elect_commands.run(arguments)
