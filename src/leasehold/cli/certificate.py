"""Whom a certificate is for, and when: so that a line can be printed that works, or a warning."""

import contextlib
import ssl
import time
from pathlib import Path
from typing import Any, Final

_STEPS: Final = 4
"""A handshake takes no more turns than this."""

_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which has no name in the standard library."""


def names_in(cert: Path, server: ssl.SSLContext) -> list[str]:
    """Find the names and numbers of hosts in a server's certificate; none if it is of no use."""
    return [str(name) for _, name in _seen(cert, server).get("subjectAltName", ())]


def out_of_date(cert: Path, server: ssl.SSLContext, now_s: float) -> str | None:
    """Say that a server's certificate has ended, or has not begun; None if it is good now."""
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
    """Give what a client sees of the certificate; nothing if it is of no use.

    The standard library reads certificates only as part of a handshake, so there is one, in memory.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it vouches for itself
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
    except (OSError, ValueError):  # whoever connects will be told
        return {}
    return {}
