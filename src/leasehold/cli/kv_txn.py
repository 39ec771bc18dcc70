"""`leasehold kv txn`: conditions and steps in a small language, in one transaction.

    if config/a value = 1
    then put config/a 2
    else get config/a

A condition is a key, a field of it, an operator and a value; or a key followed by `exists` or
`missing`. A step is written like the command of its name. Words are quoted as in a shell, and a
quoted word may span several lines.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

from leasehold.cli.argument_types import key_bytes, lease_id
from leasehold.cli.connection import finish, with_client
from leasehold.cli.kv import (
    add_del,
    add_get,
    add_put,
    deleted_json,
    pairs_table,
    put_json,
    range_json,
)
from leasehold.cli.output import count, emit_json, emit_lines, print_error, shown_bytes
from leasehold.cli.parser import NOT_MET, NOT_THERE, OK, USAGE_ERROR, Commands, Parser, epilog
from leasehold.cli.settings.error_texts import nearest, shown

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.engine.key import Key
    from leasehold.keyspace.operations import Compare, Step

MAX_INPUT_BYTES: Final = 16 * 1024 * 1024
"""Of standard input: more than a server accepts in one transaction."""
_FORM: Final = (
    "write KEY exists, KEY missing, or such as `KEY value = OPERAND`, with value, version, "
    "create_revision, mod_revision or lease, and =, !=, < or >"
)
_PROPERTIES: Final = ("value", "version", "create_revision", "mod_revision", "lease")
_RELATIONS: Final = ("=", "!=", "<", ">")
_SECTIONS: Final = ("if", "then", "else")
_STEPS: Final = {"put": add_put, "get": add_get, "del": add_del}

_NOTES: Final = """\
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


def add_txn(group: Commands) -> None:
    """Add `txn` to the commands of `kv`."""
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
            notes=_NOTES,
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
    finish(parser, _txn)


def _txn(arguments: argparse.Namespace) -> int:
    try:
        stdin = None if sys.stdin is None else sys.stdin.buffer
        txn = read_txn(arguments.if_lines, arguments.then_lines, arguments.else_lines, stdin)
    except TxnError as error:
        print_error(str(error))
        return USAGE_ERROR

    async def work(client: "Client") -> int:
        builder = client.kv.txn(*txn.conditions).then(*txn.success).otherwise(*txn.failure)
        done = await builder.commit()
        steps = txn.success if done.succeeded else txn.failure
        pairs = list(zip(steps, done.results, strict=True))
        if arguments.json:
            results = [_step_json(step, result) for step, result in pairs]
            emit_json({"revision": done.revision, "succeeded": done.succeeded, "results": results})
        else:
            emit_lines(_txn_lines(txn, done.revision, done.succeeded, pairs))
        return OK if done.succeeded else NOT_MET

    return with_client(arguments, work)


def _txn_lines(
    txn: "ParsedTxn", revision: int, succeeded: bool, pairs: Iterable[tuple["Step", Any]]
) -> list[str]:
    held = "the conditions hold" if succeeded else "the conditions do not hold"
    lines = [f"{held if txn.conditions else 'done'}, at revision {revision}"]
    for step, result in pairs:
        lines += _step_lines(step, result)
    return lines


def _step_lines(step: "Step", result: Any) -> list[str]:
    """Format the result of a transaction step."""
    from leasehold.keyspace.operations import Delete, Put, Range

    match step:
        case Put(key=key):
            return [f"{shown_bytes(key)} is set"]
        case Delete():
            return [f"{count(result.deleted, 'key')} deleted"]
        case Range(key=key) if not result.pairs:
            return [f"key {shown_bytes(key)} does not exist"]
    return pairs_table(result.pairs)


def _step_json(step: "Step", result: Any) -> dict[str, Any]:
    """Return the result of a transaction step for JSON."""
    from leasehold.keyspace.operations import Delete, Put

    match step:
        case Put(key=key):
            return {"step": "put", **put_json(key, result)}
        case Delete(prev_kv=previous):
            return {"step": "del", **deleted_json(result, previous=previous)}
    return {"step": "get", **range_json(result)}


# Reading a transaction.


class TxnError(Exception):
    """A condition or a step is invalid; the text names it and the right form."""


@dataclass(slots=True)
class ParsedTxn:
    """A transaction as it was written."""

    conditions: list["Compare"] = field(default_factory=list)
    success: list["Step"] = field(default_factory=list)
    failure: list["Step"] = field(default_factory=list)


