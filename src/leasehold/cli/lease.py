"""`leasehold lease`: begin, renew, keep, end, show, list and watch leases."""

import argparse
from collections.abc import Callable
from typing import Final

from leasehold.cli import words
from leasehold.cli.connection import add_connection
from leasehold.cli.exits import LOST, NOT_THERE, epilog
from leasehold.cli.groups import Commands, add_group

_ID_HELP: Final = "a lease, as its id is printed; dec: before one in decimal"

_GROUP_EPILOG: Final = """\
example:
  leasehold lease grant 60
  leasehold lease list

Ids of leases are printed in hexadecimal, as `etcdctl lease list` does, and are
read so, with or without 0x. A decimal one is written as dec:31249, or as it is
if it has more than 16 digits.
"""


def add_command(commands: Commands) -> None:
    """Add `lease` and all that it can do."""
    group = add_group(
        commands,
        "lease",
        summary="begin, keep, end, list and watch leases",
        description="Leases on a Leasehold server, or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_grant, _renew, _keep, _revoke, _show, _list, _watch):
        add(group)


def _grant(group: Commands) -> None:
    parser = group.add_parser(
        "grant",
        help="begin a lease",
        description="Begin a lease, which ends by itself unless it is renewed in time.",
        epilog=epilog(
            """
            leasehold lease grant 60
            leasehold lease grant 1m30s --holder anna
            leasehold kv put w/7 up --lease $(leasehold lease grant 60 --print-id-only)
            leasehold lease grant 10 --keep
            """,
            LOST,
            notes="With --keep it goes on until it is told to end (Ctrl-C), and then ends the "
            "lease, and its keys with it.",
        ),
    )
    parser.add_argument(
        "ttl", type=words.term_s, metavar="TTL", help="its term: seconds, or such as 500ms, 1m30s"
    )
    parser.add_argument(
        "--id", type=words.lease_id, metavar="ID", help="its id (default: one is chosen)"
    )
    parser.add_argument(
        "--holder", type=_name, metavar="NAME", help="who holds it; on a Leasehold server only"
    )
    parser.add_argument(
        "--policy",
        type=_name,
        metavar="NAME",
        help="the policy that bounds its term; on a Leasehold server only",
    )
    exclusive = parser.add_mutually_exclusive_group()
    exclusive.add_argument("--keep", action="store_true", help="keep it alive, until Ctrl-C")
    exclusive.add_argument(
        "--print-id-only", action="store_true", help="print nothing but the id, for scripts"
    )
    _add_no_revoke(parser)
    _finish(parser, "grant")


def _renew(group: Commands) -> None:
    parser = group.add_parser(
        "renew",
        help="begin a new full term",
        description="Begin a new full term of leases, once.",
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
        help="keep leases alive, until Ctrl-C",
        description=(
            "Keep leases alive that are there already, and say when one is lost. At the end "
            "(Ctrl-C) they are ended, and their keys with them."
        ),
        epilog=epilog(
            """
            leasehold lease grant 10 --id 7a12
            leasehold lease keep 7a12
            """,
            NOT_THERE,
            LOST,
            notes="It ends by itself when all of them are lost.",
        ),
    )
    _add_ids(parser)
    _add_no_revoke(parser)
    _finish(parser, "keep")


def _revoke(group: Commands) -> None:
    parser = group.add_parser(
        "revoke",
        help="end leases, and their keys with them",
        description="End leases now, whoever holds them. Their keys go with them.",
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
        description="Show how long a lease has to run, and which keys it has.",
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
            "List leases with their terms, time left, number of keys and holders. An etcd knows no "
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
    _add_filters(parser, "leases of this holder only", "leases with a key that begins with this")
    parser.add_argument("--limit", type=words.count, metavar="N", help="at most so many")
    _finish(parser, "list")


def _watch(group: Commands) -> None:
    parser = group.add_parser(
        "watch",
        help="tell what happens to leases, until Ctrl-C",
        description=(
            "Tell what happens to leases from now on: granted, expired, revoked, and if asked for "
            "renewed. A Leasehold server can do that; an etcd cannot."
        ),
        epilog=epilog(
            """
            leasehold lease watch
            leasehold lease watch --holder anna --renewals --json
            """,
            notes="With --prefix it tells of leases that end and take such a key with them. Of the "
            "renewals of a lease, one in ten seconds is told.",
        ),
    )
    parser.add_argument("ids", type=words.lease_id, nargs="*", metavar="ID", help="these only")
    _add_filters(parser, "leases of this holder only", "leases that end with such a key")
    parser.add_argument("--renewals", action="store_true", help="tell of renewals, too")
    parser.add_argument("--count", type=words.count, metavar="N", help="end after so many events")
    _finish(parser, "watch")


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("no name was given: write one, such as anna")
    return text


def _add_ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", type=words.lease_id, nargs="+", metavar="ID", help=_ID_HELP)


def _add_no_revoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-revoke", action="store_true", help="leave what is kept to its term at the end"
    )


def _add_filters(parser: argparse.ArgumentParser, holder: str, prefix: str) -> None:
    parser.add_argument("--holder", type=_name, metavar="NAME", help=holder)
    parser.add_argument("--prefix", type=words.octets, metavar="KEY", help=prefix)


def _finish(parser: argparse.ArgumentParser, name: str) -> None:
    add_connection(parser)
    parser.set_defaults(run=_runner(name))


def _runner(name: str) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        from leasehold.cli import lease_commands  # noqa: PLC0415  it is long

        return lease_commands.COMMANDS[name](arguments)

    return run
