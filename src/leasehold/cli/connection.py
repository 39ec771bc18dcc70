"""Commands that connect to a server: its address, a client, and exit codes for errors."""

import argparse
import os
import shlex
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from leasehold.basics.addresses import Address
from leasehold.cli import argument_types
from leasehold.cli.output import OutputFailedError, print_error, shown_bytes
from leasehold.cli.parser import DENIED, FAILURE, LOST, NO_SERVER, NOT_THERE, OK, USAGE_ERROR
from leasehold.cli.signals import SIGNALS, exit_code, wake_on_signals

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.engine.remote.leasehold_leases import LeaseholdLeases
    from leasehold.engine.remote.remote_engine import RemoteEngine

VARIABLE: Final = "LEASEHOLD_ENDPOINTS"
DEFAULT: Final = "127.0.0.1:2379"
TIMEOUT_S: Final = 10.0

_FILE: Final = argument_types.path("file", "./ca.pem")

_ADVICE: Final = (
    "start a server with `leasehold serve`, or set the address of another one with --endpoint or "
    f"{VARIABLE}"
)

_OBJECTS: Final = {
    "renewal": "renewal set",
    "mailboxes": "mailbox",
    "discovery": "discovery registration",
}
"""The objects of services, by the name of the service."""

Work = Callable[["Client"], Awaitable[int]]


class RefusedError(Exception):
    """The server does not support the request; the text is the reason. Nothing was done."""


def add_connection(parser: argparse.ArgumentParser, *, has_json: bool = True) -> None:
    """Add the options for the server's address and TLS, and `--json`."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--endpoint",
        type=argument_types.endpoints,
        action="extend",
        metavar="ADDRESS",
        help="address of the server; several members of one etcd cluster separated by commas; may "
        f"be given several times (default: ${VARIABLE}, or {DEFAULT})",
    )
    add_tls(group)
    group.add_argument(
        "--timeout",
        type=argument_types.term_s,
        default=TIMEOUT_S,
        metavar="TIME",
        help="time limit of each call (default: 10s)",
    )
    if has_json:
        parser.add_argument("--json", action="store_true", help="print JSON")


def add_tls(group: "argparse._ArgumentGroup") -> None:
    """Add the options for TLS."""
    group.add_argument(
        "--cacert",
        type=_FILE,
        metavar="FILE",
        help="CA certificates that the server's certificate is checked against, in PEM",
    )
    group.add_argument("--cert", type=_FILE, metavar="FILE", help="client certificate, in PEM")
    group.add_argument("--key", type=_FILE, metavar="FILE", help="key of the client certificate")


def finish(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    *,
    has_json: bool = True,
) -> None:
    """Add the options of all client commands, and the function to run."""
    add_connection(parser, has_json=has_json)
    parser.set_defaults(run=run)


def finish_with_client(
    parser: argparse.ArgumentParser,
    work: Callable[["Client", argparse.Namespace], Awaitable[int]],
) -> None:
    """Add the options of all client commands, and the work to do once there is a client."""
    finish(parser, lambda given: with_client(given, lambda client: work(client, given)))


class ConnectOptions:
    """The server's address and how to connect to it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Read the flags and the variable. Raises `ValueError` or `OSError` if one is wrong."""
        self.endpoints = _endpoints(arguments.endpoint, os.environ.get(VARIABLE, ""))
        self.tls = _tls(arguments)
        self.timeout_s: float = arguments.timeout


def _endpoints(given: list[Address] | None, variable: str) -> list[Address]:
    if given:
        return given
    if not variable.strip():
        return argument_types.addresses(DEFAULT)
    try:
        return argument_types.addresses(variable)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if (arguments.cacert, arguments.cert, arguments.key) == (None, None, None):
        return None
    if (arguments.cert is None) != (arguments.key is None):
        given, missing = ("--cert", "--key") if arguments.key is None else ("--key", "--cert")
        raise ValueError(f"{given} was given without {missing}: give both or neither")
    from leasehold.basics.tls import client_tls

    return client_tls(arguments.cacert, arguments.cert, arguments.key)


def with_client(arguments: argparse.Namespace, work: Work, **options: Any) -> int:
    """Connect, do the work and disconnect; return the exit code. An error is printed as one line.

    `options` are options of `leasehold.connect` other than the server's address. A signal cancels
    the work. Work that runs until a signal may catch the cancellation and return an exit code.
    """
    from leasehold.client.connecting import connect

    async def main(server: ConnectOptions) -> int:
        pending = connect(server.endpoints, tls=server.tls, timeout=server.timeout_s, **options)
        async with pending as client:
            return await work(client)

    return with_connect_options(arguments, main)


def with_connect_options(
    arguments: argparse.Namespace, main: Callable[[ConnectOptions], Awaitable[int]]
) -> int:
    """Run `main` with the server's address; return the exit code."""
    import asyncio
    import logging

    logging.getLogger("leasehold").addHandler(logging.NullHandler())  # errors are printed here
    try:
        server = ConnectOptions(arguments)
    except ValueError as error:
        return _print(str(error), USAGE_ERROR)
    except OSError as error:
        return _print(_of_system(error), USAGE_ERROR)

    async def run() -> int:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def stop(_: int) -> None:
            loop.call_soon_threadsafe(task.cancel)

        wake_on_signals(loop)
        with SIGNALS.calling(stop):
            try:
                return await main(server)
            except asyncio.CancelledError:
                if SIGNALS.received is None:
                    raise
                return exit_code(SIGNALS.received)
            except Exception as error:  # noqa: BLE001  every failure becomes one line
                return print_failure(error, server)

    with asyncio.Runner() as runner:
        return runner.run(run())


