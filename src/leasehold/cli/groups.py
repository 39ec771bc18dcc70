"""Commands that have commands of their own, such as `leasehold lease grant`."""

import argparse
import sys
from typing import TypeAlias

from leasehold.cli.exits import USAGE_ERROR

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  a type


def add_group(
    commands: Commands, name: str, *, summary: str, description: str, epilog: str
) -> Commands:
    """Add a command that is nothing by itself; without another one after it, it helps."""
    parser = commands.add_parser(name, help=summary, description=description, epilog=epilog)

    def run(_: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return USAGE_ERROR

    parser.set_defaults(run=run)
    return parser.add_subparsers(title="commands", metavar="COMMAND")
