"""The output of `leasehold top`, as lines for people, and as a document for programs.

    a line about the server, one of rates, one of counts
    locks       ordered by the number of waiters
    leases      ordered by their ends
    sessions    clients of ours

This module makes no requests. A screen that is too small for everything is divided among the three
tables, and each shows how many more rows there are.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from leasehold.cli.argument_types import shown_id, shown_remaining, shown_term
from leasehold.cli.output import count as counted_words
from leasehold.cli.output import named, number, shown_bytes, table
from leasehold.cli.top_metrics import CONNECTIONS, PUTS, RENEWALS, REQUESTS, REVISIONS, WATCHES
from leasehold.cli.top_reading import HeldLock, HeldTime, SeenSession, ServerSnapshot
from leasehold.engine.remote.leasehold_leases import HolderLease

ROWS: Final = 10
"""Rows of a table where there is no screen to fill."""

MAX_NAME_CHARS: Final = 40
"""Of a lock or a holder, to leave room for other columns."""

MAX_KEYS_NAMED: Final = 3
"""Keys of a lease that a row names."""

MAX_JSON_LEASES: Final = 100
"""Leases in a document, which has their total number, too."""

_LOCK_HEADS: Final = ("LOCK", "HOLDER", "LEASE", "HELD FOR", "WAITING")
_LEASE_HEADS: Final = ("LEASE", "REMAINING", "TTL", "HOLDER", "KEYS")
_SESSION_HEADS: Final = ("SESSION", "REMAINING", "CLIENT")
_TABLE_LINES: Final = 3
"""Lines of a table besides its rows: an empty line, the heads, and how many more there are."""

_WIDE: Final = frozenset("WF")


class ScreenLine(NamedTuple):
    """A line of a screen."""

    text: str
    is_head: bool = False


class _Table(NamedTuple):
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    total: int | None
    """The number of all rows; None if there are more than given, and the number is unknown."""
    nothing: str


def lines(
    snapshot: ServerSnapshot, *, trouble: str = "", height: int | None = None
) -> list[ScreenLine]:
    """Format everything, in at most `height` lines if it is given."""
    if snapshot.server.engine:
        return _about_engine(snapshot, trouble)[:height]
    top = [
        ScreenLine(_about_server(snapshot)),
        ScreenLine(_about_rates(snapshot)),
        ScreenLine(_about_counts(snapshot)),
    ]
    if snapshot.keys_read < snapshot.keys_total:
        top.append(
            ScreenLine(
                f"locks were searched in {snapshot.keys_read:,} of {snapshot.keys_total:,} keys; "
                "use --prefix to choose which keys are read"
            )
        )
    if trouble:
        top.append(ScreenLine(trouble, is_head=True))
    tables = [_locks(snapshot), _leases(snapshot), _sessions(snapshot)]
    wants = [len(each.rows) for each in tables]
    if height is None:
        rows = [min(each, ROWS) for each in wants]
    else:
        rows = shared(height - len(top) - _TABLE_LINES * len(tables), wants)
    shown = [
        line for each, most in zip(tables, rows, strict=True) for line in _lines_of(each, most)
    ]
    return (top + shown)[:height]


def shared(lines_left: int, wants: Sequence[int]) -> list[int]:
    """Divide lines equally among tables; lines that a table does not need go to others."""
    given = [0] * len(wants)
    for done, at in enumerate(sorted(range(len(wants)), key=lambda each: wants[each])):
        given[at] = max(0, min(wants[at], -(-lines_left // (len(wants) - done))))
        lines_left -= given[at]
    return given


def fitted(text: str, columns: int) -> str:
    """Cut a line to the width of the terminal; letters of some scripts take two columns."""
    taken = 0
    for at, letter in enumerate(text):
        if not letter.isascii():
            taken += 0 if unicodedata.combining(letter) else 1
            taken += unicodedata.east_asian_width(letter) in _WIDE
        else:
            taken += 1
        if taken > columns:
            return text[:at]
    return text


# The first lines.


def _about_server(snapshot: ServerSnapshot) -> str:
    server = snapshot.server
    name = f"Leasehold (etcd {server.version})" if server.is_leasehold else str(server)
    return f"{name} at {snapshot.endpoint}" if snapshot.endpoint else name


def _about_engine(snapshot: ServerSnapshot, trouble: str) -> list[ScreenLine]:
    """Format what a server on an etcd cluster has: it serves neither keys nor locks."""
    endpoints = snapshot.server.engine.removeprefix("etcd://")
    shown = [
        ScreenLine(f"{snapshot.server} at {snapshot.endpoint}"),
        ScreenLine(_about_rates(snapshot)),
    ]
    if CONNECTIONS in snapshot.counted:
        shown.append(ScreenLine(f"connections {snapshot.counted[CONNECTIONS]:,.0f}"))
    note = f"keys, leases and locks are in the cluster: leasehold top --endpoint {endpoints}"
    shown.append(ScreenLine(note))
    return [*shown, ScreenLine(trouble, is_head=True)] if trouble else shown


def _about_rates(snapshot: ServerSnapshot) -> str:
    parts = [f"revision {snapshot.revision:,}"]
    parts += [
        f"{name} {_rate(snapshot.rates.get(name))}"
        for name in (REVISIONS, REQUESTS, PUTS, RENEWALS)
        if name == REVISIONS or name in snapshot.counted
    ]
    return "   ".join(parts)


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-/s"
    return f"{rate:,.1f}/s" if rate < 100 else f"{rate:,.0f}/s"


def _about_counts(snapshot: ServerSnapshot) -> str:
    leases = "more than 10,000" if snapshot.leases_total is None else f"{snapshot.leases_total:,}"
    parts = [
        f"keys {snapshot.keys_total:,}",
        f"leases {leases}",
        f"locks {snapshot.locks_total:,}, {snapshot.waiting_total:,} waiting",
        f"sessions {snapshot.sessions_total:,}",
    ]
    parts += [
        f"{name} {snapshot.counted[name]:,.0f}"
        for name in (WATCHES, CONNECTIONS)
        if name in snapshot.counted
    ]
    return "   ".join(parts)


# The tables.


def _lines_of(shown: _Table, most: int) -> list[ScreenLine]:
    heads, *rows = table(shown.heads, shown.rows[:most])
    made = [ScreenLine(""), ScreenLine(heads, is_head=True), *(ScreenLine(row) for row in rows)]
    if not shown.rows:
        made.append(ScreenLine(shown.nothing))
    elif shown.total is None:
        made.append(ScreenLine("and more"))
    elif shown.total > len(rows):
        made.append(ScreenLine(f"and {shown.total - len(rows):,} more"))
    return made


def _locks(snapshot: ServerSnapshot) -> _Table:
    rows = [
        (
            shown_bytes(each.lock.name, MAX_NAME_CHARS),
            _holder(each),
            shown_id(each.lock.holder.lease),
            _held_for(each.held_time),
            f"{each.lock.waiting:,}",
        )
        for each in snapshot.locks
    ]
    return _Table(_LOCK_HEADS, rows, snapshot.locks_total, "no locks")


def _holder(each: HeldLock) -> str:
    if each.who:
        return shown_bytes(each.who.encode(errors="replace"), MAX_NAME_CHARS)
    return f"lease {shown_id(each.lock.holder.lease)}"


def _held_for(held_time: HeldTime) -> str:
    """Format how long; with a plus if it was held before the first read."""
    return f"{shown_term(int(held_time.seconds))}{'' if held_time.is_whole else '+'}"


def _leases(snapshot: ServerSnapshot) -> _Table:
    rows = [
        (
            shown_id(each.info.id),
            shown_remaining(each.info.remaining),
            shown_term(each.info.ttl),
            shown_bytes(each.holder.encode(), MAX_NAME_CHARS),
            _keys(each, snapshot.keys_of.get(each.info.id, [])),
        )
        for each in snapshot.leases.by_end[:MAX_JSON_LEASES]
    ]
    return _Table(_LEASE_HEADS, rows, snapshot.leases_total, "no leases")


def _keys(lease: HolderLease, known: Sequence[bytes]) -> str:
    """Format the number of its keys, and some of their names, as far as they were examined."""
    how_many = lease.info.key_count
    if not how_many:
        return "none"
    some = [shown_bytes(key, MAX_NAME_CHARS) for key in known[:MAX_KEYS_NAMED]]
    if not some:
        return counted_words(how_many, "key")
    more = f" and {how_many - len(some):,} more" if how_many > len(some) else ""
    return f"{', '.join(some)}{more}"


def _sessions(snapshot: ServerSnapshot) -> _Table:
    ends = _ends(snapshot)
    rows = [
        (
            shown_id(each.lease),
            shown_remaining(ends[each.lease]) if each.lease in ends else None,
            shown_bytes(each.who.encode(errors="replace"), MAX_NAME_CHARS),
        )
        for each in snapshot.sessions
    ]
    return _Table(_SESSION_HEADS, rows, snapshot.sessions_total, "no sessions")


def _ends(snapshot: ServerSnapshot) -> dict[int, float]:
    wanted = {each.lease for each in snapshot.sessions}
    return {
        each.info.id: each.info.remaining
        for each in snapshot.leases.by_end
        if wanted and each.info.id in wanted
    }


# For programs.


def document(snapshot: ServerSnapshot) -> dict[str, Any]:
    """Return everything as a document."""
    ends = _ends(snapshot)
    return {
        "server": "leasehold" if snapshot.server.is_leasehold else "etcd",
        "etcd_version": snapshot.server.version,
        "engine": snapshot.server.engine or None,
        "endpoint": snapshot.endpoint,
        "revision": snapshot.revision,
        "rates": {
            name: None if rate is None else round(rate, 3) for name, rate in snapshot.rates.items()
        },
        "keys": {"total": snapshot.keys_total, "read": snapshot.keys_read},
        "leases": {
            "total": snapshot.leases_total,
            "read": len(snapshot.leases.by_end),
            "next": [
                _lease_json(snapshot, each) for each in snapshot.leases.by_end[:MAX_JSON_LEASES]
            ],
        },
        "locks": {
            "total": snapshot.locks_total,
            "waiting": snapshot.waiting_total,
            "first": [_lock_json(each) for each in snapshot.locks],
        },
        "sessions": {
            "total": snapshot.sessions_total,
            "first": [_session_json(each, ends) for each in snapshot.sessions],
        },
        "watches": _whole(snapshot.counted.get(WATCHES)),
        "connections": _whole(snapshot.counted.get(CONNECTIONS)),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _lease_json(snapshot: ServerSnapshot, lease: HolderLease) -> dict[str, Any]:
    known = snapshot.keys_of.get(lease.info.id, [])[:MAX_KEYS_NAMED]
    return {
        "id": shown_id(lease.info.id),
        "ttl": number(lease.info.ttl),
        "remaining": number(round(lease.info.remaining, 3)),
        "holder": lease.holder or None,
        "key_count": lease.info.key_count,
        "keys": [named("key", key) for key in known],
    }


def _lock_json(each: HeldLock) -> dict[str, Any]:
    return {
        **named("name", each.lock.name),
        "holder": each.who or None,
        "lease": shown_id(each.lock.holder.lease),
        "token": each.lock.holder.create_revision,
        "held": number(round(each.held_time.seconds, 3)),
        "is_held_longer": not each.held_time.is_whole,
        "waiting": each.lock.waiting,
    }


def _session_json(each: SeenSession, ends: dict[int, float]) -> dict[str, Any]:
    remaining = ends.get(each.lease)
    return {
        "lease": shown_id(each.lease),
        "who": each.who or None,
        "remaining": None if remaining is None else number(round(remaining, 3)),
    }
