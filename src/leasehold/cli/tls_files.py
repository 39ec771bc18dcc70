"""The TLS files of the server: reading them, warnings, and reloading them when they change.

Certificates are valid for weeks, and renewal tools write new files. Operators would forget to
restart the server, so the files are polled. Existing connections keep their certificate.
"""

import asyncio
import contextlib
import logging
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from leasehold.basics.tls import server_tls
from leasehold.cli.settings.given_values import Mistake
from leasehold.cli.settings.sources import Reading
from leasehold.server.settings import TlsFiles

logger = logging.getLogger(__name__)

RELOAD_S: Final = 10.0
"""How often the files are checked: three calls of `stat`."""

_STEPS: Final = 4
"""The maximum number of steps of a handshake."""

_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which has no name in the standard library."""

_WHAT: Final = re.compile(r"\bthe (key|certificate|certificates|authorities' certificates)\b")
_NAMES: Final = {"key": "key", "certificate": "cert"}

Stamps = tuple[tuple[int, ...] | None, ...]


# Reading.


def read_tls(reading: Reading) -> ssl.SSLContext | None:
    """Make a context; None without TLS, or after an error, which is recorded."""
    if reading.mistakes or (files := reading.settings.tls) is None:
        return None
    try:
        context = server_tls(files.cert, files.key, files.client_ca)
    except OSError as error:
        text = f"{error.filename}: {error.strerror or error}"
    except ValueError as error:
        text = str(error)
    else:
        warning = out_of_date(files.cert, context, time.time())
        if warning is not None:
            reading.warnings.append(f"{reading.values['cert'].where}: {warning}")
        return context
    name = _named(text)
    reading.mistakes.append(Mistake(f"{reading.values[name].where}: {text}", name))
    return None


def check_remote_tls(reading: Reading) -> None:
    """Record a mistake for each TLS file for other servers that cannot be used."""
    if reading.mistakes:
        return
    settings = reading.settings
    places = [(f"credentials.{name}", each) for name, each in settings.services.credentials.items()]
    if settings.engine is not None:
        places.append(("engine-ca", settings.engine))
    for name, place in places:
        try:
            place.tls()
        except (OSError, ValueError) as error:
            text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
            option = name.partition(".")[0]
            where = reading.values[option].where
            reading.mistakes.append(Mistake(f"{where}: {name}: {text}", option))


def _named(text: str) -> str:
    """Return the option that an error is about. Not by the file: two options may name the same."""
    found = _WHAT.search(text)
    return "cert" if found is None else _NAMES.get(found[1], "client-ca")


# Names and dates in a certificate.


def names_in(cert: Path, server: ssl.SSLContext) -> list[str]:
    """Return the host names and IP addresses in a server's certificate; none if it is unusable."""
    return [str(name) for _, name in _seen(cert, server).get("subjectAltName", ())]


def out_of_date(cert: Path, server: ssl.SSLContext, now_s: float) -> str | None:
    """Return a warning if a certificate has expired or is not valid yet; None if it is valid."""
    seen = _seen(cert, server)
    if not seen:
        return None
    begins_s, ends_s = (ssl.cert_time_to_seconds(seen[key]) for key in ("notBefore", "notAfter"))
    if now_s > ends_s:
        when = f"ended on {_date(ends_s)}"
    elif now_s < begins_s:
        when = f"begins on {_date(begins_s)}"
    else:
        return None
    return (
        f"the certificate in {cert} {when}, and clients will refuse it: renew it, "
        "if this machine's clock is right, and start again"
    )


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _seen(cert: Path, server: ssl.SSLContext) -> dict[str, Any]:
    """Return the certificate as a client sees it; empty if it is unusable.

    The standard library parses certificates only in a handshake, so one is done in memory.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it is its own trust anchor
    context.verify_flags |= _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.load_verify_locations(cert)
        client = context.wrap_bio(to_client, to_server)
        other = server.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(_STEPS):
            for side in (client, other):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                    if side is client:
                        return dict(client.getpeercert() or {})
    except (OSError, ValueError):  # clients get this error when they connect
        return {}
    return {}


# Reloading.


async def reload_changed(
    files: TlsFiles, replace: Callable[[ssl.SSLContext], None], every_s: float = RELOAD_S
) -> None:
    """Apply a new context whenever a file has changed. Invalid files change nothing."""
    seen = await asyncio.to_thread(_stamps, files)
    while True:
        await asyncio.sleep(every_s)
        found = await asyncio.to_thread(_stamps, files)
        if found == seen:
            continue
        seen = found  # if the files are not valid yet, they will change again
        try:
            replace(await asyncio.to_thread(server_tls, files.cert, files.key, files.client_ca))
        except (OSError, ValueError) as error:
            logger.warning("the changed TLS files cannot be used, keeping the old ones: %s", error)
        else:
            logger.info("the TLS files have changed: new connections use the new ones")


def _stamps(files: TlsFiles) -> Stamps:
    """Return values that change when a file is written or replaced; None for a missing file."""
    stamps: list[tuple[int, ...] | None] = []
    for path in (files.cert, files.key, files.client_ca):
        try:
            status = None if path is None else path.stat()
        except OSError:
            status = None
        stamps.append(status and (status.st_mtime_ns, status.st_ino, status.st_size))
    return tuple(stamps)
