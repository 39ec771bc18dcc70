"""`leasehold renewal`: sets of leases that the server keeps alive; `renewal_views` has the rest."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from leasehold.basics.durations import FOREVER
from leasehold.cli import argument_types
from leasehold.cli.argument_types import shown_id, shown_term, term_or_forever
from leasehold.cli.connection import ConnectOptions, finish, finish_with_client, remote, with_client
from leasehold.cli.leased_objects import MAILBOX, REGISTRATION, RENEWAL_SET
from leasehold.cli.output import emit_json, emit_lines, print_error, print_whether
from leasehold.cli.parser import NOT_THERE, OK, USAGE_ERROR, Commands, add_group, epilog
from leasehold.cli.renewal_views import VIEWS
from leasehold.errors import LeaseholdError, Status

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.renewal.references import LeaseReference

_GROUP_EPILOG: Final = """\
example:
  set=$(leasehold renewal create --ttl 2h --print-id-only)
  lease=$(leasehold lease grant 60 --print-id-only)
  leasehold renewal add $set $lease --for 8h

The server renews the leases of a set while their holders are absent. The set
itself has a lease: when that ends, nothing more is renewed.
"""


def add_command(commands: Commands) -> None:
    """Add `renewal` and its subcommands."""
    group = add_group(
        commands,
        "renewal",
        summary="let the server renew leases for clients that are absent",
        description="Sets of leases that a Leasehold server keeps alive.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_add_create, _add_renew, _add_add, _add_remove, *VIEWS, _add_destroy):
        add(group)


# Create.


def _add_create(group: Commands) -> None:
    parser = group.add_parser(
        "create",
        help="create a renewal set",
        description="Create a set of leases that the server keeps alive, and print its id.",
        epilog=epilog(
            """
            leasehold renewal create
            leasehold renewal create --ttl 2h --print-id-only
            """,
            notes="Every client that has the id can use the set.",
        ),
    )
    RENEWAL_SET.add_term(parser)
    parser.add_argument("--print-id-only", action="store_true", help="print only the id")
    finish_with_client(parser, _create)


async def _create(client: "Client", arguments: argparse.Namespace) -> int:
    RENEWAL_SET.check_server(client)
    RENEWAL_SET.print_created(arguments, await client.renewal_set(arguments.term))
    return OK


# Renew.


def _add_renew(group: Commands) -> None:
    RENEWAL_SET.add_renew(
        group,
        description="Renew the lease of a set, so that the set lives for another term.",
        example="leasehold renewal renew $(leasehold renewal create --print-id-only) --ttl 2h",
    )


# The lease that an argument names.


def _add_lease(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "lease",
        type=argument_types.lease_id,
        nargs="?",
        metavar="LEASE",
        help="lease id in hexadecimal, as it is printed, or dec:N in decimal",
    )
    group = parser.add_argument_group(
        "the lease", "By default the lease is one of the server itself."
    )
    group.add_argument(
        "--at",
        type=argument_types.endpoints,
        action="extend",
        metavar="ADDRESS",
        help="address at which the server reaches the server or etcd cluster that granted the "
        "lease; several members separated by commas",
    )
    group.add_argument(
        "--grantor",
        type=argument_types.name("grantor", "3f2a9c0d51e87b64"),
        metavar="NAME",
        help="id of the cluster, or name of the landlord, that granted the lease (default: queried "
        "at --at)",
    )
    group.add_argument(
        "--etcd", action="store_true", help="with --grantor: the grantor is an etcd cluster"
    )
    group.add_argument(
        "--cookie",
        type=argument_types.name("cookie", "A1"),
        metavar="TEXT",
        help="name of the lease at a landlord, in place of LEASE; requires --grantor",
    )
    group.add_argument(
        "--mailbox",
        type=MAILBOX.id_type,
        metavar="ID",
        help="the lease of this mailbox, in place of LEASE",
    )
    group.add_argument(
        "--discovery",
        type=REGISTRATION.id_type,
        metavar="ID",
        help="the lease of this registration of the discovery service, in place of LEASE",
    )


def _mistake(arguments: argparse.Namespace) -> str | None:
    """Return the error in the options that name a lease, or None."""
    given = [
        each
        for each, value in (
            ("LEASE", arguments.lease),
            ("--cookie", arguments.cookie),
            ("--mailbox", arguments.mailbox),
            ("--discovery", arguments.discovery),
        )
        if value is not None
    ]
    if not given:
        return "no lease was given: write LEASE, or --cookie, or --mailbox, or --discovery"
    if len(given) > 1:
        return f"{given[0]} was given together with {given[1]}: give only one of them"
    is_of_service = arguments.mailbox or arguments.discovery
    if is_of_service and (arguments.at or arguments.grantor):
        return f"{given[0]} is for a lease of this server: omit --at and --grantor"
    if arguments.cookie and not arguments.grantor:
        return "--cookie requires --grantor: give the name of the landlord"
    if arguments.etcd and not arguments.grantor:
        return "--etcd requires --grantor: give the cluster id, or omit --etcd"
    return None


async def _reference(client: "Client", arguments: argparse.Namespace) -> "LeaseReference":
    """Return the reference of the lease that the arguments name."""
    from leasehold.renewal.references import GrantorKind, LeaseReference

    engine = remote(client)
    endpoints = tuple(map(str, arguments.at or ()))
    if arguments.mailbox:
        mailbox = await client.mailbox(id=arguments.mailbox)
        return LeaseReference(str(mailbox.lease.grantor), arguments.mailbox)
    if arguments.discovery:
        found = await client.discovery_service.registration(arguments.discovery)
        return LeaseReference(str(found.lease.grantor), arguments.discovery)
    if arguments.grantor:
        kind = GrantorKind.ETCD if arguments.etcd else GrantorKind.LEASEHOLD
        cookie = arguments.cookie or arguments.lease
        return LeaseReference(arguments.grantor, cookie, kind, endpoints)
    if not endpoints:
        return LeaseReference(f"{engine.cluster_id:016x}", arguments.lease)
    return await _asked(arguments, endpoints)


async def _asked(arguments: argparse.Namespace, endpoints: tuple[str, ...]) -> "LeaseReference":
    """Return the reference of a lease of another cluster, which is asked for its id."""
    from leasehold.client.connecting import connect
    from leasehold.renewal.references import GrantorKind, LeaseReference

    server = ConnectOptions(arguments)
    async with connect(arguments.at, tls=server.tls, timeout=server.timeout_s) as other:
        await _check_exists(other, arguments.lease)
        engine = remote(other)
        kind = GrantorKind.LEASEHOLD if engine.server.is_leasehold else GrantorKind.ETCD
        return LeaseReference(f"{engine.cluster_id:016x}", arguments.lease, kind, endpoints)


async def _check_exists(client: "Client", lease: int) -> None:
    """Raise `UnknownLease` if a lease does not exist. A server on an etcd cluster cannot tell."""
    try:
        await client.lease_info(lease)
    except LeaseholdError as error:
        if error.status is not Status.UNIMPLEMENTED:
            raise


# Add.


def _add_add(group: Commands) -> None:
    parser = group.add_parser(
        "add",
        help="add a lease to a set",
        description=(
            "Let the server keep a lease alive, for a time or as long as the set lives. A lease "
            "that is in the set gets new durations."
        ),
        epilog=epilog(
            """
            set=$(leasehold renewal create --print-id-only)
            leasehold lease grant 60 --id 7a21
            leasehold renewal add $set 7a21 --for 8h
            """,
            NOT_THERE,
            notes="The server connects only to addresses that its operator has listed with "
            "`leasehold serve --renew-at`. Leases of the server itself need no --at.",
        ),
    )
    RENEWAL_SET.add_id(parser)
    _add_lease(parser)
    parser.add_argument(
        "--for",
        dest="desired",
        type=term_or_forever,
        required=True,
        metavar="TIME",
        help="how long to keep the lease alive, such as 8h, or forever, which is as long as the "
        "set lives",
    )
    parser.add_argument(
        "--renew",
        type=term_or_forever,
        default=FOREVER,
        metavar="TIME",
        help="TTL to request at each renewal; ignored by etcd (default: the longest)",
    )
    parser.add_argument(
        "--credentials",
        type=argument_types.name("credentials", "cluster-b"),
        metavar="NAME",
        help="entry of the server's configuration with the TLS files for --at",
    )
    finish(parser, _add)


def _add(arguments: argparse.Namespace) -> int:
    if (mistake := _mistake(arguments)) is not None:
        print_error(mistake)
        return USAGE_ERROR

    async def work(client: "Client") -> int:
        renewals = await RENEWAL_SET.found(client, arguments.id)
        reference = await _reference(client, arguments)
        is_of_service = arguments.mailbox or arguments.discovery
        if not (is_of_service or arguments.at or arguments.grantor):
            await _check_exists(client, arguments.lease)
        await renewals.renew_for(
            reference,
            arguments.desired,
            arguments.renew,
            credentials=arguments.credentials or "",
        )
        shown = _shown_lease(reference)
        if arguments.json:
            emit_json({"set": renewals.id, **_lease_json(reference)})
        elif arguments.desired is FOREVER:
            emit_lines([f"{shown} is kept alive as long as renewal set {renewals.id} lives"])
        else:
            for_s = shown_term(arguments.desired)
            emit_lines([f"{shown} is kept alive for {for_s} by renewal set {renewals.id}"])
        return OK

    return with_client(arguments, work)


def _shown_lease(reference: "LeaseReference") -> str:
    cookie = reference.cookie
    return f"lease {shown_id(cookie) if isinstance(cookie, int) else str(cookie)}"


def _lease_json(reference: "LeaseReference") -> dict[str, Any]:
    from leasehold.renewal.event_json import reference_as_json

    return reference_as_json(reference.encode())


# Remove.


def _add_remove(group: Commands) -> None:
    parser = group.add_parser(
        "remove",
        help="remove a lease from a set",
        description="Remove a lease from a set. It is not revoked: its holder may renew it again.",
        epilog=epilog(
            """
            set=$(leasehold renewal create --print-id-only)
            leasehold lease grant 60 --id 7a22
            leasehold renewal add $set 7a22 --for 8h
            leasehold renewal remove $set 7a22
            """,
            NOT_THERE,
        ),
    )
    RENEWAL_SET.add_id(parser)
    _add_lease(parser)
    finish(parser, _remove)


def _remove(arguments: argparse.Namespace) -> int:
    if (mistake := _mistake(arguments)) is not None:
        print_error(mistake)
        return USAGE_ERROR

    async def work(client: "Client") -> int:
        renewals = await RENEWAL_SET.found(client, arguments.id)
        reference = await _reference(client, arguments)
        was_there = await renewals.remove(reference) is not None
        shown = _shown_lease(reference)
        yes = f"{shown} has left renewal set {renewals.id}"
        no = f"{shown} of {reference.grantor} is not in renewal set {renewals.id}"
        return print_whether(arguments, "removed", was_there, yes, no, NOT_THERE)

    return with_client(arguments, work)


# Destroy.


def _add_destroy(group: Commands) -> None:
    RENEWAL_SET.add_destroy(
        group,
        consequence="Their leases are not revoked, and not renewed any more.",
        example="leasehold renewal destroy $(leasehold renewal create --print-id-only)",
    )