def read_txn(
    conditions: Sequence[str],
    success: Sequence[str],
    failure: Sequence[str],
    stdin: BinaryIO | None,
) -> ParsedTxn:
    """Parse a transaction from flags, or from standard input if there are none."""
    lines = [
        *(("if", _split(text), f"--if {shown(text)}") for text in conditions),
        *(("then", _split(text), f"--then {shown(text)}") for text in success),
        *(("else", _split(text), f"--else {shown(text)}") for text in failure),
    ]
    if not lines:
        lines = list(_sections(_stdin_lines(stdin)))
    txn = ParsedTxn()
    for section, words, where in lines:
        try:
            match section:
                case "if":
                    txn.conditions.append(condition_of(words))
                case "then":
                    txn.success.append(step_of(words))
                case _:
                    txn.failure.append(step_of(words))
        except TxnError as error:
            raise TxnError(f"{where}: {error}") from None
    if not (txn.success or txn.failure or txn.conditions):
        raise TxnError(
            "the transaction is empty: give --then 'put KEY VALUE', or lines on standard input"
        )
    return txn


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise TxnError(f"{shown(text)} has an unclosed quote") from None


def _stdin_lines(stdin: BinaryIO | None) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and words; an open quote continues in the next line."""
    try:
        text = "" if stdin is None else os.fsdecode(stdin.read(MAX_INPUT_BYTES))
    except OSError as error:
        raise TxnError(f"cannot read standard input: {error}") from None
    waiting, began = "", 0
    for at, line in enumerate(text.splitlines(), 1):
        if not waiting and (not line.strip() or line.lstrip().startswith("#")):
            continue
        waiting, began = (f"{waiting}\n{line}", began) if waiting else (line, at)
        try:
            words = shlex.split(waiting)
        except ValueError:
            continue
        yield began, words
        waiting = ""
    if waiting:
        raise TxnError(f"line {began}: unclosed quote")


def _sections(
    lines: Iterable[tuple[int, list[str]]],
) -> Iterator[tuple[str, list[str], str]]:
    for at, (section, *words) in lines:
        if section not in _SECTIONS:
            raise TxnError(
                f"line {at}: {shown(section)} is not if, then or else: begin "
                "the line with one of them"
            )
        yield section, words, f"line {at}"


# Conditions.


def condition_of(words: Sequence[str]) -> "Compare":
    """Parse a condition."""
    from leasehold.engine.key import Key

    match words:
        case [name, "exists"]:
            return Key(key_bytes(name)).exists()
        case [name, "missing"]:
            return Key(key_bytes(name)).is_missing()
        case [name, prop, relation, operand] if relation in _RELATIONS or relation == "==":
            if prop not in _PROPERTIES:
                longer = (each for each in _PROPERTIES if prop and each.startswith(prop))
                near = next(longer, None) or nearest(prop, _PROPERTIES)
                meant = f"did you mean {near}?" if near else f"choose from {', '.join(_PROPERTIES)}"
                raise TxnError(f"unknown field {shown(prop)}: {meant}")
            return _compared(Key(key_bytes(name)), prop, relation, operand)
    raise TxnError(f"{shown(shlex.join(words))} is not a condition: {_FORM}")


def _compared(key: "Key", prop: str, relation: str, text: str) -> "Compare":
    side, operand = getattr(key, prop), _operand(prop, text)
    match relation:
        case "!=":
            compare: Compare = side != operand
        case "<":
            compare = side < operand
        case ">":
            compare = side > operand
        case _:
            compare = side == operand
    return compare


def _operand(prop: str, text: str) -> int | bytes:
    if prop == "value":
        return key_bytes(text)
    try:
        if prop == "lease" and text != "0":
            return lease_id(text)
        number = int(text) if text.isascii() and text.isdecimal() else -1
    except argparse.ArgumentTypeError as error:
        raise TxnError(str(error)) from None
    if not 0 <= number < 1 << 63:
        raise TxnError(f"{prop} must be compared with a number, such as 1; got {shown(text)}")
    return number


# Steps.


class _StepParser(Parser):
    """Parses a step like a command line; raises an exception on an error."""

    def error(self, message: str) -> NoReturn:
        raise TxnError(f"{self.prog}: {message}")


def step_of(words: Sequence[str]) -> "Step":
    """Parse a step."""
    from leasehold.engine.interface import prefix_end
    from leasehold.keyspace.operations import Delete, Put, Range

    name = words[0] if words else ""
    if name not in _STEPS:
        raise TxnError(f"{shown(name)} is not a step: write put, get or del, as in `put KEY VALUE`")
    parser = _StepParser(prog=name, add_help=False)
    _STEPS[name](parser)
    given = parser.parse_args(list(words[1:]))
    if name == "put":
        return Put(given.name, given.value, None if given.keep_lease else given.lease or 0)
    first = given.name or (b"\0" if given.prefix else b"")
    end = prefix_end(given.name) if given.prefix else b""
    return Range(first, end, limit=given.limit) if name == "get" else Delete(first, end)
