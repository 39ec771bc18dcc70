"""JSON to messages: the input that etcd's gateway accepts, and its texts for invalid input.

Field names are those of the protocol or in camel case, which take precedence; null means no value;
of two fields of a oneof the one that is declared later is used; unknown fields are ignored.
Integers may be strings, enums may be names or numbers, bytes are base64, exactly as Go accepts it.
"""

import binascii
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from json.encoder import encode_basestring
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from leasehold.server.gateway.json_documents import Number, Unreadable, read_value

MAX_MESSAGES: Final = 10_000
"""Objects in one array: making this many messages takes some 20 ms, and no call needs more."""

VALUES_AT_ONCE: Final = 4
"""Values of an array that are read in one step: in about the time that a message takes."""

MAX_SHOWN: Final = 256
"""Characters of an invalid value that an error repeats."""

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,19})")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Fill = Callable[[Any, Any], Iterator[None] | None]
"""Puts a JSON value into a message; if it returns an iterator, in steps."""

_FOREIGN: Final = re.compile(rb"[^A-Za-z0-9+/\r\n]")
_NOT_LINE_END: Final = re.compile(rb"[^\r\n]")
_QUANTUM: Final = 4


def fill(message: Message, value: Any) -> None:
    """Put a document into an empty message."""
    for _ in fill_steps(message, value):
        pass


def fill_steps(message: Message, value: Any) -> Iterator[None]:
    """Put a document into an empty message; a step is one message, or several values."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise _mismatch(value, "map[string]json.RawMessage")
    for name, json_name, put in _plan(message.DESCRIPTOR):
        given = value.get(json_name)
        if given is None and json_name not in value:
            given = value.get(name)
        steps = put(message, given) if given is not None else None
        if steps is not None:
            yield from steps


@cache
def _plan(descriptor: Descriptor) -> list[tuple[str, str, Fill]]:
    return [(field.name, field.json_name, _filler(field)) for field in descriptor.fields]


def _filler(field: FieldDescriptor) -> Fill:
    if field.message_type is not None:
        return partial(_fill_messages if field.is_repeated else _fill_message, field.name)
    convert = _converter(field)
    return partial(_fill_values if field.is_repeated else _fill_value, field.name, convert)


def _fill_value(name: str, convert: Callable[[Any], Any], message: Message, value: Any) -> None:
    setattr(message, name, convert(value))


def _fill_values(
    name: str, convert: Callable[[Any], Any], message: Message, value: Any
) -> Iterator[None]:
    values = getattr(message, name)
    for start in range(0, len(_array(value)), VALUES_AT_ONCE):
        values.extend([convert(each) for each in value[start : start + VALUES_AT_ONCE]])
        yield


def _fill_message(name: str, message: Message, value: Any) -> Iterator[None]:
    inner = getattr(message, name)
    inner.SetInParent()
    return fill_steps(inner, value)


def _fill_messages(name: str, message: Message, value: Any) -> Iterator[None]:
    inner = getattr(message, name)
    if len(_array(value)) > MAX_MESSAGES:
        raise Unreadable(f"an array must have at most {MAX_MESSAGES} objects, got {len(value)}")
    for each in value:
        yield from fill_steps(inner.add(), each)
        yield


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _mismatch(value, "[]json.RawMessage")
    return value


# Single values.


def _converter(field: FieldDescriptor) -> Callable[[Any], Any]:
    kind = field.cpp_type
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _octets
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _string
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return _boolean
    if field.enum_type is not None:
        return partial(_enum, field.enum_type)
    return partial(_integer, *_INTEGERS[kind])


_INTEGERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: ("int32", -(1 << 31), 1 << 31),
    FieldDescriptor.CPPTYPE_INT64: ("int64", -(1 << 63), 1 << 63),
    FieldDescriptor.CPPTYPE_UINT32: ("uint32", 0, 1 << 32),
    FieldDescriptor.CPPTYPE_UINT64: ("uint64", 0, 1 << 64),
}


def _integer(go_type: str, low: int, end: int, value: Any) -> int:
    if type(value) is str:
        value = int(value) if _INTEGER.fullmatch(value) else _unquoted(value)
        if value is None:
            return 0
    return _number(go_type, low, end, value)


def _unquoted(text: str) -> Any:
    """Parse a quoted value as if it were not quoted."""
    if text[:1] in ('"', "\\"):  # which is written with a backslash
        raise Unreadable("invalid character '\\\\' looking for beginning of value")
    return read_value(text)


def _number(go_type: str, low: int, end: int, value: Any) -> int:
    if type(value) is not int and not isinstance(value, Number):
        raise _mismatch(value, go_type)
    if isinstance(value, Number) or not low <= value < end:
        shown = str(value)[:MAX_SHOWN]
        raise Unreadable(f"json: cannot unmarshal number {shown} into Go value of type {go_type}")
    return value


def _octets(value: Any) -> bytes:
    if type(value) is str:
        return decoded(value)
    if value is None:
        return b""
    if isinstance(value, list):  # as Go does
        return bytes([0 if each is None else _number("uint8", 0, 256, each) for each in value])
    raise _mismatch(value, "[]uint8")


def _string(value: Any) -> str:
    if type(value) is str:
        return _SURROGATE.sub("\ufffd", value)
    if value is None:
        return ""
    raise _mismatch(value, "string")


def _boolean(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _mismatch(value, "bool")


def _enum(descriptor: EnumDescriptor, value: Any) -> int:
    if type(value) is str:
        known = descriptor.values_by_name.get(value)
        if known is None:
            shown = encode_basestring(encode_basestring(value[:MAX_SHOWN]))
            raise Unreadable(f"unknown value {shown} for enum {descriptor.full_name}")
        return known.number
    if value is None:
        return 0
    return _number("protoreflect.EnumNumber", -(1 << 31), 1 << 31, value)


def _mismatch(value: Any, go_type: str) -> Unreadable:
    return Unreadable(f"json: cannot unmarshal {_kind(value)} into Go value of type {go_type}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | Number):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def decoded(text: str) -> bytes:
    """Decode bytes; line ends are ignored, and only the standard alphabet is accepted."""
    try:
        octets = text.encode("ascii")
        if b"\n" in octets or b"\r" in octets:
            octets = octets.translate(None, b"\r\n")
        if len(octets) % _QUANTUM == 0:
            return binascii.a2b_base64(octets, strict_mode=True)
    except ValueError:
        pass
    raise Unreadable(f"illegal base64 data at input byte {_wrong_at(text)}")


def _wrong_at(text: str) -> int:
    """Return the index of the wrong byte; for truncated input, where the last four begin."""
    octets = text.encode(errors="replace")
    foreign = _FOREIGN.search(octets)
    at = len(octets) if foreign is None else foreign.start()
    before = (at - octets.count(b"\r", 0, at) - octets.count(b"\n", 0, at)) % _QUANTUM
    if foreign is None:
        return at - before
    if foreign[0] != b"=" or before < 2:
        return at
    if before == 2:
        second = _NOT_LINE_END.search(octets, at + 1)
        if second is None:
            return len(octets)
        if second[0] != b"=":
            return second.start() - 1
        at = second.start()
    behind = _NOT_LINE_END.search(octets, at + 1)
    return len(octets) if behind is None else behind.start()
