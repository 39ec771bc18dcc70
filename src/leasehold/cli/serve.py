"""`leasehold serve`: run the server."""

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leasehold.cli.reporting import INTERRUPTED, complain, say
from leasehold.errors import StorageError
from leasehold.rpc.addresses import UnixAddress, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.server.app import LeaseholdServer

DEFAULT_DIRECTORY: Final = Path("leasehold.data")
DEFAULT_LISTEN: Final = "127.0.0.1:2379"
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

_EPILOG: Final = """\
example:
  leasehold serve --data-dir ./leasehold.data --listen 127.0.0.1:2379
  etcdctl --endpoints 127.0.0.1:2379 put greeting hello
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `serve` to the commands."""
    parser = commands.add_parser(
        "serve",
        help="run the server",
        description="Serve keys and leases to clients of etcd v3, and keep them on disk.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data-dir",
        type=directory,
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help=f"where everything is kept; made if it is not there (default: ./{DEFAULT_DIRECTORY})",
    )
    parser.add_argument(
        "--listen",
        type=address,
        default=address(DEFAULT_LISTEN),
        metavar="HOST:PORT",
        help=f"where to listen; port 0 takes a free one (default: {DEFAULT_LISTEN})",
    )
    parser.set_defaults(run=run)


def directory(text: str) -> Path:
    """Read the name of a directory."""
    if not text:
        raise argparse.ArgumentTypeError("no directory was named; such as ./leasehold.data")
    return Path(text)


def address(text: str) -> tuple[str, int]:
    """Read HOST:PORT; an IPv6 host is in brackets."""
    try:
        read = parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if isinstance(read, UnixAddress) or read.is_tls:
        raise argparse.ArgumentTypeError(
            f"{text!r} is for later: this version serves HOST:PORT without TLS, such as "
            f"{DEFAULT_LISTEN}"
        )
    if not _is_loopback(read.host):
        raise argparse.ArgumentTypeError(
            f"{read.host!r} is not a loopback address: this version has no TLS and no passwords, "
            "so it serves this machine only, such as 127.0.0.1 or [::1]"
        )
    return read.host, read.port


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop; 0 if that went well."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    host, port = arguments.listen
    try:
        return _run_on_best_loop(_serve(arguments.data_dir, host, port))
    except StorageError as error:
        return complain(str(error))
    except KeyboardInterrupt:  # while it was starting, or for the second time: nothing is lost
        return INTERRUPTED


def _run_on_best_loop(main: "Coroutine[object, object, int]") -> int:
    try:
        import uvloop  # noqa: PLC0415  it is not there on every platform
    except ImportError:
        make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    else:
        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(main)


async def _serve(directory: Path, host: str, port: int) -> int:
    from leasehold.server.app import LeaseholdServer, tune_interpreter  # noqa: PLC0415  it is long

    server = LeaseholdServer(directory)
    async with server:
        try:
            bound = await server.start(host, port)
        except OSError as error:
            return complain(error.strerror or str(error))
        tune_interpreter()
        _stop_on_signals(server)
        _greet(directory, host, bound)
        await server.stopped.wait()
    if server.failure is not None:
        return complain(f"stopped, because a commit failed: {server.failure}")
    return 0


def _stop_on_signals(server: "LeaseholdServer") -> None:
    """Stop in good order at the first signal, and at once at the second."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.stopped.set()
        for number in _STOPPING:
            loop.remove_signal_handler(number)

    for number in _STOPPING:
        loop.add_signal_handler(number, stop)


def _greet(directory: Path, host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    say(f"leasehold serves etcd v3 on {shown}:{port}, from {directory} (one disk, no replicas)")
    say(f"try it: etcdctl --endpoints {shown}:{port} put greeting hello")
