"""The one table of what can be set: flags, variables, keys of the file and help follow from it.

An option has one name: `keys-per-lease` is `--keys-per-lease`, `LEASEHOLD_KEYS_PER_LEASE`, and
`keys-per-lease = ` in the file.
"""

from dataclasses import dataclass
from typing import Any, Final

from leasehold.cli.settings.kinds import (
    ADDRESS,
    DIRECTORY,
    FILE,
    HOST,
    ORIGIN,
    SWITCH,
    Kind,
    choice,
    count,
    size,
    term,
)
from leasehold.cli.settings.policy_kind import POLICY
from leasehold.engine.housekeeping import AutoCompaction
from leasehold.server.etcd.lease import MAX_TTL_S
from leasehold.server.settings import (
    LOG_FORMATS,
    LOG_LEVELS,
    MAX_KEYS_PER_LEASE,
    MAX_QUOTA_BYTES,
    MIN_QUOTA_BYTES,
    Settings,
    TlsFiles,
)

PREFIX: Final = "LEASEHOLD_"
_STANDARD: Final = Settings()
_YEAR_MS: Final = 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class Option:
    """Something that can be set."""

    name: str
    kind: Kind
    default: Any
    """A value of the kind; for a list, a tuple of them; None if there is none."""
    help: str
    group: str

    @property
    def flag(self) -> str:
        """How it is given on the command line."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """How it is given in the environment."""
        return PREFIX + self.name.upper().replace("-", "_")

    @property
    def has_default(self) -> bool:
        """Whether there is something in force if nothing is given."""
        return self.default != () and (self.default is not None or self.kind is not FILE)

    @property
    def shown_default(self) -> str:
        """What is in force if nothing is given, as it is written after a flag."""
        values = self.default if self.kind.is_list else (self.default,)
        return " ".join(map(self.kind.show, values))


DATA: Final = "data"
NETWORK: Final = "network"
LEASES: Final = "leases"
LOG: Final = "log"

OPTIONS: Final = (
    Option(
        "data-dir",
        DIRECTORY,
        _STANDARD.directory,
        "where everything is kept; made if it is not there; memory: keeps nothing",
        DATA,
    ),
    Option(
        "quota",
        size("2GiB", MIN_QUOTA_BYTES, MAX_QUOTA_BYTES),
        _STANDARD.quota_bytes,
        "what the data may take, in memory or on disk; beyond it only deletes, compaction and "
        "renewals go on",
        DATA,
    ),
    Option(
        "compaction-age",
        term("1h", 1000, 100 * _YEAR_MS, may_be_off=True),
        _STANDARD.compaction.age,
        "how long history is kept",
        DATA,
    ),
    Option(
        "compaction-revisions",
        count("1000000", 1, 10**12, may_be_off=True),
        _STANDARD.compaction.revisions,
        "how many revisions of history are kept",
        DATA,
    ),
    Option(
        "listen",
        ADDRESS,
        _STANDARD.listen,
        "where to listen: HOST:PORT, [IPV6]:PORT or unix:PATH; port 0 takes a free one; may be "
        "given several times",
        NETWORK,
    ),
    Option(
        "cert",
        FILE,
        None,
        "the server's certificate, in PEM, with what leads to its root: serve TLS only",
        NETWORK,
    ),
    Option("key", FILE, None, "the key of that certificate, in PEM, without a password", NETWORK),
    Option(
        "client-ca",
        FILE,
        None,
        "clients must have a certificate that one of those in this file has signed",
        NETWORK,
    ),
    Option(
        "insecure",
        SWITCH,
        _STANDARD.is_insecure,
        "serve other machines without TLS: whoever reaches the port can read and change everything",
        NETWORK,
    ),
    Option(
        "cors",
        ORIGIN,
        _STANDARD.cors,
        "an origin whose web pages have access, such as https://app.example.org; * is all of them; "
        "may be given several times",
        NETWORK,
    ),
    Option(
        "host-whitelist",
        HOST,
        _STANDARD.host_whitelist,
        "a name by which HTTP clients may address the server, besides IP addresses, localhost and "
        "the names in listen; * is all of them; not checked by default unless all addresses are "
        "loopback without TLS; may be given several times",
        NETWORK,
    ),
    Option(
        "gateway",
        SWITCH,
        _STANDARD.has_gateway,
        "take calls as JSON over HTTP, besides gRPC",
        NETWORK,
    ),
    Option(
        "min-ttl",
        term("2s", 1000, MAX_TTL_S * 1000, unit_ms=1000),
        float(_STANDARD.min_ttl_s),
        "what shorter terms are raised to, for clients of etcd; whole seconds",
        LEASES,
    ),
    Option(
        "keys-per-lease",
        count("100000", 1, MAX_KEYS_PER_LEASE),
        _STANDARD.keys_per_lease,
        "how many keys a lease may take with it",
        LEASES,
    ),
    Option(
        "policy",
        POLICY,
        (),
        "shortest, longest and usual term of leases that name this policy on leasehold.v1, such as "
        f"{POLICY.example}; the policy default is for those that name none; may be given several "
        "times",
        LEASES,
    ),
    Option("log-level", choice(LOG_LEVELS), _STANDARD.log_level, "the least that is logged", LOG),
    Option(
        "log-format",
        choice(LOG_FORMATS),
        _STANDARD.log_format,
        "lines for people, or an object a line for machines",
        LOG,
    ),
)

BY_NAME: Final = {option.name: option for option in OPTIONS}


def settings_of(values: dict[str, Any]) -> Settings:
    """Put values, by the names of their options, together to what a server takes."""
    cert, key = values["cert"], values["key"]
    return Settings(
        directory=values["data-dir"],
        listen=values["listen"],
        tls=None if cert is None or key is None else TlsFiles(cert, key, values["client-ca"]),
        is_insecure=values["insecure"],
        cors=values["cors"],
        host_whitelist=values["host-whitelist"],
        has_gateway=values["gateway"],
        quota_bytes=values["quota"],
        compaction=AutoCompaction(values["compaction-age"], values["compaction-revisions"]),
        min_ttl_s=int(values["min-ttl"]),
        keys_per_lease=values["keys-per-lease"],
        policies=dict(values["policy"]),
        log_level=values["log-level"],
        log_format=values["log-format"],
    )
