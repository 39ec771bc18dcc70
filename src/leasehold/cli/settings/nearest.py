"""What somebody may have meant who wrote a name that is not known here."""

import difflib
from collections.abc import Iterable
from typing import Final

_CLOSE: Final = 0.6

_NO_PEERS: Final = "there are no peers: one process serves, so leave it out"

OF_ETCD: Final = {
    "listen-client-urls": "that is --listen here",
    "listen-client-http-urls": "that is --listen here",
    "advertise-client-urls": "clients are told no addresses, so leave it out",
    "cert-file": "that is --cert here",
    "key-file": "that is --key here",
    "trusted-ca-file": "that is --client-ca here",
    "client-cert-auth": "that is --client-ca here, with the file of those who sign",
    "client-cert-file": "that is --client-ca here",
    "auto-tls": "make a certificate, and name it with --cert and --key",
    "quota-backend-bytes": "that is --quota here",
    "auto-compaction-retention": "that is --compaction-age or --compaction-revisions here",
    "auto-compaction-mode": "that is --compaction-age or --compaction-revisions here",
    "config-file": "that is --config here",
    "log-outputs": "logs go to standard error, so leave it out",
    "logger": "that is --log-format here",
    "name": _NO_PEERS,
    "listen-peer-urls": _NO_PEERS,
    "heartbeat-interval": _NO_PEERS,
    "election-timeout": _NO_PEERS,
    "snapshot-count": "there is no log of Raft, so leave it out",
    "wal-dir": "everything is in one directory: that is --data-dir here",
    "unsafe-no-fsync": "what was acknowledged is on disk, always; --data-dir memory: keeps nothing",
    "max-txn-ops": "the limit is that of etcd, 128, and is fixed",
    "max-request-bytes": "the limit is that of etcd, 1.5 MiB, and is fixed",
    "listen-metrics-urls": "metrics are on the port of --listen, so leave it out",
    "metrics": "metrics are on the port of --listen, so leave it out",
}
"""Flags of etcd, and what becomes of them here."""

_PEER_FLAGS: Final = ("initial-", "peer-", "discovery", "experimental-peer-", "strict-reconfig")


def hint(name: str, known: Iterable[str]) -> str | None:
    """Say what was meant by a flag or a key; None if that cannot be guessed."""
    said = OF_ETCD.get(name)
    if said is None and name.startswith(_PEER_FLAGS):
        said = _NO_PEERS
    if said is not None:
        return f"etcd has it; {said}"
    near = nearest(name, known)
    return None if near is None else f"did you mean {near}?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that is most like this one, if any is."""
    alike = {each.lower().replace("_", "-"): each for each in known}
    found = difflib.get_close_matches(name.lower().replace("_", "-"), alike, 1, _CLOSE)
    return alike[found[0]] if found else None
