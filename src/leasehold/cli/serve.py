"""`leasehold serve`: run the server."""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import ssl
import sys
from typing import TYPE_CHECKING, Final

from leasehold.cli.exits import USAGE_ERROR
from leasehold.cli.reporting import complain
from leasehold.cli.settings.flags import add_flags, flags_of
from leasehold.cli.settings.reading import Reading, read_settings
from leasehold.cli.settings.tls import read_tls
from leasehold.cli.signals import SIGNALS, Ended, exit_code
from leasehold.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.cli.voice import Voice
    from leasehold.server.settings import Settings

logger = logging.getLogger(__name__)

_DESCRIPTION: Final = """\
Serve keys and leases to clients of etcd v3, and store them on disk.

Each option can also be set by an environment variable, such as
LEASEHOLD_DATA_DIR, and in a TOML file, such as data-dir = "./leasehold.data".
Flags override variables, and variables override the file. `leasehold config`
shows the effective settings and their sources.
"""

_EPILOG: Final = """\
examples:
  leasehold serve --data-dir ./leasehold.data --listen 127.0.0.1:2379
  leasehold serve --data-dir memory: --listen unix:./leasehold.sock
  leasehold serve --listen 0.0.0.0:2379 --cert server.pem --key server-key.pem

then:
  etcdctl --endpoints 127.0.0.1:2379 put greeting hello
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `serve` to the commands."""
    parser = commands.add_parser(
        "serve",
        help="run the server",
        usage="%(prog)s [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop; 0 if that went well, 2 if settings are wrong, else 1."""
    reading = read_settings(flags_of(arguments), os.environ)
    tls = read_tls(reading)
    for mistake in reading.mistakes:
        complain(mistake.text)
    return USAGE_ERROR if reading.mistakes else _run(reading, tls)


def _run(reading: Reading, tls: ssl.SSLContext | None) -> int:
    from leasehold.cli.logs import set_up_logs  # noqa: PLC0415  what is wrong is said sooner
    from leasehold.cli.voice import Voice  # noqa: PLC0415

    settings = reading.settings
    voice = Voice(settings.log_format)
    with contextlib.closing(set_up_logs(settings.log_level, settings.log_format)):
        for warning in reading.warnings:
            logger.warning(warning)
        try:
            return _run_on_best_loop(_serve(settings, tls, voice))
        except StorageError as error:
            return voice.complain(str(error))
        except Exception:
            logger.critical("the server has failed", exc_info=sys.exc_info())
            return 1


def _run_on_best_loop(main: "Coroutine[object, object, int]") -> int:
    try:
        import uvloop  # noqa: PLC0415  it is not there on every platform
    except ImportError:
        make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    else:
        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(main)


async def _serve(settings: "Settings", tls: ssl.SSLContext | None, voice: "Voice") -> int:
    from leasehold.cli.certificate import names_in  # noqa: PLC0415
    from leasehold.cli.certificate_reload import reload_changed  # noqa: PLC0415
    from leasehold.cli.voice import taken  # noqa: PLC0415
    from leasehold.rpc.admission import (  # noqa: PLC0415
        MAX_CONNECTIONS,
        connections_for,
        raise_file_limit,
    )
    from leasehold.server.app import LeaseholdServer, tune_interpreter  # noqa: PLC0415  it is long

    files = raise_file_limit()
    if (connections := connections_for(files)) < MAX_CONNECTIONS:
        logger.debug("at most %d connections: this process may open %d files", connections, files)
    server: LeaseholdServer | None = None
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if server is None:
            raise Ended(number)  # the journal is being read, which may take long
        loop.call_soon_threadsafe(server.stopped.set)

    gc.disable()  # until it is tuned: all that a start makes stays
    with SIGNALS.telling(stop):
        server = LeaseholdServer(settings)
        async with server:
            try:
                bound = await server.start_on(settings.listen, tls)
            except OSError as error:
                return voice.complain(taken(error, settings.listen))
            tune_interpreter()
            certified = names_in(settings.tls.cert, tls) if settings.tls and tls else []
            if (early := SIGNALS.heard) is None:
                voice.greet(settings, bound, server.runtime, certified)
            if settings.tls is None:
                await server.stopped.wait()
            else:
                reloading = loop.create_task(reload_changed(settings.tls, server.replace_tls))
                await server.stopped.wait()
                reloading.cancel()
    if server.failure is not None:
        return voice.complain(f"stopped, because a commit failed: {server.failure}")
    if not server.is_closed:
        return voice.complain("stopped, but the last changes were not written to disk")
    if early is not None:  # nobody was told that it serves
        return exit_code(early)
    voice.part(settings)
    return 0
