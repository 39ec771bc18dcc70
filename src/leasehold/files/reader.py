"""`FileReader`: a file at a fixed length, that of what was flushed when it was opened.

Bytes are read in whole chunks, whose checksums are compared. A replica that is missing or damaged
is skipped. An opened file stays readable for a while after the file was replaced,
recovered or deleted (`FilesConfig.keep_s`). A block that has other replicas since, such as after
a repair, is read from these: checksums and length stay those that the reader has found.
"""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from types import TracebackType
from typing import Final, Self

from leasehold.engine.interface import prefix_end
from leasehold.errors import Closed, FileDamaged, FileNotFound, LeaseholdError
from leasehold.files.file_keys import (
    block_key,
    blocks_of,
    decode_block,
    decode_record,
    record_key,
)
from leasehold.files.namespace import FoundFile, Namespace
from leasehold.files.replica_io import StoreFailed, Stores, damaged
from leasehold.files.state import CHUNK_BYTES, Block, FileRecord, FilesConfig, FileState

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are read from a store together."""

BLOCKS_PER_PAGE: Final = 1_000
"""Blocks that are read from the engine together."""


class FileReader:
    """A file that is open for reading."""

    def __init__(
        self,
        namespace: Namespace,
        stores: Stores,
        config: Callable[[AbstractSet[str]], Awaitable[FilesConfig]],
        found: FoundFile,
    ) -> None:
        """Made by `Files`, which calls `load` before anything else."""
        self._ns = namespace
        self._stores = stores
        self._config = config
        self.id = found.id
        """The id of the file, which renaming does not change."""
        self.path = found.chain.path
        """The path at which it was opened."""
        self._blocks: list[Block] = []
        self._ends: list[int] = []
        self._position = 0
        self._is_closed = False
        self._kept: tuple[int, int, bytes] = (-1, 0, b"")
        """The number of a block, a place in it, and its bytes from there."""

    async def load(self, record: FileRecord, revision: int) -> None:
        """Read the blocks of the file at a revision. Raises `FileDamaged` if one has no key."""
        prefix = blocks_of(self.id)
        after, end = prefix, prefix_end(prefix)
        blocks: list[Block] = []
        is_open = record.state != FileState.CLOSED
        while True:
            page = await self._ns.range(after, end, revision=revision, limit=BLOCKS_PER_PAGE)
            for pair in page.pairs:
                if pair.key != block_key(self.id, len(blocks)):
                    break
                blocks.append(decode_block(pair.value, self.path))
            if not page.more:
                break
            after = page.pairs[-1].key + b"\0"
        if len(blocks) < record.blocks:
            raise FileDamaged(self.path, f"the key of block {len(blocks)} is missing")
        del blocks[record.blocks + is_open :]
        self._stores.configure(await self._config(_stores_of(blocks)))
        # Together, and only now: a call above may fail, and the reader is used further.
        self._blocks = blocks
        self._ends = list(accumulate(block.length for block in blocks))

    @property
    def size(self) -> int:
        """The length of the file, in bytes."""
        return self._ends[-1] if self._ends else 0

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def tell(self) -> int:
        """Return the position of the next byte to be read."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Change the position: from the start (0), the position (1) or the end (2)."""
        if whence not in (0, 1, 2):
            raise ValueError(f"whence must be 0, 1 or 2, got {whence}")
        position = offset + (0, self._position, self.size)[whence]
        if position < 0:
            raise ValueError(f"position must be at least 0, got {position}")
        self._position = position
        return position

    async def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, all with -1; no bytes at the end.

        Raises `FileDamaged` if no replica has one of them; the position stays as it was.
        """
        begun, left = self._position, self._left(size)
        parts: list[bytes] = []
        while left > 0:
            part = await self._read_some(begun, left)
            parts.append(part)
            begun += len(part)
            left -= len(part)
        self._position = begun
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read1(self, size: int = -1) -> bytes:
        """Read at least one byte and up to `size`, as many as are available together.

        No bytes at the end. Raises `FileDamaged` if no replica has the next byte: those before a
        damaged part can be read with this.
        """
        if not (left := self._left(size)):
            return b""
        data = await self._read_some(self._position, left)
        self._position += len(data)
        return data

    async def readline(self) -> bytes:
        """Read up to the next line feed, which is included; no bytes at the end.

        The last line may have no line feed. Raises as `read`.
        """
        self._check_open()
        position = self._position
        parts: list[bytes] = []
        while position < self.size and not (parts and parts[-1].endswith(b"\n")):
            data, at = await self._piece(position)
            parts.append(data[at : data.find(b"\n", at) + 1 or len(data)])
            position += len(parts[-1])
        self._position = position
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def readlines(self, hint: int = -1) -> list[bytes]:
        """Read the lines up to the end; with `hint`, only until they have that many bytes."""
        lines: list[bytes] = []
        end = self.size if hint <= 0 else self._position + hint
        while self._position < end and (line := await self.readline()):
            lines.append(line)
        return lines

    def __aiter__(self) -> Self:
        """Iterate over the lines."""
        return self

    async def __anext__(self) -> bytes:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"{self.path!r} was closed")

    def _left(self, size: int) -> int:
        """Return how many of `size` bytes there are from the position on."""
        self._check_open()
        left = max(0, self.size - self._position)
        return left if size < 0 else min(left, size)

    async def _read_some(self, position: int, limit: int) -> bytes:
        """Return bytes from a position on, from one to `limit`."""
        data, at = await self._piece(position)
        return data[at : at + limit]

    async def _piece(self, position: int) -> tuple[bytes, int]:
        """Return some bytes of the file, and which of them is at a position."""
        number = bisect_right(self._ends, position)
        block = self._blocks[number]
        place = position - (self._ends[number] - block.length)
        kept_number, first, data = self._kept
        if kept_number != number or not first <= place < first + len(data):
            first = place - place % CHUNK_BYTES
            try:
                data = await self._stores.read(block, first, READ_BYTES)
            except StoreFailed as error:
                data = await self._read_elsewhere(number, block, first, error)
            self._kept = (number, first, data)
        return data, place - first

    async def _read_elsewhere(
        self, number: int, block: Block, first: int, error: StoreFailed
    ) -> bytes:
        """Read a block from the replicas that it has now: it may have been repaired or merged."""
        with suppress(StoreFailed, LeaseholdError, OSError):
            found = await self._ns.range(block_key(self.id, number))
            for pair in found.pairs:
                moved = replace(block, replicas=decode_block(pair.value).replicas)
                self._stores.configure(await self._config(_stores_of([moved])))
                data = await self._stores.read(moved, first, READ_BYTES)
                if self._blocks[number : number + 1] == [block]:
                    self._blocks[number] = moved
                return data
        raise damaged(self.path, error) from error

    async def refresh(self) -> int:
        """Look for bytes that were flushed since; return the new length.

        Raises `FileNotFound` if the file was deleted or replaced: it can still be read as it was.
        """
        self._check_open()
        await self._ns.consistent(self._reload)
        self._kept = (-1, 0, b"")
        return self.size

    async def _reload(self) -> None:
        found = await self._ns.range(record_key(self.id))
        if not found.pairs:
            raise FileNotFound(self.path, "the file was deleted or replaced")
        await self.load(decode_record(found.pairs[0].value, self.path), found.revision)

    async def close(self) -> None:
        """Close it."""
        self._is_closed = True
        self._kept = (-1, 0, b"")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _stores_of(blocks: Iterable[Block]) -> set[str]:
    """Return the ids of the stores that have some blocks."""
    return {each.store for block in blocks for each in block.replicas}
