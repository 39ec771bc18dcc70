"""`leasehold restore`: make a new data directory from a backup."""

import argparse
from typing import Final

from leasehold.cli.argument_types import path
from leasehold.cli.output import ProgressBar, count, print_result
from leasehold.cli.parser import Commands
from leasehold.cli.settings.sources import IN_FORCE, add_settings, directory, directory_in_force

_FILE: Final = path("file", "./backup.db")

_EPILOG: Final = """\
example:
  leasehold restore ./backup.db --data-dir ./restored.data
  leasehold serve --data-dir ./restored.data

Changes made after the backup are lost, so the new directory gets a new cluster id. Its revision is
at least the wall clock in microseconds, so fencing tokens and watches never go back, even if one
backup is restored twice.
"""


def add_command(commands: Commands) -> None:
    """Add `restore` to the commands."""
    parser = commands.add_parser(
        "restore",
        help="make a new data directory from a backup",
        description="Make a new data directory from a backup, which is checked first.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--data-dir",
        type=directory,
        metavar="DIR",
        help=f"data directory to create; it must be empty if it exists {IN_FORCE}",
    )
    add_settings(parser)
    parser.add_argument(
        "--above",
        type=_revision,
        metavar="REVISION",
        help=(
            "use only revisions higher than this one; needed if the "
            "clock of this machine is behind "
            "the time of the backup, or was set back since an earlier restore"
        ),
    )
    parser.add_argument(
        "file",
        type=_FILE,
        metavar="FILE",
        help="backup to read; it is not changed",
    )
    parser.set_defaults(run=run)


def _revision(text: str) -> int:
    from leasehold.store.restoring import MAX_RESTORED_REVISION

    if not (text.isascii() and text.isdigit()) or int(text) > MAX_RESTORED_REVISION:
        raise argparse.ArgumentTypeError(
            f"revision must be a whole number from 0 to {MAX_RESTORED_REVISION}, got {text!r}"
        )
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Restore a backup; return 0 on success."""
    return print_result(lambda: _restore(arguments))


def _restore(arguments: argparse.Namespace) -> str:
    from leasehold.store.restoring import restore

    backup, directory = arguments.file, directory_in_force(arguments.data_dir, arguments)
    with ProgressBar("restore") as bar:
        found = restore(backup, directory, bar, above=arguments.above)
    return (
        f"{backup} is restored to {directory}: {count(found.keys, 'key')}, "
        f"{count(found.leases, 'lease')}, revision {found.revision}, "
        f"cluster id {found.identity.cluster_id:x}"
    )
