"""`leasehold kv`: read, set, delete and watch keys. `kv txn` is in `kv_txn`."""

import argparse
import errno
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli import argument_types
from leasehold.cli.argument_types import shown_id
from leasehold.cli.connection import (
    finish,
    finish_with_client,
    print_note,
    showing_warnings,
    until_signal,
    with_client,
)
from leasehold.cli.output import (
    count,
    emit,
    emit_json,
    emit_lines,
    named,
    print_error,
    raw_or_shown,
    shown_bytes,
    table,
)
from leasehold.cli.parser import NOT_THERE, OK, USAGE_ERROR, Commands, add_group, epilog

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.engine.values import DeleteResult, Event, KeyValue, PutResult, RangeResult

STDIN: Final = b"-"
MAX_STDIN_BYTES: Final = 64 * 1024 * 1024
"""Of a value: many times the server's limit. It also bounds an endless input."""

_HEADS: Final = ("KEY", "REVISION", "VERSION", "LEASE", "VALUE")

_GROUP_EPILOG: Final = """\
example:
  leasehold kv put greeting hello
  leasehold kv get greeting

Keys and values are bytes. In JSON, UTF-8 is printed as text under key and
value, and other bytes as base64 under key_base64 and value_base64.
"""


def add_command(commands: Commands) -> None:
    """Add `kv` and its subcommands."""
    from leasehold.cli.kv_txn import add_txn  # it imports this module

    group = add_group(
        commands,
        "kv",
        summary="read, set, delete and watch keys",
        description="Keys on a Leasehold server or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_add_get, _add_put, _add_del, _add_watch, add_txn):
        add(group)


# Read.


def _add_get(group: Commands) -> None:
    parser = group.add_parser(
        "get",
        help="read a key, or all keys with a prefix",
        description="Read a key, or all keys with a prefix.",
        epilog=epilog(
            """
            leasehold kv put greeting hello
            leasehold kv get greeting
            leasehold kv get greeting --print-value-only
            leasehold kv get gree --prefix --keys-only
            """,
            NOT_THERE,
        ),
    )
    add_get(parser)
    parser.add_argument(
        "--rev", type=argument_types.revision, default=0, metavar="N", help="read at this revision"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--keys-only", action="store_true", help="print only keys, one per line")
    only.add_argument("--print-value-only", action="store_true", help="print only values")
    finish_with_client(parser, _get)


async def _get(client: "Client", arguments: argparse.Namespace) -> int:
    found = await client.kv.range(
        arguments.name,
        prefix=arguments.prefix,
        revision=arguments.rev,
        limit=arguments.limit,
    )
    if arguments.json:
        emit_json(range_json(found, keys_only=arguments.keys_only))
    elif arguments.keys_only:
        emit(b"".join(raw_or_shown(pair.key) for pair in found.pairs))
    elif arguments.print_value_only:
        emit(b"".join(raw_or_shown(pair.value) for pair in found.pairs))
    elif found.pairs:
        emit_lines(pairs_table(found.pairs))
    if found.more:
        print_note(f"leasehold: {len(found.pairs)} of {count(found.total, 'key')}")
    return OK if found.pairs else _missing(arguments)


def range_json(found: "RangeResult", *, keys_only: bool = False) -> dict[str, Any]:
    """Return the result of a read for JSON."""
    return {
        "revision": found.revision,
        "total": found.total,
        "more": found.more,
        "pairs": [pair_json(pair, keys_only=keys_only) for pair in found.pairs],
    }


# Set.


def _add_put(group: Commands) -> None:
    parser = group.add_parser(
        "put",
        help="set a key",
        description="Set a key, optionally attached to a lease.",
        epilog=epilog(
            """
            leasehold kv put greeting hello
            leasehold lease grant 60 --id 7a15
            leasehold kv put workers/7 here --lease 7a15
            date | leasehold kv put today -
            """,
            NOT_THERE,
            notes="Write -- before a key or value that begins with a dash, as in: -- KEY --VALUE",
        ),
    )
    add_put(parser, "the value; - reads it from standard input")
    finish(parser, _put)


def _put(arguments: argparse.Namespace) -> int:
    value = arguments.value
    if value == STDIN:
        try:
            value = _read_stdin()
        except OSError as error:
            print_error(f"cannot read the value from standard input: {error.strerror or error}")
            return USAGE_ERROR

    async def work(client: "Client") -> int:
        done = await client.kv.put(
            arguments.name, value, lease=arguments.lease, keep_lease=arguments.keep_lease
        )
        if arguments.json:
            emit_json(put_json(arguments.name, done))
        else:
            emit_lines([f"{shown_bytes(arguments.name)} is set, at revision {done.revision}"])
        return OK

    return with_client(arguments, work)


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read(MAX_STDIN_BYTES)


def put_json(key: bytes, done: "PutResult") -> dict[str, Any]:
    """Return the result of a put for JSON."""
    previous = None if done.previous is None else pair_json(done.previous)
    return {"revision": done.revision, **named("key", key), "previous": previous}


# Delete.


def _add_del(group: Commands) -> None:
    parser = group.add_parser(
        "del",
        help="delete a key, or all keys with a prefix",
        description="Delete a key, or all keys with a prefix.",
        epilog=epilog(
            """
            leasehold kv put greeting hello
            leasehold kv del greeting
            """,
            NOT_THERE,
        ),
    )
    add_del(parser)
    finish_with_client(parser, _del)


async def _del(client: "Client", arguments: argparse.Namespace) -> int:
    previous = arguments.previous
    done = await client.kv.delete(arguments.name, prefix=arguments.prefix, previous=previous)
    if arguments.json:
        emit_json(deleted_json(done, previous=previous))
    elif done.deleted:
        if previous:
            emit_lines(pairs_table(done.previous))
        emit_lines([f"{count(done.deleted, 'key')} deleted, at revision {done.revision}"])
    return OK if done.deleted else _missing(arguments)


def deleted_json(done: "DeleteResult", *, previous: bool) -> dict[str, Any]:
    """Return the result of a delete for JSON, with the deleted pairs if `previous`."""
    shown: dict[str, Any] = {"revision": done.revision, "deleted": done.deleted}
    if previous:
        shown["previous"] = [pair_json(pair) for pair in done.previous]
    return shown


# Watch.


def _add_watch(group: Commands) -> None:
    parser = group.add_parser(
        "watch",
        help="print changes of keys until Ctrl-C",
        description=(
            "Print each change of a key, or of all keys with a prefix. After a lost connection the "
            "watch resumes, without missing or repeating an event."
        ),
        epilog=epilog(
            """
            leasehold kv watch greeting
            leasehold kv put jobs/1 new
            leasehold kv watch jobs/ --prefix --start 1 --count 1 --json
            """,
        ),
    )
    _add_key(parser)
    parser.add_argument(
        "--start",
        type=argument_types.revision,
        default=0,
        metavar="N",
        help="start at this revision",
    )
    parser.add_argument("--previous", action="store_true", help="print the previous value as well")
    parser.add_argument(
        "--count", type=argument_types.count, metavar="N", help="end after N events"
    )
    finish(parser, _watch)


def _watch(arguments: argparse.Namespace) -> int:
    async def work(client: "Client") -> int:
        left: int | None = arguments.count
        watch = client.kv.watch(
            arguments.name,
            prefix=arguments.prefix,
            start=arguments.start,
            previous=arguments.previous,
        )
        async with watch:
            print_note(f"watching {shown_bytes(arguments.name)}{'...' if arguments.prefix else ''}")
            async for batch in watch:
                some = batch.events[:left]
                if some and arguments.json:
                    emit_json(*(_event_json(each, previous=arguments.previous) for each in some))
                elif some:
                    emit_lines(_event_line(each, previous=arguments.previous) for each in some)
                left = None if left is None else left - len(some)
                if left == 0:
                    break
        return OK

    return with_client(arguments, showing_warnings(until_signal(work)))


def _event_json(event: "Event", *, previous: bool) -> dict[str, Any]:
    """Return an event for JSON, with the previous pair if `previous`."""
    kind = "del" if event.pair is None else "put"
    shown: dict[str, Any] = {"event": kind, "revision": event.revision}
    shown |= named("key", event.key) if event.pair is None else pair_json(event.pair)
    if previous:
        shown["previous"] = None if event.previous is None else pair_json(event.previous)
    return shown


def _event_line(event: "Event", *, previous: bool) -> str:
    """Format an event as a line."""
    kind = "del" if event.pair is None else "put"
    parts = [str(event.revision), kind, shown_bytes(event.key)]
    if event.pair is not None:
        parts.append(shown_bytes(event.pair.value))
    if previous:
        was = "missing" if event.previous is None else shown_bytes(event.previous.value)
        parts.append(f"(was: {was})")
    return "  ".join(parts)


# Arguments and output that steps of a transaction have as well.


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=argument_types.key_bytes, metavar="KEY", help="the key")
    parser.add_argument("--prefix", action="store_true", help="all keys that begin with KEY")


def add_get(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a read."""
    _add_key(parser)
    parser.add_argument(
        "--limit", type=argument_types.count, default=0, metavar="N", help="at most N keys"
    )


def add_put(parser: argparse.ArgumentParser, value_help: str = "the value") -> None:
    """Add the arguments of a put."""
    parser.add_argument("name", type=argument_types.key_bytes, metavar="KEY", help="the key")
    parser.add_argument("value", type=argument_types.key_bytes, metavar="VALUE", help=value_help)
    lease = parser.add_mutually_exclusive_group()
    lease.add_argument(
        "--lease", type=argument_types.lease_id, metavar="ID", help="attach the key to this lease"
    )
    lease.add_argument("--keep-lease", action="store_true", help="keep the lease that the key has")


def add_del(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a delete."""
    _add_key(parser)
    parser.add_argument("--previous", action="store_true", help="print the deleted keys as well")


def _missing(arguments: argparse.Namespace) -> int:
    name = shown_bytes(arguments.name)
    print_error(f"no key begins with {name}" if arguments.prefix else f"key {name} does not exist")
    return NOT_THERE


def pairs_table(pairs: Iterable["KeyValue"]) -> list[str]:
    """Format keys and values as a table."""
    return table(
        _HEADS,
        (
            (
                shown_bytes(pair.key),
                pair.mod_revision,
                pair.version,
                shown_id(pair.lease) if pair.lease else None,
                shown_bytes(pair.value),
            )
            for pair in pairs
        ),
    )


def pair_json(pair: "KeyValue", *, keys_only: bool = False) -> dict[str, Any]:
    """Return a key-value pair for JSON."""
    return {
        **named("key", pair.key),
        **({} if keys_only else named("value", pair.value)),
        "create_revision": pair.create_revision,
        "mod_revision": pair.mod_revision,
        "version": pair.version,
        "lease": shown_id(pair.lease) if pair.lease else None,
    }
