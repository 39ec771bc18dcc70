"""Announcements of registrars, by multicast DNS (RFC 6762) and DNS-SD (RFC 6763).

Each server of a registrar is an instance of the service `_leasehold._tcp.local.`. Its TXT record
has everything that discovery needs, so that one record is complete, and its TTL is that of the
announcement:

    id=<id of the registrar>    groups=<number of the groups>    e0=<endpoint>    e1=...

A server repeats its announcement three times within the TTL, and sends a goodbye (TTL 0) when it
stops. Records of a killed server end with their TTL, which the listener measures: the library
`zeroconf` itself keeps pointers to services for at least 1,125 s.
"""

import asyncio
import ipaddress
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import ifaddr
import zeroconf
from zeroconf import (
    InterfaceChoice,
    IPVersion,
    RecordUpdate,
    RecordUpdateListener,
    ServiceInfo,
    Zeroconf,
)
from zeroconf._dns import DNSText
from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

from leasehold.basics.addresses import Address, TcpAddress, is_local, parse_address
from leasehold.discovery.announced import MAX_ENDPOINTS, Announcement

logger = logging.getLogger(__name__)

SERVICE: Final = "_leasehold._tcp.local."

REPEATS: Final = 3
"""How often a server announces itself within the TTL."""

_ID: Final = b"id"
_NUMBER: Final = b"groups"
_ENDPOINT: Final = b"e"
_MAX_TEXT_BYTES: Final = 255
"""Of an entry of a TXT record, with its key."""


# Records.


def text_of(registrar: str, groups_number: int, endpoints: Sequence[str]) -> bytes:
    """Return the TXT record of a server; endpoints that are too long or too many are left out."""
    entries = [b"id=" + registrar.encode(), b"groups=%d" % groups_number]
    fitting = [each.encode() for each in endpoints if len(each.encode()) <= _MAX_TEXT_BYTES - 4]
    entries += [b"e%d=%s" % pair for pair in enumerate(fitting[:MAX_ENDPOINTS])]
    return b"".join(bytes([len(entry)]) + entry for entry in entries)


def announcement_of(server: str, text: bytes, ttl_s: float) -> Announcement | None:
    """Return the announcement in a TXT record; None if it is not one of a registrar."""
    entries: dict[bytes, bytes] = {}
    while text:
        entry, text = text[1 : 1 + text[0]], text[1 + text[0] :]
        key, _, value = entry.partition(b"=")
        entries.setdefault(key, value)
    try:
        registrar, number = entries[_ID].decode(), int(entries[_NUMBER])
        endpoints = [
            entries[key].decode()
            for place in range(MAX_ENDPOINTS)
            if (key := b"%s%d" % (_ENDPOINT, place)) in entries
        ]
    except (KeyError, ValueError):
        return None
    usable = tuple(filter(_is_usable, endpoints))
    return Announcement(server, registrar, usable, number, ttl_s) if registrar and usable else None


def _is_usable(endpoint: str) -> bool:
    """Return whether it is an address of another machine, which this one may be called at."""
    try:
        address = parse_address(endpoint)
    except ValueError:
        return False
    return isinstance(address, TcpAddress) and address.port > 0 and not is_local(address)


def announced_endpoints(
    bound: Iterable[Address], advertise: Address | None = None, *, is_tls: bool = False
) -> list[str]:
    """Return the endpoints that other machines can reach; none if all are on loopback.

    An address that stands for all interfaces is replaced by those of the interfaces.
    """
    found: dict[str, None] = {}
    for address in bound if advertise is None else (advertise,):
        if not isinstance(address, TcpAddress):
            continue
        for host in _hosts(address.host):
            reached = TcpAddress(host, address.port, is_tls=is_tls)
            if not is_local(reached):
                found[str(reached)] = None
    return list(found)


