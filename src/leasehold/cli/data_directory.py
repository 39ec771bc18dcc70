"""`leasehold backup`, `restore` and `check`: the commands on a data directory and its backups."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leasehold.cli.argument_types import path
from leasehold.cli.output import ProgressBar, count, print_result, size
from leasehold.cli.parser import Commands
from leasehold.cli.settings.sources import IN_FORCE, add_settings, directory, directory_in_force
from leasehold.errors import DirectoryInUse
from leasehold.keyspace.keyspace import FIRST_REVISION

if TYPE_CHECKING:
    from leasehold.store.checking import Report

_FILE: Final = path("file", "./backup.db")


# Backup.

_BACKUP_EPILOG: Final = """\
example:
  leasehold backup --data-dir ./leasehold.data ./backup.db

The backup has every change that was acknowledged before the command was started. FILE appears only
when it is complete and on disk. `leasehold restore` makes a data directory from it.
"""


def add_backup(commands: Commands) -> None:
    """Add `backup` to the commands."""
    parser = commands.add_parser(
        "backup",
        help="copy all data into a file, also while the server runs",
        description=(
            "Copy all keys and leases into one file. If a server uses the data directory, it makes "
            "the copy while it continues to serve; otherwise the directory is read."
        ),
        epilog=_BACKUP_EPILOG,
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
    parser.set_defaults(run=run_backup)


def run_backup(arguments: argparse.Namespace) -> int:
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


# Restore.

_RESTORE_EPILOG: Final = """\
example:
  leasehold restore ./backup.db --data-dir ./restored.data
  leasehold serve --data-dir ./restored.data

Changes made after the backup are lost, so the new directory gets a new cluster id. Its revision is
at least the wall clock in microseconds, so fencing tokens and watches never go back, even if one
backup is restored twice.
"""


def add_restore(commands: Commands) -> None:
    """Add `restore` to the commands."""
    parser = commands.add_parser(
        "restore",
        help="make a new data directory from a backup",
        description="Make a new data directory from a backup, which is checked first.",
        epilog=_RESTORE_EPILOG,
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
    parser.set_defaults(run=run_restore)


def _revision(text: str) -> int:
    from leasehold.store.restoring import MAX_RESTORED_REVISION

    if not (text.isascii() and text.isdigit()) or int(text) > MAX_RESTORED_REVISION:
        raise argparse.ArgumentTypeError(
            f"revision must be a whole number from 0 to {MAX_RESTORED_REVISION}, got {text!r}"
        )
    return int(text)


def run_restore(arguments: argparse.Namespace) -> int:
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


# Check.

_CHECK_EPILOG: Final = """\
example:
  leasehold check ./leasehold.data
  leasehold check ./backup.db

The exit code is 0 if no error is found, else 1. Nothing is changed. A directory that a server uses
cannot be checked: make a backup, and check the backup.
"""


def add_check(commands: Commands) -> None:
    """Add `check` to the commands."""
    parser = commands.add_parser(
        "check",
        help="verify a data directory or a backup",
        description="Read a whole data directory or backup, and report whether it is valid.",
        epilog=_CHECK_EPILOG,
    )
    parser.add_argument(
        "path",
        type=directory,
        nargs="?",
        metavar="DIR|FILE",
        help=f"data directory or backup {IN_FORCE}",
    )
    add_settings(parser)
    parser.set_defaults(run=run_check)


def run_check(arguments: argparse.Namespace) -> int:
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
