"""`leasehold backup`: copy a data directory into one file, also while it is served."""

import argparse
from pathlib import Path
from typing import Final

from leasehold.cli.argument_types import path
from leasehold.cli.output import ProgressBar, print_result, size
from leasehold.cli.parser import Commands
from leasehold.cli.settings.sources import IN_FORCE, add_settings, directory, directory_in_force
from leasehold.errors import DirectoryInUse

_FILE: Final = path("file", "./backup.db")

_EPILOG: Final = """\
example:
  leasehold backup --data-dir ./leasehold.data ./backup.db

The backup has every change that was acknowledged before the command was started. FILE appears only
when it is complete and on disk. `leasehold restore` makes a data directory from it.
"""


def add_command(commands: Commands) -> None:
    """Add `backup` to the commands."""
    parser = commands.add_parser(
        "backup",
        help="copy all data into a file, also while the server runs",
        description=(
            "Copy all keys and leases into one file. If a server uses the data directory, it makes "
            "the copy while it continues to serve; otherwise the directory is read."
        ),
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--data-dir",
        type=directory,
        metavar="DIR",
        help=f"data directory to copy {IN_FORCE}",
    )
    add_settings(parser)
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument("file", type=_FILE, metavar="FILE", help="file to write")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make a backup; return 0 on success."""
    return print_result(lambda: _back_up(arguments, arguments.file, arguments.force))


def _back_up(arguments: argparse.Namespace, target: Path, force: bool) -> str:
    from leasehold.store.backup import back_up_directory
    from leasehold.store.control_socket import ask_for_backup

    directory = directory_in_force(arguments.data_dir, arguments)
    with ProgressBar("backup") as bar:
        try:
            made = back_up_directory(directory, target, bar, force=force)
        except DirectoryInUse:
            made = ask_for_backup(directory, target, bar, force=force)
    return f"revision {made.revision} of {directory} is in {target} ({size(made.size_bytes)})"
