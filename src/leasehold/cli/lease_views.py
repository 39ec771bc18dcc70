"""`leasehold lease show`, `lease list` and `lease watch`."""

import argparse
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli import argument_types
from leasehold.cli.argument_types import ID_DIGITS, shown_id, shown_remaining, shown_term
from leasehold.cli.connection import (
    finish,
    finish_with_client,
    lease_service,
    print_note,
    remote,
    showing_warnings,
    until_signal,
    with_client,
)
from leasehold.cli.lease import HOLDER, ID_HELP
from leasehold.cli.output import (
    count,
    emit_json,
    emit_lines,
    facts,
    fixed_row,
    named,
    number,
    print_error,
    shown_bytes,
)
from leasehold.cli.parser import NOT_THERE, OK, USAGE_ERROR, Commands, epilog

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.engine.remote.leasehold_leases import HolderLease, LeaseEvent

MAX_SHOWN_KEYS: Final = 3
"""Keys of a lease that the line of an event names."""

PAGE: Final = 1000
"""Leases that are requested and printed per page."""

_LIST_HEADS: Final = ("LEASE", "TTL", "REMAINING", "KEYS", "HOLDER")
_LIST_WIDTHS: Final = (ID_DIGITS, 8, 9, 6)


# Show.


def _add_show(group: Commands) -> None:
    parser = group.add_parser(
        "show",
        help="show a lease and its keys",
        description="Show the TTL, remaining time and keys of a lease.",
        epilog=epilog(
            """
            leasehold lease grant 60 --id 7a14
            leasehold lease show 7a14
            """,
            NOT_THERE,
        ),
    )
    parser.add_argument("id", type=argument_types.lease_id, metavar="ID", help=ID_HELP)
    finish_with_client(parser, _show)


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    from leasehold.engine.remote.leasehold_leases import HolderLease

    service = remote(client).lease_service
    if service is None:
        lease = HolderLease(await client.lease_info(arguments.id, keys=True), "")
    else:
        lease = await service.show(arguments.id)
    info, keys = lease.info, lease.info.keys or ()
    if arguments.json:
        names = [named("key", key) for key in keys]
        emit_json({**_lease_json(lease), "keys": names, "key_count": info.key_count})
        return OK
    shown = [
        ("lease", shown_id(info.id)),
        ("ttl", shown_term(info.ttl)),
        ("remaining", shown_remaining(info.remaining)),
        *([] if service is None else [("holder", shown_bytes(lease.holder.encode()))]),
        ("keys", info.key_count),
    ]
    emit_lines([*facts(shown), *(f"  {shown_bytes(key)}" for key in keys)])
    return OK


def _lease_json(lease: "HolderLease") -> dict[str, Any]:
    info = lease.info
    return {
        "id": shown_id(info.id),
        "ttl": number(info.ttl),
        "remaining": number(info.remaining),
        "key_count": info.key_count,
        "holder": lease.holder or None,
    }


# List.


def _add_list(group: Commands) -> None:
    parser = group.add_parser(
        "list",
        help="list leases",
        description=(
            "List leases with TTL, remaining time, number of keys and holder. etcd does not "
            "record holders."
        ),
        epilog=epilog(
            """
            leasehold lease list
            leasehold lease list --holder anna --limit 10
            leasehold lease list --prefix workers/ --json
            """
        ),
    )
    _add_filters(parser, "only leases of this holder", "only leases with a key of this prefix")
    parser.add_argument("--limit", type=argument_types.count, metavar="N", help="at most N leases")
    finish_with_client(parser, _list)


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    listed: list[dict[str, Any]] = []
    left: int | None = arguments.limit
    heads = [fixed_row(_LIST_HEADS, _LIST_WIDTHS)]
    async for page in _pages(client, arguments):
        some = page[:left]
        if arguments.json:
            listed += map(_lease_json, some)
        else:
            emit_lines([*heads, *map(_list_row, some)])
            heads = []
        left = None if left is None else left - len(some)
        if left == 0:
            break
    if arguments.json:
        emit_json({"leases": listed})
    return OK


