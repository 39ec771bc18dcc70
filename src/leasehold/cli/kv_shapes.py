"""Keys and what becomes of them, as `leasehold kv` prints them."""

from collections.abc import Iterable
from typing import Any, Final

from leasehold.cli.printing import named, shown_octets, table
from leasehold.cli.reporting import count
from leasehold.cli.words import shown_id
from leasehold.core.ops import Delete, Put, Range, Step
from leasehold.engine.values import DeleteResult, Event, KeyValue, PutResult, RangeResult

_HEADS: Final = ("KEY", "REVISION", "VERSION", "LEASE", "VALUE")


def pairs_table(pairs: Iterable[KeyValue]) -> list[str]:
    """Write keys with their values as a table."""
    return table(
        _HEADS,
        (
            (
                shown_octets(pair.key),
                pair.mod_revision,
                pair.version,
                shown_id(pair.lease) if pair.lease else None,
                shown_octets(pair.value),
            )
            for pair in pairs
        ),
    )


def pair_json(pair: KeyValue, *, keys_only: bool = False) -> dict[str, Any]:
    """Give a key as it was."""
    return {
        **named("key", pair.key),
        **({} if keys_only else named("value", pair.value)),
        "create_revision": pair.create_revision,
        "mod_revision": pair.mod_revision,
        "version": pair.version,
        "lease": shown_id(pair.lease) if pair.lease else None,
    }


def range_json(found: RangeResult, *, keys_only: bool = False) -> dict[str, Any]:
    """Give what a read has found."""
    return {
        "revision": found.revision,
        "total": found.total,
        "more": found.more,
        "pairs": [pair_json(pair, keys_only=keys_only) for pair in found.pairs],
    }


def put_json(key: bytes, done: PutResult) -> dict[str, Any]:
    """Give what a put did."""
    previous = None if done.previous is None else pair_json(done.previous)
    return {"revision": done.revision, **named("key", key), "previous": previous}


def deleted_json(done: DeleteResult) -> dict[str, Any]:
    """Give what a delete did."""
    previous = [pair_json(pair) for pair in done.previous]
    return {"revision": done.revision, "deleted": done.deleted, "previous": previous}


def event_json(event: Event, *, previous: bool) -> dict[str, Any]:
    """Give what happened to a key, with what was there before if that was asked for."""
    kind = "del" if event.pair is None else "put"
    shown: dict[str, Any] = {"event": kind, "revision": event.revision}
    shown |= named("key", event.key) if event.pair is None else pair_json(event.pair)
    if previous:
        shown["previous"] = None if event.previous is None else pair_json(event.previous)
    return shown


def event_line(event: Event, *, previous: bool) -> str:
    """Write what happened to a key."""
    kind = "del" if event.pair is None else "put"
    parts = [str(event.revision), kind, shown_octets(event.key)]
    if event.pair is not None:
        parts.append(shown_octets(event.pair.value))
    if previous:
        was = "not there" if event.previous is None else shown_octets(event.previous.value)
        parts.append(f"(was: {was})")
    return "  ".join(parts)


def step_lines(step: Step, result: Any) -> list[str]:
    """Write what a step of a transaction did."""
    match step:
        case Put(key=key):
            return [f"{shown_octets(key)} is set"]
        case Delete():
            return [f"{count(result.deleted, 'key')} deleted"]
        case Range(key=key) if not result.pairs:
            return [f"there is no key {shown_octets(key)}"]
    return pairs_table(result.pairs)


def step_json(step: Step, result: Any) -> dict[str, Any]:
    """Give what a step of a transaction did."""
    match step:
        case Put(key=key):
            return {"step": "put", **put_json(key, result)}
        case Delete():
            return {"step": "del", **deleted_json(result)}
    return {"step": "get", **range_json(result)}
