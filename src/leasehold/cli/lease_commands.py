"""What `leasehold lease` does to leases, once a server is connected to."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final

from leasehold.cli import lease_keeping, lease_views
from leasehold.cli.connection import lease_service, said, with_client
from leasehold.cli.exits import FAILURE, NOT_THERE, OK, USAGE_ERROR
from leasehold.cli.printing import emit_json, emit_lines, number
from leasehold.cli.reporting import complain
from leasehold.cli.words import shown_id, shown_term
from leasehold.client.client import Client
from leasehold.engine.values import LeaseInfo
from leasehold.errors import UnknownLease

# Begin.


async def begin(client: Client, arguments: argparse.Namespace) -> LeaseInfo:
    """Begin a lease, with what only a Leasehold server knows if that is asked for."""
    holder, policy = arguments.holder or "", arguments.policy or ""
    if not holder and not policy:
        return await client.engine.grant(arguments.ttl, lease=arguments.id or 0)
    service = lease_service(client, "--holder" if holder else "--policy")
    return await service.grant(arguments.ttl, lease=arguments.id or 0, holder=holder, policy=policy)


def _grant(arguments: argparse.Namespace) -> int:
    if arguments.no_revoke and not arguments.keep:
        complain("--no-revoke needs --keep: write both or neither")
        return USAGE_ERROR

    async def work(client: Client) -> int:
        granted = await begin(client, arguments)
        if arguments.keep:
            return await lease_keeping.keep_new(client, granted, arguments)
        if arguments.print_id_only:
            emit_lines([shown_id(granted.id)])
        elif arguments.json:
            emit_json({"id": shown_id(granted.id), "ttl": number(granted.ttl)})
        else:
            emit_lines([f"lease {shown_id(granted.id)} granted for {shown_term(granted.ttl)}"])
        return OK

    return with_client(arguments, work)


# Each lease for itself.


def _renew(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        ids = list(dict.fromkeys(arguments.ids))
        renewed = await client.engine.renew_all(ids)
        lines = [
            f"lease {shown_id(each)} renewed for {shown_term(renewed.terms[each])}"
            for each in ids
            if each in renewed.terms
        ]
        done = {each: {"ttl": number(term)} for each, term in renewed.terms.items()}
        return _told_each(arguments, ids, done, dict(renewed.failures), lines)

    return with_client(arguments, work)


def _revoke(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        ids = list(dict.fromkeys(arguments.ids))
        done: dict[int, dict[str, Any]] = {}
        failures: dict[int, Exception] = {}
        for each in ids:
            try:
                await client.revoke(each)
            except UnknownLease as error:
                failures[each] = error
            else:
                done[each] = {}
        lines = [f"lease {shown_id(each)} ended" for each in done]
        return _told_each(arguments, ids, done, failures, lines)

    return with_client(arguments, work)


def _told_each(
    arguments: argparse.Namespace,
    ids: Sequence[int],
    done: dict[int, dict[str, Any]],
    failures: dict[int, Exception],
    lines: Sequence[str],
) -> int:
    if arguments.json:
        outcomes = [
            {"id": shown_id(each)}
            | (done[each] if each in done else {"error": said(failures[each])})
            for each in ids
        ]
        emit_json({"leases": outcomes})
    elif lines:
        emit_lines(lines)
    for error in failures.values():
        complain(said(error))
    if not failures:
        return OK
    missing = all(isinstance(error, UnknownLease) for error in failures.values())
    return NOT_THERE if missing else FAILURE


def _keep(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        return await lease_keeping.keep(client, list(dict.fromkeys(arguments.ids)), arguments)

    return with_client(arguments, work)


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "grant": _grant,
    "renew": _renew,
    "keep": _keep,
    "revoke": _revoke,
    "show": lease_views.show,
    "list": lease_views.list_leases,
    "watch": lease_views.watch,
}
