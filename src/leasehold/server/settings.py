"""The settings of a server. Values only: nothing is opened or looked up here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold.basics.addresses import EXAMPLE_PORT, Address, TcpAddress
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

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("console", "json")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A server's certificate and key, and the CA of its clients' certificates, if any."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a server, with their defaults.

    `tls` enables TLS; the files are read when the server starts.
    """

    directory: Path | None = Path("leasehold.data")
    """None stores nothing on disk."""
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

    def __post_init__(self) -> None:
        if not self.listen:
            raise ValueError("listen must have at least one address, such as 127.0.0.1:2379")
        _check("quota_bytes", self.quota_bytes, MIN_QUOTA_BYTES, MAX_QUOTA_BYTES)
        _check("min_ttl_s", self.min_ttl_s, 1, MAX_TTL_S)
        most_s = MAX_UNHEALTHY_AFTER_S
        _check("unhealthy_after_s", self.unhealthy_after_s, MIN_UNHEALTHY_AFTER_S, most_s)
        _check("max_streams", self.max_streams, 1, MAX_STREAMS)
        _check("keys_per_lease", self.keys_per_lease, 1, MAX_KEYS_PER_LEASE)


def _check(name: str, value: float, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least:,} to {most:,}, got {value:,}")
