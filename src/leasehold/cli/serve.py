"""`leasehold serve`: run the server; `leasehold config`: print the settings that it would use.

The output of the server is plain lines for people, or log lines.
"""

import argparse
import asyncio
import contextlib
import errno
import gc
import logging
import os
import shlex
import signal
import ssl
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from leasehold.basics.addresses import Address, TcpAddress, is_local
from leasehold.cli.output import count, print_error, print_line
from leasehold.cli.parser import FAILURE, USAGE_ERROR, Commands
from leasehold.cli.settings.given_values import Mistake
from leasehold.cli.settings.options import BY_NAME, CREDENTIALS, OPTIONS
from leasehold.cli.settings.sources import OF_OWN_DATA, Reading, add_flags, flags_of, read_settings
from leasehold.cli.settings.toml_file import credential_lines, toml_of
from leasehold.cli.settings.value_types import shown_terms
from leasehold.cli.signals import SIGNALS, StoppedBySignal, exit_code, wake_on_signals
from leasehold.cli.tls_files import check_remote_tls, names_in, read_tls, reload_changed
from leasehold.errors import Closed, ConnectFailed, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.server.cluster_server import ClusterServer
    from leasehold.server.settings import Settings
    from leasehold.store.runtime import Runtime

logger = logging.getLogger("leasehold.serve")

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
  leasehold serve --engine etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379

then:
  etcdctl --endpoints 127.0.0.1:2379 put greeting hello
"""

_ADVICE: Final = {
    errno.EADDRINUSE: "stop the process that uses it, or choose another address "
    "with {option}, such as {free}",
    errno.EADDRNOTAVAIL: "this machine does not have that address; choose another with {option}",
    errno.EACCES: "choose a port of at least 1024 with {option}, or a writable path",
}
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  not bound here


_CONFIG_DESCRIPTION: Final = """\
Print the settings that `leasehold serve` would use with the same flags,
variables and file, each with its source. The output is a valid TOML file.

If settings are wrong, all errors are printed, and the exit code is 1. No server
is started, and no data is read.
"""

_CONFIG_EPILOG: Final = """\
examples:
  leasehold config
  leasehold config --config ./leasehold.toml --quota 4GiB
  leasehold config > new.toml

Write the output to a new file and then rename it: the shell empties the file
after > before the command reads its settings from it.
"""


def add_command(commands: Commands) -> None:
    """Add `serve` to the commands."""
    _add(commands, "serve", "run the server", run, _DESCRIPTION, _EPILOG)


def add_config(commands: Commands) -> None:
    """Add `config` to the commands."""
    summary = "show the effective settings and their sources"
    _add(commands, "config", summary, run_config, _CONFIG_DESCRIPTION, _CONFIG_EPILOG)


def _add(
    commands: Commands,
    name: str,
    summary: str,
    run: "Callable[[argparse.Namespace], int]",
    description: str,
    epilog: str,
) -> None:
    parser = commands.add_parser(
        name, help=summary, usage="%(prog)s [options]", description=description, epilog=epilog
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; return 0 on success, 2 for invalid settings, else 1."""
    reading = read_settings(flags_of(arguments), os.environ)
    tls = read_tls(reading)
    check_remote_tls(reading)
    _check_extras(reading)
    for mistake in reading.mistakes:
        print_error(mistake.text)
    return USAGE_ERROR if reading.mistakes else _run(reading, tls)


def _check_extras(reading: Reading) -> None:
    """Record a mistake for an option that needs a package which is not installed."""
    given = reading.values["dns"]
    if given.value and find_spec("dns") is None:
        why = "dns requires the package dnspython: install it with pip install 'leasehold[dns]'"
        reading.mistakes.append(Mistake(f"{given.where}: {why}", "dns"))


def _run(reading: Reading, tls: ssl.SSLContext | None) -> int:
    from leasehold.cli.logs import set_up_logs

    settings = reading.settings
    output = ServerOutput(settings.log_format)
    with contextlib.closing(set_up_logs(settings.log_level, settings.log_format)):
        for warning in reading.warnings:
            logger.warning(warning)
        try:
            return _run_on_best_loop(_serve(settings, tls, output))
        except StorageError as error:
            return output.error(str(error))
        except Exception:
            logger.critical("the server has failed", exc_info=sys.exc_info())
            return 1


def _run_on_best_loop(main: "Coroutine[object, object, int]") -> int:
    try:
        import uvloop
    except ImportError:
        make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    else:
        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(main)


