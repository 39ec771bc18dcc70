"""Parts of error messages: quoted input, in one line and cut if it is long, and suggestions."""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

MAX_SHOWN: Final = 100
"""Characters of a value or a name that a message repeats."""

MAX_SHOWN_PATH: Final = 1000
"""Characters of a path, which is useful only as a whole."""

MAX_LINE: Final = 1400
"""Characters of a line; a longer one is cut in the middle."""

_NEVER_SHOWN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line ends and surrogates. Spaces of any script and characters that a font
may lack are not among them: there are directories with such names."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


# Quoting.


def is_shown(text: str) -> bool:
    """Return whether all of a text can be shown as it is."""
    return not _NEVER_SHOWN.search(text)


def shown(text: str) -> str:
    """Return a value in quotes, with its length if it is cut."""
    if len(text) <= MAX_SHOWN:
        return repr(text)
    return f"{text[:MAX_SHOWN]!r}... ({len(text):,} characters)"


def shown_name(name: str) -> str:
    """Return the name of a key or a variable, in quotes unless it has the form of one."""
    return name if len(name) <= MAX_SHOWN and _PLAIN.fullmatch(name) else shown(name)


def shown_path(path: Path) -> str:
    """Return the path of a file for a message."""
    text = str(path)
    return text if len(text) <= MAX_SHOWN_PATH and is_shown(text) else shown(text)


def one_line(text: str) -> str:
    """Return any text as one line."""
    if len(text) > MAX_LINE:
        text = f"{text[: MAX_LINE // 2]} ... {text[-MAX_LINE // 2 :]}"
    return escaped(text)


def escaped(text: str) -> str:
    """Return a text with its control characters, line ends and surrogates escaped."""
    return _NEVER_SHOWN.sub(lambda found: repr(found[0])[1:-1], text)


# Suggestions for unknown options.

_CLOSE: Final = 0.6

_NO_PEERS: Final = "a server has no peers, so omit it"

OF_ETCD: Final = {
    "listen-client-urls": "use --listen",
    "listen-client-http-urls": "use --listen",
    "advertise-client-urls": "clients receive the addresses of --listen, so omit it",
    "cert-file": "use --cert",
    "key-file": "use --key",
    "trusted-ca-file": "use --client-ca",
    "client-cert-auth": "use --client-ca with the file of the CA certificates",
    "client-cert-file": "use --client-ca",
    "auto-tls": "create a certificate, and pass it with --cert and --key",
    "quota-backend-bytes": "use --quota",
    "auto-compaction-retention": "use --compaction-age or --compaction-revisions",
    "auto-compaction-mode": "use --compaction-age or --compaction-revisions",
    "enable-grpc-gateway": "use --gateway",
    "enable-v2": "only v3 is supported, so omit it",
    "config-file": "use --config",
    "log-outputs": "logs go to standard error, so omit it",
    "logger": "use --log-format",
    "name": _NO_PEERS,
    "listen-peer-urls": _NO_PEERS,
    "heartbeat-interval": _NO_PEERS,
    "election-timeout": _NO_PEERS,
    "snapshot-count": "there is no Raft log, so omit it",
    "wal-dir": "all data is in one directory; use --data-dir",
    "unsafe-no-fsync": "every acknowledged change is on disk; --data-dir memory: stores nothing",
    "max-txn-ops": "the limit is fixed at 128, the default of etcd",
    "max-request-bytes": "the limit is fixed at 1.5 MiB, the default of etcd",
    "listen-metrics-urls": "metrics are on the port of --listen, so omit it",
    "metrics": "metrics are on the port of --listen, so omit it",
}
"""Flags of etcd, and their equivalents here."""

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
"""Names that are common in other programs."""

OF_ETCDCTL: Final = {
    "endpoints": "use --endpoint",
    "write-out": "use --json",
    "w": "use --json",
    "command-timeout": "use --timeout",
    "dial-timeout": "use --timeout",
    "prev-kv": "use --previous",
    "ignore-lease": "use --keep-lease",
    "from-key": "only --prefix is supported",
    "insecure-skip-tls-verify": "pass the CA certificates with --cacert",
    "insecure-transport": "TLS is used with https:// or --cacert only, so omit it",
    "user": "authentication is not supported, so omit it",
    "password": "authentication is not supported, so omit it",
    "hex": "bytes that are not UTF-8 are in base64 with --json",
    "order": "keys are sorted, so omit it",
    "sort-by": "keys are sorted, so omit it",
    "consistency": "every answer is linearizable, so omit it",
    "interactive": "lines are read from standard input, so omit it",
    "i": "lines are read from standard input, so omit it",
    "keys": "keys are always shown, so omit it",
    "once": "use `lease renew`",
}
"""Flags of etcdctl, and their equivalents here."""

OF_CLIENTS: Final = ("endpoint", "cacert", "cert", "key", "timeout", "json")
"""Flags that all client commands have."""

_PEER_FLAGS: Final = ("initial-", "peer-", "discovery", "experimental-peer-", "strict-reconfig")


def hint(name: str, known: Iterable[str]) -> str | None:
    """Return a suggestion for a flag or a key; None if there is none."""
    advice = OF_ETCD.get(name)
    if advice is None and name.startswith(_PEER_FLAGS):
        advice = _NO_PEERS
    if advice is not None:
        return f"this is an option of etcd; {advice}"
    known = list(known)
    if name in OF_OTHERS and _option_in(OF_OTHERS[name]) in known:
        return OF_OTHERS[name]
    near = nearest(name, known)
    return None if near is None else f"did you mean {near}?"


def hint_for_client(name: str, known: Iterable[str]) -> str | None:
    """Return a suggestion for a flag of a client command; None if there is none."""
    advice = OF_ETCDCTL.get(name)
    if advice is not None:
        return f"this is an option of etcdctl; {advice}"
    near = nearest(name, known)
    return None if near is None else f"did you mean {near}?"


def _option_in(advice: str) -> str:
    return advice.split()[1].removeprefix("--")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, if any is similar."""
    alike = {each.lower().replace("_", "-"): each for each in known}
    found = difflib.get_close_matches(name.lower().replace("_", "-"), alike, 1, _CLOSE)
    return alike[found[0]] if found else None
