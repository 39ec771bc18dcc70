"""The settings of a server. Values only: nothing is opened or looked up here."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold.basics.addresses import EXAMPLE_PORT, Address, TcpAddress
from leasehold.basics.durations import Duration, seconds_of
from leasehold.basics.tls import client_tls
from leasehold.http2.limits import ConnectionLimits
from leasehold.leases.policies import TermPolicy
from leasehold.server.etcd.lease import MAX_TTL_S, MIN_TTL_S
from leasehold.server.pages import UNHEALTHY_AFTER_S
from leasehold.store.housekeeping import AutoCompaction
from leasehold.store.store import DEFAULT_QUOTA_BYTES
from leasehold.store.store_leases import MAX_KEYS

MIN_QUOTA_BYTES: Final = 1024**2
"""An idle server would use up a smaller quota."""

MAX_QUOTA_BYTES: Final = 1024**5

MAX_KEYS_PER_LEASE: Final = 1_000_000
"""They are deleted at one revision; see also the limit `store.lease_record.MAX_KEY_BYTES`."""

MIN_UNHEALTHY_AFTER_S: Final = 1
MAX_UNHEALTHY_AFTER_S: Final = 86_400
"""Disks that work pause for up to a second; a probe runs more than once a day."""
DEFAULT_MAX_STREAMS: Final = ConnectionLimits().max_streams

MAX_STREAMS: Final = 1_000_000
"""Each costs a few hundred bytes, and one client may have that many on each connection."""

MAX_RECORDS: Final = 10_000_000
"""Sets, members or events: all are in memory."""

MAX_MAILBOX_BYTES: Final = 1024**3
MAX_FIELD_BYTES: Final = 1024**2
"""Of a handback or a lease reference: a request has at most 1.5 MiB."""

MAX_ANNOUNCEMENT_TTL_S: Final = 86_400

MIN_FILES_INTERVAL_S: Final = 0.1
MAX_FILES_INTERVAL_S: Final = 3_600.0

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("console", "json")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A server's certificate and key, and the CA of its clients' certificates, if any."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class RemoteEndpoints:
    """Servers of others: their addresses, and the files for TLS to them.

    `ca` enables TLS; `cert` and `key` are for servers that require a certificate of their clients.
    """

    endpoints: tuple[str, ...]
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def tls(self) -> ssl.SSLContext | None:
        """Read the files; None without TLS. Raises `OSError` or `ValueError`."""
        return None if self.ca is None else client_tls(self.ca, self.cert, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The settings of the services on an engine: renewal and events."""

    renew_at: tuple[str, ...] = ()
    """Endpoints at which leases may be renewed, besides those of this server."""
    callbacks: tuple[str, ...] = ()
    """Endpoints that events may be sent to, besides mailboxes and the caller's own address."""
    isolate_sets: bool = False
    """Whether leases of different sets are never renewed by one message."""
    credentials: Mapping[str, RemoteEndpoints] = field(default_factory=dict)
    """TLS files by name, each for the endpoints that it names."""
    max_sets: int = 10_000
    max_set_members: int = 100_000
    set_maximum: Duration = 7200.0
    """The longest term of a set, in seconds."""
    set_default: Duration = 3600.0
    """The term of a set whose creator leaves it to the service, in seconds."""
    registry_maximum: Duration = 3600.0
    """The longest term of an item of the registry, and of a registration for events, in seconds."""
    registry_default: Duration = 60.0
    """Their term if the client leaves it to the service, in seconds."""
    max_discoveries: int = 10_000
    """Registrations of the discovery service."""
    discovery_maximum: Duration = 7200.0
    """The longest term of a registration of the discovery service, in seconds."""
    discovery_default: Duration = 3600.0
    """Their term if the client leaves it to the service, in seconds."""
    discover_at: tuple[str, ...] = ("*",)
    """Endpoints that the discovery service may call as locators of its clients."""
    dns: TcpAddress | None = None
    """An IP address and a port for DNS, over UDP and TCP; it needs the extra `leasehold[dns]`."""
    dns_domain: str = "leasehold"
    """The domain of the names of services in DNS."""
    groups: tuple[str, ...] = ()
    """Groups of the registrar, for discovery; empty to leave them as they are."""
    announcement_ttl_s: int = 120
    """How long announcements of the registrar are valid; they are repeated within this time."""
    file_stores: tuple[str, ...] = ()
    """Directories and URLs of replica stores of files; without any, files are not looked after."""
    files_interval_s: float = 2.0
    """The time between two looks for files whose writers are gone."""
    mailbox_events: int = 10_000
    mailbox_bytes: int = 16 * 1024**2
    handback_bytes: int = 64 * 1024
    reference_bytes: int = 16 * 1024
    """The longest lease reference."""

    def __post_init__(self) -> None:
        _check("max_sets", self.max_sets, 1, MAX_RECORDS)
        _check("max_discoveries", self.max_discoveries, 1, MAX_RECORDS)
        _check("max_set_members", self.max_set_members, 1, MAX_RECORDS)
        _check("announcement_ttl_s", self.announcement_ttl_s, 1, MAX_ANNOUNCEMENT_TTL_S)
        least_s, most_s = MIN_FILES_INTERVAL_S, MAX_FILES_INTERVAL_S
        _check("files_interval_s", self.files_interval_s, least_s, most_s)
        _check("mailbox_events", self.mailbox_events, 1, MAX_RECORDS)
        _check("mailbox_bytes", self.mailbox_bytes, 1024, MAX_MAILBOX_BYTES)
        _check("handback_bytes", self.handback_bytes, 0, MAX_FIELD_BYTES)
        _check("reference_bytes", self.reference_bytes, 1024, MAX_FIELD_BYTES)
        for name in ("set", "registry", "discovery"):
            default, most = getattr(self, f"{name}_default"), getattr(self, f"{name}_maximum")
            if seconds_of(default) > seconds_of(most):
                raise ValueError(
                    f"{name}_default ({default}) must not be more than {name}_maximum ({most})"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a server, with their defaults.

    `tls` enables TLS; the files are read when the server starts.
    """

    directory: Path | None = Path("leasehold.data")
    """None stores nothing on disk."""
    engine: RemoteEndpoints | None = None
    """The etcd cluster that has all state, in place of a directory: see `server.cluster_server`."""
    advertise: Address | None = None
    """Where other servers on the same cluster reach this one; None for the first of `listen`."""
    services: ServiceSettings = field(default_factory=ServiceSettings)
    listen: tuple[Address, ...] = (TcpAddress("127.0.0.1", EXAMPLE_PORT),)
    tls: TlsFiles | None = None
    is_insecure: bool = False
    """Whether other machines may be served without TLS."""
    cors: tuple[str, ...] = ()
    """Origins whose web pages have access, such as https://app.example.org; * for all."""
    host_whitelist: tuple[str, ...] = ()
    """Names that web browsers may use for this server, besides those of `listen`; * for all."""
    has_gateway: bool = True
    """Whether calls are accepted as JSON, besides gRPC."""
    quota_bytes: int = DEFAULT_QUOTA_BYTES
    compaction: AutoCompaction = field(default_factory=AutoCompaction)
    min_ttl_s: int = MIN_TTL_S
    """Shorter TTLs are raised to this, for clients of etcd."""
    keys_per_lease: int = MAX_KEYS
    policies: Mapping[str, TermPolicy] = field(default_factory=dict)
    """For clients of `leasehold.v1`, by name."""
    unhealthy_after_s: float = UNHEALTHY_AFTER_S
    """How long a commit may be outstanding before `/health` reports the server as unhealthy."""
    max_streams: int = DEFAULT_MAX_STREAMS
    """Concurrent calls on one connection."""
    log_level: str = "info"
    log_format: str = "console"

    def peer_tls(self) -> ssl.SSLContext | None:
        """Read the files for calls to other servers, which have certificates of the same CA.

        This server presents its own certificate to them. Without a CA of client certificates, those
        of the system are trusted. None without TLS.
        """
        files = self.tls
        return None if files is None else client_tls(files.client_ca, files.cert, files.key)

    def __post_init__(self) -> None:
        if not self.listen:
            raise ValueError("listen must have at least one address, such as 127.0.0.1:2379")
        _check("quota_bytes", self.quota_bytes, MIN_QUOTA_BYTES, MAX_QUOTA_BYTES)
        _check("min_ttl_s", self.min_ttl_s, 1, MAX_TTL_S)
        most_s = MAX_UNHEALTHY_AFTER_S
        _check("unhealthy_after_s", self.unhealthy_after_s, MIN_UNHEALTHY_AFTER_S, most_s)
        _check("max_streams", self.max_streams, 1, MAX_STREAMS)
        _check("keys_per_lease", self.keys_per_lease, 1, MAX_KEYS_PER_LEASE)


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least:,} to {most:,}, got {value:,}")
