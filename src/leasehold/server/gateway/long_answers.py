"""Long messages as JSON, in pieces: in between others have their turn, and the client reads."""

import asyncio
from collections.abc import Iterator
from typing import Final

from google.protobuf.message import Message

from leasehold.rpc.waiter import Waiter
from leasehold.rpc.web import Visit
from leasehold.server.gateway.cutting import cut
from leasehold.server.gateway.writing import Pieces

LONG_BYTES: Final = 64 * 1024
"""A message that is longer is written in pieces of about this size."""

SLICE_S: Final = 0.002
"""How long writing goes on before it is others' turn."""

_PIECES_BETWEEN_LOOKS: Final = 50


class Writer:
    """Writes long messages into one answer, one at a time."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._room = Waiter("writing")

    def relieved(self) -> None:
        """Learn that there is room again."""
        self._room.wake()

    async def write(self, kind: type[Message], message: bytes) -> None:
        """Write a message."""
        visit = self._visit
        began = visit.host.now()
        for text in _gathered(_pieces(kind, message)):
            if text:
                visit.write(text.encode())
                visit.flush()
                while not visit.has_room:
                    await self._room.wait()
            if visit.host.now() - began >= SLICE_S:
                await asyncio.sleep(0)
                began = visit.host.now()


def _pieces(kind: type[Message], message: bytes) -> Iterator[str]:
    pieces = Pieces()
    for part in cut(message, LONG_BYTES):
        yield from pieces.write(kind.FromString(part))
    yield pieces.end()


def _gathered(pieces: Iterator[str]) -> Iterator[str]:
    """Gather pieces until they are worth sending; give nothing now and then, to take a breath."""
    gathered: list[str] = []
    size = 0
    for number, piece in enumerate(pieces):
        gathered.append(piece)
        size += len(piece)
        if size >= LONG_BYTES:
            yield "".join(gathered)
            gathered.clear()
            size = 0
        elif number % _PIECES_BETWEEN_LOOKS == 0:
            yield ""
    yield "".join(gathered)
