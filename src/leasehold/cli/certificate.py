"""Whom a certificate is for, so that a line can be printed that works."""

import contextlib
import ssl
from pathlib import Path
from typing import Final

_STEPS: Final = 4
"""A handshake takes no more turns than this."""


def names_in(cert: Path, server: ssl.SSLContext) -> list[str]:
    """Find the names and numbers of hosts in a server's certificate; none if it is of no use.

    The standard library reads certificates only as part of a handshake, so there is one, in memory.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it vouches for itself
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
                        return _names(client.getpeercert())
    except (OSError, ValueError):  # expired, say: whoever connects will be told
        return []
    return []


def _names(certificate: object) -> list[str]:
    assert isinstance(certificate, dict)
    return [str(name) for _, name in certificate.get("subjectAltName", ())]
