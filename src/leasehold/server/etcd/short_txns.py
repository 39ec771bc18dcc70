"""Transactions in their shortest form, read without protobuf.

Protobuf makes an object for each message within another one that is looked at from Python: reading
a compare-and-put takes longer that way than carrying it out. So this reads what most transactions
are: conditions on single keys, then puts or deletes of single keys without options, else those or
looks at single keys, all with lengths of one octet. Whatever looks any different is None here, and
for protobuf to read.
"""

from typing import Final

from leasehold.core.ops import Compare, Delete, Put, Range, Relation, Step, Target, Txn
from leasehold.core.txn import MAX_OPERATIONS
from leasehold.wire.short import number, short_key, short_put

_COMPARE, _SUCCESS, _FAILURE = 0x0A, 0x12, 0x1A
"""The fields of a transaction."""
_RANGE, _PUT, _DELETE = 0x0A, 0x12, 0x1A
"""Those of an operation."""
_RESULT, _TARGET, _KEY = 0x08, 0x10, 0x1A
"""Those of a condition, and of what it compares with in the order of the targets."""
_OPERANDS: Final = b"\x20\x28\x30\x3a\x40"
_TARGETS: Final = tuple(Target)
_RELATIONS: Final = tuple(Relation)
_VALUE, _MAX_TARGET, _MAX_RELATION = int(Target.VALUE), max(Target), max(Relation)

_HEAD: Final = 2  # tag and length, or tag and number
_SHORT: Final = 128
_LEAST: Final = 5  # octets of a condition: a key of one octet, and a number of one
_MAX_BYTES: Final = MAX_OPERATIONS * (_HEAD + _LEAST)
"""No more conditions or operations than are allowed have room in this."""


def short_txn(message: bytes) -> Txn | None:
    """Read a transaction that changes something if its conditions hold."""
    size = len(message)
    if size > _MAX_BYTES:
        return None
    compares: list[Compare] = []
    success: list[Step] = []
    failure: list[Step] = []
    at = 0
    while at < size - 1:
        tag, length = message[at], message[at + 1]
        at += _HEAD + length
        if length >= _SHORT or at > size:
            return None
        part = message[at - length : at]
        if tag == _COMPARE:
            compare = _compare_of(part)
            if compare is None:
                return None
            compares.append(compare)
            continue
        step = _step_of(part)
        if tag == _SUCCESS and step is not None and type(step) is not Range:
            success.append(step)
        elif tag == _FAILURE and step is not None:
            failure.append(step)
        else:
            return None
    return Txn(compares, success, failure) if success and at == size else None


def _compare_of(part: bytes) -> Compare | None:
    """Read a condition whose operand is the one that it needs."""
    size = len(part)
    if size < _LEAST:
        return None
    relation = target = at = 0
    if part[0] == _RESULT:
        relation, at = part[1], _HEAD
    if part[at] == _TARGET:
        target, at = part[at + 1], at + _HEAD
    if at + _LEAST > size or part[at] != _KEY or relation > _MAX_RELATION:
        return None
    key_at = at + _HEAD
    key_end = key_at + part[at + 1]
    if not key_at < key_end < size - 1 or target > _MAX_TARGET:
        return None
    if part[key_end] != _OPERANDS[target]:
        return None
    operand: bytes | int | None
    if target != _VALUE:
        operand = number(part[key_end + 1 :])
    else:
        operand = part[key_end + _HEAD :] if part[key_end + 1] == size - key_end - _HEAD else None
    if operand is None:
        return None
    return Compare(part[key_at:key_end], _TARGETS[target], _RELATIONS[relation], operand)


def _step_of(part: bytes) -> Put | Delete | Range | None:
    """Read an operation on a single key, without options."""
    if len(part) <= _HEAD or part[1] != len(part) - _HEAD:
        return None
    kind, body = part[0], part[_HEAD:]
    if kind == _PUT:
        put = short_put(body)
        return None if put is None else Put(*put)
    key = short_key(body)
    if key is None or kind not in (_RANGE, _DELETE):
        return None
    return Range(key) if kind == _RANGE else Delete(key)
