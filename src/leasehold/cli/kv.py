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

Keys and values are bytes. In JSON, UTF-8 is printed as text under key and
value, and other bytes as base64 under key_base64 and value_base64.
"""

_TXN_NOTES: Final = """\
Conditions, all of which must hold. A missing key has no value; its other fields are 0:

  KEY exists
  KEY missing
  KEY value|version|create_revision|mod_revision|lease  =|!=|<|>  OPERAND

Steps have the form of the commands:

  put KEY VALUE [--lease ID | --keep-lease]
  get KEY [--prefix] [--limit N]
  del KEY [--prefix]

Without --if, --then and --else, the transaction is read from standard input: one condition or step
on each line, after the word if, then or else. Words are quoted as in a shell; lines that begin with
# are comments.
"""


def add_command(commands: Commands) -> None:
    """Add `kv` and all that it can do."""
    group = add_group(
        commands,
        "kv",
        summary="read, set, delete and watch keys",
        description="Keys on a Leasehold server or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_get, _put, _del, _watch, _txn):
        add(group)


def _get(group: Commands) -> None:
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
        "--rev", type=words.revision, default=0, metavar="N", help="read at this revision"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--keys-only", action="store_true", help="print only keys, one per line")
    only.add_argument("--print-value-only", action="store_true", help="print only values")
    _finish(parser, "get")


def _put(group: Commands) -> None:
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
    _finish(parser, "put")


def _del(group: Commands) -> None:
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
    _finish(parser, "del")


def _watch(group: Commands) -> None:
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
        "--start", type=words.revision, default=0, metavar="N", help="start at this revision"
    )
    parser.add_argument("--previous", action="store_true", help="print the previous value as well")
    parser.add_argument("--count", type=words.count, metavar="N", help="end after N events")
    _finish(parser, "watch")


def _txn(group: Commands) -> None:
    parser = group.add_parser(
        "txn",
        help="execute steps in one transaction",
        usage="%(prog)s [--if CONDITION] [--then STEP] [--else STEP] [options]",
        description="Execute the --then steps if all conditions hold, else the "
        "--else steps, all at one "
        "revision.",
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
        ("--if", "CONDITION", "a condition; may be given several times"),
        ("--then", "STEP", "a step if all conditions hold; may be given several times"),
        ("--else", "STEP", "a step if they do not; may be given several times"),
    ):
        parser.add_argument(
            flag, dest=flag[2:] + "_lines", action="append", default=[], metavar=metavar, help=what
        )
    _finish(parser, "txn")


# What the steps of a transaction have as well.


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=words.octets, metavar="KEY", help="the key")
    parser.add_argument("--prefix", action="store_true", help="all keys that begin with KEY")


def add_get(parser: argparse.ArgumentParser) -> None:
    """Add what a read takes."""
    _add_key(parser)
    parser.add_argument("--limit", type=words.count, default=0, metavar="N", help="at most N keys")


def add_put(parser: argparse.ArgumentParser, value_help: str = "the value") -> None:
    """Add what a put takes."""
    parser.add_argument("name", type=words.octets, metavar="KEY", help="the key")
    parser.add_argument("value", type=words.octets, metavar="VALUE", help=value_help)
    lease = parser.add_mutually_exclusive_group()
    lease.add_argument(
        "--lease", type=words.lease_id, metavar="ID", help="attach the key to this lease"
    )
    lease.add_argument("--keep-lease", action="store_true", help="keep the lease that the key has")


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
