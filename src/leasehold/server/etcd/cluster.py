"""etcd's Cluster and Auth services, of a cluster that always has one member and no users."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from leasehold.basics.addresses import Address, TcpAddress, UnixAddress
from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Answer, DeferredAnswer, Exchange, Method
from leasehold.server.etcd.service_context import ServiceContext, invalid
from leasehold.wire import auth_pb2
from leasehold.wire.cluster_pb2 import (
    Member,
    MemberAddRequest,
    MemberListRequest,
    MemberListResponse,
    MemberPromoteRequest,
    MemberRemoveRequest,
    MemberUpdateRequest,
)

NAME: Final = "default"
NOTE: Final = "peer-urls"

MAX_URLS: Final = 16
MAX_URL_CHARS: Final = 1024
"""Of a member's URLs, which are sent to every client repeatedly."""

BAD_URLS: Final = "given member URLs are invalid"
NOT_FOUND: Final = "etcdserver: member not found"
NOT_ENOUGH: Final = "etcdserver: re-configuration failed due to not enough started members"
NOT_A_LEARNER: Final = "etcdserver: can only promote a learner member"

_UNROUTED: Final = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses for documentation: looking up a route to them sends nothing."""

_parse_add = MemberAddRequest.FromString
_parse_list = MemberListRequest.FromString
_parse_promote = MemberPromoteRequest.FromString
_parse_remove = MemberRemoveRequest.FromString
_parse_update = MemberUpdateRequest.FromString


class ClusterService:
    """Lists the one member, and refuses others."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._member = context.runtime.journal.identity.member_id
        self.client_urls: list[str] = []
        """Where clients reach this server; set when it is started."""
        noted = context.runtime.journal.notes.get(NOTE)
        self._peer_urls = None if noted is None else list(Member.FromString(noted).peerURLs)
        self._turn = asyncio.Lock()
        # Headers of this service have no revision, as in etcd.
        self._header = context.header(0)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/etcdserverpb.Cluster/"
        return {
            path + "MemberList": Exchange(self.members),
            path + "MemberAdd": Exchange(self.add),
            path + "MemberUpdate": Exchange(self.update),
            path + "MemberRemove": Exchange(self.remove),
            path + "MemberPromote": Exchange(self.promote),
        }

    def members(self, message: bytes) -> Answer:
        """List the member."""
        parse(_parse_list, message)
        return self._listed(), 0

    def add(self, message: bytes) -> Answer:
        """Refuse another member, with etcd's error for one that would cost the quorum."""
        urls = parse(_parse_add, message).peerURLs
        _check_urls(urls)
        if not urls or not all(map(_is_peer_url, urls)):
            raise invalid(BAD_URLS)
        raise RpcError(Status.UNKNOWN, NOT_ENOUGH)

    def update(self, message: bytes) -> DeferredAnswer:
        """Store the peer URLs of the member. There are no peers, so they are never used."""
        request = parse(_parse_update, message)
        self._check(request.ID)
        _check_urls(request.peerURLs)
        return self._update(list(request.peerURLs))

    async def _update(self, urls: list[str]) -> Answer:
        noted = Member(peerURLs=urls).SerializeToString()
        self._context.check_room(len(noted))
        async with self._turn:
            await self._context.do(lambda journal: journal.note(NOTE, noted))
            self._peer_urls = urls
        return self._listed(), 0

    def remove(self, message: bytes) -> Answer:
        """Refuse to remove the only member."""
        self._check(parse(_parse_remove, message).ID)
        raise RpcError(Status.UNKNOWN, NOT_ENOUGH)

    def promote(self, message: bytes) -> Answer:
        """Refuse: the member is not a learner."""
        self._check(parse(_parse_promote, message).ID)
        raise RpcError(Status.FAILED_PRECONDITION, NOT_A_LEARNER)

    def _check(self, member: int) -> None:
        if member != self._member:
            raise RpcError(Status.NOT_FOUND, NOT_FOUND)

    def _listed(self) -> bytes:
        peer_urls = self.client_urls if self._peer_urls is None else self._peer_urls
        member = Member(ID=self._member, name=NAME, peerURLs=peer_urls, clientURLs=self.client_urls)
        return self._header + MemberListResponse(members=[member]).SerializeToString()


def _check_urls(urls: Sequence[str]) -> None:
    if len(urls) > MAX_URLS or any(len(url) > MAX_URL_CHARS for url in urls):
        raise invalid(BAD_URLS)


def _is_peer_url(url: str) -> bool:
    """Return whether etcd would accept this as a peer URL: with a port, and without a path."""
    try:
        parts = urlsplit(url)
        is_tcp = parts.scheme in {"http", "https"} and bool(parts.hostname) and bool(parts.port)
    except ValueError:
        return False
    return is_tcp and not parts.path


# Where clients reach a server.


def client_urls(bound: Iterable[Address], *, is_tls: bool) -> list[str]:
    """Return where clients reach the listeners on these addresses, without duplicates."""
    return list(dict.fromkeys(_url(address, is_tls=is_tls) for address in bound))


def _url(address: Address, *, is_tls: bool) -> str:
    if isinstance(address, UnixAddress):
        return f"unix://{Path(address.path).absolute()}"
    return str(TcpAddress(_reachable(address.host), address.port, is_tls=is_tls))


def _reachable(host: str) -> str:
    """Return the address that others see, for a wildcard address."""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not number.is_unspecified:
        return host
    family = socket.AF_INET if number.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_UNROUTED[number.version], 9))
        except OSError:  # there is no route out of this machine
            return "127.0.0.1" if number.version == 4 else "::1"
        name: str = probe.getsockname()[0]
        return name


# Authentication, which is always off.

NOT_ENABLED: Final = "etcdserver: authentication is not enabled"

FIRST_REVISION: Final = b"\x18\x01"
"""The field of the revision of users and roles, which never changes."""

_AUTH: Final = auth_pb2.DESCRIPTOR.services_by_name["Auth"]
_parse_status = auth_pb2.AuthStatusRequest.FromString


class AuthService:
    """Reports that authentication is off; every client may do everything."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = f"/{_AUTH.full_name}/"
        refused: dict[str, Method] = {
            path + method.name: Exchange(self.refuse) for method in _AUTH.methods
        }
        return {**refused, path + "AuthStatus": Exchange(self.status)}

    def status(self, message: bytes) -> Answer:
        """Return that authentication is off."""
        parse(_parse_status, message)
        return self._context.durable_header() + FIRST_REVISION, 0

    def refuse(self, message: bytes) -> Answer:
        """Refuse calls that would have no effect, or would not be stored."""
        raise RpcError(Status.FAILED_PRECONDITION, NOT_ENABLED)
