"""Commands that talk to a server: where it is, a client for a while, and how that may end."""

import argparse
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli import words
from leasehold.cli.exits import DENIED, FAILURE, LOST, NO_SERVER, NOT_THERE, OK, USAGE_ERROR
from leasehold.cli.printing import OutputFailedError, shown_octets
from leasehold.cli.reporting import complain
from leasehold.cli.signals import SIGNALS, exit_code
from leasehold.rpc.addresses import Address

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.engine.remote.engine import RemoteEngine
    from leasehold.engine.remote.lease_service import LeaseService

VARIABLE: Final = "LEASEHOLD_ENDPOINTS"
DEFAULT: Final = "127.0.0.1:2379"
TIMEOUT_S: Final = 10.0

_ADVICE: Final = f"`leasehold serve` starts a server; --endpoint or {VARIABLE} says where it is"

Work = Callable[["Client"], Awaitable[int]]


class RefusedError(Exception):
    """What was asked for cannot be had here; the text says why. Nothing was done."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add what says where the server is, and `--json`."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--endpoint",
        type=words.endpoints,
        action="extend",
        metavar="ADDRESS",
        help=f"where it is; several of one cluster with commas, or one by one (default: "
        f"${VARIABLE}, or {DEFAULT})",
    )
    group.add_argument(
        "--cacert", type=words.file, metavar="FILE", help="who may sign the server's certificate"
    )
    group.add_argument("--cert", type=words.file, metavar="FILE", help="the client's certificate")
    group.add_argument("--key", type=words.file, metavar="FILE", help="the key that belongs to it")
    group.add_argument(
        "--timeout",
        type=words.term_s,
        default=TIMEOUT_S,
        metavar="TIME",
        help="how long a call may take (default: 10s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


class Place:
    """Where the server is, and how to speak to it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Read the flags and the variable; `ValueError` or `OSError` if one is wrong."""
        self.endpoints = _endpoints(arguments.endpoint, os.environ.get(VARIABLE, ""))
        self.tls = _tls(arguments)
        self.timeout_s: float = arguments.timeout


def _endpoints(given: list[Address] | None, variable: str) -> list[Address]:
    if given:
        return given
    if not variable.strip():
        return words.addresses(DEFAULT)
    try:
        return words.addresses(variable)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if (arguments.cacert, arguments.cert, arguments.key) == (None, None, None):
        return None
    from leasehold.rpc.tls import client_tls  # noqa: PLC0415

    return client_tls(arguments.cacert, arguments.cert, arguments.key)


def with_client(arguments: argparse.Namespace, work: Work, **options: Any) -> int:
    """Connect, do something, and let go; return the exit code. What goes wrong is a line.

    `options` are those of `leasehold.connect` beside where the server is. A signal cancels the
    work, wherever it is. Work that goes on until then may catch that, and return how it has ended.
    """
    from leasehold.client.connecting import connect  # noqa: PLC0415  it is long

    async def main(place: Place) -> int:
        pending = connect(place.endpoints, tls=place.tls, timeout=place.timeout_s, **options)
        async with pending as client:
            return await work(client)

    return with_place(arguments, main)


def with_place(arguments: argparse.Namespace, main: Callable[[Place], Awaitable[int]]) -> int:
    """Do something with a server, or several; return the exit code."""
    import asyncio  # noqa: PLC0415  it is long
    import logging  # noqa: PLC0415

    logging.getLogger("leasehold").addHandler(logging.NullHandler())  # what matters is said here
    try:
        place = Place(arguments)
    except ValueError as error:
        return _say(str(error), USAGE_ERROR)
    except OSError as error:
        return _say(f"{error.filename}: {error.strerror or error}", USAGE_ERROR)

    async def run() -> int:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def stop(_: int) -> None:
            loop.call_soon_threadsafe(task.cancel)

        with SIGNALS.telling(stop):
            try:
                return await main(place)
            except asyncio.CancelledError:
                if SIGNALS.heard is None:
                    raise
                return exit_code(SIGNALS.heard)
            except Exception as error:  # noqa: BLE001  whatever it is, it becomes a line
                return told(error)

    with asyncio.Runner() as runner:
        return runner.run(run())


def until_told(work: Work) -> Work:
    """Make work that goes on until a signal comes, which is then a good end."""
    import asyncio  # noqa: PLC0415

    async def run(client: "Client") -> int:
        try:
            return await work(client)
        except asyncio.CancelledError:
            if SIGNALS.heard is None:
                raise
            return OK

    return run


def told(error: Exception) -> int:
    """Say what went wrong; return the exit code."""
    from leasehold import errors  # noqa: PLC0415

    match error:
        case BrokenPipeError():
            raise error
        case errors.ConnectFailed():
            return _say(f"{error}; {_ADVICE}", NO_SERVER)
        case errors.LockDenied():
            return _say(str(error), DENIED)
        case errors.LockLost() | errors.SessionExpired():
            return _say(said(error), LOST)
        case errors.ConnectionLost() | TimeoutError():
            return _say(str(error), NO_SERVER)
        case errors.UnknownLease(lease=int()) | errors.UnknownKey():
            return _say(said(error), NOT_THERE)
        case ValueError() | errors.EmptyKey() | errors.DuplicateKey() | errors.TooManyOperations():
            return _say(said(error), USAGE_ERROR)
        case errors.LeaseholdError() | RefusedError() | OutputFailedError():
            return _say(said(error), FAILURE)
        case OSError():
            return _say(f"{error.filename or 'it'}: {error.strerror or error}", FAILURE)
    return _say(f"this should not happen: {error!r}", FAILURE)


def said(error: BaseException) -> str:
    """Format an error for the terminal, with advice in terms of the command line."""
    from leasehold import errors  # noqa: PLC0415

    match error:
        case errors.UnknownLease(lease=int(lease), reason=errors.EndReason.UNKNOWN):
            return (
                f"lease {words.shown_id(lease)} is not there: it never was, or ended long ago"
                f"{words.other_reading(lease)}"
            )
        case errors.LeaseExists(lease=lease):
            return f"lease {words.shown_id(lease)} is there already: choose another id, or none"
        case errors.UnknownKey(key=key):
            return f"there is no key {shown_octets(key)}, so it has nothing to keep"
        case errors.DuplicateKey(key=key):
            return f"{shown_octets(key)} is changed twice in one transaction: change it once"
    return str(error)


def _say(line: str, code: int) -> int:
    complain(line)
    return code


def remote(client: "Client") -> "RemoteEngine":
    """Give the engine of a client that was connected."""
    from leasehold.engine.remote.engine import RemoteEngine  # noqa: PLC0415

    engine = client.engine
    assert isinstance(engine, RemoteEngine)
    return engine


def lease_service(client: "Client", wanted: str) -> "LeaseService":
    """Give what only a Leasehold server has; refuse clearly what is wanted on an etcd."""
    engine = remote(client)
    service = engine.lease_service
    if service is None:
        raise RefusedError(
            f"{wanted} needs a Leasehold server, and {engine.server} answers here: name another "
            "one with --endpoint, or do without"
        )
    return service


def note(line: str) -> None:
    """Tell a person something that is not the result; scripts read standard output only."""
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
