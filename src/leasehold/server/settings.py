"""What a server is told before it starts. Values only: nothing is opened or looked up here."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold.engine.housekeeping import AutoCompaction
from leasehold.engine.leases import MAX_KEYS
from leasehold.engine.store import DEFAULT_QUOTA_BYTES
from leasehold.rpc.addresses import EXAMPLE_PORT, Address, TcpAddress, UnixAddress
from leasehold.server.etcd.lease import MAX_TTL_S, MIN_TTL_S
from leasehold.server.policies import TermPolicy

MIN_QUOTA_BYTES: Final = 1024**2
"""Less would be used up by a server that does nothing."""

MAX_QUOTA_BYTES: Final = 1024**5

MAX_KEYS_PER_LEASE: Final = 1_000_000
"""They go at one revision; so their names are limited, too: `engine.lease_record.MAX_KEY_BYTES`."""

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("console", "json")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A server's certificate and key, and whose certificates its clients must have, if any."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be said about a server, with what holds if nothing is said.

    `tls` says that it has TLS; what is in the files is seen when it starts.
    """

    directory: Path | None = Path("leasehold.data")
    """None keeps nothing."""
    listen: tuple[Address, ...] = (TcpAddress("127.0.0.1", EXAMPLE_PORT),)
    tls: TlsFiles | None = None
    is_insecure: bool = False
    """Whether others than this machine may be served without TLS."""
    cors: tuple[str, ...] = ()
    """Origins whose web pages have access, such as https://app.example.org; * for all."""
    host_whitelist: tuple[str, ...] = ()
    """Names that web browsers may call this server by, besides those of `listen`; * for all."""
    has_gateway: bool = True
    """Whether calls are taken as JSON, besides gRPC."""
    quota_bytes: int = DEFAULT_QUOTA_BYTES
    compaction: AutoCompaction = field(default_factory=AutoCompaction)
    min_ttl_s: int = MIN_TTL_S
    """What shorter terms are raised to, for clients of etcd."""
    keys_per_lease: int = MAX_KEYS
    policies: Mapping[str, TermPolicy] = field(default_factory=dict)
    """For clients of `leasehold.v1`, by name."""
    log_level: str = "info"
    log_format: str = "console"

    def __post_init__(self) -> None:
        if not self.listen:
            raise ValueError("listen names no address; one is needed, such as 127.0.0.1:2379")
        _check("quota_bytes", self.quota_bytes, MIN_QUOTA_BYTES, MAX_QUOTA_BYTES)
        _check("min_ttl_s", self.min_ttl_s, 1, MAX_TTL_S)
        _check("keys_per_lease", self.keys_per_lease, 1, MAX_KEYS_PER_LEASE)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least:,} to {most:,}, not {value:,}")


def is_local(address: Address) -> bool:
    """Say whether only this machine can reach an address. A name but localhost may be anything."""
    if isinstance(address, UnixAddress) or address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False
