"""JSON to messages: the input that etcd's gateway accepts, and its texts for invalid input.

A document in the body of a request is parsed as strictly as by Go, and refused with its texts.
Python's parser is used because it is in C; errors are analyzed afterwards.

Field names are those of the protocol or in camel case, which take precedence; null means no value;
of two fields of a oneof the one that is declared later is used; unknown fields are ignored.
Integers may be strings, enums may be names or numbers, bytes are base64, exactly as Go accepts it.
"""

import binascii
import json
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from json.encoder import encode_basestring
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

MAX_VALUES: Final = 100_000
"""Commas, colons, brackets and escapes in one body; parsing them takes some 20 ms."""

MAX_DIGITS: Final = 20
"""Of an integer: no field has more. Parsing one of thousands takes quadratic time."""

MAX_REPAIRED_BYTES: Final = 512 * 1024
"""A body that is not UTF-8 is parsed with invalid bytes replaced, which is slow."""

_COUNTED: Final = (b",", b":", b"[", b"{", b"\\")
_END: Final = "unexpected EOF"
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# Each alternative begins with one character, or searching would take ten times as long.
_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|\{|\}|\[|\]', re.DOTALL)
_HEX_DIGITS: Final = re.compile(r"[0-9A-Fa-f]*")
_MAX_PRINTABLE: Final = 0x7E


class Unreadable(Exception):
    """Not JSON, or not the expected JSON."""


class Number(str):
    """A number that is not an integer, or a very long one, as it was written."""

    __slots__ = ()


def _no_constant(name: str) -> None:
    """Refuse constants that only Python accepts as numbers."""
    if name.startswith("-"):
        raise Unreadable(f"invalid character '{name[1]}' in numeric literal")
    raise Unreadable(f"invalid character '{name[0]}' looking for beginning of value")


def _parsed_integer(text: str) -> int | Number:
    return int(text) if len(text) <= MAX_DIGITS else Number(text)


_decoder: Final = json.JSONDecoder(
    parse_float=Number, parse_int=_parsed_integer, parse_constant=_no_constant
)


class Documents:
    """The documents of a body, one after the other."""

    def __init__(self, body: bytes) -> None:
        if len(body) > MAX_VALUES and sum(map(body.count, _COUNTED)) > MAX_VALUES:
            raise Unreadable(f"a body must have at most {MAX_VALUES} values")
        self._text = _decoded(body)
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        """Whether only whitespace is left."""
        self._at = _end_of_space(self._text, self._at)
        return self._at == len(self._text)

    def read(self) -> Any:
        """Parse the next document, which must exist."""
        try:
            value, self._at = _decoder.raw_decode(self._text, _end_of_space(self._text, self._at))
        except json.JSONDecodeError as error:
            raise Unreadable(_explain(self._text, error.msg, error.pos)) from None
        except RecursionError:
            raise Unreadable("exceeded max depth") from None
        return value


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        if len(body) > MAX_REPAIRED_BYTES:
            raise Unreadable(f"invalid UTF-8 at byte {error.start}") from None
    return body.decode(errors="replace")


def read_value(text: str) -> Any:
    """Parse the one value of a text."""
    at = _end_of_space(text, 0)
    if at == len(text):
        raise Unreadable("unexpected end of JSON input")
    documents = Documents(b"")
    documents._text = text  # noqa: SLF001
    value = documents.read()
    if not documents.is_at_end:
        rest = text[documents._at]  # noqa: SLF001
        raise Unreadable(f"invalid character {_shown(rest)} after top-level value")
    return value


def _end_of_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _explain(text: str, what: str, at: int) -> str:
    """Return Go's text for an error."""
    if what.startswith("Unterminated string"):
        return _END
    if what.startswith("Invalid control character"):
        return _wrong(text, at, "in string literal")
    if what.startswith("Invalid \\uXXXX"):
        return _explain_hex(text, at)
    if what.startswith("Invalid \\escape"):
        return _wrong(text, at + 1, "in string escape code")
    if what.startswith("Illegal trailing comma"):  # since Python 3.13
        at = _end_of_space(text, at + 1)
        what = "Expecting property" if text[at : at + 1] == "}" else "Expecting value"
    if what.startswith("Expecting property"):
        return _wrong(text, at, "looking for beginning of object key string")
    if what.startswith("Expecting ':'"):
        return _wrong(text, at, "after object key")
    if what.startswith("Expecting ','"):
        return _explain_delimiter(text, at)
    return _explain_value(text, at)


