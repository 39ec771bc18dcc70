"""What a command does that has got a lock, or leads: run something under it, or just hold it."""

import argparse
import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from leasehold.cli.connection import Work, said, with_client
from leasehold.cli.exits import FAILURE, LOST, OK, USAGE_ERROR
from leasehold.cli.lock import GRACE_S
from leasehold.cli.reporting import complain
from leasehold.cli.settings.shown import shown
from leasehold.cli.signals import SIGNALS
from leasehold.cli.supervising import End, Guarded, Supervised
from leasehold.cli.words import shown_term
from leasehold.errors import LeaseLost
from leasehold.recipes.token import Token

MAX_READ_BYTES: Final = 4096

TTL_PER_GRACE: Final = 3
"""`--ttl` is at least this many times `--grace`: a command is ended one grace period before the end
of the lease, and while renewals are answered more than that always remains."""

_STDIN: Final = 0


class Held(Guarded, Protocol):
    """What can be held: the guard of a lock, or a leadership."""

    @property
    def token(self) -> Token:
        """The fencing token."""

    def check(self) -> None:
        """Raise why it cannot be relied on, if it cannot."""


def with_session(arguments: argparse.Namespace, work: Work) -> int:
    """Connect with a session of `--ttl` and run `work`; return the exit code.

    The options are checked first: if `--grace` is too long, nothing is started.
    """
    try:
        arguments.grace = chosen_grace_s(arguments.grace, arguments.ttl)
    except ValueError as error:
        complain(str(error))
        return USAGE_ERROR
    return with_client(arguments, work, session_ttl=arguments.ttl, name=arguments.holder)


def chosen_grace_s(grace_s: float | None, ttl_s: float) -> float:
    """Return the grace period, which is `GRACE_S` or less by default.

    Raises `ValueError` if a given one is more than a third of the TTL: a command that ignores
    SIGTERM would still run when the lease has ended.
    """
    longest_s = round(ttl_s * 1000) // TTL_PER_GRACE / 1000
    if grace_s is None:
        return min(GRACE_S, longest_s)
    if grace_s > longest_s:
        raise ValueError(
            f"--grace {shown_term(grace_s)} is more than a third of --ttl {shown_term(ttl_s)}: "
            f"use --ttl {shown_term(TTL_PER_GRACE * grace_s)} or --grace {shown_term(longest_s)}"
        )
    return grace_s


async def run_under(held: Held, what: str, arguments: argparse.Namespace) -> int:
    """Run the command that was given; return the exit code. `what` it is that is held."""
    command: list[str] = arguments.command
    supervised = Supervised(held, command, grace_s=arguments.grace, term_s=arguments.ttl)
    outcome = await supervised.run({arguments.token_env: str(held.token)})
    match outcome.end:
        case End.FAILED:
            complain(f"{shown(command[0])} cannot be run: {outcome.why}")
            return outcome.code
        case End.UNGUARDED:
            complain(f"{outcome.why}, so it was ended")
            return FAILURE
        case End.LOST:
            complain(f"{_why_lost(held, what, outcome.why)}; the command was ended")
            return LOST
    if not held.remaining:
        why = _why_lost(held, what, "")
        complain(f"{why}, before the command ended with exit code {outcome.code}")
        return LOST
    return outcome.code


async def hold(held: Held, what: str) -> int:
    """Hold it until a signal comes, standard input ends, or it is lost; return the exit code."""
    ended = asyncio.Event()
    losing = asyncio.ensure_future(held.lost.wait())
    ending = asyncio.ensure_future(ended.wait())
    try:
        with _listening_for_end(ended):
            await asyncio.wait([losing, ending], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if SIGNALS.heard is None:
            raise
    finally:
        losing.cancel()
        ending.cancel()
    if held.remaining:
        return OK
    complain(_why_lost(held, what, ""))
    return LOST


def _why_lost(held: Held, what: str, why: str) -> str:
    try:
        held.check()
    except LeaseLost as error:
        return said(error)
    return f"{what} is lost: {why or 'it was not renewed in time'}"


@contextmanager
def _listening_for_end(ended: asyncio.Event) -> Iterator[None]:
    """Have it said when standard input ends, if that is a terminal, a pipe or a socket.

    Others, such as /dev/null, have their end from the beginning.
    """
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not _may_read():
            loop.remove_reader(_STDIN)
        elif not _has_more():
            loop.remove_reader(_STDIN)
            ended.set()

    try:
        mode = os.fstat(_STDIN).st_mode
    except OSError:
        mode = 0
    is_watched = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(_STDIN)
    if not is_watched:
        yield
        return
    loop.add_reader(_STDIN, read)
    try:
        yield
    finally:
        loop.remove_reader(_STDIN)


def _may_read() -> bool:
    """Whether reading does not stop us: in the background of a terminal it would."""
    with contextlib.suppress(OSError):
        return not os.isatty(_STDIN) or os.tcgetpgrp(_STDIN) == os.getpgrp()
    return False


def _has_more() -> bool:
    try:
        return bool(os.read(_STDIN, MAX_READ_BYTES))
    except BlockingIOError:
        return True
    except OSError:
        return False
