"""DNS answers for services of the registry, without sockets: messages in, messages out.

    <name>.service.<domain>          A, AAAA, SRV, TXT of the services with a name
    <tag>.<name>.service.<domain>    of those with a tag
    <hex>.addr.<domain>              A or AAAA: the target of an SRV record, an address in hex

Only services that are passing are answered. Rules:
- TTL 0, services in random order; the server is authoritative for the domain and never recursive.
- A name that the registry does not have: NXDOMAIN. One that it has, without a record of that type:
  NOERROR and no answer. Both with the SOA record of the domain. Other domains, other classes, ANY
  and zone transfers: REFUSED. While the registry cannot answer: SERVFAIL.
- A service whose endpoint has a host name has no address here. It is the target of its SRV record,
  and if no service of the name has an address, A and AAAA are answered with a CNAME to one host.
- Over UDP, an answer that does not fit into the buffer of the client (512 bytes without EDNS, at
  most 1,232) is cut and marked with TC, and the client asks again over TCP. Additional records are
  left out without a mark.
- A message that cannot be parsed is answered with FORMERR, or dropped if it has no header or is an
  answer.

Messages are parsed by dnspython, which checks them strictly. Answers are encoded here: dnspython
takes five times as long for that, on the event loop that also renews leases.
"""

import asyncio
import ipaddress
import json
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from dns.exception import DNSException
from dns.flags import Flag
from dns.message import Message, from_wire
from dns.rcode import Rcode
from dns.rdataclass import RdataClass
from dns.rdatatype import RdataType

from leasehold.errors import LeaseholdError
from leasehold.registry.dns_counts import RCODES, DnsCounts
from leasehold.registry.named_items import METADATA
from leasehold.registry.state import Item

logger = logging.getLogger("leasehold.dns")

DEFAULT_DOMAIN: Final = "leasehold"

MAX_UDP_BYTES: Final = 1232
"""The largest answer over UDP: it fits into one packet on any common network."""

PLAIN_UDP_BYTES: Final = 512
"""The largest answer for a client without EDNS."""

LOOKUP_S: Final = 4.0
"""How long a lookup may take: clients wait for 5 s."""

MAX_ANSWERS: Final = 2048
"""Services in one answer; if there are more, these are chosen at random."""

MAX_TEXT_BYTES: Final = 255
"""The size of a string in a TXT record."""

MAX_TXT_BYTES: Final = 4096
"""The metadata of one service in a TXT record; the rest is left out."""

MAX_LABEL_BYTES: Final = 63
MAX_NAME_BYTES: Final = 255
MAX_DOMAIN_BYTES: Final = 200
"""The domain: names of services and addresses are in front of it."""

ANSWER: Final = 1
AUTHORITY: Final = 2
ADDITIONAL: Final = 3

OPT_BYTES: Final = 11
# Numbers, since operations on flags of an enum take microseconds.
QR, AA, TC, RD = (int(flag) for flag in (Flag.QR, Flag.AA, Flag.TC, Flag.RD))
A, AAAA, CNAME, OPT, SOA, SRV, TXT = (
    int(RdataType[name]) for name in ("A", "AAAA", "CNAME", "OPT", "SOA", "SRV", "TXT")
)
IN: Final = int(RdataClass.IN)
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
BADVERS: Final = int(Rcode.BADVERS)
_OPCODE: Final = 0x7800
_HEADER: Final = struct.Struct("!6H")
_RECORD: Final = struct.Struct("!HHIH")
_SRV: Final = struct.Struct("!HHH")
_QUESTION_NAME: Final = b"\xc0\x0c"
"""A pointer to the name of the question."""
_LARGEST_POINTER: Final = 0x3FFF
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_REFUSED_TYPES: Final = {int(RdataType[name]) for name in ("ANY", "AXFR", "IXFR", "MAILA", "MAILB")}

Lookup = Callable[[str, str | None], Awaitable[Sequence[Item]]]
"""Returns items with a name, and with a tag if one is given, whatever their health.

Empty only if there are none. If there are more than `MAX_ANSWERS`, so many of them at random."""

