"""Messages to JSON, as etcd's gateway writes them.

Names are those of the protocol, in its order; fields that are unset or zero are left out.
Integers of 64 bits are strings, enums are names, bytes are base64. Strings are escaped as Go does,
so that they are safe within an HTML page.

A long message is written in steps (`JsonFields`): field by field, and repeated fields element by
element.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

_SPECIAL: Final = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}

Write = Callable[[Any], str]


def quoted(text: str) -> str:
    """Return a text as a JSON string."""
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":  # an unpaired surrogate
        return "\ufffd"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def written(message: Message) -> str:
    """Write a message."""
    plan = _plan(message.DESCRIPTOR)
    fields = [plan[field.number](value) for field, value in message.ListFields()]
    return f"{{{','.join(fields)}}}"


class JsonFields:
    """Writes a message that comes in parts, its fields in order, in pieces.

    A piece is a field, or an element of a repeated field. The caller may write the value instead.
    """

    def __init__(self) -> None:
        self._before = "{"
        """The text before the next field."""
        self._open = 0
        """The number of the repeated field that may continue in the next part."""

    def write(self, part: Message) -> Iterator[str]:
        """Write the next part."""
        writers = _writers(part.DESCRIPTOR)
        for field, value in part.ListFields():
            before, write = self.begin(field), writers[field.number]
            if not field.is_repeated:
                yield before + write(value)
                continue
            for each in value:
                yield before + write(each)
                before = ","

    def begin(self, field: FieldDescriptor) -> str:
        """Return the text before the value of the next field or element."""
        if field.number == self._open:
            return ","
        before = self._before if not self._open else "],"
        self._before, self._open = ",", field.number if field.is_repeated else 0
        return f'{before}"{field.name}":{"[" if field.is_repeated else ""}'

    def end(self) -> str:
        """Return the text after the last field."""
        if self._open:
            return "]}"
        return "}" if self._before == "," else "{}"


@cache
def _plan(descriptor: Descriptor) -> dict[int, Write]:
    """Return a function for each field that writes it, with its name."""
    return {field.number: _field_writer(field) for field in descriptor.fields}


@cache
def _writers(descriptor: Descriptor) -> dict[int, Write]:
    """Return a function for each field that writes its value, or an element of it."""
    return {field.number: _writer(field) for field in descriptor.fields}


def _field_writer(field: FieldDescriptor) -> Write:
    write = _writer(field)
    if field.is_repeated:
        return partial(_array, f'"{field.name}":', write)
    return partial(_named, f'"{field.name}":', write)


def _named(name: str, write: Write, value: Any) -> str:
    return name + write(value)


def _array(name: str, write: Write, values: Any) -> str:
    return f"{name}[{','.join(map(write, values))}]"


def _writer(field: FieldDescriptor) -> Write:
    if field.message_type is not None:
        return written
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _octets
    if field.enum_type is not None:
        return partial(_enum, field.enum_type)
    return _WRITERS[field.cpp_type]


def _octets(value: bytes) -> str:
    return f'"{b2a_base64(value, newline=False).decode()}"'


def _enum(descriptor: EnumDescriptor, value: int) -> str:
    known = descriptor.values_by_number.get(value)
    return str(value) if known is None else f'"{known.name}"'


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _long_integer(value: int) -> str:
    return f'"{value}"'


_WRITERS: Final[dict[int, Write]] = {
    FieldDescriptor.CPPTYPE_STRING: quoted,
    FieldDescriptor.CPPTYPE_BOOL: _boolean,
    FieldDescriptor.CPPTYPE_INT32: str,
    FieldDescriptor.CPPTYPE_UINT32: str,
    FieldDescriptor.CPPTYPE_INT64: _long_integer,
    FieldDescriptor.CPPTYPE_UINT64: _long_integer,
}
