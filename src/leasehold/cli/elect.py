"""`leasehold elect`: lead, or run a command while one leads, or listen to who does."""

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
        help="lead an election, or tell who does",
        usage="%(prog)s NAME (VALUE [options] [-- COMMAND ...] | --listen)",
        description=(
            "Wait until nobody else leads, and lead then: run a command, and resign when it has "
            "ended, with its exit code; or print the key and the value that stand for us, and lead "
            "until Ctrl-C, or until standard input ends if that is a terminal or a pipe. Others "
            "are told the value. With --listen, print the key and the value of who leads, now and "
            "whenever that changes."
        ),
        epilog=epilog(
            """
            leasehold elect chief host-1
            leasehold elect chief host-1 -- sh -c 'echo leads, token $LEASEHOLD_TOKEN'
            leasehold elect chief host-1 -- leasehold elect chief --listen --count 1
            """,
            LOST,
            DENIED,
            notes="A command is ended if the lead is lost, as `leasehold lock` does it. "
            "`etcdctl elect` takes part in the same elections.",
        ),
        takes_command=True,
    )
    parser.add_argument("name", type=name, metavar="NAME", help="its name")
    parser.add_argument(
        "value", type=words.octets, nargs="?", metavar="VALUE", help="what others are told"
    )
    parser.add_argument(
        "-l", "--listen", action="store_true", help="tell who leads, until Ctrl-C; do not take part"
    )
    parser.add_argument(
        "--count", type=words.count, metavar="N", help="end after so many leaders were told"
    )
    add_holding(parser, "the lead")
    add_denied_code(parser, "somebody else leads")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Lead or listen; return the exit code."""
    from leasehold.cli import elect_commands  # noqa: PLC0415  it is long

    return elect_commands.run(arguments)