Name = tuple[bytes, ...]
"""The labels of a name in lower case; the last one is empty."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostPort(NamedTuple):
    """Where a service is reached."""

    host: IpAddress | Name
    port: int | None


@lru_cache(MAX_ANSWERS)
def host_port_of(endpoint: str) -> HostPort | None:
    """Return host and port of an endpoint, a URL or `host:port`; None if it has none."""
    if endpoint.startswith("unix:"):
        return None
    try:
        return HostPort(ipaddress.ip_address(endpoint), None)
    except ValueError:
        pass  # it has a port, or a name
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    try:
        return HostPort(ipaddress.ip_address(host), port)
    except ValueError:
        name = name_of(host)
    return None if name is None else HostPort(name, port)


def name_of(text: str) -> Name | None:
    """Return the labels of a host name or domain; None if it is not one."""
    try:
        labels = (*text.lower().removesuffix(".").encode("ascii").split(b"."), b"")
    except UnicodeEncodeError:
        return None
    if not all(0 < len(label) <= MAX_LABEL_BYTES for label in labels[:-1]):
        return None
    return labels if len(_encoded(labels)) <= MAX_NAME_BYTES else None


def _encoded(name: Iterable[bytes]) -> bytes:
    return b"".join(bytes((len(label),)) + label for label in name)


class _Answer:
    """An answer that is being encoded. It has at most `limit_bytes`."""

    def __init__(self, question: bytes, limit_bytes: int, *, has_edns: bool) -> None:
        self._data = bytearray(_HEADER.size) + question
        self._counts = [1 if question else 0, 0, 0, 0]
        self._has_edns = has_edns
        self._room = limit_bytes - (OPT_BYTES if has_edns else 0)

    def add(self, section: int, owner: bytes, rdtype: int, rdata: bytes) -> int:
        """Add a record; return where its data begins, or 0 if it does not fit."""
        start = len(self._data) + len(owner) + _RECORD.size
        if start + len(rdata) > self._room:
            return 0
        self._data += owner + _RECORD.pack(rdtype, IN, 0, len(rdata)) + rdata
        self._counts[section] += 1
        return start

    def encode(self, query: bytes, rcode: int, flags: int) -> bytes:
        """Return the message: the answer to `query`, with further flags."""
        query_id, query_flags = struct.unpack_from("!HH", query)
        if self._has_edns:
            ttl = rcode >> 4 << 24  # the upper bits of the rcode; version 0
            self._data += b"\0" + _RECORD.pack(OPT, MAX_UDP_BYTES, ttl, 0)
            self._counts[ADDITIONAL] += 1
        flags |= QR | query_flags & (RD | _OPCODE) | rcode & 0xF
        _HEADER.pack_into(self._data, 0, query_id, flags, *self._counts)
        return bytes(self._data)


class DnsZone:
    """Answers queries for a domain: messages in, messages out."""

    def __init__(
        self, lookup: Lookup, domain: str = DEFAULT_DOMAIN, *, random: Random | None = None
    ) -> None:
        """Raise ValueError if the domain is not a name, or too long."""
        self.counts = DnsCounts()
        self._lookup = lookup
        self._domain = check_domain(domain)
        self._random = random or Random()  # noqa: S311  the order of answers is not a secret
        self._addr = _encoded((b"addr", *self._domain))
        names = [_encoded((first, *self._domain)) for first in (b"ns", b"hostmaster")]
        # Serial, refresh, retry, expire, and how long a negative answer may be kept.
        self._soa = b"".join(names) + struct.pack("!5I", 1, 3600, 600, 86400, 0)

    async def answer(self, query: bytes, limit_bytes: int | None = None) -> bytes | None:
        """Return the answer to a query, or None if there is none.

        It has at most `limit_bytes`; None for what the client accepts over UDP.
        """
        if len(query) < _HEADER.size:
            return None
        flags = struct.unpack_from("!H", query, 2)[0]
        if flags & QR:
            return None
        if flags & _OPCODE:
            return self._refusal(query, NOTIMP)
        try:
            message = from_wire(query)
        except DNSException:
            return self._refusal(query, FORMERR)
        if len(message.question) != 1:
            return self._refusal(query, FORMERR)
        is_udp = limit_bytes is None
        if limit_bytes is None:
            limit_bytes = PLAIN_UDP_BYTES
            if message.edns >= 0:
                limit_bytes = max(PLAIN_UDP_BYTES, min(message.payload, MAX_UDP_BYTES))
        return await self._answer(query, message, limit_bytes, is_udp=is_udp)

    async def _answer(
        self, query: bytes, message: Message, limit_bytes: int, *, is_udp: bool
    ) -> bytes:
        (asked,) = message.question
        labels, rdtype = asked.name.labels, int(asked.rdtype)
        question = _encoded(labels) + struct.pack("!HH", rdtype, asked.rdclass)
        answer = _Answer(question, limit_bytes, has_edns=message.edns >= 0)
        if message.edns > 0:
            return self._finish(answer, query, BADVERS)
        name = tuple(label.lower() for label in labels)
        below, domain = name[: -len(self._domain)], name[-len(self._domain) :]
        if asked.rdclass != IN or rdtype in _REFUSED_TYPES or domain != self._domain:
            return self._finish(answer, query, REFUSED)
        try:
            records = await self._records(below, rdtype)
        except (LeaseholdError, TimeoutError) as error:
            logger.debug("a query cannot be answered: %s", error)
            return self._finish(answer, query, SERVFAIL)
        except Exception:
            logger.exception("a query cannot be answered")
            return self._finish(answer, query, SERVFAIL)
        flags = AA
        is_empty = True
        addresses: dict[bytes, tuple[int, IpAddress]] = {}
        for record in records or ():
            is_empty = False
            start = answer.add(ANSWER, _QUESTION_NAME, record.rdtype, record.rdata)
            if not start:
                flags |= TC if is_udp else 0
                break
            if record.address is not None:
                addresses[record.rdata[_SRV.size :]] = (start + _SRV.size, record.address)
        if is_empty:
            answer.add(AUTHORITY, _encoded(self._domain), SOA, self._soa)
        for target, (start, address) in addresses.items():
            # Where the name is already in the message, a pointer to it is shorter.
            owner = struct.pack("!H", 0xC000 | start) if start <= _LARGEST_POINTER else target
            if not answer.add(ADDITIONAL, owner, _address_type(address), address.packed):
                break
        rcode = NXDOMAIN if records is None else NOERROR
        return self._finish(answer, query, rcode, flags)

    def _refusal(self, query: bytes, rcode: int) -> bytes:
        """Return an answer without the question, which was not understood."""
        return self._finish(_Answer(b"", PLAIN_UDP_BYTES, has_edns=False), query, rcode)

    def _finish(self, answer: _Answer, query: bytes, rcode: int, flags: int = 0) -> bytes:
        self.counts.answers[RCODES[rcode]] += 1
        self.counts.truncated += bool(flags & TC)
        return answer.encode(query, rcode, flags)

    async def _records(self, below: Name, rdtype: int) -> "Iterable[_Record] | None":
        """Return the records of a name below the domain; None if there is no such name."""
        if not below:
            return [_Record(SOA, self._soa)] if rdtype == SOA else []
        *first, section = below
        if section == b"addr":
            return _records_of_address(first, rdtype)
        if section != b"service" or len(first) > 2:
            return None
        if not first:
            return []
        try:
            *tags, name = (label.decode() for label in first)
        except UnicodeDecodeError:
            return None
        async with asyncio.timeout(LOOKUP_S):
            items = await self._lookup(name, tags[0] if tags else None)
        if not items:
            return None
        passing = [item for item in items if item.is_passing]
        chosen = self._random.sample(passing, min(len(passing), MAX_ANSWERS))
        if rdtype == SRV:
            return self._srv(chosen)
        if rdtype == TXT:
            return _txt(chosen)
        return _addresses(chosen, rdtype) if rdtype in {A, AAAA, CNAME} else []

    def _srv(self, items: Sequence[Item]) -> "Iterator[_Record]":
        seen: set[bytes] = set()
        for item in items:
            at = host_port_of(item.endpoint)
            if at is None or at.port is None:
                continue
            address = None if isinstance(at.host, tuple) else at.host
            if isinstance(at.host, tuple):
                target = _encoded(at.host)
            else:
                target = _encoded((at.host.packed.hex().encode(),)) + self._addr
            rdata = _SRV.pack(1, 1, at.port) + target  # priority and weight are equal for all
            if rdata not in seen:
                seen.add(rdata)
                yield _Record(SRV, rdata, address)


class _Record(NamedTuple):
    rdtype: int
    rdata: bytes
    address: IpAddress | None = None
    """Of the target of an SRV record."""


def check_domain(domain: str) -> Name:
    """Return the labels of the domain of the zone; ValueError if it is not a name, or too long."""
    name = name_of(domain)
    if name is None or len(_encoded(name)) > MAX_DOMAIN_BYTES:
        raise ValueError(
            f"domain must be a DNS name of at most {MAX_DOMAIN_BYTES} bytes, such as "
            f"{DEFAULT_DOMAIN}, got {domain!r}"
        )
    return name


def _address_type(address: IpAddress) -> int:
    return A if address.version == 4 else AAAA


def _records_of_address(first: Sequence[bytes], rdtype: int) -> list[_Record] | None:
    """Return the records of an address in hex, the target of an SRV record."""
    if not first:
        return []
    try:
        packed = bytes.fromhex(first[-1].decode())
        address = ipaddress.ip_address(packed)
    except ValueError:
        return None
    if len(first) > 1 or packed.hex().encode() != first[0]:
        return None
    return [_Record(rdtype, packed)] if rdtype == _address_type(address) else []


def _addresses(items: Sequence[Item], rdtype: int) -> Iterator[_Record]:
    """Yield each address once; if there are only host names, one of these."""
    seen: set[IpAddress] = set()
    host: Name | None = None
    for at in filter(None, (host_port_of(item.endpoint) for item in items)):
        if isinstance(at.host, tuple):
            host = host or at.host
        elif at.host not in seen:
            seen.add(at.host)
            if rdtype == _address_type(at.host):
                yield _Record(rdtype, at.host.packed)
    if host is not None and not seen:
        yield _Record(CNAME, _encoded(host))


def _txt(items: Sequence[Item]) -> Iterator[_Record]:
    """Yield the metadata of each service: strings `key=value`."""
    seen: set[bytes] = set()
    for item in items:
        rdata = b""
        for attributes in item.attributes:
            if attributes.kind != METADATA:
                continue
            for name, text in attributes.fields:
                value = json.loads(text)
                string = f"{name}={value if isinstance(value, str) else text}".encode()
                if len(string) <= MAX_TEXT_BYTES and len(rdata) < MAX_TXT_BYTES:
                    rdata += bytes((len(string),)) + string
        if rdata and rdata not in seen:
            seen.add(rdata)
            yield _Record(TXT, rdata)
