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

_ADVICE: Final = (
    "start a server with `leasehold serve`, or set the address of another one with --endpoint or "
    f"{VARIABLE}"
)

Work = Callable[["Client"], Awaitable[int]]


class RefusedError(Exception):
    """The server does not support the request; the text says why. Nothing was done."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add what says where the server is, and `--json`."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--endpoint",
        type=words.endpoints,
        action="extend",
        metavar="ADDRESS",
        help="address of the server; several members of one etcd cluster separated by commas; may "
        f"be given several times (default: ${VARIABLE}, or {DEFAULT})",
    )
    group.add_argument(
        "--cacert",
        type=words.file,
        metavar="FILE",
        help="CA certificates that the server's certificate is checked against, in PEM",
    )
    group.add_argument("--cert", type=words.file, metavar="FILE", help="client certificate, in PEM")
    group.add_argument(
        "--key", type=words.file, metavar="FILE", help="key of the client certificate"
    )
    group.add_argument(
        "--timeout",
        type=words.term_s,
        default=TIMEOUT_S,
        metavar="TIME",
        help="time limit of each call (default: 10s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


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
    if (arguments.cert is None) != (arguments.key is None):
        given, missing = ("--cert", "--key") if arguments.key is None else ("--key", "--cert")
        raise ValueError(f"{given} was given without {missing}: give both or neither")
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
        return _say(_of_system(error), USAGE_ERROR)

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
                return told(error, place)

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


def told(error: Exception, place: Place) -> int:
    """Print what went wrong at this server; return the exit code."""
    from leasehold import errors  # noqa: PLC0415

    match error:
        case BrokenPipeError():
            raise error
        case errors.ConnectFailed():
            is_default = place.endpoints == words.addresses(DEFAULT)
            advice = f"; {_ADVICE}" if error.is_refused and is_default else ""
            return _say(f"{error}{advice}", NO_SERVER)
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
            return _say(_of_system(error), FAILURE)
    return _say(f"internal error: {error!r}", FAILURE)


def _of_system(error: OSError) -> str:
    why = error.strerror or str(error)
    return f"{error.filename}: {why}" if error.filename else why


def said(error: BaseException) -> str:
    """Format an error for the terminal, with advice in terms of the command line."""
    from leasehold import errors  # noqa: PLC0415

    match error:
        case errors.UnknownLease(lease=int(lease), reason=errors.EndReason.UNKNOWN):
            return (
                f"lease {words.shown_id(lease)} does not exist: it was never "
                "granted, or it has ended"
                f"{words.other_reading(lease)}"
            )
        case errors.LeaseExists(lease=lease):
            return (
                f"lease {words.shown_id(lease)} exists already: choose "
                "another id, or leave out --id"
            )
        case errors.UnknownKey(key=key):
            return f"key {shown_octets(key)} does not exist, so it has no lease or value to keep"
        case errors.DuplicateKey(key=key):
            return f"key {shown_octets(key)} is changed twice in one transaction: change it once"
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
    """Return the service that only a Leasehold server has; `RefusedError` on an etcd."""
    engine = remote(client)
    service = engine.lease_service
    if service is None:
        raise RefusedError(
            f"{wanted} needs a Leasehold server, but this one is {engine.server}: use another "
            f"--endpoint, or leave out {wanted}"
        )
    return service


def note(line: str) -> None:
    """Print a remark to standard error; results go to standard output."""
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
