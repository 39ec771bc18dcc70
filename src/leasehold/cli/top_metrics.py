"""Rates, computed from a server's counters: revisions, and `/metrics` where it can be read.

etcd and Leasehold have the same names for the metrics read here. For a server whose page cannot be
read, as behind a proxy, only the rate of revisions is known.
"""

import asyncio
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from leasehold.basics.addresses import Address, TcpAddress

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of `/metrics`: a longer page is not read."""

WITHIN_S: Final = 2.0
"""The timeout for the page; after that it is left out."""

REQUESTS: Final = "requests"
PUTS: Final = "puts"
RENEWALS: Final = "renewals"
LEASES: Final = "leases"
WATCHES: Final = "watches"
CONNECTIONS: Final = "connections"
REVISIONS: Final = "revisions"

COUNTERS: Final = (REVISIONS, REQUESTS, PUTS, RENEWALS)
"""Metrics that have a rate."""

_PLAIN: Final = {
    "etcd_debugging_lease_renewed_total": RENEWALS,
    "leasehold_leases": LEASES,
    "etcd_debugging_mvcc_watcher_total": WATCHES,
    "leasehold_connections": CONNECTIONS,
}
_CALLS: Final = "grpc_server_started_total{"
_PUT: Final = 'grpc_method="Put"'
_SAMPLE: Final = re.compile(r"([a-z_]+)(\{[^}]*\})? ([0-9.eE+-]+)")


def read_page(text: str) -> dict[str, float]:
    """Parse the needed metrics of a page in Prometheus' text format."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            continue
        with suppress(ValueError):
            value = float(sample[3])
            if line.startswith(_CALLS):
                found[REQUESTS] = found.get(REQUESTS, 0) + value
                if _PUT in sample[2]:
                    found[PUTS] = found.get(PUTS, 0) + value
            elif (name := _PLAIN.get(sample[1])) is not None:
                found[name] = value
    return found


async def ask_page(address: Address, tls: ssl.SSLContext | None) -> dict[str, float]:
    """Request `/metrics`; return nothing if there is no such page."""
    try:
        async with asyncio.timeout(WITHIN_S):
            return read_page(await _get(address, tls))
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return {}


async def _get(address: Address, tls: ssl.SSLContext | None) -> str:
    if isinstance(address, TcpAddress):
        server_name = address.host if tls else None
        opening = asyncio.open_connection(
            address.host, address.port, ssl=tls, server_hostname=server_name
        )
        host = str(TcpAddress(address.host, address.port))
    else:
        host = "localhost"
        opening = asyncio.open_unix_connection(
            address.path, ssl=tls, server_hostname=host if tls else None
        )
    reader, writer = await opening
    try:
        writer.write(f"GET /metrics HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] != [b"200"]:
            return ""
        body = bytearray()
        while len(body) <= MAX_PAGE_BYTES and (some := await reader.read(65536)):
            body += some
        return "" if len(body) > MAX_PAGE_BYTES else body.decode()
    finally:
        writer.close()


@dataclass(slots=True)
class Rates:
    """Rates of counters between two reads."""

    _before: dict[str, float] = field(default_factory=dict)
    _before_s: float = 0.0

    def update(self, counted: dict[str, float], now_s: float) -> dict[str, float | None]:
        """Return rates per second since the last read; None where it is unknown.

        A counter that goes back means that the server was restarted; its rate starts again.
        """
        passed_s = now_s - self._before_s
        rates = {
            name: self._rate(counted.get(name), self._before.get(name), passed_s)
            for name in COUNTERS
        }
        self._before, self._before_s = counted, now_s
        return rates

    @staticmethod
    def _rate(now: float | None, before: float | None, passed_s: float) -> float | None:
        if now is None or before is None or now < before or passed_s <= 0:
            return None
        return (now - before) / passed_s
