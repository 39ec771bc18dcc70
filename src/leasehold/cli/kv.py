"""`leasehold kv`: read, set, delete and watch keys, and transactions."""

import argparse
from collections.abc import Callable
from typing import Final

from leasehold.cli import words
from leasehold.cli.connection import add_connection
from leasehold.cli.exits import NOT_MET, NOT_THERE, epilog
from leasehold.cli.groups import Commands, add_group

_GROUP_EPILOG: Final = """\
example:
  leasehold kv put greeting hello
  leasehold kv get greeting

Keys and values are bytes. In JSON those that are UTF-8 are texts under their
names, and others are in base64 under key_base64 and value_base64.
"""

_TXN_NOTES: Final = """\
Conditions, all of which must hold; a key that is not there has no value, and 0 for the rest:

  KEY exists
  KEY missing
  KEY value|version|create_revision|mod_revision|lease  =|!=|<|>  OPERAND

Steps are written like the commands:

  put KEY VALUE [--lease ID | --keep-lease]
  get KEY [--prefix] [--limit N]
  del KEY [--prefix]

Without --if, --then and --else they are read from standard input: a line each, which begins with
if, then or else. Words are quoted as in a shell; a line that begins with # is a comment.
"""


def add_command(commands: Commands) -> None:
    """Add `kv` and all that it can do."""
    group = add_group(
        commands,
        "kv",
        summary="read, set, delete and watch keys",
        description="Keys on a Leasehold server, or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_get, _put, _del, _watch, _txn):
        add(group)


def _get(group: Commands) -> None:
    parser = group.add_parser(
        "get",
        help="read a key, or all that begin with it",
        description="Read a key, or all keys that begin with it.",
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
        "--rev", type=words.revision, default=0, metavar="N", help="as it was at this revision"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--keys-only", action="store_true", help="print the keys, a line each")
    only.add_argument("--print-value-only", action="store_true", help="print values as they are")
    _finish(parser, "get")


def _put(group: Commands) -> None:
    parser = group.add_parser(
        "put",
        help="set a key",
        description="Set a key, and let it end with a lease.",
        epilog=epilog(
            """
            leasehold kv put greeting hello
            leasehold lease grant 60 --id 7a15
            leasehold kv put workers/7 here --lease 7a15
            date | leasehold kv put today -
            """,
            NOT_THERE,
            notes="A value that looks like an option is written after --, as in: -- KEY --VALUE",
        ),
    )
    add_put(parser, "what it is set to; - reads it from standard input")
    _finish(parser, "put")


def _del(group: Commands) -> None:
    parser = group.add_parser(
        "del",
        help="delete a key, or all that begin with it",
        description="Delete a key, or all keys that begin with it.",
        epilog=epilog(
            """
            leasehold kv put greeting hello
            leasehold kv del greeting
            """,
            NOT_THERE,
        ),
    )
    add_del(parser)
    _finish(parser, "del")


def _watch(group: Commands) -> None:
    parser = group.add_parser(
        "watch",
        help="tell what happens to keys, until Ctrl-C",
        description=(
            "Tell what happens to a key, or to all that begin with it. It goes on after any loss "
            "of the connection, and neither misses nor repeats anything."
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
        "--start", type=words.revision, default=0, metavar="N", help="begin with this revision"
    )
    parser.add_argument("--previous", action="store_true", help="tell what was there before, too")
    parser.add_argument("--count", type=words.count, metavar="N", help="end after so many events")
    _finish(parser, "watch")


def _txn(group: Commands) -> None:
    parser = group.add_parser(
        "txn",
        help="do several things at once, if conditions hold",
        usage="%(prog)s [--if CONDITION] [--then STEP] [--else STEP] [options]",
        description="If all conditions hold do the one, else the other, all at one revision.",
        epilog=epilog(
            """
            leasehold kv txn --then 'put a 1' --then 'put b 2'
            leasehold kv txn --if 'a value = 1' --then 'put a 2' --else 'get a'
            printf 'if leader missing\\nthen put leader me\\n' | leasehold kv txn
            """,
            NOT_MET,
            NOT_THERE,
            notes=_TXN_NOTES,
        ),
    )
    for flag, metavar, what in (
        ("--if", "CONDITION", "what must hold; any number of these"),
        ("--then", "STEP", "what is done if all of it does"),
        ("--else", "STEP", "what is done if it does not"),
    ):
        parser.add_argument(
            flag, dest=flag[2:] + "_lines", action="append", default=[], metavar=metavar, help=what
        )
    _finish(parser, "txn")


# What the steps of a transaction have as well.


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=words.octets, metavar="KEY", help="its name")
    parser.add_argument("--prefix", action="store_true", help="all keys that begin with it")


def add_get(parser: argparse.ArgumentParser) -> None:
    """Add what a read takes."""
    _add_key(parser)
    parser.add_argument("--limit", type=words.count, default=0, metavar="N", help="at most so many")


def add_put(parser: argparse.ArgumentParser, value_help: str = "what it is set to") -> None:
    """Add what a put takes."""
    parser.add_argument("name", type=words.octets, metavar="KEY", help="its name")
    parser.add_argument("value", type=words.octets, metavar="VALUE", help=value_help)
    lease = parser.add_mutually_exclusive_group()
    lease.add_argument(
        "--lease", type=words.lease_id, metavar="ID", help="the lease that it ends with"
    )
    lease.add_argument("--keep-lease", action="store_true", help="leave it the lease that it has")


def add_del(parser: argparse.ArgumentParser) -> None:
    """Add what a delete takes."""
    _add_key(parser)


def _finish(parser: argparse.ArgumentParser, name: str) -> None:
    add_connection(parser)
    parser.set_defaults(run=_runner(name))


def _runner(name: str) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        from leasehold.cli import kv_commands  # noqa: PLC0415  it is long

        return kv_commands.COMMANDS[name](arguments)

    return run
