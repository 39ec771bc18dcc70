"""What `leasehold kv` does, once a server is connected to."""

import argparse
import errno
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from leasehold.cli.connection import note, until_told, with_client
from leasehold.cli.exits import NOT_MET, NOT_THERE, OK, USAGE_ERROR
from leasehold.cli.kv_shapes import (
    deleted_json,
    event_json,
    event_line,
    pairs_table,
    put_json,
    range_json,
    step_json,
    step_lines,
)
from leasehold.cli.kv_txn import Txn, TxnError, read_txn
from leasehold.cli.printing import emit, emit_json, emit_lines, raw_or_shown, shown_octets
from leasehold.cli.reporting import complain, count
from leasehold.client.client import Client
from leasehold.core.ops import Step

STDIN: Final = b"-"
MAX_STDIN_BYTES: Final = 64 * 1024 * 1024
"""Of a value: many times what a server takes, so it is refused, and an endless one ends."""


# Read.


def _get(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
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
            note(f"leasehold: {len(found.pairs)} of {count(found.total, 'key')}")
        return OK if found.pairs else _missing(arguments)

    return with_client(arguments, work)


def _missing(arguments: argparse.Namespace) -> int:
    name = shown_octets(arguments.name)
    complain(f"no key begins with {name}" if arguments.prefix else f"there is no key {name}")
    return NOT_THERE


# Write.


def _put(arguments: argparse.Namespace) -> int:
    value = arguments.value
    if value == STDIN:
        try:
            value = _read_stdin()
        except OSError as error:
            complain(f"cannot read the value from standard input: {error.strerror or error}")
            return USAGE_ERROR

    async def work(client: Client) -> int:
        done = await client.kv.put(
            arguments.name, value, lease=arguments.lease, keep_lease=arguments.keep_lease
        )
        if arguments.json:
            emit_json(put_json(arguments.name, done))
        else:
            emit_lines([f"{shown_octets(arguments.name)} is set, at revision {done.revision}"])
        return OK

    return with_client(arguments, work)


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read(MAX_STDIN_BYTES)


def _del(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        done = await client.kv.delete(arguments.name, prefix=arguments.prefix)
        if arguments.json:
            emit_json(deleted_json(done))
        elif done.deleted:
            emit_lines([f"{count(done.deleted, 'key')} deleted, at revision {done.revision}"])
        return OK if done.deleted else _missing(arguments)

    return with_client(arguments, work)


# Watch.


def _watch(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        left: int | None = arguments.count
        watch = client.kv.watch(
            arguments.name,
            prefix=arguments.prefix,
            start=arguments.start,
            previous=arguments.previous,
        )
        async with watch:
            note(f"watching {shown_octets(arguments.name)}{'...' if arguments.prefix else ''}")
            async for told in watch:
                some = told.events[:left]
                if some and arguments.json:
                    emit_json(*(event_json(each, previous=arguments.previous) for each in some))
                elif some:
                    emit_lines(event_line(each, previous=arguments.previous) for each in some)
                left = None if left is None else left - len(some)
                if left == 0:
                    break
        return OK

    return with_client(arguments, until_told(work))


# Transactions.


def _txn(arguments: argparse.Namespace) -> int:
    try:
        stdin = None if sys.stdin is None else sys.stdin.buffer
        txn = read_txn(arguments.if_lines, arguments.then_lines, arguments.else_lines, stdin)
    except TxnError as error:
        complain(str(error))
        return USAGE_ERROR

    async def work(client: Client) -> int:
        builder = client.kv.txn(*txn.conditions).then(*txn.success).otherwise(*txn.failure)
        done = await builder.commit()
        steps = txn.success if done.succeeded else txn.failure
        pairs = list(zip(steps, done.results, strict=True))
        if arguments.json:
            results = [step_json(step, result) for step, result in pairs]
            emit_json({"revision": done.revision, "succeeded": done.succeeded, "results": results})
        else:
            emit_lines(_txn_lines(txn, done.revision, done.succeeded, pairs))
        return OK if done.succeeded else NOT_MET

    return with_client(arguments, work)


def _txn_lines(
    txn: Txn, revision: int, succeeded: bool, pairs: Iterable[tuple[Step, Any]]
) -> list[str]:
    held = "the conditions hold" if succeeded else "the conditions do not hold"
    lines = [f"{held if txn.conditions else 'done'}, at revision {revision}"]
    for step, result in pairs:
        lines += step_lines(step, result)
    return lines


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "get": _get,
    "put": _put,
    "del": _del,
    "watch": _watch,
    "txn": _txn,
}
