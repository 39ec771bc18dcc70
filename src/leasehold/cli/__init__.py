"""The command `leasehold`."""

import sys
from collections.abc import Sequence

from leasehold import __version__
from leasehold.cli import backup, check, config, restore, serve
from leasehold.cli.parser import USAGE_ERROR, Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = Parser(
        prog="leasehold", description="Leases: promises with an end. An etcd v3 server and more."
    )
    parser.add_argument("--version", action="version", version=f"leasehold {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (serve, config, backup, restore, check):
        command.add_command(commands)
    arguments = parser.parse_args(argv)
    if not hasattr(arguments, "run"):
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    code: int = arguments.run(arguments)
    return code
