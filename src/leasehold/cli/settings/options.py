"""The table of all options.

Flags, variables, keys of the file and help are derived from the table. An option has one name:
`keys-per-lease` is `--keys-per-lease`, `LEASEHOLD_KEYS_PER_LEASE`, and `keys-per-lease = ` in the
file.
"""

from dataclasses import dataclass
from typing import Any, Final

from leasehold.cli.settings.value_types import (
    ADDRESS,
    DIRECTORY,
    DNS_ADDRESS,
    DOMAIN,
    ENDPOINT,
    ENGINE,
    FILE,
    FILE_STORES,
    FOREVER_WORD,
    GROUPS,
    HOST,
    OFF,
    ONE_ADDRESS,
    ORIGIN,
    POLICY,
    SWITCH,
    Kind,
    choice,
    count,
    size,
    term,
)
from leasehold.server.etcd.lease import MAX_TTL_S
from leasehold.server.settings import (
    LOG_FORMATS,
    LOG_LEVELS,
    MAX_ANNOUNCEMENT_TTL_S,
    MAX_FIELD_BYTES,
    MAX_FILES_INTERVAL_S,
    MAX_KEYS_PER_LEASE,
    MAX_MAILBOX_BYTES,
    MAX_QUOTA_BYTES,
    MAX_RECORDS,
    MAX_STREAMS,
    MAX_UNHEALTHY_AFTER_S,
    MIN_FILES_INTERVAL_S,
    MIN_QUOTA_BYTES,
    MIN_UNHEALTHY_AFTER_S,
    Settings,
)

PREFIX: Final = "LEASEHOLD_"
_STANDARD: Final = Settings()
_SERVICES: Final = _STANDARD.services
_YEAR_MS: Final = 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class Option:
    """An option."""

    name: str
    kind: Kind
    default: Any
    """A value of the kind; for a list, a tuple of values; None if there is no default."""
    help: str
    group: str

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper().replace("-", "_")

    @property
    def has_default(self) -> bool:
        """Whether there is a default value."""
        return self.default != () and (self.default is not None or self.kind is not FILE)

    @property
    def shown_default(self) -> str:
        """The default value, as it is written after a flag."""
        values = self.default if self.kind.is_list else (self.default,)
        return " ".join(map(self.kind.show, values))


DATA: Final = "data"
NETWORK: Final = "network"
CLUSTER: Final = "etcd cluster"
LEASES: Final = "leases"
SERVICES: Final = "services"
LOG: Final = "log"

