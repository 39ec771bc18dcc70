"""The small language of `leasehold kv txn`: conditions and steps, as people write them.

    if config/a value = 1
    then put config/a 2
    else get config/a

A condition is a key, what of it is compared, how, and with what; or a key that exists, or is
missing. A step is written like the command of its name. Words are quoted as in a shell, and a
quote may go on over several lines.
"""

import argparse
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NoReturn

from leasehold.cli.kv import add_del, add_get, add_put
from leasehold.cli.parser import Parser
from leasehold.cli.settings.nearest import nearest
from leasehold.cli.settings.shown import shown
from leasehold.cli.words import lease_id, octets
from leasehold.client.key import Key
from leasehold.core.ops import Compare, Delete, Put, Range, Step
from leasehold.engine.interface import prefix_end

MAX_INPUT_BYTES: Final = 16 * 1024 * 1024
"""Of standard input: more than a server takes in one transaction."""

_FORM: Final = (
    "write KEY exists, KEY missing, or such as `KEY value = OPERAND`, with value, version, "
    "create_revision, mod_revision or lease, and =, !=, < or >"
)
_PROPERTIES: Final = ("value", "version", "create_revision", "mod_revision", "lease")
_RELATIONS: Final = ("=", "!=", "<", ">")
_SECTIONS: Final = ("if", "then", "else")
_STEPS: Final = {"put": add_put, "get": add_get, "del": add_del}


class TxnError(Exception):
    """A condition or a step is wrong; the text says which, and what would be right."""


@dataclass(slots=True)
class Txn:
    """A transaction as it was written."""

    conditions: list[Compare] = field(default_factory=list)
    success: list[Step] = field(default_factory=list)
    failure: list[Step] = field(default_factory=list)


def read_txn(
    conditions: Sequence[str],
    success: Sequence[str],
    failure: Sequence[str],
    stdin: BinaryIO | None,
) -> Txn:
    """Read a transaction from flags, or from standard input if there are none."""
    lines = [
        *(("if", _split(text), f"--if {shown(text)}") for text in conditions),
        *(("then", _split(text), f"--then {shown(text)}") for text in success),
        *(("else", _split(text), f"--else {shown(text)}") for text in failure),
    ]
    if not lines:
        lines = list(_sections(_stdin_lines(stdin)))
    txn = Txn()
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
            "the transaction is empty: write --then 'put KEY VALUE', or lines to standard input"
        )
    return txn


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise TxnError(f"{shown(text)} has an unclosed quote") from None


def _stdin_lines(stdin: BinaryIO | None) -> Iterator[tuple[int, list[str]]]:
    """Read lines with their numbers, in words; a quote that is open goes on in the next line."""
    try:
        text = "" if stdin is None else os.fsdecode(stdin.read(MAX_INPUT_BYTES))
    except OSError as error:
        raise TxnError(f"standard input cannot be read: {error}") from None
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


def condition_of(words: Sequence[str]) -> Compare:
    """Read a condition."""
    match words:
        case [name, "exists"]:
            return Key(octets(name)).exists()
        case [name, "missing"]:
            return Key(octets(name)).is_missing()
        case [name, prop, relation, operand] if relation in _RELATIONS or relation == "==":
            if prop not in _PROPERTIES:
                longer = (each for each in _PROPERTIES if prop and each.startswith(prop))
                near = next(longer, None) or nearest(prop, _PROPERTIES)
                meant = f"did you mean {near}?" if near else f"there are {', '.join(_PROPERTIES)}"
                raise TxnError(f"keys have no field {shown(prop)}: {meant}")
            return _compared(Key(octets(name)), prop, relation, operand)
    raise TxnError(f"{shown(shlex.join(words))} is not a condition: {_FORM}")


def _compared(key: Key, prop: str, relation: str, text: str) -> Compare:
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
        return octets(text)
    try:
        if prop == "lease" and text != "0":
            return lease_id(text)
        number = int(text) if text.isascii() and text.isdecimal() else -1
    except argparse.ArgumentTypeError as error:
        raise TxnError(str(error)) from None
    if not 0 <= number < 1 << 63:
        raise TxnError(f"{prop} is compared with a number, got {shown(text)}: write one, such as 1")
    return number


# Steps.


class _StepParser(Parser):
    """Reads a step like a command line; what is wrong is raised."""

    def error(self, message: str) -> NoReturn:
        raise TxnError(f"{self.prog}: {message}")


def step_of(words: Sequence[str]) -> Step:
    """Read a step."""
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
