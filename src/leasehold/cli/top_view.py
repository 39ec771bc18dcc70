"""What `leasehold top` shows, as lines for people, and as a document for programs.

    a line about the server, one of rates, one of counts
    locks       those first that most wait for
    leases      those first that end first
    sessions    clients of ours

Nothing is asked for here. A screen that is too small for everything shares its lines out among the
three tables, and each says how many more there are.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from leasehold.cli.printing import named, number, shown_octets, table
from leasehold.cli.reporting import count as counted_words
from leasehold.cli.top_locks import Tenure
from leasehold.cli.top_metrics import CONNECTIONS, PUTS, RENEWALS, REQUESTS, REVISIONS, WATCHES
from leasehold.cli.top_reading import HeldLock, SeenSession, Sight
from leasehold.cli.words import shown_id, shown_remaining, shown_term
from leasehold.engine.remote.lease_service import HolderLease

ROWS: Final = 10
"""Rows of a table where there is no screen to be filled."""

MAX_NAME_CHARS: Final = 40
"""Of a lock or a holder: a screen has room for other columns then."""

MAX_KEYS_NAMED: Final = 3
"""Keys of a lease that a row names."""

MAX_JSON_LEASES: Final = 100
"""Leases in a document; how many there are is in it, too."""

_LOCK_HEADS: Final = ("LOCK", "HOLDER", "LEASE", "HELD FOR", "WAITING")
_LEASE_HEADS: Final = ("LEASE", "REMAINING", "TTL", "HOLDER", "KEYS")
_SESSION_HEADS: Final = ("SESSION", "REMAINING", "CLIENT")
_TABLE_LINES: Final = 3
"""What a table takes beside its rows: a line before it, its heads, and how many more there are."""

_WIDE: Final = frozenset("WF")


class Line(NamedTuple):
    """A line of a screen."""

    text: str
    is_head: bool = False


class _Table(NamedTuple):
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    total: int | None
    """How many rows there could be; None for more than there are, by nobody knows how many."""
    nothing: str


def lines(sight: Sight, *, trouble: str = "", height: int | None = None) -> list[Line]:
    """Write everything, in so many lines if that is given."""
    top = [Line(_about_server(sight)), Line(_about_rates(sight)), Line(_about_counts(sight))]
    if sight.keys_read < sight.keys_total:
        top.append(
            Line(
                f"locks are looked for in {sight.keys_read:,} of {sight.keys_total:,} keys: "
                "--prefix says where to look"
            )
        )
    if trouble:
        top.append(Line(trouble, is_head=True))
    tables = [_locks(sight), _leases(sight), _sessions(sight)]
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
    """Share out lines: whoever wants less than an equal part leaves the rest to the others."""
    given = [0] * len(wants)
    for done, at in enumerate(sorted(range(len(wants)), key=lambda each: wants[each])):
        given[at] = max(0, min(wants[at], -(-lines_left // (len(wants) - done))))
        lines_left -= given[at]
    return given


def fitted(text: str, columns: int) -> str:
    """Cut a line where a terminal ends; letters of some scripts take two columns."""
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


def _about_server(sight: Sight) -> str:
    server = sight.server
    name = f"Leasehold (etcd {server.version})" if server.is_leasehold else str(server)
    return f"{name} at {sight.endpoint}" if sight.endpoint else name


def _about_rates(sight: Sight) -> str:
    parts = [f"revision {sight.revision:,}"]
    parts += [
        f"{name} {_rate(sight.rates.get(name))}"
        for name in (REVISIONS, REQUESTS, PUTS, RENEWALS)
        if name == REVISIONS or name in sight.counted
    ]
    return "   ".join(parts)


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-/s"
    return f"{rate:,.1f}/s" if rate < 100 else f"{rate:,.0f}/s"


def _about_counts(sight: Sight) -> str:
    leases = "more than 10,000" if sight.leases_total is None else f"{sight.leases_total:,}"
    parts = [
        f"keys {sight.keys_total:,}",
        f"leases {leases}",
        f"locks {sight.locks_total:,}, {sight.waiting_total:,} waiting",
        f"sessions {sight.sessions_total:,}",
    ]
    parts += [
        f"{name} {sight.counted[name]:,.0f}"
        for name in (WATCHES, CONNECTIONS)
        if name in sight.counted
    ]
    return "   ".join(parts)


# The tables.


def _lines_of(shown: _Table, most: int) -> list[Line]:
    heads, *rows = table(shown.heads, shown.rows[:most])
    made = [Line(""), Line(heads, is_head=True), *(Line(row) for row in rows)]
    if not shown.rows:
        made.append(Line(shown.nothing))
    elif shown.total is None:
        made.append(Line("and more"))
    elif shown.total > len(rows):
        made.append(Line(f"and {shown.total - len(rows):,} more"))
    return made


def _locks(sight: Sight) -> _Table:
    rows = [
        (
            shown_octets(each.lock.name, MAX_NAME_CHARS),
            _holder(each),
            shown_id(each.lock.holder.lease),
            _held_for(each.tenure),
            f"{each.lock.waiting:,}",
        )
        for each in sight.locks
    ]
    return _Table(_LOCK_HEADS, rows, sight.locks_total, "no lock is held")


def _holder(each: HeldLock) -> str:
    if each.who:
        return shown_octets(each.who.encode(errors="replace"), MAX_NAME_CHARS)
    return f"lease {shown_id(each.lock.holder.lease)}"


def _held_for(tenure: Tenure) -> str:
    """Write how long; with a plus if it was held before anybody looked."""
    return f"{shown_term(int(tenure.seconds))}{'' if tenure.is_whole else '+'}"


def _leases(sight: Sight) -> _Table:
    rows = [
        (
            shown_id(each.info.id),
            shown_remaining(each.info.remaining),
            shown_term(each.info.ttl),
            shown_octets(each.holder.encode(), MAX_NAME_CHARS),
            _keys(each, sight.keys_of.get(each.info.id, [])),
        )
        for each in sight.leases.by_end[:MAX_JSON_LEASES]
    ]
    return _Table(_LEASE_HEADS, rows, sight.leases_total, "there is no lease")


def _keys(lease: HolderLease, known: Sequence[bytes]) -> str:
    """Write how many keys it has, and some of them, as far as they were looked at."""
    how_many = lease.info.key_count
    if not how_many:
        return "none"
    some = [shown_octets(key, MAX_NAME_CHARS) for key in known[:MAX_KEYS_NAMED]]
    if not some:
        return counted_words(how_many, "key")
    more = f" and {how_many - len(some):,} more" if how_many > len(some) else ""
    return f"{', '.join(some)}{more}"


def _sessions(sight: Sight) -> _Table:
    ends = _ends(sight)
    rows = [
        (
            shown_id(each.lease),
            shown_remaining(ends[each.lease]) if each.lease in ends else None,
            shown_octets(each.who.encode(errors="replace"), MAX_NAME_CHARS),
        )
        for each in sight.sessions
    ]
    return _Table(_SESSION_HEADS, rows, sight.sessions_total, "no client has a session")


def _ends(sight: Sight) -> dict[int, float]:
    wanted = {each.lease for each in sight.sessions}
    return {
        each.info.id: each.info.remaining
        for each in sight.leases.by_end
        if wanted and each.info.id in wanted
    }


# For programs.


def document(sight: Sight) -> dict[str, Any]:
    """Write everything for a program."""
    ends = _ends(sight)
    return {
        "server": "leasehold" if sight.server.is_leasehold else "etcd",
        "etcd_version": sight.server.version,
        "endpoint": sight.endpoint,
        "revision": sight.revision,
        "rates": {
            name: None if rate is None else round(rate, 3) for name, rate in sight.rates.items()
        },
        "keys": {"total": sight.keys_total, "read": sight.keys_read},
        "leases": {
            "total": sight.leases_total,
            "read": len(sight.leases.by_end),
            "next": [_lease_json(sight, each) for each in sight.leases.by_end[:MAX_JSON_LEASES]],
        },
        "locks": {
            "total": sight.locks_total,
            "waiting": sight.waiting_total,
            "first": [_lock_json(each) for each in sight.locks],
        },
        "sessions": {
            "total": sight.sessions_total,
            "first": [_session_json(each, ends) for each in sight.sessions],
        },
        "watches": _whole(sight.counted.get(WATCHES)),
        "connections": _whole(sight.counted.get(CONNECTIONS)),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _lease_json(sight: Sight, lease: HolderLease) -> dict[str, Any]:
    known = sight.keys_of.get(lease.info.id, [])[:MAX_KEYS_NAMED]
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
        "held": number(round(each.tenure.seconds, 3)),
        "is_held_longer": not each.tenure.is_whole,
        "waiting": each.lock.waiting,
    }


def _session_json(each: SeenSession, ends: dict[int, float]) -> dict[str, Any]:
    remaining = ends.get(each.lease)
    return {
        "lease": shown_id(each.lease),
        "who": each.who or None,
        "remaining": None if remaining is None else number(round(remaining, 3)),
    }