async def _pages(
    client: "Client", arguments: argparse.Namespace
) -> AsyncIterator[Sequence["HolderLease"]]:
    from leasehold.engine.remote.leasehold_leases import HolderLease

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


def _list_row(lease: "HolderLease") -> str:
    info = lease.info
    return fixed_row(
        (
            shown_id(info.id),
            shown_term(info.ttl),
            shown_remaining(info.remaining),
            info.key_count,
            shown_bytes(lease.holder.encode()),
        ),
        _LIST_WIDTHS,
    )


# Watch.


def _add_watch(group: Commands) -> None:
    parser = group.add_parser(
        "watch",
        help="print lease events until Ctrl-C",
        description=(
            "Print events of leases: granted, expired, revoked, and with --renewals renewed. Needs "
            "a Leasehold server."
        ),
        epilog=epilog(
            """
            leasehold lease watch
            leasehold lease watch --holder anna --renewals --json
            """,
            notes="With --prefix only the ends of leases with such a key are printed. Renewals of "
            "one lease are printed at most every ten seconds.",
        ),
    )
    parser.add_argument(
        "ids", type=argument_types.lease_id, nargs="*", metavar="ID", help="only these leases"
    )
    _add_filters(parser, "only leases of this holder", "only ends, with a key of this prefix")
    parser.add_argument("--renewals", action="store_true", help="print renewals as well")
    parser.add_argument(
        "--count", type=argument_types.count, metavar="N", help="end after N events"
    )
    finish(parser, _watch)


def _watch(arguments: argparse.Namespace) -> int:
    if arguments.prefix and arguments.renewals:
        print_error(
            "--prefix selects only ends of leases and cannot be used with --renewals: "
            "use --holder or ids instead"
        )
        return USAGE_ERROR

    from leasehold.engine.remote.leasehold_leases import LeaseFilter

    async def work(client: "Client") -> int:
        service = lease_service(client, "`lease watch`")
        which = LeaseFilter(
            arguments.ids, arguments.holder or "", arguments.prefix or b"", arguments.renewals
        )
        left: int | None = arguments.count
        async for batch in service.watch(which):
            if batch.revision is not None:
                print_note(f"watching leases, from revision {batch.revision} on")
            if batch.lagged:
                print_error(f"{count(batch.lagged, 'event')} missed: they were not read in time")
            some = batch.events[:left]
            if some and arguments.json:
                emit_json(*map(_event_json, some))
            elif some:
                emit_lines(map(_event_line, some))
            left = None if left is None else left - len(some)
            if left == 0:
                break
        return OK

    return with_client(arguments, showing_warnings(until_signal(work)))


def _event_json(event: "LeaseEvent") -> dict[str, Any]:
    return {
        "event": str(event.kind),
        "id": shown_id(event.id),
        "holder": event.holder or None,
        "ttl": number(event.ttl),
        "keys": [named("key", key) for key in event.keys],
        "key_count": event.key_count,
        "revision": event.revision,
    }


def _event_line(event: "LeaseEvent") -> str:
    parts = [f"{event.kind:<7}", shown_id(event.id), shown_term(event.ttl)]
    if event.holder:
        parts.append(f"of {shown_bytes(event.holder.encode())}")
    if event.key_count:
        named_keys = ", ".join(shown_bytes(key) for key in event.keys[:MAX_SHOWN_KEYS])
        more = ", ..." if event.key_count > MAX_SHOWN_KEYS else ""
        parts.append(f"with {count(event.key_count, 'key')}: {named_keys}{more}")
    return "  ".join(parts)


def _add_filters(parser: argparse.ArgumentParser, holder: str, prefix: str) -> None:
    parser.add_argument("--holder", type=HOLDER, metavar="NAME", help=holder)
    parser.add_argument("--prefix", type=argument_types.key_bytes, metavar="KEY", help=prefix)


VIEWS: Final = (_add_show, _add_list, _add_watch)
