"""The work of a command that holds a lock or leads: run a command under it, or just hold it."""

import argparse
import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

from leasehold.cli.argument_types import shown_term
from leasehold.cli.connection import Work, error_text, print_note, with_client
from leasehold.cli.lock import GRACE_S
from leasehold.cli.output import print_error
from leasehold.cli.parser import FAILURE, LOST, OK, USAGE_ERROR
from leasehold.cli.settings.error_texts import shown
from leasehold.cli.signals import SIGNALS
from leasehold.cli.supervised_command import CommandEnd, HeldRight, SupervisedCommand
from leasehold.errors import LeaseholdError, LeaseLost
from leasehold.fencing.token import Token

T = TypeVar("T")

NOTE_S: Final = 1.0
"""How long to wait before the holder is printed."""

MAX_READ_BYTES: Final = 4096

TTL_PER_GRACE: Final = 3
"""`--ttl` is at least this many times `--grace`: a command is ended one grace period before the end
of the lease, and while renewals are answered more than that always remains."""

_STDIN: Final = 0


class HeldWithToken(HeldRight, Protocol):
    """Something held: the guard of a lock, or a leadership."""

    @property
    def token(self) -> Token:
        """The fencing token."""

    def check(self) -> None:
        """Raise the reason if it is not valid any more."""


def with_session(arguments: argparse.Namespace, work: Work) -> int:
    """Connect with a session of `--ttl` and run `work`; return the exit code.

    The options are checked first: if `--grace` is too long, nothing is started.
    """
    try:
        arguments.grace = chosen_grace_s(arguments.grace, arguments.ttl)
    except ValueError as error:
        print_error(str(error))
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


async def waiting_for(
    acquire: Coroutine[Any, Any, T],
    describe: Callable[[], Awaitable[str | None]],
    arguments: argparse.Namespace,
) -> T:
    """Await `acquire`. If it takes longer than `NOTE_S`, print the holder once.

    `describe` returns that line, or None if there is no holder.
    """
    noting = asyncio.ensure_future(_note_later(describe))
    if arguments.quiet or arguments.wait == 0:
        noting.cancel()
    try:
        return await acquire
    finally:
        noting.cancel()


async def _note_later(describe: Callable[[], Awaitable[str | None]]) -> None:
    await asyncio.sleep(NOTE_S)
    with contextlib.suppress(LeaseholdError, OSError):  # this line is optional
        if (line := await describe()) is not None:
            print_note(line)


async def run_under(held: HeldWithToken, what: str, arguments: argparse.Namespace) -> int:
    """Run the given command; return the exit code. `what` names what is held."""
    command: list[str] = arguments.command
    supervised = SupervisedCommand(held, command, grace_s=arguments.grace, term_s=arguments.ttl)
    outcome = await supervised.run({arguments.token_env: str(held.token)})
    match outcome.end:
        case CommandEnd.FAILED:
            print_error(f"{shown(command[0])} cannot be run: {outcome.why}")
            return outcome.code
        case CommandEnd.UNGUARDED:
            print_error(f"{outcome.why}, so the command was ended")
            return FAILURE
        case CommandEnd.LOST:
            print_error(f"{_why_lost(held, what, outcome.why)}; the command was ended")
            return LOST
    if not held.remaining:
        why = _why_lost(held, what, "")
        print_error(f"{why}, before the command ended with exit code {outcome.code}")
        return LOST
    return outcome.code


async def hold(held: HeldWithToken, what: str) -> int:
    """Hold it until a signal comes, standard input ends, or it is lost; return the exit code."""
    ended = asyncio.Event()
    losing = asyncio.ensure_future(held.lost.wait())
    ending = asyncio.ensure_future(ended.wait())
    try:
        with listening_for_end(ended):
            await asyncio.wait([losing, ending], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if SIGNALS.received is None:
            raise
    finally:
        losing.cancel()
        ending.cancel()
    if held.remaining:
        return OK
    print_error(_why_lost(held, what, ""))
    return LOST


def _why_lost(held: HeldWithToken, what: str, why: str) -> str:
    try:
        held.check()
    except LeaseLost as error:
        return error_text(error)
    return f"{what} is lost: {why or 'it was not renewed in time'}"


@contextmanager
def listening_for_end(ended: asyncio.Event) -> Iterator[None]:
    """Set `ended` when standard input ends, if that is a terminal, a pipe or a socket.

    Others, such as /dev/null, are at their end from the beginning.
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
    """Whether reading does not stop us: it would in the background of a terminal."""
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
