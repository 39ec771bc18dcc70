"""`leasehold status`: the state of each server."""

import argparse

from leasehold.cli.connection import add_connection
from leasehold.cli.exits import epilog
from leasehold.cli.groups import Commands


def add_command(commands: Commands) -> None:
    """Add `status` to the commands."""
    parser = commands.add_parser(
        "status",
        help="show the state of each server",
        description="Query each server separately, and show its version, leader, size and alarms.",
        epilog=epilog(
            """
            leasehold status
            leasehold status --json
            """,
            notes="The exit code is 4 if a server does not answer, and 1 if a "
            "server has an alarm or "
            "no leader.",
        ),
    )
    add_connection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask all servers; 0 if all are well."""
    from leasehold.cli import status_commands  # noqa: PLC0415  it is long

    return status_commands.run(arguments)