def until_signal(work: Work) -> Work:
    """Wrap work that runs until a signal; the signal then counts as success."""
    import asyncio

    async def run(client: "Client") -> int:
        try:
            return await work(client)
        except asyncio.CancelledError:
            if SIGNALS.received is None:
                raise
            return OK

    return run


def showing_warnings(work: Work) -> Work:
    """Wrap work that outlasts a lost connection, so that the warnings of the client are printed.

    Otherwise a lost connection would look like inactivity.
    """
    import logging

    class Printer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with suppress(OSError, ValueError):  # standard error may be a pipe that was closed
                print_error(record.getMessage())

    async def run(client: "Client") -> int:
        logger, printer = logging.getLogger("leasehold"), Printer(logging.WARNING)
        logger.addHandler(printer)
        try:
            return await work(client)
        finally:
            logger.removeHandler(printer)

    return run


def print_failure(error: Exception, server: ConnectOptions) -> int:
    """Print an error of this server; return the exit code."""
    from leasehold import errors

    match error:
        case BrokenPipeError():
            raise error
        case errors.ConnectFailed():
            is_default = server.endpoints == argument_types.addresses(DEFAULT)
            advice = f"; {_ADVICE}" if error.is_refused and is_default else ""
            return _print(f"{error}{advice}", NO_SERVER)
        case errors.LockDenied() | errors.FileAlreadyOpen() | errors.RecoveryInProgress():
            return _print(error_text(error), DENIED)
        case errors.LockLost() | errors.SessionExpired() | errors.LeaseExpired():
            return _print(error_text(error), LOST)
        case errors.ConnectionLost() | TimeoutError():
            return _print(str(error), NO_SERVER)
        case (
            errors.UnknownLease(lease=int())
            | errors.UnknownKey()
            | errors.NoSuchObject()
            | errors.FileNotFound()
        ):
            return _print(error_text(error), NOT_THERE)
        case ValueError() | errors.EmptyKey() | errors.DuplicateKey() | errors.TooManyOperations():
            return _print(error_text(error), USAGE_ERROR)
        case errors.LeaseholdError() | RefusedError() | OutputFailedError():
            return _print(error_text(error), FAILURE)
        case OSError():
            return _print(_of_system(error), FAILURE)
    return _print(f"internal error: {error!r}", FAILURE)


def _of_system(error: OSError) -> str:
    why = error.strerror or str(error)
    return f"{error.filename}: {why}" if error.filename else why


def error_text(error: BaseException) -> str:
    """Format an error for the terminal, with advice in terms of the command line."""
    from leasehold import errors

    match error:
        case errors.UnknownLease(lease=int(lease), reason=errors.EndReason.UNKNOWN):
            return (
                f"lease {argument_types.shown_id(lease)} does not exist: it was never "
                "granted, or it has ended"
                f"{argument_types.other_reading(lease)}"
            )
        case errors.ShardLost():
            return (
                "the server does not serve this at present: it is being started or stopped, or "
                f"another server takes over ({error})"
            )
        case errors.CallRefused():
            return str(error).removeprefix("INVALID_ARGUMENT: ")
        case errors.LeaseExists(lease=lease):
            return (
                f"lease {argument_types.shown_id(lease)} already exists: choose another id, or "
                "omit --id"
            )
        case errors.NoSuchObject(service=service, id=name):
            what = _OBJECTS.get(service, f"object of {service}")
            return f"{what} {name} does not exist: it was never created, or it has ended"
        case errors.UnknownKey(key=key):
            return f"key {shown_bytes(key)} does not exist, so there is no lease to keep"
        case errors.DuplicateKey(key=key):
            return f"key {shown_bytes(key)} is changed twice in one transaction: change it once"
        case errors.FileExists(path=path, why=""):
            return f"{path!r} exists already: use another path, or --overwrite"
        case errors.FileAlreadyOpen(path=path):
            return (
                f"{error}: it can be taken over when the writer has not renewed its lease within "
                f"the soft limit, or closed now with `leasehold files recover {shlex.quote(path)}`"
            )
        case errors.RecoveryInProgress(path=path):
            return f"{error}; `leasehold files recover {shlex.quote(path)}` recovers it now"
        case errors.DirectoryNotEmpty(path=path, why=""):
            return f"{path!r} is a directory that is not empty: use -r to delete it with all below"
    return str(error)


def _print(line: str, code: int) -> int:
    print_error(line)
    return code


def remote(client: "Client") -> "RemoteEngine":
    """Return the engine of a connected client."""
    from leasehold.engine.remote.remote_engine import RemoteEngine

    engine = client.engine
    assert isinstance(engine, RemoteEngine)
    return engine


def lease_service(client: "Client", wanted: str) -> "LeaseholdLeases":
    """Return the service that only Leasehold servers have. Raises `RefusedError` on an etcd."""
    engine = remote(client)
    service = engine.lease_service
    if service is None:
        raise RefusedError(
            f"{wanted} requires a Leasehold server, but this is {engine.server}: use another "
            f"--endpoint, or omit {wanted}"
        )
    return service


def require_leasehold(client: "Client", wanted: str) -> None:
    """Raise `RefusedError` if the server is an etcd, which does not have a service."""
    server = remote(client).server
    if not server.is_leasehold:
        raise RefusedError(
            f"{wanted} requires a Leasehold server, but this is {server}: use another --endpoint"
        )


def print_note(line: str) -> None:
    """Print a remark to standard error; results go to standard output."""
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
