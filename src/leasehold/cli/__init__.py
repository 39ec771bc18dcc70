"""The command `leasehold`."""

import importlib
import os
import sys
import typing
from collections.abc import Sequence
from typing import Final

from leasehold import __version__
from leasehold.cli.signals import SIGNALS, StoppedBySignal, exit_code

if typing.TYPE_CHECKING:
    from leasehold.cli.parser import Parser

MAX_STANDARD_FILE: Final = 2


COMMANDS: Final = {
    "serve": "serve:add_command",
    "config": "serve:add_config",
    "backup": "data_directory:add_backup",
    "restore": "data_directory:add_restore",
    "check": "data_directory:add_check",
    "lease": "lease:add_command",
    "kv": "kv:add_command",
    "lock": "lock:add_command",
    "elect": "elect:add_command",
    "permit": "permit:add_command",
    "registry": "registry:add_command",
    "renewal": "renewal:add_command",
    "events": "events:add_command",
    "files": "files:add_command",
    "admin": "admin:add_command",
    "discover": "discover:add_command",
    "discovery": "discovery:add_command",
    "status": "status:add_command",
    "top": "top:add_command",
    "completion": "completion:add_command",
}
"""The module of each in this package, and the function that adds it. The order is the help's."""

_EPILOG: Final = """\
examples:
  leasehold kv put greeting hello
  leasehold lease grant 60
  leasehold status

See `leasehold COMMAND --help` for options and examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code. Installs signal handlers for the whole process."""
    SIGNALS.install()
    _fill_standard_files()
    try:
        return _run(argv)
    except StoppedBySignal:
        assert SIGNALS.received is not None
        return exit_code(SIGNALS.received)


def _run(argv: Sequence[str] | None) -> int:
    # The other modules take a while to import. Signals are handled from here on.
    from leasehold.cli.output import OutputFailedError, print_error
    from leasehold.cli.parser import FAILURE, USAGE_ERROR

    given = sys.argv[1:] if argv is None else list(argv)
    parser = parser_for(given)
    try:
        arguments = parser.parse_args(given)
        if not hasattr(arguments, "run"):
            parser.print_help(sys.stderr)
            return USAGE_ERROR
        code: int = arguments.run(arguments)
    except SystemExit as end:  # raised by a parser after it printed help or an error
        code = int(end.code or 0)
    except OutputFailedError as error:
        code = print_error(str(error))
    except BrokenPipeError:  # the reader closed the pipe
        code = FAILURE
    return code if _flushed() else FAILURE


def parser_for(given: Sequence[str] = ()) -> "Parser":
    """Make a parser for the named command, or for all. Importing every command is slow."""
    from leasehold.cli.parser import Parser

    parser = Parser(
        prog="leasehold",
        description="A lease server with the API of etcd v3, and commands for "
        "leases, keys and locks.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"leasehold {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in given[:1] if given[:1] and given[0] in COMMANDS else COMMANDS:
        module, _, add = COMMANDS[name].partition(":")
        getattr(importlib.import_module(f"leasehold.cli.{module}"), add)(commands)
    return parser


def _flushed() -> bool:
    """Flush standard output. If that fails, nothing is written again at exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _fill_standard_files() -> None:
    """Open standard input, output and error if they are closed.

    Otherwise another file could get one of their numbers. Output would then be written to that
    file, and libuv aborts the process rather than use such a number itself.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= MAX_STANDARD_FILE:
        os.set_inheritable(number, True)
    os.close(number)