OPTIONS: Final = (
    Option(
        "data-dir",
        DIRECTORY,
        _STANDARD.directory,
        "directory for all data; created if missing; memory: stores nothing on disk",
        DATA,
    ),
    Option(
        "quota",
        size("2GiB", MIN_QUOTA_BYTES, MAX_QUOTA_BYTES),
        _STANDARD.quota_bytes,
        "limit for the size of the data, in memory and on disk; above it only deletes, compaction "
        "and renewals are accepted",
        DATA,
    ),
    Option(
        "compaction-age",
        term("1h", 1000, 100 * _YEAR_MS, none=OFF),
        _STANDARD.compaction.age,
        "how long old revisions are kept",
        DATA,
    ),
    Option(
        "compaction-revisions",
        count("1000000", 1, 10**12, may_be_off=True),
        _STANDARD.compaction.revisions,
        "how many old revisions are kept",
        DATA,
    ),
    Option(
        "unhealthy-after",
        term("10s", MIN_UNHEALTHY_AFTER_S * 1000, MAX_UNHEALTHY_AFTER_S * 1000),
        _STANDARD.unhealthy_after_s,
        "how long a commit, or an answer of the etcd cluster, may take before /health reports "
        "false",
        DATA,
    ),
    Option(
        "engine",
        ENGINE,
        (),
        "etcd cluster for all state, in place of a data directory: etcd://HOST:PORT,HOST:PORT; the "
        "server then serves leasehold.v1 only",
        CLUSTER,
    ),
    Option(
        "engine-ca",
        FILE,
        None,
        "CA certificates of the cluster, in PEM; enables TLS to it",
        CLUSTER,
    ),
    Option(
        "engine-cert", FILE, None, "certificate of this server for the cluster, in PEM", CLUSTER
    ),
    Option("engine-key", FILE, None, "key of that certificate, in PEM, not encrypted", CLUSTER),
    Option(
        "advertise",
        ONE_ADDRESS,
        (),
        "address at which other servers on the same cluster reach this one; by default the "
        "first of listen",
        CLUSTER,
    ),
    Option(
        "listen",
        ADDRESS,
        _STANDARD.listen,
        "address to listen on: HOST:PORT, [IPV6]:PORT or unix:PATH; port 0 chooses a free port; "
        "may be given several times",
        NETWORK,
    ),
    Option(
        "cert",
        FILE,
        None,
        "server certificate with its chain, in PEM; enables TLS on every address",
        NETWORK,
    ),
    Option("key", FILE, None, "key of the certificate, in PEM, not encrypted", NETWORK),
    Option(
        "client-ca",
        FILE,
        None,
        "CA certificates, in PEM; clients must have a certificate signed by one of them",
        NETWORK,
    ),
    Option(
        "insecure",
        SWITCH,
        _STANDARD.is_insecure,
        "serve other machines without TLS: every client that reaches the port can read and change "
        "all data",
        NETWORK,
    ),
    Option(
        "cors",
        ORIGIN,
        _STANDARD.cors,
        "origin whose web pages have access, such as https://app.example.org; * allows all; may be "
        "given several times",
        NETWORK,
    ),
    Option(
        "host-whitelist",
        HOST,
        _STANDARD.host_whitelist,
        "host name allowed in the Host header, besides IP addresses, localhost and the names in "
        "listen; * allows all; by default checked only if all addresses are loopback without TLS; "
        "may be given several times",
        NETWORK,
    ),
    Option(
        "gateway",
        SWITCH,
        _STANDARD.has_gateway,
        "serve the JSON gateway over HTTP, besides gRPC",
        NETWORK,
    ),
    Option(
        "max-streams",
        count("1024", 1, MAX_STREAMS),
        _STANDARD.max_streams,
        "maximum number of concurrent calls on one connection, including watches",
        NETWORK,
    ),
    Option(
        "min-ttl",
        term("2s", 1000, MAX_TTL_S * 1000, unit_ms=1000),
        float(_STANDARD.min_ttl_s),
        "shortest TTL for clients of etcd, in whole seconds; shorter ones are raised to it",
        LEASES,
    ),
    Option(
        "keys-per-lease",
        count("100000", 1, MAX_KEYS_PER_LEASE),
        _STANDARD.keys_per_lease,
        "maximum number of keys attached to one lease",
        LEASES,
    ),
    Option(
        "policy",
        POLICY,
        (),
        "shortest, longest and default TTL of leases with this policy on leasehold.v1, such as "
        f"{POLICY.example}; the policy named default applies to leases without one; may be given "
        "several times",
        LEASES,
    ),
    Option(
        "renew-at",
        ENDPOINT,
        _SERVICES.renew_at,
        "endpoint at which the renewal service may renew leases, besides this server; may be given "
        "several times",
        SERVICES,
    ),
    Option(
        "callbacks",
        ENDPOINT,
        _SERVICES.callbacks,
        "endpoint that events may be sent to, besides mailboxes and the caller's own address; may "
        "be given several times",
        SERVICES,
    ),
    Option(
        "isolate-sets",
        SWITCH,
        _SERVICES.isolate_sets,
        "renew leases of different renewal sets in separate messages",
        SERVICES,
    ),
    Option(
        "max-sets",
        count("10000", 1, MAX_RECORDS),
        _SERVICES.max_sets,
        "maximum number of renewal sets",
        SERVICES,
    ),
    Option(
        "max-set-members",
        count("100000", 1, MAX_RECORDS),
        _SERVICES.max_set_members,
        "maximum number of leases in one renewal set",
        SERVICES,
    ),
    Option(
        "set-term-max",
        term("2h", 1, 100 * _YEAR_MS, none=FOREVER_WORD),
        _SERVICES.set_maximum,
        "longest term of a renewal set",
        SERVICES,
    ),
    Option(
        "set-term-default",
        term("1h", 1, 100 * _YEAR_MS, none=FOREVER_WORD),
        _SERVICES.set_default,
        "term of a renewal set if the client leaves it to the service",
        SERVICES,
    ),
    Option(
        "registry-term-max",
        term("1h", 1, 100 * _YEAR_MS, none=FOREVER_WORD),
        _SERVICES.registry_maximum,
        "longest term of an item of the registry, and of a registration for its events",
        SERVICES,
    ),
    Option(
        "registry-term-default",
        term("1m", 1, 100 * _YEAR_MS, none=FOREVER_WORD),
        _SERVICES.registry_default,
        "term of an item of the registry if the client leaves it to the service",
        SERVICES,
    ),
    Option(
        "max-discoveries",
        count("10000", 1, MAX_RECORDS),
        _SERVICES.max_discoveries,
        "maximum number of registrations of the discovery service",
        SERVICES,
    ),
    Option(
        "discovery-term-max",
        term("2h", 1, 100 * _YEAR_MS, none=FOREVER_WORD),
        _SERVICES.discovery_maximum,
        "longest term of a registration of the discovery service",
        SERVICES,
    ),
    Option(
        "discovery-term-default",
        term("1h", 1, 100 * _YEAR_MS, none=FOREVER_WORD),
        _SERVICES.discovery_default,
        "term of a registration of the discovery service if the client leaves it to the service",
        SERVICES,
    ),
    Option(
        "discover-at",
        ENDPOINT,
        _SERVICES.discover_at,
        "endpoint that the discovery service may call as a locator of its clients; * for all; may "
        "be given several times",
        SERVICES,
    ),
    Option(
        "groups",
        GROUPS,
        (),
        "groups of this registrar, which is then announced on the network: NAME,NAME; the empty "
        "name is the public group",
        SERVICES,
    ),
    Option(
        "announcement-ttl",
        term("2m", 1000, MAX_ANNOUNCEMENT_TTL_S * 1000, unit_ms=1000),
        float(_SERVICES.announcement_ttl_s),
        "how long announcements are valid, in whole seconds; clients drop a killed server "
        "within twice this time",
        SERVICES,
    ),
    Option(
        "mailbox-events",
        count("10000", 1, MAX_RECORDS),
        _SERVICES.mailbox_events,
        "maximum number of events in one mailbox",
        SERVICES,
    ),
    Option(
        "mailbox-bytes",
        size("16MiB", 1024, MAX_MAILBOX_BYTES),
        _SERVICES.mailbox_bytes,
        "maximum size of the events in one mailbox",
        SERVICES,
    ),
    Option(
        "max-handback",
        size("64KiB", 0, MAX_FIELD_BYTES),
        _SERVICES.handback_bytes,
        "maximum size of the handback of a listener",
        SERVICES,
    ),
    Option(
        "max-lease-reference",
        size("16KiB", 1024, MAX_FIELD_BYTES),
        _SERVICES.reference_bytes,
        "maximum size of a lease reference in a renewal set",
        SERVICES,
    ),
    Option(
        "file-stores",
        FILE_STORES,
        _SERVICES.file_stores,
        "replica stores of single-writer files, directories or URLs: URL,URL; the server closes "
        "files whose writers are gone only if it has at least one",
        SERVICES,
    ),
    Option(
        "files-interval",
        term("2s", round(MIN_FILES_INTERVAL_S * 1000), round(MAX_FILES_INTERVAL_S * 1000)),
        _SERVICES.files_interval_s,
        "interval of checks for files whose writers are gone",
        SERVICES,
    ),
    Option(
        "dns",
        DNS_ADDRESS,
        (),
        "IP address and port to answer DNS queries for services on, over UDP and TCP; needs the "
        "extra leasehold[dns]",
        SERVICES,
    ),
    Option(
        "dns-domain",
        DOMAIN,
        _SERVICES.dns_domain,
        "domain of the names of services in DNS: NAME.service.DOMAIN",
        SERVICES,
    ),
    Option("log-level", choice(LOG_LEVELS), _STANDARD.log_level, "lowest level to log", LOG),
    Option(
        "log-format",
        choice(LOG_FORMATS),
        _STANDARD.log_format,
        "plain lines, or one JSON object per line",
        LOG,
    ),
)

BY_NAME: Final = {option.name: option for option in OPTIONS}

CREDENTIALS: Final = Option(
    "credentials",
    Kind("", "[credentials.NAME]", str, is_list=True),
    (),
    "TLS files for endpoints of renew-at and callbacks, by name: in the file only",
    SERVICES,
)
"""Pairs of a name and `RemoteEndpoints`. It is a table of the file, and neither a flag nor a
variable."""
