"""Bytes in pieces: long outgoing messages that are never copied as a whole."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import final


@final
class Rope:
    """Bytes that are added at one end, in pieces, and taken from the other, in any portions."""

    __slots__ = ("_at", "_bytes", "_pieces")

    def __init__(self, pieces: Iterable[bytes] = ()) -> None:
        self._pieces = deque(filter(None, pieces))
        self._bytes = sum(map(len, self._pieces))
        self._at = 0
        """How much of the first piece was taken."""

    def __len__(self) -> int:
        return self._bytes

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the pieces, without taking them."""
        pieces = iter(self._pieces)
        if self._at:
            yield next(pieces)[self._at :]
        yield from pieces

    def extend(self, data: bytes) -> None:
        """Add a piece."""
        if data:
            self._pieces.append(data)
            self._bytes += len(data)

    def add(self, pieces: Iterable[bytes]) -> None:
        """Add several pieces."""
        for piece in pieces:
            self.extend(piece)

    def peek(self, most: int) -> bytes:
        """Return the next bytes without taking them: this many, or all that there are."""
        if not self._pieces:
            return b""
        first = self._pieces[0]
        data = first[self._at : self._at + most]
        if len(data) == most or len(self._pieces) == 1:
            return data
        found, missing = [data], most - len(data)
        for piece in islice(self._pieces, 1, None):
            found.append(piece[:missing])
            missing -= len(piece)
            if missing <= 0:
                break
        return b"".join(found)

    def skip(self, size: int) -> None:
        """Drop this many bytes, or all that there are."""
        size = min(size, self._bytes)
        self._bytes -= size
        size += self._at
        pieces = self._pieces
        while pieces and size >= len(pieces[0]):
            size -= len(pieces.popleft())
        self._at = size

    def take(self, most: int) -> bytes:
        """Take this many bytes, or all that there are."""
        data = self.peek(most)
        self.skip(len(data))
        return data
