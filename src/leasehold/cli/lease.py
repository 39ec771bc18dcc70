"""`leasehold lease`: grant, renew, keep, revoke, show, list and watch leases."""

import argparse
from collections.abc import Callable
from typing import Final

from leasehold.cli import words
from leasehold.cli.connection import add_connection
from leasehold.cli.exits import LOST, NOT_THERE, epilog
from leasehold.cli.groups import Commands, add_group

_ID_HELP: Final = "lease id in hexadecimal, as it is printed, or dec:N in decimal"

_GROUP_EPILOG: Final = """\
example:
  leasehold lease grant 60
  leasehold lease list

Lease ids are hexadecimal, with or without 0x, as `etcdctl lease list` prints
them. Write a decimal id as dec:31249; with more than 16 digits it needs no dec:.
"""

_HOLDER: Final = words.name("holder", "anna")


def add_command(commands: Commands) -> None:
    """Add `lease` and all that it can do."""
    group = add_group(
        commands,
        "lease",
        summary="grant, renew, keep, revoke, list and watch leases",
        description="Leases on a Leasehold server or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_grant, _renew, _keep, _revoke, _show, _list, _watch):
        add(group)


def _grant(group: Commands) -> None:
    parser = group.add_parser(
        "grant",
        help="grant a lease",
        description="Grant a lease, which expires unless it is renewed within its TTL.",
        epilog=epilog(
            """
            leasehold lease grant 60
            leasehold lease grant 1m30s --holder anna
            leasehold kv put w/7 up --lease $(leasehold lease grant 60 --print-id-only)
            leasehold lease grant 10 --keep
            """,
            LOST,
            notes="With --keep the command renews the lease until Ctrl-C, and then revokes it, "
            "which deletes its keys.",
        ),
    )
    parser.add_argument(
        "ttl", type=words.term_s, metavar="TTL", help="seconds, or such as 500ms, 1m30s"
    )
    parser.add_argument(
        "--id", type=words.lease_id, metavar="ID", help="lease id (default: chosen by the server)"
    )
    parser.add_argument(
        "--holder", type=_HOLDER, metavar="NAME", help="name of the holder (Leasehold server only)"
    )
    parser.add_argument(
        "--policy",
        type=words.name("policy", "workers"),
        metavar="NAME",
        help="server policy that limits the TTL (Leasehold server only)",
    )
    exclusive = parser.add_mutually_exclusive_group()
    exclusive.add_argument("--keep", action="store_true", help="renew it until Ctrl-C")
    exclusive.add_argument("--print-id-only", action="store_true", help="print only the lease id")
    _add_no_revoke(parser)
    _finish(parser, "grant")


def _renew(group: Commands) -> None:
    parser = group.add_parser(
        "renew",
        help="renew leases once",
        description="Renew leases once, each for its full TTL.",
        epilog=epilog(
            """
            leasehold lease grant 60 --id 7a11
            leasehold lease renew 7a11
            """,
            NOT_THERE,
        ),
    )
    _add_ids(parser)
    _finish(parser, "renew")


def _keep(group: Commands) -> None:
    parser = group.add_parser(
        "keep",
        help="renew leases until Ctrl-C",
        description=(
            "Renew existing leases until Ctrl-C, and report each that is lost. At the end they are "
            "revoked, which deletes their keys."
        ),
        epilog=epilog(
            """
            leasehold lease grant 10 --id 7a12
            leasehold lease keep 7a12
            """,
            NOT_THERE,
            LOST,
            notes="The command also ends when all leases are lost.",
        ),
    )
    _add_ids(parser)
    _add_no_revoke(parser)
    _finish(parser, "keep")


def _revoke(group: Commands) -> None:
    parser = group.add_parser(
        "revoke",
        help="revoke leases and delete their keys",
        description="Revoke leases immediately, whichever client holds them. "
        "Their keys are deleted.",
        epilog=epilog(
            """
            leasehold lease grant 60 --id 7a13
            leasehold lease revoke 7a13
            """,
            NOT_THERE,
        ),
    )
    _add_ids(parser)
    _finish(parser, "revoke")


def _show(group: Commands) -> None:
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
    parser.add_argument("id", type=words.lease_id, metavar="ID", help=_ID_HELP)
    _finish(parser, "show")


def _list(group: Commands) -> None:
    parser = group.add_parser(
        "list",
        help="list leases",
        description=(
            "List leases with TTL, remaining time, number of keys and holder. An etcd records no "
            "holders."
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
    parser.add_argument("--limit", type=words.count, metavar="N", help="at most N leases")
    _finish(parser, "list")


def _watch(group: Commands) -> None:
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
        "ids", type=words.lease_id, nargs="*", metavar="ID", help="only these leases"
    )
    _add_filters(parser, "only leases of this holder", "only ends of leases with such a key")
    parser.add_argument("--renewals", action="store_true", help="print renewals as well")
    parser.add_argument("--count", type=words.count, metavar="N", help="end after N events")
    _finish(parser, "watch")


def _add_ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", type=words.lease_id, nargs="+", metavar="ID", help=_ID_HELP)


def _add_no_revoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-revoke", action="store_true", help="let kept leases expire instead of revoking them"
    )


def _add_filters(parser: argparse.ArgumentParser, holder: str, prefix: str) -> None:
    parser.add_argument("--holder", type=_HOLDER, metavar="NAME", help=holder)
    parser.add_argument("--prefix", type=words.octets, metavar="KEY", help=prefix)


def _finish(parser: argparse.ArgumentParser, name: str) -> None:
    add_connection(parser)
    parser.set_defaults(run=_runner(name))


def _runner(name: str) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        from leasehold.cli import lease_commands  # noqa: PLC0415  it is long

        return lease_commands.COMMANDS[name](arguments)

    return run
