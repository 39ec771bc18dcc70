"""What `leasehold permit` does, once a server is connected to."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from leasehold.cli.connection import with_client
from leasehold.cli.exits import DENIED, NOT_THERE, OK
from leasehold.cli.printing import emit_json, emit_lines, number, shown_octets, table
from leasehold.cli.reporting import complain
from leasehold.cli.words import shown_id, shown_remaining, shown_term
from leasehold.client.client import Client
from leasehold.errors import LeaseholdError
from leasehold.recipes.permits import Permit

_HEADS: Final = ("SUBJECT", "RESOURCE", "RIGHTS", "LEASE", "ENDS AT", "REMAINING", "GRANTED BY")


def _grant(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        permit = await client.permits.grant(
            arguments.subject,
            arguments.resource,
            arguments.rights,
            arguments.ttl,
            lease=arguments.lease,
            granted_by=arguments.by,
        )
        if arguments.print_id_only:
            emit_lines([shown_id(permit.lease)])
        elif arguments.json:
            emit_json(_json(permit))
        else:
            term_s = await _term_s(client, permit, arguments.ttl)
            term = "" if term_s is None else f", in {shown_term(term_s)}"
            emit_lines(
                [
                    f"{_shown(permit.subject)} has on {_shown(permit.resource)}: {_rights(permit)}",
                    f"until lease {shown_id(permit.lease)} ends{term} unless it is renewed",
                ]
            )
        return OK

    return with_client(arguments, work)


async def _term_s(client: Client, permit: Permit, asked_s: float | None) -> float | None:
    """Ask which term was granted: an etcd's are whole seconds, and not below its least."""
    if asked_s is None:
        return None
    try:
        return (await client.lease_info(permit.lease)).ttl
    except (LeaseholdError, OSError):  # the permit was granted; that is what has to be said
        return asked_s


def _check(arguments: argparse.Namespace) -> int:
    subject, resource, right = arguments.subject, arguments.resource, arguments.right

    async def work(client: Client) -> int:
        is_allowed = await client.permits.check(subject, resource, right, cache=False)
        said = f"the right {_shown(right)} on {_shown(resource)}"
        if arguments.json:
            emit_json({"allowed": is_allowed})
        elif is_allowed:
            emit_lines([f"{_shown(subject)} has {said}"])
        if not is_allowed:
            complain(f"{_shown(subject)} does not have {said}")
        return OK if is_allowed else DENIED

    return with_client(arguments, work)


def _revoke(arguments: argparse.Namespace) -> int:
    subject, resource = arguments.subject, arguments.resource

    async def work(client: Client) -> int:
        was_there = await client.permits.revoke(subject, resource)
        if arguments.json:
            emit_json({"revoked": was_there})
        elif was_there:
            emit_lines([f"the permit of {_shown(subject)} for {_shown(resource)} is revoked"])
        if not was_there:
            complain(f"{_shown(subject)} has no permit for {_shown(resource)}")
        return OK if was_there else NOT_THERE

    return with_client(arguments, work)


def _list(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        permits = await client.permits.list(arguments.subject, arguments.resource)
        if arguments.json:
            emit_json({"permits": [_json(each) | _remaining_json(each) for each in permits]})
        else:
            emit_lines(table(_HEADS, map(_row, permits)))
        return OK

    return with_client(arguments, work)


def _json(permit: Permit) -> dict[str, Any]:
    return {
        "subject": permit.subject,
        "resource": permit.resource,
        "rights": sorted(permit.rights),
        "lease": shown_id(permit.lease),
        "own_lease": permit.own_lease,
        "granted_by": permit.granted_by,
        "revision": permit.revision,
        "ends_at": _ends_at(permit),
    }


def _remaining_json(permit: Permit) -> dict[str, Any]:
    remaining_s = _remaining_s(permit)
    return {"remaining_s": None if remaining_s is None else number(remaining_s)}


def _remaining_s(permit: Permit) -> float | None:
    """Return the time to the wall-clock end of a permit; None if it has none."""
    if permit.ends_at is None:
        return None
    return max(0.0, round((permit.ends_at - datetime.now(UTC)).total_seconds(), 3))


def _row(permit: Permit) -> tuple[str, ...]:
    remaining_s = _remaining_s(permit)
    return (
        _shown(permit.subject),
        _shown(permit.resource),
        _rights(permit),
        shown_id(permit.lease),
        _ends_at(permit) or "",
        "" if remaining_s is None else shown_remaining(remaining_s),
        _shown(permit.granted_by),
    )


def _ends_at(permit: Permit) -> str | None:
    """Format the end in ISO 8601 and UTC, to the millisecond; None if there is none."""
    if permit.ends_at is None:
        return None
    return permit.ends_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rights(permit: Permit) -> str:
    return ", ".join(map(_shown, sorted(permit.rights)))


def _shown(text: str) -> str:
    return shown_octets(text.encode())


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "grant": _grant,
    "check": _check,
    "revoke": _revoke,
    "list": _list,
}
