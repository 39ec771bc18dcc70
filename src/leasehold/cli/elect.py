"""`leasehold elect`: lead an election, run a command while leading, or print leaders."""

import argparse
import contextlib
from typing import TYPE_CHECKING, Any

from leasehold.cli import argument_types
from leasehold.cli.argument_types import shown_id
from leasehold.cli.connection import finish, showing_warnings, until_signal, with_client
from leasehold.cli.lock import add_denied_code, add_holding, name
from leasehold.cli.output import emit as emit_bytes
from leasehold.cli.output import (
    emit_json,
    emit_lines,
    named,
    print_error,
    raw_or_shown,
    shown_bytes,
)
from leasehold.cli.parser import DENIED, LOST, OK, USAGE_ERROR, Commands, epilog
from leasehold.errors import LockDenied, LockLost, SessionExpired

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.locks.election import Election, Leadership


def add_command(commands: Commands) -> None:
    """Add `elect` to the commands."""
    parser = commands.add_parser(
        "elect",
        help="lead an election, or print its leader",
        usage="%(prog)s NAME (VALUE [options] [-- COMMAND ...] | --listen)",
        description=(
            "Campaign in an election. Once elected, run a command, resign when it ends, and exit "
            "with its exit code. Without a command, print the key and value of the leadership, and "
            "lead until Ctrl-C or until the end of standard input, if that is a terminal or a "
            "pipe. With --listen, print the key and value of the leader, now and at each change."
        ),
        epilog=epilog(
            """
            leasehold elect chief host-1
            leasehold elect chief host-1 -- sh -c 'echo leads, token $LEASEHOLD_TOKEN'
            leasehold elect chief host-1 -- leasehold elect chief --listen --count 1
            """,
            LOST,
            DENIED,
            notes="If the leadership is lost, the command is ended in the way "
            "`leasehold lock` ends "
            "it. `etcdctl elect` takes part in the same elections.",
        ),
        takes_command=True,
    )
    parser.add_argument("name", type=name, metavar="NAME", help="name of the election")
    parser.add_argument(
        "value",
        type=argument_types.key_bytes,
        nargs="?",
        metavar="VALUE",
        help="value that identifies the leader",
    )
    parser.add_argument(
        "-l", "--listen", action="store_true", help="print leaders until Ctrl-C; do not campaign"
    )
    parser.add_argument(
        "--count", type=argument_types.count, metavar="N", help="with --listen: end after N leaders"
    )
    add_holding(parser, "the leadership")
    add_denied_code(parser, "another client leads")
    finish(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Campaign or observe; return the exit code."""
    if arguments.listen:
        return _listen(arguments)
    if arguments.value is None:
        print_error("VALUE is missing: give the leader's value, such as host-1, or --listen")
        return USAGE_ERROR
    if arguments.count is not None:
        print_error("--count requires --listen: give both or neither")
        return USAGE_ERROR
    return _lead(arguments)


# Lead.


def _lead(arguments: argparse.Namespace) -> int:
    from leasehold.cli.run_while_held import hold, run_under, waiting_for, with_session

    async def work(client: "Client") -> int:
        election = client.election(arguments.name)
        campaign = _elected(election, arguments)
        try:
            leadership = await waiting_for(campaign, lambda: _waiting_line(election), arguments)
        except LockDenied as denied:
            if not arguments.quiet:
                leader = denied.holder or "another client"
                print_error(f"{shown_bytes(arguments.name)!r} is led by {leader}")
            code: int = arguments.denied_code
            return code
        try:
            what = f"the leadership of {election.name!r}"
            if arguments.command is not None:
                return await run_under(leadership, what, arguments)
            token = {"token": str(leadership.token)}
            _print_leader(leadership.key, leadership.value, token, arguments)
            return await hold(leadership, what)
        finally:
            with contextlib.suppress(LockLost):
                leadership.resign()

    return with_session(arguments, work)


async def _elected(election: "Election", arguments: argparse.Namespace) -> "Leadership":
    """Wait until elected. If its place in the queue is lost, retry within the remaining time."""
    import asyncio

    loop = asyncio.get_running_loop()
    give_up_at_s = None if not arguments.wait else loop.time() + arguments.wait
    while True:
        left_s = arguments.wait
        if give_up_at_s is not None:
            left_s = max(0.0, round(give_up_at_s - loop.time(), 3))  # it may be printed
        try:
            return await election.campaign(arguments.value, left_s)
        except SessionExpired:
            if left_s == 0:
                raise


async def _waiting_line(election: "Election") -> str | None:
    leader = await election.leader()
    if leader is None:
        return None
    return f"waiting for {election.name!r}, led by {shown_bytes(leader.value)}"


# Observe.


def _listen(arguments: argparse.Namespace) -> int:
    if arguments.value is not None or arguments.command is not None:
        print_error("--listen cannot be used with VALUE or a command: omit them")
        return USAGE_ERROR

    async def work(client: "Client") -> int:
        printed = 0
        async for leader in client.election(arguments.name).observe():
            facts = {"token": str(leader.token), "lease": shown_id(leader.lease)}
            _print_leader(leader.key, leader.value, facts, arguments)
            printed += 1
            if printed == arguments.count:
                break
        return OK

    return with_client(arguments, showing_warnings(until_signal(work)))


def _print_leader(
    key: bytes, value: bytes, facts: dict[str, Any], arguments: argparse.Namespace
) -> None:
    """Print the leader: the key and the value, a line each, as `etcdctl elect` does."""
    if arguments.json:
        emit_json({"event": "leads", **named("key", key), **named("value", value), **facts})
    else:
        emit_lines([shown_bytes(key)])
        emit_bytes(raw_or_shown(value))
