"""Long messages as JSON, in pieces: in between others have their turn, and the client reads.

A piece is a short field, an element of a repeated one, or a bit of a long one: so none takes long,
however large a message or a value in it is, and however deep within others.
"""

from binascii import b2a_base64
from collections.abc import Iterator
from functools import cache
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from leasehold.engine.slices import Slicer
from leasehold.rpc.rope import Rope
from leasehold.rpc.waiter import Waiter
from leasehold.rpc.web import Visit
from leasehold.server.gateway.cutting import Long, cut
from leasehold.server.gateway.strings import quoted
from leasehold.server.gateway.writing import Parts

SHORT_BYTES: Final = 8 * 1024
"""A message that is longer is written in pieces: there may be some hundred elements in it."""

LONG_BYTES: Final = 64 * 1024
"""A message that is longer is sent in pieces, too, of about this size."""

PART_BYTES: Final = 16 * 1024
"""How much of a message is looked at, at once."""

LONG_FIELD_BYTES: Final = 4 * 1024
"""A field that is longer is written in several pieces."""

_OCTETS_AT_ONCE: Final = 3 * 16 * 1024
"""Of a long value, for one piece: as base64 it is as long in pieces as in one, if 3 divides it."""

_CHARACTERS_AT_ONCE: Final = 1024


class Writer:
    """Writes long messages into one answer, one at a time."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._room = Waiter("writing")
        self._message = Rope()

    @property
    def left_bytes(self) -> int:
        """How much of the message that was written last is left."""
        return len(self._message)

    def relieved(self) -> None:
        """Learn that there is room again."""
        self._room.wake()

    async def write(self, kind: type[Message], message: Rope) -> None:
        """Write a message; it is taken out of the rope."""
        self._message = message
        gathered: list[str] = []
        size, slicer = 0, Slicer(self._visit.host.now)
        for piece in pieces(kind, message, len(message)):
            gathered.append(piece)
            size += len(piece)
            if size >= LONG_BYTES:
                await self._send(gathered)
                size = 0
            await slicer.pause()
        await self._send(gathered)

    async def whole(self, kind: type[Message], message: Rope) -> bytes:
        """Give the text of a message that is sent at once, but takes a while to write."""
        gathered: list[str] = []
        slicer = Slicer(self._visit.host.now)
        for piece in pieces(kind, message, len(message)):
            gathered.append(piece)
            await slicer.pause()
        return "".join(gathered).encode()

    async def _send(self, gathered: list[str]) -> None:
        """Send what was gathered, and wait until the client takes more."""
        visit = self._visit
        visit.write("".join(gathered).encode())
        gathered.clear()
        visit.flush()
        while not visit.has_room:
            await self._room.wait()


def pieces(kind: type[Message], rope: Rope, size: int) -> Iterator[str]:
    """Write the message that is next in a rope, and has this size."""
    parts = Parts()
    for part in cut(rope, size, PART_BYTES, LONG_FIELD_BYTES):
        if not isinstance(part, Long):
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
        yield from _octets(rope, size)
    else:
        yield from _string(rope.take(size).decode())


def _octets(rope: Rope, size: int) -> Iterator[str]:
    yield '"'
    for left in range(size, 0, -_OCTETS_AT_ONCE):
        yield b2a_base64(rope.take(min(left, _OCTETS_AT_ONCE)), newline=False).decode()
    yield '"'


def _string(text: str) -> Iterator[str]:
    yield '"'
    for start in range(0, len(text), _CHARACTERS_AT_ONCE):
        yield quoted(text[start : start + _CHARACTERS_AT_ONCE])[1:-1]
    yield '"'
