"""What `leasehold lease` shows of leases: one, all of them, and what happens to them."""

import argparse
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from leasehold.cli.connection import lease_service, note, remote, until_told, with_client
from leasehold.cli.exits import OK, USAGE_ERROR
from leasehold.cli.printing import (
    emit_json,
    emit_lines,
    facts,
    fixed_row,
    named,
    number,
    shown_octets,
)
from leasehold.cli.reporting import complain, count
from leasehold.cli.words import ID_DIGITS, shown_id, shown_remaining, shown_term
from leasehold.client.client import Client
from leasehold.engine.remote.lease_service import HolderLease, LeaseEvent, LeaseFilter

MAX_SHOWN_KEYS: Final = 3
"""Keys of a lease that an event names, for people."""

PAGE: Final = 1000
"""Leases that are asked for, and printed, at a time."""

_LIST_HEADS: Final = ("LEASE", "TTL", "REMAINING", "KEYS", "HOLDER")
_LIST_WIDTHS: Final = (ID_DIGITS, 8, 9, 6)


def show(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        service = remote(client).lease_service
        if service is None:
            lease = HolderLease(await client.lease_info(arguments.id, keys=True), "")
        else:
            lease = await service.show(arguments.id)
        info, keys = lease.info, lease.info.keys or ()
        if arguments.json:
            names = [named("key", key) for key in keys]
            emit_json({**_listed(lease), "keys": names, "key_count": info.key_count})
            return OK
        shown = [
            ("lease", shown_id(info.id)),
            ("ttl", shown_term(info.ttl)),
            ("remaining", shown_remaining(info.remaining)),
            *([] if service is None else [("holder", shown_octets(lease.holder.encode()))]),
            ("keys", info.key_count),
        ]
        emit_lines([*facts(shown), *(f"  {shown_octets(key)}" for key in keys)])
        return OK

    return with_client(arguments, work)


def _listed(lease: HolderLease) -> dict[str, Any]:
    info = lease.info
    return {
        "id": shown_id(info.id),
        "ttl": number(info.ttl),
        "remaining": number(info.remaining),
        "key_count": info.key_count,
        "holder": lease.holder or None,
    }


def list_leases(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        listed: list[dict[str, Any]] = []
        left: int | None = arguments.limit
        heads = [fixed_row(_LIST_HEADS, _LIST_WIDTHS)]
        async for page in _pages(client, arguments):
            some = page[:left]
            if arguments.json:
                listed += map(_listed, some)
            else:
                emit_lines([*heads, *map(_list_row, some)])
                heads = []
            left = None if left is None else left - len(some)
            if left == 0:
                break
        if arguments.json:
            emit_json({"leases": listed})
        return OK

    return with_client(arguments, work)


async def _pages(
    client: Client, arguments: argparse.Namespace
) -> AsyncIterator[Sequence[HolderLease]]:
    holder, prefix = arguments.holder or "", arguments.prefix or b""
    if holder or prefix:
        service = lease_service(client, "--holder" if holder else "--prefix")
    elif (engine := remote(client)).lease_service is None:
        yield [HolderLease(info, "") for info in await client.leases()]
        return
    else:
        service = engine.lease_service
    page_size = min(arguments.limit or PAGE, PAGE)
    async for page in service.pages(holder=holder, prefix=prefix, page_size=page_size):
        yield page


def _list_row(lease: HolderLease) -> str:
    info = lease.info
    return fixed_row(
        (
            shown_id(info.id),
            shown_term(info.ttl),
            shown_remaining(info.remaining),
            info.key_count,
            shown_octets(lease.holder.encode()),
        ),
        _LIST_WIDTHS,
    )


# Watch.


def watch(arguments: argparse.Namespace) -> int:
    if arguments.prefix and arguments.renewals:
        complain(
            "--prefix selects only ends of leases, so it cannot be used "
            "with --renewals: use --holder "
            "or ids instead"
        )
        return USAGE_ERROR

    async def work(client: Client) -> int:
        service = lease_service(client, "`lease watch`")
        which = LeaseFilter(
            arguments.ids, arguments.holder or "", arguments.prefix or b"", arguments.renewals
        )
        left: int | None = arguments.count
        async for told in service.watch(which):
            if told.revision is not None:
                note(f"watching leases, from revision {told.revision} on")
            if told.lagged:
                complain(f"{count(told.lagged, 'event')} missing: not read in time")
            some = told.events[:left]
            if some and arguments.json:
                emit_json(*map(_event, some))
            elif some:
                emit_lines(map(_event_line, some))
            left = None if left is None else left - len(some)
            if left == 0:
                break
        return OK

    return with_client(arguments, until_told(work))


def _event(event: LeaseEvent) -> dict[str, Any]:
    return {
        "event": str(event.kind),
        "id": shown_id(event.id),
        "holder": event.holder or None,
        "ttl": number(event.ttl),
        "keys": [named("key", key) for key in event.keys],
        "key_count": event.key_count,
        "revision": event.revision,
    }


def _event_line(event: LeaseEvent) -> str:
    parts = [f"{event.kind:<7}", shown_id(event.id), shown_term(event.ttl)]
    if event.holder:
        parts.append(f"of {shown_octets(event.holder.encode())}")
    if event.key_count:
        named_keys = ", ".join(shown_octets(key) for key in event.keys[:MAX_SHOWN_KEYS])
        more = ", ..." if event.key_count > MAX_SHOWN_KEYS else ""
        parts.append(f"with {count(event.key_count, 'key')}: {named_keys}{more}")
    return "  ".join(parts)
