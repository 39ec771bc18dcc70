"""What `leasehold lock` does, once a server is connected to."""

import argparse
import asyncio
import contextlib
from typing import Final

from leasehold.cli.connection import note
from leasehold.cli.holding import hold, run_under, with_session
from leasehold.cli.printing import emit_json, emit_lines, named, shown_octets
from leasehold.cli.reporting import complain, count
from leasehold.client.client import Client
from leasehold.errors import LeaseholdError, LockDenied, LockLost
from leasehold.recipes.guard import Guard
from leasehold.recipes.lock import Lock

NOTE_S: Final = 1.0
"""How long to wait before the holder is printed."""


def run(arguments: argparse.Namespace) -> int:
    """Run a command under a lock, or hold it; return the exit code."""

    async def work(client: Client) -> int:
        lock = client.lock(arguments.name, cache=False)
        try:
            guard = await _acquired(lock, arguments)
        except LockDenied as denied:
            if not arguments.quiet:
                # The time is that of all attempts, as it was asked for.
                complain(str(LockDenied(denied.name, denied.holder, arguments.wait or 0.0)))
            code: int = arguments.denied_code
            return code
        try:
            what = repr(guard.name)
            if arguments.command is not None:
                return await run_under(guard, what, arguments)
            _say(guard, arguments)
            return await hold(guard, what)
        finally:
            with contextlib.suppress(LockLost):
                guard.release()

    return with_session(arguments, work)


async def _acquired(lock: Lock, arguments: argparse.Namespace) -> Guard:
    is_quiet = arguments.quiet or arguments.wait == 0
    noting = asyncio.ensure_future(_note_holder(lock, is_quiet=is_quiet))
    try:
        # With a lost place in the queue, keep waiting; with `--wait 0`, do not.
        return await lock.acquire(timeout=arguments.wait, ask_again=arguments.wait != 0)
    finally:
        noting.cancel()


async def _note_holder(lock: Lock, *, is_quiet: bool) -> None:
    """Print who holds the lock, and how many wait."""
    if is_quiet:
        return
    await asyncio.sleep(NOTE_S)
    with contextlib.suppress(LeaseholdError, OSError):  # it would have been nice to know
        holder = await lock.holder()
        if holder is not None:
            note(f"waiting for {lock.name!r}, held by {holder.who}; {_waiting(holder.waiters)}")


def _waiting(waiters: int) -> str:
    return f"{count(max(0, waiters - 1), 'other client')} waiting"


def _say(guard: Guard, arguments: argparse.Namespace) -> None:
    if arguments.json:
        emit_json({"event": "held", **named("key", guard.key), "token": str(guard.token)})
    else:
        emit_lines([shown_octets(guard.key), str(guard.token)])
