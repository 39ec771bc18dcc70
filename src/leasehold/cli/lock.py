"""`leasehold lock`: run a command under a lock, or hold one until Ctrl-C."""

import argparse
from typing import Final

from leasehold.cli import words
from leasehold.cli.connection import add_connection
from leasehold.cli.exits import DENIED, LOST, epilog
from leasehold.cli.groups import Commands
from leasehold.cli.settings.shown import shown

TTL_S: Final = 10.0
GRACE_S: Final = 3.0
TOKEN: Final = "LEASEHOLD_TOKEN"  # noqa: S105  a fencing token is no secret
MAX_CODE: Final = 255


def add_command(commands: Commands) -> None:
    """Add `lock` to the commands."""
    parser = commands.add_parser(
        "lock",
        help="run a command under a lock",
        usage="%(prog)s NAME [options] [-- COMMAND [ARGUMENT ...]]",
        description=(
            "Acquire a lock, run a command, and release the lock when the command ends. The exit "
            "code is that of the command, or 128 plus the number of the signal that killed it. "
            "Without a command, print the key of the lock and its fencing token, and hold the lock "
            "until Ctrl-C or until the end of standard input, if that is a terminal or a pipe."
        ),
        epilog=epilog(
            """
            leasehold lock cron/backup -- date
            leasehold lock cron/backup --wait 0 -q -- sh -c 'echo token $LEASEHOLD_TOKEN'
            leasehold lock deploy
            """,
            LOST,
            DENIED,
            notes="If the lock is lost, or leasehold itself is killed, the process group of the "
            "command receives SIGTERM, and SIGKILL after --grace. If no server answers, SIGTERM is "
            "sent early enough for the command to end before the lock expires; --grace is "
            "therefore limited to a third of --ttl. Background processes that outlive the command "
            "run without the lock. `etcdctl lock` waits in the same queue.",
        ),
        takes_command=True,
    )
    parser.add_argument("name", type=name, metavar="NAME", help="name of the lock")
    add_holding(parser, "the lock")
    add_denied_code(parser, "another client holds it")
    add_connection(parser)
    parser.set_defaults(run=run)


def add_holding(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options for acquiring it, and for the command that is run under it."""
    parser.add_argument(
        "--wait",
        type=words.term_or_0_s,
        metavar="TIME",
        help=f"how long to wait for {what}; 0 does not wait (default: no limit)",
    )
    parser.add_argument(
        "--ttl",
        type=words.term_s,
        default=TTL_S,
        metavar="TIME",
        help="TTL of its lease: it is free again this long after a crash (default: 10s)",
    )
    parser.add_argument(
        "--grace",
        type=words.term_or_0_s,
        metavar="TIME",
        help="time between SIGTERM and SIGKILL (default: 3s, or a third of --ttl if that is less)",
    )
    parser.add_argument(
        "--token-env",
        type=_variable,
        default=TOKEN,
        metavar="NAME",
        help=f"environment variable for the fencing token (default: {TOKEN})",
    )
    parser.add_argument(
        "--holder",
        type=_holder,
        metavar="NAME",
        help="name that waiting clients are shown (default: host and process)",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="do not print who holds it",
    )


def add_denied_code(parser: argparse.ArgumentParser, when: str) -> None:
    """Add the exit code for when it is not acquired in time."""
    parser.add_argument(
        "--denied-code",
        type=_code,
        default=DENIED,
        metavar="N",
        help=f"exit code if {when} (default: {DENIED})",
    )


def name(text: str) -> bytes:
    """Read the name of a lock or an election."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty: write one, such as cron/backup")
    return words.octets(text)


def _holder(text: str) -> str:
    if not 0 < len(text) <= 200 or not text.isprintable():
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a holder name: write up to 200 characters, such as anna"
        )
    return text


def _variable(text: str) -> str:
    if not text or "=" in text or "\0" in text:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a variable name: write one, such as {TOKEN}"
        )
    return text


def _code(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 3 or int(text) > MAX_CODE:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not an exit code: write a number from 0 to {MAX_CODE}, such as 0"
        )
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command under the lock; return the exit code."""
    from leasehold.cli import lock_commands  # noqa: PLC0415  it is long

    return lock_commands.run(arguments)
