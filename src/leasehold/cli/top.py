"""`leasehold top`: a refreshed view of leases, locks and rates."""

import argparse
from typing import Final

from leasehold.cli import argument_types
from leasehold.cli.connection import finish, with_connect_options
from leasehold.cli.parser import Commands, epilog
from leasehold.cli.settings.error_texts import shown

MIN_EVERY_S: Final = 0.1
"""The shortest interval between reads: more frequent reads add load and show no more."""

EVERY_S: Final = 1.0


def add_command(commands: Commands) -> None:
    """Add `top` to the commands."""
    parser = commands.add_parser(
        "top",
        help="show leases, locks and rates until Ctrl-C",
        description=(
            "Show the load of a server, updated each second: request rates, locks with holders and "
            "numbers of waiters, the leases that end next, and sessions. Works with a Leasehold "
            "server and with etcd."
        ),
        epilog=epilog(
            """
            leasehold top
            leasehold top --once
            leasehold top --prefix cron/ --every 500ms --count 3 --json
            """,
            notes="On a terminal it fills the screen until q or Ctrl-C; otherwise it prints lines. "
            "A lock is a key NAME/LEASE attached to the lease of that id, as etcdctl creates it. "
            "Each update reads at most 10,000 keys and 10,000 leases and counts the rest; use "
            "--prefix to choose which keys are read.",
        ),
    )
    parser.add_argument(
        "--every",
        type=_every_s,
        default=EVERY_S,
        metavar="TIME",
        help="time between updates (default: 1s)",
    )
    parser.add_argument(
        "--prefix",
        type=argument_types.key_bytes,
        default=b"",
        metavar="KEY",
        help="only locks with this prefix",
    )
    times = parser.add_mutually_exclusive_group()
    times.add_argument(
        "--count", type=argument_types.count, metavar="N", help="end after N updates"
    )
    times.add_argument(
        "--once", action="store_const", const=1, dest="count", help="print one update and end"
    )
    finish(parser, run)


def _every_s(text: str) -> float:
    seconds = argument_types.term_s(text)
    if seconds < MIN_EVERY_S:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is too short: "
            f"write {argument_types.shown_term(MIN_EVERY_S)} or more, such as 1s"
        )
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Refresh until a signal; return the exit code."""
    from leasehold.cli.top_display import refresh

    return with_connect_options(arguments, lambda server: refresh(arguments, server))
