"""Messages to JSON, as etcd's gateway writes them.

Names are those of the protocol, in its order; fields that are unset or zero are left out.
Integers of 64 bits are strings, enums are names, bytes are base64. Strings are escaped as Go does,
so that they are safe within an HTML page.

A long message is written in pieces (`pieces`): other work runs in between, and the client reads. A
piece is a short field, an element of a repeated field, or a part of a long one: so none takes
long, however large a message or a value in it is, and however deeply nested. For that a message is
cut into parts. A part has some complete fields, and is a message itself; a long field is in no
part: it is announced (`LongField`), and its bytes are taken from the rope before the next part.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from leasehold.basics.event_loop import ChangeWaiter
from leasehold.basics.rope import Rope
from leasehold.grpc.http_handlers import ResponseWriter
from leasehold.store.slices import Slicer

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
        return _base64_text
    if field.enum_type is not None:
        return partial(_enum, field.enum_type)
    return _WRITERS[field.cpp_type]


def _base64_text(value: bytes) -> str:
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


SHORT_BYTES: Final = 8 * 1024
"""A longer message is written in pieces: it may have some hundred elements."""

LONG_BYTES: Final = 64 * 1024
"""A longer message is also sent in pieces, of about this size."""

PART_BYTES: Final = 16 * 1024
"""How much of a message is parsed in one step."""

LONG_FIELD_BYTES: Final = 4 * 1024
"""A longer field is written in several pieces."""

_BASE64_STEP_BYTES: Final = 3 * 16 * 1024
"""Of a long value, for one piece: a multiple of 3, so that its base64 has no padding."""

_CHARACTERS_PER_STEP: Final = 1024

MAX_HEAD_BYTES: Final = 20
"""The maximum before the bytes of a field: two varints."""

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {_FIXED64: 8, 5: 4}


class LongJsonWriter:
    """Writes long messages into one answer, one at a time."""

    def __init__(self, response: ResponseWriter) -> None:
        self._response = response
        self._room = ChangeWaiter("writing")
        self._message = Rope()

    @property
    def left_bytes(self) -> int:
        """How much of the current message is left."""
        return len(self._message)

    def relieved(self) -> None:
        """Called when there is room again."""
        self._room.wake()

    async def write(self, kind: type[Message], message: Rope) -> None:
        """Write a message; it is removed from the rope."""
        self._message = message
        gathered: list[str] = []
        size, slicer = 0, Slicer(self._response.loop.now)
        for piece in pieces(kind, message, len(message)):
            gathered.append(piece)
            size += len(piece)
            if size >= LONG_BYTES:
                await self._send(gathered)
                size = 0
            await slicer.pause()
        await self._send(gathered)

    async def whole(self, kind: type[Message], message: Rope) -> bytes:
        """Return the text of a message that is sent in one piece, but takes long to write."""
        gathered: list[str] = []
        slicer = Slicer(self._response.loop.now)
        for piece in pieces(kind, message, len(message)):
            gathered.append(piece)
            await slicer.pause()
        return "".join(gathered).encode()

    async def _send(self, gathered: list[str]) -> None:
        """Send the collected text, and wait until the client reads more."""
        response = self._response
        response.write("".join(gathered).encode())
        gathered.clear()
        response.flush()
        while not response.has_room:
            await self._room.wait()


def pieces(kind: type[Message], rope: Rope, size: int) -> Iterator[str]:
    """Write the message of this size that is next in a rope."""
    parts = JsonFields()
    for part in cut(rope, size, PART_BYTES, LONG_FIELD_BYTES):
        if not isinstance(part, LongField):
            yield from parts.write(kind.FromString(part))
            continue
        field = _fields(kind.DESCRIPTOR).get(part.number)
        if field is None:
            rope.skip(part.length)
        elif field.cpp_type not in (field.CPPTYPE_MESSAGE, field.CPPTYPE_STRING):  # packed numbers
            yield from parts.write(kind.FromString(part.head + rope.take(part.length)))
        else:
            yield parts.begin(field)
            yield from _long_value(field, rope, part.length)
    yield parts.end()


@cache
def _fields(descriptor: Descriptor) -> dict[int, FieldDescriptor]:
    return {field.number: field for field in descriptor.fields}


def _long_value(field: FieldDescriptor, rope: Rope, size: int) -> Iterator[str]:
    if field.message_type is not None:
        yield from pieces(GetMessageClass(field.message_type), rope, size)
    elif field.type == field.TYPE_BYTES:
        yield from _long_base64(rope, size)
    else:
        yield from _string(rope.take(size).decode())


def _long_base64(rope: Rope, size: int) -> Iterator[str]:
    yield '"'
    for left in range(size, 0, -_BASE64_STEP_BYTES):
        yield b2a_base64(rope.take(min(left, _BASE64_STEP_BYTES)), newline=False).decode()
    yield '"'


def _string(text: str) -> Iterator[str]:
    yield '"'
    for start in range(0, len(text), _CHARACTERS_PER_STEP):
        yield quoted(text[start : start + _CHARACTERS_PER_STEP])[1:-1]
    yield '"'


class LongField(NamedTuple):
    """A long field, whose bytes are next in the rope."""

    number: int
    length: int
    head: bytes
    """The bytes before them."""


def cut(rope: Rope, size: int, part_bytes: int, field_bytes: int) -> Iterator[bytes | LongField]:
    """Split the message of this size that is next in a rope, between fields.

    A part has at most `part_bytes`, and a field of more than `field_bytes` is long.
    """
    assert part_bytes >= field_bytes + MAX_HEAD_BYTES, "a part has room for a field"
    end = len(rope) - size
    while len(rope) > end:
        window = rope.peek(min(part_bytes, len(rope) - end))
        at = _short_fields(window, field_bytes)
        if at:
            rope.skip(at)
            yield window[:at]
        else:
            yield _take_head(rope, window, len(rope) - end)


def _short_fields(window: bytes, field_bytes: int) -> int:
    """Return the total length of the complete short fields before the first other one."""
    at = whole = 0
    try:
        while at < len(window):
            tag, at = _varint(window, at)
            kind = tag & 7
            if kind == _LENGTH_DELIMITED:
                length, at = _varint(window, at)
                if length > field_bytes:
                    break
                at += length
            elif kind == _VARINT:
                _, at = _varint(window, at)
            elif kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
            else:
                raise ValueError(f"not a valid message: unknown wire type {kind}")
            if at > len(window):
                break
            whole = at
    except IndexError:  # within a head
        pass
    return whole


def _take_head(rope: Rope, window: bytes, left: int) -> LongField:
    try:
        tag, at = _varint(window, 0)
        length, at = _varint(window, at)
    except IndexError:
        raise ValueError("not a valid message: it ends within a field") from None
    if tag & 7 != _LENGTH_DELIMITED or at + length > left:
        raise ValueError(
            f"not a valid message: a field of {length} bytes, but only {left} are left"
        )
    rope.skip(at)
    return LongField(tag >> 3, length, window[:at])


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