def _explain_value(text: str, at: int) -> str:
    literal = _LITERALS.get(text[at : at + 1])
    if literal is not None:
        same = 1
        while text[at + same : at + same + 1] == literal[same]:
            same += 1
        return _wrong(text, at + same, f"in literal {literal} (expecting '{literal[same]}')")
    if text[at : at + 1] == "-":
        return _wrong(text, at + 1, "in numeric literal")
    return _wrong(text, at, "looking for beginning of value")


def _explain_delimiter(text: str, at: int) -> str:
    """Explain an unexpected character after a value, which may be an incomplete number."""
    character, is_after_digit = text[at : at + 1], text[at - 1 : at].isdigit()
    if is_after_digit and character == ".":
        return _wrong(text, at + 1, "after decimal point in numeric literal")
    if is_after_digit and character in ("e", "E"):
        signs = text[at + 1 : at + 2] in ("+", "-")
        return _wrong(text, at + 1 + signs, "in exponent of numeric literal")
    within: list[str] = []
    for match in _BRACKET.finditer(text, 0, at):
        bracket = match[0]
        if bracket in ("{", "["):
            within.append(bracket)
        elif bracket in ("}", "]") and within:
            within.pop()
    is_array = within[-1:] == ["["]
    return _wrong(text, at, "after array element" if is_array else "after object key:value pair")


def _explain_hex(text: str, at: int) -> str:
    start = text.find("\\u", max(0, at - 2)) + 2
    match = _HEX_DIGITS.match(text, start)
    assert match is not None
    return _wrong(text, match.end(), "in \\u hexadecimal character escape")


def _wrong(text: str, at: int, where: str) -> str:
    if at >= len(text):
        return _END
    return f"invalid character {_shown(text[at])} {where}"


def _shown(character: str) -> str:
    """Quote the first byte of a character, as Go does in its errors."""
    byte = chr(character.encode(errors="replace")[0])
    if byte == "'":
        return "'\\''"
    if byte == '"':
        return "'\"'"
    if byte.isprintable():
        return f"'{byte}'".replace("\\", "\\\\")
    return ascii(byte) if ord(byte) <= _MAX_PRINTABLE + 1 else f"'\\u{ord(byte):04x}'"


MAX_MESSAGES: Final = 10_000
"""Objects in one array: making this many messages takes some 20 ms, and no call needs more."""

VALUES_PER_STEP: Final = 4
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
    for start in range(0, len(_array(value)), VALUES_PER_STEP):
        values.extend([convert(each) for each in value[start : start + VALUES_PER_STEP]])
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
        return _data
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


def _data(value: Any) -> bytes:
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
        data = text.encode("ascii")
        if b"\n" in data or b"\r" in data:
            data = data.translate(None, b"\r\n")
        if len(data) % _QUANTUM == 0:
            return binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        pass
    raise Unreadable(f"illegal base64 data at input byte {_wrong_at(text)}")


def _wrong_at(text: str) -> int:
    """Return the index of the wrong byte; for truncated input, where the last four begin."""
    data = text.encode(errors="replace")
    foreign = _FOREIGN.search(data)
    at = len(data) if foreign is None else foreign.start()
    before = (at - data.count(b"\r", 0, at) - data.count(b"\n", 0, at)) % _QUANTUM
    if foreign is None:
        return at - before
    if foreign[0] != b"=" or before < 2:
        return at
    if before == 2:
        second = _NOT_LINE_END.search(data, at + 1)
        if second is None:
            return len(data)
        if second[0] != b"=":
            return second.start() - 1
        at = second.start()
    behind = _NOT_LINE_END.search(data, at + 1)
    return len(data) if behind is None else behind.start()