async def _serve(settings: "Settings", tls: ssl.SSLContext | None, output: "ServerOutput") -> int:
    from leasehold.server.app import LeaseholdServer, tune_interpreter
    from leasehold.server.standard_services import DnsAddressError
    from leasehold.serving.admission import (
        MAX_CONNECTIONS,
        connections_for,
        raise_file_limit,
    )

    files = raise_file_limit()
    if (connections := connections_for(files)) < MAX_CONNECTIONS:
        logger.debug("at most %d connections: this process may open %d files", connections, files)
    server: LeaseholdServer | ClusterServer | None = None
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if server is None:
            raise StoppedBySignal(number)  # the journal is being read, which may take long
        loop.call_soon_threadsafe(server.stopped.set)

    gc.disable()  # until it is tuned: objects made at start-up stay
    wake_on_signals(loop)
    with SIGNALS.calling(stop):
        server = LeaseholdServer(settings) if settings.engine is None else _on_cluster(settings)
        async with server:
            try:
                bound = await server.start_on(settings.listen, tls)
            except ConnectFailed as error:
                return output.error(f"the server has not started: {error}")
            except Closed:
                return exit_code(SIGNALS.received or signal.SIGTERM)
            except DnsAddressError as error:
                return output.error(taken(error, [settings.services.dns], "--dns"))
            except OSError as error:
                return output.error(taken(error, settings.listen))
            tune_interpreter()
            certified = names_in(settings.tls.cert, tls) if settings.tls and tls else []
            if (early := SIGNALS.received) is None:
                runtime = getattr(server, "runtime", None)  # one on a cluster has none
                output.started(settings, bound, runtime, certified)
            if settings.tls is None:
                await server.stopped.wait()
            else:
                reloading = loop.create_task(reload_changed(settings.tls, server.replace_tls))
                await server.stopped.wait()
                reloading.cancel()
    if server.failure is not None:
        cause = "the cluster is another one" if settings.engine else "a commit failed"
        return output.error(f"stopped, because {cause}: {server.failure}")
    if not server.is_closed:
        return output.error("stopped, but the last changes were not written to disk")
    if early is not None:  # the server was not announced yet
        return exit_code(early)
    output.stopped(settings)
    return 0


def _on_cluster(settings: "Settings") -> "ClusterServer":
    from leasehold.server.cluster_server import ClusterServer

    return ClusterServer(settings)


# Output.


class ServerOutput:
    """Prints in the format of the logs: plain lines or log records."""

    def __init__(self, log_format: str) -> None:
        self._is_for_machines = log_format == "json"

    def line(self, line: str, **fields: Any) -> None:
        """Print a line; log records get the fields as well. Write errors are ignored."""
        if self._is_for_machines:
            from leasehold.cli.logs import FIELDS

            logger.info(line, extra={FIELDS: fields})
        elif sys.stdout is not None:
            try:
                print_line(line)
            except (OSError, ValueError):
                _discard_output()

    def error(self, line: str) -> int:
        """Print an error after the log lines before it; return the exit code."""
        if self._is_for_machines:
            logger.error(line)
            return FAILURE
        for handler in logging.getLogger().handlers:
            handler.flush()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            print_error(line)
        return FAILURE

    # Start.

    def started(
        self,
        settings: "Settings",
        bound: Sequence[Address],
        runtime: "Runtime | None",
        certified: Sequence[str] = (),
    ) -> None:
        """Print the addresses, what was recovered, and an example command.

        `certified` are the host names in the certificate.
        """
        shown = [_shown(each, settings) for each in bound]
        directory = settings.directory
        kept = "nothing is stored on disk" if directory is None else "one disk, no replicas"
        if settings.engine is not None:
            engine = BY_NAME["engine"].kind.show(settings.engine.endpoints)
            self.line(
                f"leasehold serves leasehold.v1 on {_and(shown)}, from {engine} (an etcd cluster)",
                listen=shown,
                engine=engine,
            )
        else:
            self.line(
                f"leasehold serves etcd v3 on {_and(shown)}, from {directory or 'memory'} ({kept})",
                listen=shown,
                data_dir=None if directory is None else str(directory),
            )
        if runtime is not None and runtime.journal.was_left_open:
            self._recovered(settings, runtime)
        for each in bound:
            if settings.tls is None and not is_local(each):
                logger.warning(
                    "%s has no TLS: every client that can connect can read and change all data",
                    each,
                )
        self.line(f"try it: {try_it(settings, bound, certified)}")

    def _recovered(self, settings: "Settings", runtime: "Runtime") -> None:
        store = runtime.store
        revision, keys, leases = store.revision, len(store.keyspace), len(store.leases)
        self.line(
            f"{settings.directory} was not closed cleanly; recovered revision {revision}, "
            f"{count(keys, 'key')}, {count(leases, 'lease')}",
            revision=revision,
            keys=keys,
            leases=leases,
        )

    # Stop.

    def stopped(self, settings: "Settings") -> None:
        """Print that the server has stopped cleanly."""
        kept = "nothing was stored" if settings.directory is None else "everything is on disk"
        if settings.engine is not None:
            kept = "everything is in the cluster"
        self.line(f"leasehold has stopped; {kept}")


