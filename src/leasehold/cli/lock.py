"""`leasehold lock`: run a command under a lock, or hold one until told to let go."""

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
            "Wait until nobody else has the lock, run a command, and release the lock when it has "
            "ended. The exit code is that of the command, 128 and the number of a signal that has "
            "killed it. Without a command, print the key of the lock and its token, and hold it "
            "until Ctrl-C, or until standard input ends if that is a terminal or a pipe: with "
            "</dev/null it is held on."
        ),
        epilog=epilog(
            """
            leasehold lock cron/backup -- date
            leasehold lock cron/backup --wait 0 -q -- sh -c 'echo token $LEASEHOLD_TOKEN'
            leasehold lock deploy
            """,
            LOST,
            DENIED,
            notes="If the lock is lost the command is ended, with all that it has started in its "
            "process group: by SIGTERM, and after --grace by SIGKILL. So it is if leasehold itself "
            "is killed. If no server answers, SIGTERM is sent early enough for the command to end "
            "before the lock does, so --grace is limited to a third of --ttl. What the command "
            "leaves behind when it ends by itself runs on without the lock. `etcdctl lock` waits "
            "in the same line.",
        ),
        takes_command=True,
    )
    parser.add_argument("name", type=name, metavar="NAME", help="its name")
    add_holding(parser, "the lock")
    add_denied_code(parser, "somebody else has it")
    add_connection(parser)
    parser.set_defaults(run=run)


def add_holding(parser: argparse.ArgumentParser, what: str) -> None:
    """Add how something is to be had, and a command is to be run under it."""
    parser.add_argument(
        "--wait",
        type=words.term_or_0_s,
        metavar="TIME",
        help=f"how long to wait for {what}; 0 only asks (default: until it is there)",
    )
    parser.add_argument(
        "--ttl",
        type=words.term_s,
        default=TTL_S,
        metavar="TIME",
        help="how long it outlives its holder at most (default: 10s)",
    )
    parser.add_argument(
        "--grace",
        type=words.term_or_0_s,
        metavar="TIME",
        help="how long the command has between SIGTERM and SIGKILL "
        "(default: 3s, or a third of --ttl if that is less)",
    )
    parser.add_argument(
        "--token-env",
        type=_variable,
        default=TOKEN,
        metavar="NAME",
        help=f"the variable of the command that has the fencing token (default: {TOKEN})",
    )
    parser.add_argument(
        "--holder",
        type=_holder,
        metavar="NAME",
        help="what others are told who have to wait (default: host and process)",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="do not tell who else has it",
    )


def add_denied_code(parser: argparse.ArgumentParser, when: str) -> None:
    """Add what the exit code is if it cannot be had in time."""
    parser.add_argument(
        "--denied-code",
        type=_code,
        default=DENIED,
        metavar="N",
        help=f"the exit code if {when} (default: {DENIED})",
    )


def name(text: str) -> bytes:
    """Read the name of a lock or an election."""
    if not text:
        raise argparse.ArgumentTypeError("no name was given: write one, such as cron/backup")
    return words.octets(text)


def _holder(text: str) -> str:
    if not 0 < len(text) <= 200 or not text.isprintable():
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no name of a holder: write up to 200 characters, such as anna"
        )
    return text


def _variable(text: str) -> str:
    if not text or "=" in text or "\0" in text:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no name of a variable: write one, such as {TOKEN}"
        )
    return text


def _code(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 3 or int(text) > MAX_CODE:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no exit code: write a number from 0 to {MAX_CODE}, such as 0"
        )
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command under the lock; return the exit code."""
    from leasehold.cli import lock_commands  # noqa: PLC0415  it is long

    return lock_commands.run(arguments)
