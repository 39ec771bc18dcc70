"""The command `leasehold`."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from leasehold import __version__
from leasehold.cli.signals import SIGNALS, Ended, exit_code

MAX_STANDARD_FILE: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code. The process is the command's: its signals are, too."""
    SIGNALS.listen()
    _fill_standard_files()
    try:
        return _run(argv)
    except Ended:
        assert SIGNALS.heard is not None
        return exit_code(SIGNALS.heard)


def _run(argv: Sequence[str] | None) -> int:
    # All else takes a while to import, in which signals are heard already.
    from leasehold.cli import backup, check, config, restore, serve  # noqa: PLC0415
    from leasehold.cli.parser import USAGE_ERROR, Parser  # noqa: PLC0415
    from leasehold.cli.reporting import FAILURE  # noqa: PLC0415

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
    try:
        code: int = arguments.run(arguments)
    except BrokenPipeError:  # whoever was to read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or exit tries again
        return FAILURE
    return code


def _fill_standard_files() -> None:
    """Open what is closed of standard input, output and error, before something else gets in there.

    A file that has one of their numbers would be written to by whoever means to write there, and
    libuv ends the process rather than use such a number itself.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= MAX_STANDARD_FILE:
        os.set_inheritable(number, True)
    os.close(number)