def _hosts(host: str) -> list[str]:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return [host]
    if not number.is_unspecified:
        return [host]
    addresses = [ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
    hosts = sorted(str(each.ip) for each in addresses if each.is_IPv4)
    if number.version == 6:  # it accepts both
        found = (ipaddress.ip_address(each.ip[0]) for each in addresses if not each.is_IPv4)
        hosts += sorted(str(each) for each in found if not each.is_link_local)
    return hosts


# The server.


class Announcer:
    """Announces one server of a registrar until it is closed."""

    def __init__(self, registrar: str, endpoints: Sequence[str], ttl_s: int) -> None:
        self._registrar = registrar
        self._endpoints = tuple(endpoints)
        self._ttl_s = ttl_s
        self._name = f"leasehold-{secrets.token_hex(8)}"
        self._number = 0
        self._zeroconf: AsyncZeroconf | None = None
        self._info: ServiceInfo | None = None
        self._repeating: asyncio.Task[None] | None = None

    def _made(self) -> ServiceInfo:
        addresses = [parse_address(each) for each in self._endpoints]
        hosts = [each.host for each in addresses if isinstance(each, TcpAddress)]
        first = addresses[0]
        assert isinstance(first, TcpAddress)
        return ServiceInfo(
            SERVICE,
            f"{self._name}.{SERVICE}",
            port=first.port,
            properties=text_of(self._registrar, self._number, self._endpoints),
            server=f"{self._name}.local.",
            host_ttl=self._ttl_s,
            other_ttl=self._ttl_s,
            parsed_addresses=[each for each in hosts if _is_number(each)],
        )

    async def announce(self, groups_number: int) -> None:
        """Announce the server, or that its groups have changed. Raises OSError."""
        try:
            await self._announce(groups_number)
        except zeroconf.Error as error:
            raise OSError(f"multicast DNS failed: {error!r}") from error

    async def _announce(self, groups_number: int) -> None:
        self._number = groups_number
        info = self._made()
        if self._zeroconf is None:
            made = AsyncZeroconf(interfaces=InterfaceChoice.All)
            try:
                # Its name is random, so it need not be asked for before it is used.
                sent = await made.async_register_service(info, cooperating_responders=True)
            except BaseException:
                await made.async_close()
                raise
            self._zeroconf = made
            self._repeating = asyncio.get_running_loop().create_task(self._repeat(made))
        else:
            sent = await self._zeroconf.async_update_service(info)
        self._info = info
        await sent

    async def _repeat(self, made: AsyncZeroconf) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / REPEATS)
            if self._info is not None:
                self._send(made, self._info)

    def _send(self, made: AsyncZeroconf, info: ServiceInfo) -> None:
        """Send an announcement; if that fails the next one follows."""
        try:
            made.zeroconf.async_send(made.zeroconf.generate_service_broadcast(info, None))
        except Exception as error:  # noqa: BLE001  whatever the network reports
            logger.warning("the announcement of the registrar was not sent: %r", error)

    async def close(self) -> None:
        """Send a goodbye."""
        if self._repeating is not None:
            self._repeating.cancel()
        if self._zeroconf is not None:
            try:
                await self._zeroconf.async_unregister_all_services()
            finally:
                await self._zeroconf.async_close()


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# The client.


class Browser(RecordUpdateListener):
    """Passes on each announcement and each goodbye that is received."""

    def __init__(
        self, announced: Callable[[Announcement], None], withdrawn: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._announced, self._withdrawn = announced, withdrawn
        self._zeroconf = AsyncZeroconf(interfaces=InterfaceChoice.All, ip_version=IPVersion.V4Only)
        self._zeroconf.zeroconf.async_add_listener(self, None)
        # It sends the questions; answers have the TXT records.
        self._browser = AsyncServiceBrowser(
            self._zeroconf.zeroconf, SERVICE, handlers=[lambda **_: None]
        )

    def async_update_records(self, zc: Zeroconf, now: float, records: list[RecordUpdate]) -> None:
        """Called by `zeroconf` with the records of each message."""
        for record in (update.new for update in records):
            if not isinstance(record, DNSText) or not record.name.lower().endswith(SERVICE):
                continue
            if not record.ttl:
                self._withdrawn(record.name)
            elif not record.is_expired(now):
                found = announcement_of(record.name, record.text, record.ttl)
                if found is not None:
                    self._announced(found)

    def async_update_records_complete(self) -> None:
        """Do nothing: all records were passed on."""

    async def close(self) -> None:
        """Leave the network."""
        await self._browser.async_cancel()
        await self._zeroconf.async_close()
