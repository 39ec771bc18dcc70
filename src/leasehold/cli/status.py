"""`leasehold status`: which servers answer, and how they are."""

import argparse

from leasehold.cli.connection import add_connection
from leasehold.cli.exits import epilog
from leasehold.cli.groups import Commands


def add_command(commands: Commands) -> None:
    """Add `status` to the commands."""
    parser = commands.add_parser(
        "status",
        help="show which servers answer, and how they are",
        description="Ask each server by itself who it is and how it is, and show a row for each.",
        epilog=epilog(
            """
            leasehold status
            leasehold status --json
            """,
            notes="The exit code is 4 if any of the servers does not answer, and 1 if one has an "
            "alarm, or knows of no leader.",
        ),
    )
    add_connection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask all servers; 0 if all are well."""
    from leasehold.cli import status_commands  # noqa: PLC0415  it is long

    return status_commands.run(arguments)
