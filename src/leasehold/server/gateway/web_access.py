"""Which requests of web browsers are answered.

A page of any site can have the browser send requests to every address that the browser reaches,
127.0.0.1 included, and a form or a `text/plain` POST needs no consent of the server. Two checks
keep such pages out, and programs that are not browsers pass both:

- `Origin` and `Sec-Fetch-Site`, which browsers add and pages cannot change: the origin must be
  listed (`--cors`), or be this server itself.
- `Host`: with DNS rebinding, the name of a hostile site resolves to our address, and its pages are
  of the same origin as we are. Its name remains in `Host`, so only known names are accepted.
"""

from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from leasehold.basics.addresses import Address, TcpAddress, UnixAddress, is_local
from leasehold.grpc.http_handlers import Reply
from leasehold.http1.authority import (
    ANY,
    Authority,
    Origin,
    is_ip_address,
    origin_at,
    parse_authority,
    parse_origin,
)
from leasehold.http2.header_encoder import Fields
from leasehold.server.gateway.http_answers import plain

MAX_SHOWN_BYTES: Final = 100
"""How much of a header field a refusal repeats."""

MAX_KNOWN_HOSTS: Final = 64
"""Accepted values of `Host` that are cached. Clients use few; hostile ones, many."""

_ALLOWED: Final[Fields] = (
    (b"Access-Control-Allow-Headers", b"accept, content-type, authorization"),
    (b"Access-Control-Allow-Methods", b"POST, GET, OPTIONS, PUT, DELETE"),
)
"""CORS fields that etcd sends to listed origins."""

_ALLOW_ORIGIN: Final = b"Access-Control-Allow-Origin"
_VARY: Final[Fields] = ((b"Vary", b"Origin"),)
_OWN_SITES: Final = (b"same-origin", b"none")
"""`none`: an address that the user has typed, or a bookmark."""


class AccessDecision(NamedTuple):
    """Whether a request is refused, and the fields that its answer gets in any case."""

    refusal: Reply | None
    fields: Fields


class WebAccess:
    """Decides on requests by their `Host`, `Origin` and `Sec-Fetch-Site`.

    `origins` and `hosts` are what `--cors` and `--host-whitelist` list.
    """

    def __init__(self, origins: Collection[str] = (), hosts: Collection[str] = ()) -> None:
        self._allows_all_origins = ANY in origins
        self._origins = frozenset(parse_origin(each) for each in origins if each != ANY)
        self._allows_all_hosts = ANY in hosts
        self._listed_hosts = frozenset(parse_authority(each).host for each in hosts if each != ANY)
        self._own_hosts: set[str] = set()
        self._known_hosts: set[bytes] = set()
        """Values of `Host` that were accepted: parsing one takes longer than all other checks."""
        self._own_schemes: set[str] = set()
        self._has_tls_only = True
        self._checks_hosts = bool(self._listed_hosts) and not self._allows_all_hosts

    def listens_on(
        self, given: Sequence[Address], bound: Sequence[Address], *, is_tls: bool
    ) -> None:
        """Set the addresses of the server, as they were given and as they were bound.

        Hosts are checked if some are listed, and otherwise only where DNS rebinding would give a
        stranger access: all addresses are loopback, browsers can reach one, and there is no TLS,
        whose certificates are checked against the name.
        """
        names = [each.host for each in given if isinstance(each, TcpAddress)]
        self._own_hosts.update(
            parse_authority(name.encode("idna").decode()).host for name in names if ":" not in name
        )
        self._has_tls_only = self._has_tls_only and is_tls
        only_unix = all(isinstance(each, UnixAddress) for each in bound)
        self._own_schemes.add("https" if is_tls else "http")
        if only_unix:  # browsers come through a proxy, which may add TLS or remove it
            self._own_schemes.update(("http", "https"))
        is_exposed = all(map(is_local, bound)) and not only_unix and not self._has_tls_only
        listed = self._listed_hosts
        self._checks_hosts = not self._allows_all_hosts and bool(listed or is_exposed)

    def judge(self, request_fields: Sequence[tuple[bytes, bytes]]) -> AccessDecision:
        """Decide on a request by its header fields, whose names are in lower case."""
        hosts, origins, sites = [], [], []
        for name, value in request_fields:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
            elif name == b"sec-fetch-site":
                sites.append(value)
        fields: Fields = ()
        if self._allows_all_origins:
            fields = ((_ALLOW_ORIGIN, b"*"), *_ALLOWED)
        elif self._origins:
            fields = _VARY
        for host in hosts if self._checks_hosts else ():
            if host and not self._is_known(host):
                return AccessDecision(_misdirected(host), _VARY if self._origins else ())
        if self._allows_all_origins or not (origins or sites):
            return AccessDecision(None, fields)
        if origins:
            origin = _origin(origins)
            if origin is not None and origin in self._origins:
                return AccessDecision(None, ((_ALLOW_ORIGIN, origins[0]), *_ALLOWED, *_VARY))
            if origin is None or not self._is_own_page(origin, hosts):
                return AccessDecision(_foreign(b"Origin", origins[0]), fields)
        for site in sites:
            if site not in _OWN_SITES:
                return AccessDecision(_foreign(b"Sec-Fetch-Site", site), fields)
        return AccessDecision(None, fields)

    def _is_known(self, host: bytes) -> bool:
        if host in self._known_hosts:
            return True
        is_ours = self._is_ours(_authority(host))
        if is_ours and len(self._known_hosts) < MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return is_ours

    def _is_ours(self, authority: Authority | None) -> bool:
        """Return whether a host is one that no other site can have in the DNS."""
        if authority is None:
            return False
        host = authority.host
        return (
            host == "localhost"
            or host in self._listed_hosts
            or host in self._own_hosts
            or is_ip_address(host)
        )

    def _is_own_page(self, origin: Origin, hosts: Sequence[bytes]) -> bool:
        authorities = [_authority(each) for each in hosts]
        return bool(authorities) and all(
            each is not None
            and self._is_ours(each)
            and any(origin == origin_at(scheme, each) for scheme in self._own_schemes)
            for each in authorities
        )


def _authority(value: bytes) -> Authority | None:
    try:
        return parse_authority(value.decode("ascii"))
    except ValueError:
        return None


def _origin(values: Sequence[bytes]) -> Origin | None:
    """Parse `Origin`; None for `null`, for several of them, and for malformed ones."""
    try:
        (value,) = values
        return parse_origin(value.decode("ascii"))
    except ValueError:
        return None


def _misdirected(host: bytes) -> Reply:
    why = (
        f"the request is for the host {_shown(host)}, which is not a known name of this server; "
        "use an IP address or localhost, or list the name with --host-whitelist"
    )
    return plain(HTTPStatus.MISDIRECTED_REQUEST, why)


def _foreign(name: bytes, value: bytes) -> Reply:
    why = (
        f"the request comes from a web page of another site ({_shown(name)}: {_shown(value)}); "
        "only origins that are listed with --cors have access"
    )
    return plain(HTTPStatus.FORBIDDEN, why)


def _shown(value: bytes) -> str:
    return value[:MAX_SHOWN_BYTES].decode("ascii", "backslashreplace")
