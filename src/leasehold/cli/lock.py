"""`leasehold lock`: run a command under a lock, or hold one until Ctrl-C."""

import argparse
import contextlib
from typing import TYPE_CHECKING, Final

from leasehold.cli import argument_types
from leasehold.cli.connection import finish
from leasehold.cli.output import count, emit_json, emit_lines, named, print_error, shown_bytes
from leasehold.cli.parser import DENIED, LOST, Commands, epilog
from leasehold.cli.settings.error_texts import shown
from leasehold.errors import LockDenied, LockLost

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.locks.lock import Lock
    from leasehold.locks.lock_events import LockEvent
    from leasehold.locks.ownership import Guard

TTL_S: Final = 10.0
GRACE_S: Final = 3.0
TOKEN: Final = "LEASEHOLD_TOKEN"  # noqa: S105  it is not a secret
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
    parser.add_argument(
        "--log",
        action="store_true",
        help="print the events of the lock to standard error, with their times",
    )
    finish(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command under the lock, or hold the lock; return the exit code."""
    from leasehold.cli.run_while_held import hold, run_under, waiting_for, with_session

    async def work(client: "Client") -> int:
        if arguments.log:
            client.on_lock_event(_print_event)
        lock = client.lock(arguments.name, cache=False)
        # If the place in the queue is lost, keep waiting; with `--wait 0`, do not.
        acquiring = lock.acquire(timeout=arguments.wait, ask_again=arguments.wait != 0)
        try:
            guard = await waiting_for(acquiring, lambda: _waiting_line(lock), arguments)
        except LockDenied as denied:
            if not arguments.quiet:
                # The timeout that was given covers all attempts.
                print_error(str(LockDenied(denied.name, denied.holder, arguments.wait or 0.0)))
            code: int = arguments.denied_code
            return code
        try:
            what = repr(guard.name)
            if arguments.command is not None:
                return await run_under(guard, what, arguments)
            _print_held(guard, arguments)
            return await hold(guard, what)
        finally:
            with contextlib.suppress(LockLost):
                guard.release()

    return with_session(arguments, work)


async def _waiting_line(lock: "Lock") -> str | None:
    holder = await lock.holder()
    if holder is None:
        return None
    others = count(max(0, holder.waiters - 1), "other client")
    return f"waiting for {lock.name!r}, held by {holder.who}; {others} waiting"


def _print_held(guard: "Guard", arguments: argparse.Namespace) -> None:
    if arguments.json:
        emit_json({"event": "held", **named("key", guard.key), "token": str(guard.token)})
    else:
        emit_lines([shown_bytes(guard.key), str(guard.token)])


def _print_event(event: "LockEvent") -> None:
    """Print an event of the lock; standard output belongs to the command."""
    print_error(f"{event.at.isoformat(timespec='milliseconds')} {event}")


# Arguments that `leasehold elect` has as well.


def add_holding(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options for acquiring it, and for the command to run."""
    parser.add_argument(
        "--wait",
        type=argument_types.term_or_0_s,
        metavar="TIME",
        help=f"how long to wait for {what}; 0 does not wait (default: no limit)",
    )
    parser.add_argument(
        "--ttl",
        type=argument_types.term_s,
        default=TTL_S,
        metavar="TIME",
        help=f"TTL of the lease; after a crash {what} is free when it expires (default: 10s)",
    )
    parser.add_argument(
        "--grace",
        type=argument_types.term_or_0_s,
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
        help="holder name that other clients see (default: host name and process id)",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="do not print the current holder",
    )


def add_denied_code(parser: argparse.ArgumentParser, when: str) -> None:
    """Add the exit code that is used if it is not acquired in time."""
    parser.add_argument(
        "--denied-code",
        type=_code,
        default=DENIED,
        metavar="N",
        help=f"exit code if {when} (default: {DENIED})",
    )


def name(text: str) -> bytes:
    """Parse the name of a lock or an election."""
    if not text:
        raise argparse.ArgumentTypeError("name must not be empty: write one, such as cron/backup")
    return argument_types.key_bytes(text)


def _holder(text: str) -> str:
    if not 0 < len(text) <= 200 or not text.isprintable():
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a holder name: write 1 to 200 printable characters, such as anna"
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