def _discard_output() -> None:
    """Discard unwritten output, so that nothing is written again at exit."""
    with contextlib.suppress(OSError, ValueError):
        number = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _shown(address: Address, settings: "Settings") -> str:
    if settings.tls is None or not isinstance(address, TcpAddress):
        return str(address)
    return str(TcpAddress(address.host, address.port, is_tls=True))


def _and(shown: Sequence[str]) -> str:
    *others, last = shown
    return f"{', '.join(others)} and {last}" if others else last


def try_it(settings: "Settings", bound: Sequence[Address], certified: Sequence[str] = ()) -> str:
    """Return an example command; with TLS, for a host name in the certificate."""
    address = next((each for each in bound if isinstance(each, TcpAddress)), bound[0])
    if settings.engine is not None:
        words = ["leasehold", "status", "--endpoint"]
    else:
        words = ["etcdctl", "--endpoints"]
    if isinstance(address, TcpAddress):
        words.append(_shown(TcpAddress(_host(address, certified), address.port), settings))
    else:
        words.append(f"unix://{address.path}")
    if settings.tls is not None:
        words += ["--cacert", str(settings.tls.cert)]  # Go treats it as its own authority
        if settings.tls.client_ca is not None:
            words += ["--cert", "CLIENT.pem", "--key", "CLIENT-KEY.pem"]
    return shlex.join(words if settings.engine else [*words, "put", "greeting", "hello"])


def _host(address: TcpAddress, certified: Sequence[str]) -> str:
    host = _EVERYWHERE.get(address.host, address.host)
    if not certified or host in certified:
        return host
    for name in ("localhost", *certified):
        if name in certified and "*" not in name:
            return name
    return host


def taken(error: OSError, listen: Sequence[Address | None], option: str = "--listen") -> str:
    """Explain why an address of an option could not be bound, and how to fix it."""
    hosts = [each.host for each in listen if isinstance(each, TcpAddress)] or ["127.0.0.1"]
    free = TcpAddress(hosts[0], 0)
    advice = _ADVICE.get(error.errno or 0, "choose another address with {option}")
    return f"{error.strerror or error}: {advice.format(free=free, option=option)}"


# The effective settings.


def run_config(arguments: argparse.Namespace) -> int:
    """Print the settings; return 0 if all are valid."""
    reading = read_settings(flags_of(arguments), os.environ)
    read_tls(reading)
    check_remote_tls(reading)
    _check_extras(reading)
    for line in (*reading.warnings, *(mistake.text for mistake in reading.mistakes)):
        print_error(line)
    if reading.mistakes:
        return FAILURE
    print_line("\n".join(_config_lines(reading)))
    return 0


def _config_lines(reading: Reading) -> list[str]:
    rows = [
        _config_row(reading, name)
        for name in (option.name for option in OPTIONS)
        if name != "policy"
    ]
    policies = reading.values["policy"]
    for name, policy in policies.value:
        rows += [("", ""), (f'[policy."{name}"]', policies.where)]
        rows += [(f'{key} = "{term}"', "") for key, term in shown_terms(policy).items()]
    credentials = reading.values[CREDENTIALS.name]
    for name, found in credentials.value:
        head, *lines = credential_lines(name, found)
        rows += [("", ""), (head, credentials.where), *((line, "") for line in lines)]
    width = max(len(text) for text, _ in rows)
    return [f"{text:<{width}}  # {where}" if where else text for text, where in rows]


def _config_row(reading: Reading, name: str) -> tuple[str, str]:
    option = next(option for option in OPTIONS if option.name == name)
    given: Any = reading.values[name]
    if given.value in (None, ()) and not option.has_default:
        return f"# {name}", "not set"
    if name in OF_OWN_DATA and reading.values["engine"].value:
        return f"# {name}", "not used with engine"
    return f"{name} = {toml_of(option, given.value)}", given.where
