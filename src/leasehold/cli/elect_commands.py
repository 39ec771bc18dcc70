"""What `leasehold elect` does, once a server is connected to."""

import argparse
import asyncio
import contextlib
from typing import Any, Final

from leasehold.cli.connection import note, until_told, with_client
from leasehold.cli.exits import OK, USAGE_ERROR
from leasehold.cli.holding import hold, run_under, with_session
from leasehold.cli.printing import emit as emit_octets
from leasehold.cli.printing import emit_json, emit_lines, named, raw_or_shown, shown_octets
from leasehold.cli.reporting import complain
from leasehold.cli.words import shown_id
from leasehold.client.client import Client
from leasehold.errors import LeaseholdError, LockDenied, LockLost, SessionExpired
from leasehold.recipes.election import Election, Leadership
from leasehold.recipes.observation import Leader

NOTE_S: Final = 1.0
"""How long to wait before the leader is printed."""


def run(arguments: argparse.Namespace) -> int:
    """Lead or listen; return the exit code."""
    if arguments.listen:
        return _listen(arguments)
    if arguments.value is None:
        complain(
            "VALUE is missing: write the value that identifies the "
            "leader, such as host-1, or --listen"
        )
        return USAGE_ERROR
    if arguments.count is not None:
        complain("--count needs --listen: write both or neither")
        return USAGE_ERROR
    return _lead(arguments)


# Lead.


def _lead(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        election = client.election(arguments.name)
        try:
            leadership = await _elected(election, arguments)
        except LockDenied as denied:
            if not arguments.quiet:
                complain(
                    f"{shown_octets(arguments.name)!r} is led by "
                    f"{denied.holder or 'another client'}"
                )
            code: int = arguments.denied_code
            return code
        try:
            what = f"the leadership of {election.name!r}"
            if arguments.command is not None:
                return await run_under(leadership, what, arguments)
            _say(leadership.key, leadership.value, _facts_of(leadership), arguments)
            return await hold(leadership, what)
        finally:
            with contextlib.suppress(LockLost):
                leadership.resign()

    return with_session(arguments, work)


async def _elected(election: Election, arguments: argparse.Namespace) -> Leadership:
    """Wait for the lead; who has lost its place in line begins again, in the time that is left."""
    loop = asyncio.get_running_loop()
    give_up_at_s = None if not arguments.wait else loop.time() + arguments.wait
    is_quiet = arguments.quiet or arguments.wait == 0
    noting = asyncio.ensure_future(_note_leader(election, is_quiet=is_quiet))
    try:
        while True:
            left_s = arguments.wait
            if give_up_at_s is not None:
                left_s = max(0.0, round(give_up_at_s - loop.time(), 3))  # it may be said
            try:
                return await election.campaign(arguments.value, left_s)
            except SessionExpired:
                if left_s == 0:
                    raise
    finally:
        noting.cancel()


async def _note_leader(election: Election, *, is_quiet: bool) -> None:
    """Print who leads."""
    if is_quiet:
        return
    await asyncio.sleep(NOTE_S)
    with contextlib.suppress(LeaseholdError, OSError):  # it would have been nice to know
        leader = await election.leader()
        if leader is not None:
            note(f"waiting for {election.name!r}, led by {shown_octets(leader.value)}")


# Listen.


def _listen(arguments: argparse.Namespace) -> int:
    if arguments.value is not None or arguments.command is not None:
        complain("--listen cannot be used with VALUE or a command: leave them out")
        return USAGE_ERROR

    async def work(client: Client) -> int:
        told = 0
        async for leader in client.election(arguments.name).observe():
            _say(leader.key, leader.value, _facts_of(leader), arguments)
            told += 1
            if told == arguments.count:
                break
        return OK

    return with_client(arguments, until_told(work))


# What is said.


def _facts_of(leader: Leader | Leadership) -> dict[str, Any]:
    facts: dict[str, Any] = {"token": str(leader.token)}
    if isinstance(leader, Leader):
        facts["lease"] = shown_id(leader.lease)
    return facts


def _say(key: bytes, value: bytes, facts: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Print who leads: the key and the value, a line each, as `etcdctl elect` does."""
    if arguments.json:
        emit_json({"event": "leads", **named("key", key), **named("value", value), **facts})
    else:
        emit_lines([shown_octets(key)])
        emit_octets(raw_or_shown(value))
