"""What somebody may have meant who wrote a name that is not known here."""

import difflib
from collections.abc import Iterable
from typing import Final

_CLOSE: Final = 0.6

_NO_PEERS: Final = "a server has no peers, so leave it out"

OF_ETCD: Final = {
    "listen-client-urls": "that is --listen here",
    "listen-client-http-urls": "that is --listen here",
    "advertise-client-urls": "clients are told the addresses of --listen, so leave it out",
    "cert-file": "that is --cert here",
    "key-file": "that is --key here",
    "trusted-ca-file": "that is --client-ca here",
    "client-cert-auth": "that is --client-ca here, with the file of the CA certificates",
    "client-cert-file": "that is --client-ca here",
    "auto-tls": "make a certificate, and name it with --cert and --key",
    "quota-backend-bytes": "that is --quota here",
    "auto-compaction-retention": "that is --compaction-age or --compaction-revisions here",
    "auto-compaction-mode": "that is --compaction-age or --compaction-revisions here",
    "enable-grpc-gateway": "that is --gateway here",
    "enable-v2": "there is only v3, so leave it out",
    "config-file": "that is --config here",
    "log-outputs": "logs go to standard error, so leave it out",
    "logger": "that is --log-format here",
    "name": _NO_PEERS,
    "listen-peer-urls": _NO_PEERS,
    "heartbeat-interval": _NO_PEERS,
    "election-timeout": _NO_PEERS,
    "snapshot-count": "there is no Raft log, so leave it out",
    "wal-dir": "everything is in one directory: that is --data-dir here",
    "unsafe-no-fsync": "acknowledged changes are always on disk; --data-dir memory: stores nothing",
    "max-txn-ops": "the limit is that of etcd, 128, and is fixed",
    "max-request-bytes": "the limit is that of etcd, 1.5 MiB, and is fixed",
    "listen-metrics-urls": "metrics are on the port of --listen, so leave it out",
    "metrics": "metrics are on the port of --listen, so leave it out",
}
"""Flags of etcd, and what becomes of them here."""

_LISTEN: Final = "write --listen HOST:PORT, such as 127.0.0.1:2379"
_LOG_LEVEL: Final = "write --log-level debug"

OF_OTHERS: Final = {
    "port": _LISTEN,
    "p": _LISTEN,
    "host": _LISTEN,
    "bind": _LISTEN,
    "address": _LISTEN,
    "addr": _LISTEN,
    "debug": _LOG_LEVEL,
    "verbose": _LOG_LEVEL,
    "v": _LOG_LEVEL,
    "data": "write --data-dir DIR",
    "tls-cert": "write --cert FILE",
    "tls-key": "write --key FILE",
}
"""What many programs call it."""

OF_ETCDCTL: Final = {
    "endpoints": "write --endpoint",
    "write-out": "write --json",
    "w": "write --json",
    "command-timeout": "write --timeout",
    "dial-timeout": "write --timeout",
    "prev-kv": "write --previous",
    "ignore-lease": "write --keep-lease",
    "from-key": "there is only --prefix here",
    "insecure-skip-tls-verify": "give the CA certificates with --cacert",
    "insecure-transport": "TLS is used with https:// or --cacert only, so leave it out",
    "user": "there are no users here, so leave it out",
    "password": "there are no users here, so leave it out",
    "hex": "bytes that are not UTF-8 are in base64 with --json",
    "order": "keys are sorted, so leave it out",
    "sort-by": "keys are sorted, so leave it out",
    "consistency": "every answer is linearizable, so leave it out",
    "interactive": "lines are read from standard input, so leave it out",
    "i": "lines are read from standard input, so leave it out",
    "keys": "keys are always shown, so leave it out",
    "once": "that is `lease renew` here",
}
"""Flags of etcd's command for clients, and what becomes of them here."""

OF_CLIENTS: Final = ("endpoint", "cacert", "cert", "key", "timeout", "json")
"""Flags that all commands for clients have."""

_PEER_FLAGS: Final = ("initial-", "peer-", "discovery", "experimental-peer-", "strict-reconfig")


def hint(name: str, known: Iterable[str]) -> str | None:
    """Say what was meant by a flag or a key; None if that cannot be guessed."""
    said = OF_ETCD.get(name)
    if said is None and name.startswith(_PEER_FLAGS):
        said = _NO_PEERS
    if said is not None:
        return f"etcd has it; {said}"
    known = list(known)
    if name in OF_OTHERS and _option_in(OF_OTHERS[name]) in known:
        return OF_OTHERS[name]
    near = nearest(name, known)
    return None if near is None else f"did you mean {near}?"


def hint_for_client(name: str, known: Iterable[str]) -> str | None:
    """Say what was meant by a flag of a command for clients; None if that cannot be guessed."""
    said = OF_ETCDCTL.get(name)
    if said is not None:
        return f"etcdctl has it; {said}"
    near = nearest(name, known)
    return None if near is None else f"did you mean {near}?"


def _option_in(advice: str) -> str:
    return advice.split()[1].removeprefix("--")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that is most like this one, if any is."""
    alike = {each.lower().replace("_", "-"): each for each in known}
    found = difflib.get_close_matches(name.lower().replace("_", "-"), alike, 1, _CLOSE)
    return alike[found[0]] if found else None
