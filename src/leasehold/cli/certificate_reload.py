"""Certificates that are replaced while the server runs: the files are looked at now and then.

Certificates live for weeks, and whatever renews them writes new files. A server that had to be
restarted for it would be forgotten once. Connections that are there keep what they have.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from leasehold.rpc.tls import server_tls
from leasehold.server.settings import TlsFiles

logger = logging.getLogger(__name__)

RELOAD_S: Final = 10.0
"""How often the files are looked at: three calls of `stat`."""

Stamps = tuple[tuple[int, ...] | None, ...]


async def reload_changed(
    files: TlsFiles, replace: Callable[[ssl.SSLContext], None], every_s: float = RELOAD_S
) -> None:
    """Have a new context used whenever a file has changed; files that are wrong change nothing."""
    seen = await asyncio.to_thread(_stamps, files)
    while True:
        await asyncio.sleep(every_s)
        found = await asyncio.to_thread(_stamps, files)
        if found == seen:
            continue
        seen = found  # if the files are not right yet, they change once more
        try:
            replace(await asyncio.to_thread(server_tls, files.cert, files.key, files.client_ca))
        except (OSError, ValueError) as error:
            logger.warning("the changed TLS files cannot be used, keeping the old ones: %s", error)
        else:
            logger.info("the TLS files have changed: new connections use the new ones")


def _stamps(files: TlsFiles) -> Stamps:
    """Return what changes when a file is written or replaced; None for one that is not there."""
    stamps: list[tuple[int, ...] | None] = []
    for path in (files.cert, files.key, files.client_ca):
        try:
            status = None if path is None else path.stat()
        except OSError:
            status = None
        stamps.append(status and (status.st_mtime_ns, status.st_ino, status.st_size))
    return tuple(stamps)
