"""The command `leasehold`."""

import importlib
import os
import sys
import typing
from collections.abc import Sequence
from typing import Final

from leasehold import __version__
from leasehold.cli.signals import SIGNALS, Ended, exit_code

if typing.TYPE_CHECKING:
    from leasehold.cli.parser import Parser

MAX_STANDARD_FILE: Final = 2


COMMANDS: Final = (
    "serve",
    "config",
    "backup",
    "restore",
    "check",
    "lease",
    "kv",
    "lock",
    "elect",
    "permit",
    "status",
    "top",
    "completion",
)
"""Each is a module here, in the order of the help."""

_EPILOG: Final = """\
examples:
  leasehold kv put greeting hello
  leasehold lease grant 60
  leasehold status

See `leasehold COMMAND --help` for options and examples.
"""


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
    from leasehold.cli.exits import FAILURE, USAGE_ERROR  # noqa: PLC0415

    given = sys.argv[1:] if argv is None else list(argv)
    parser = parser_for(given)
    try:
        arguments = parser.parse_args(given)
        if not hasattr(arguments, "run"):
            parser.print_help(sys.stderr)
            return USAGE_ERROR
        code: int = arguments.run(arguments)
    except SystemExit as end:  # of a parser, which has helped or complained
        code = int(end.code or 0)
    except BrokenPipeError:  # whoever was to read it has seen enough
        code = FAILURE
    return code if _flushed() else FAILURE


def parser_for(given: Sequence[str] = ()) -> "Parser":
    """Make the parser: of all commands, unless one is named, because others take long to import."""
    from leasehold.cli.parser import Parser  # noqa: PLC0415

    parser = Parser(
        prog="leasehold",
        description="A lease server with the API of etcd v3, and commands for "
        "leases, keys and locks.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"leasehold {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in given[:1] if given[:1] and given[0] in COMMANDS else COMMANDS:
        importlib.import_module(f"leasehold.cli.{name}").add_command(commands)
    return parser


def _flushed() -> bool:
    """Write what waits for standard output; if that does not work nothing tries again at exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _fill_standard_files() -> None:
    """Open what is closed of standard input, output and error, before something else gets in there.

    A file that has one of their numbers would be written to by whoever means to write there, and
    libuv ends the process rather than use such a number itself.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= MAX_STANDARD_FILE:
        os.set_inheritable(number, True)
    os.close(number)
