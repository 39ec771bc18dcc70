"""`leasehold check`: verify a data directory or a backup."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leasehold.cli.output import ProgressBar, count, print_result, size
from leasehold.cli.parser import Commands
from leasehold.cli.settings.sources import IN_FORCE, add_settings, directory, directory_in_force
from leasehold.keyspace.keyspace import FIRST_REVISION

if TYPE_CHECKING:
    from leasehold.store.checking import Report

_EPILOG: Final = """\
example:
  leasehold check ./leasehold.data
  leasehold check ./backup.db

The exit code is 0 if no error is found, else 1. Nothing is changed. A directory that a server uses
cannot be checked: make a backup, and check the backup.
"""


def add_command(commands: Commands) -> None:
    """Add `check` to the commands."""
    parser = commands.add_parser(
        "check",
        help="verify a data directory or a backup",
        description="Read a whole data directory or backup, and report whether it is valid.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "path",
        type=directory,
        nargs="?",
        metavar="DIR|FILE",
        help=f"data directory or backup {IN_FORCE}",
    )
    add_settings(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the check; return 0 if no problem is found."""
    return print_result(lambda: _check(directory_in_force(arguments.path, arguments)))


def _check(path: Path) -> str:
    from leasehold.store.checking import check

    with ProgressBar("check") as bar:
        report = check(path, bar)
    return f"{path} is in order\n{_summary(report)}"


def _summary(report: "Report") -> str:
    facts = {
        "format": report.format,
        "cluster id": f"{report.identity.cluster_id:x}",
        "revision": report.revision,
        "compacted": report.compacted if report.compacted > 0 else "never",
        "history": count(report.revision - max(report.compacted, FIRST_REVISION), "revision"),
        "keys": report.keys,
        "leases": report.leases,
        "size": size(report.size_bytes),
    }
    return "\n".join(f"  {name:<11} {value}" for name, value in facts.items())
