"""What a server says of itself: plain lines for people, log lines for machines.

The words are here, too: where it listens, how to try it, what was recovered, that it has stopped.
"""

import contextlib
import errno
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Final

from leasehold.cli.exits import FAILURE
from leasehold.cli.logs import FIELDS
from leasehold.cli.reporting import complain, count, say
from leasehold.engine.runtime import Runtime
from leasehold.rpc.addresses import Address, TcpAddress
from leasehold.server.settings import Settings, is_local

logger = logging.getLogger("leasehold.serve")

_ADVICE: Final = {
    errno.EADDRINUSE: "stop the process that uses it, or choose another address "
    "with --listen, such as {free}",
    errno.EADDRNOTAVAIL: "this machine does not have that address; choose another with --listen",
    errno.EACCES: "choose a port of at least 1024 with --listen, or a writable path",
}
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  that is what is looked for


class Voice:
    """Speaks to whom the format of the logs is for."""

    def __init__(self, log_format: str) -> None:
        self._is_for_machines = log_format == "json"

    def say(self, line: str, **fields: Any) -> None:
        """Say something; machines are given the fields as well. If nobody hears, so be it."""
        if self._is_for_machines:
            logger.info(line, extra={FIELDS: fields})
        elif sys.stdout is not None:
            try:
                say(line)
            except (OSError, ValueError):
                _let_go_of_output()

    def complain(self, line: str) -> int:
        """Say what went wrong; return the exit code."""
        if self._is_for_machines:
            logger.error(line)
            return FAILURE
        with contextlib.suppress(OSError, ValueError, AttributeError):
            complain(line)
        return FAILURE

    # First words.

    def greet(
        self,
        settings: Settings,
        bound: Sequence[Address],
        runtime: Runtime,
        certified: Sequence[str] = (),
    ) -> None:
        """Say where it serves, what was recovered, and how to try it.

        `certified` are the hosts that the certificate is for.
        """
        shown = [_shown(each, settings) for each in bound]
        directory = settings.directory
        kept = "nothing is kept" if directory is None else "one disk, no replicas"
        self.say(
            f"leasehold serves etcd v3 on {_and(shown)}, from {directory or 'memory'} ({kept})",
            listen=shown,
            data_dir=None if directory is None else str(directory),
        )
        if runtime.journal.was_left_open:
            self._tell_recovered(settings, runtime)
        for each in bound:
            if settings.tls is None and not is_local(each):
                logger.warning(
                    "%s has no TLS: every client that reaches it can read and change all data", each
                )
        self.say(f"try it: {try_it(settings, bound, certified)}")

    def _tell_recovered(self, settings: Settings, runtime: Runtime) -> None:
        store = runtime.store
        revision, keys, leases = store.revision, len(store.keyspace), len(store.leases)
        self.say(
            f"{settings.directory} was not closed last time; recovered: revision {revision}, "
            f"{count(keys, 'key')}, {count(leases, 'lease')}",
            revision=revision,
            keys=keys,
            leases=leases,
        )

    # Last words.

    def part(self, settings: Settings) -> None:
        """Say that it has stopped in good order."""
        kept = "nothing is kept" if settings.directory is None else "everything is on disk"
        self.say(f"leasehold has stopped; {kept}")


def _let_go_of_output() -> None:
    """Have nothing of what could not be written tried again at exit."""
    with contextlib.suppress(OSError, ValueError):
        number = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _shown(address: Address, settings: Settings) -> str:
    if settings.tls is None or not isinstance(address, TcpAddress):
        return str(address)
    return str(TcpAddress(address.host, address.port, is_tls=True))


def _and(shown: Sequence[str]) -> str:
    *others, last = shown
    return f"{', '.join(others)} and {last}" if others else last


def try_it(settings: Settings, bound: Sequence[Address], certified: Sequence[str] = ()) -> str:
    """Write a line for a shell; with TLS, to a host that the certificate is for."""
    address = next((each for each in bound if isinstance(each, TcpAddress)), bound[0])
    words = ["etcdctl", "--endpoints"]
    if isinstance(address, TcpAddress):
        words.append(_shown(TcpAddress(_host(address, certified), address.port), settings))
    else:
        words.append(f"unix://{address.path}")
    if settings.tls is not None:
        words += ["--cacert", str(settings.tls.cert)]  # Go takes it for its own authority
        if settings.tls.client_ca is not None:
            words += ["--cert", "CLIENT.pem", "--key", "CLIENT-KEY.pem"]
    return shlex.join([*words, "put", "greeting", "hello"])


def _host(address: TcpAddress, certified: Sequence[str]) -> str:
    host = _EVERYWHERE.get(address.host, address.host)
    if not certified or host in certified:
        return host
    for name in ("localhost", *certified):
        if name in certified and "*" not in name:
            return name
    return host


def taken(error: OSError, listen: Sequence[Address]) -> str:
    """Say why an address could not be had, and what to do about it."""
    hosts = [each.host for each in listen if isinstance(each, TcpAddress)] or ["127.0.0.1"]
    free = TcpAddress(hosts[0], 0)
    advice = _ADVICE.get(error.errno or 0, "choose another address with --listen").format(free=free)
    return f"{error.strerror or error}: {advice}"
