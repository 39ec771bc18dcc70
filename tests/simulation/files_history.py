"""What an oracle knows of a single-writer file: its content, its writers and their streams."""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from leasehold.files.state import Block, FileRecord

RECORD_BYTES: Final = (12, 60)
"""The size of what a writer writes at a time."""


@dataclass(eq=False)
class Session:
    """The stream of one writer: everything it has written, each record with a number of its own."""

    number: int
    host: str
    stream: bytearray = field(default_factory=bytearray)
    acked: int = 0
    """The bytes that were acknowledged."""
    records: int = 0
    is_aborted: bool = False

    def next_record(self, random: Random) -> bytes:
        """Return the next bytes to be written, which no other writer has."""
        text = f"[{self.number}.{self.records}".encode()
        self.records += 1
        data = text.ljust(random.randint(*RECORD_BYTES), b".") + b"]"
        self.stream += data
        return data


@dataclass(eq=False)
class Epoch:
    """The time in which a file is open for one writer."""

    stamp: int
    holder: str
    base: int
    """The length of the file when it was opened."""
    session: Session | None = None
    end: int | None = None
    """The length of the file when it was closed."""


@dataclass(eq=False)
class FileHistory:
    """A file from its creation on."""

    id: str
    record: FileRecord | None = None
    blocks: dict[int, Block] = field(default_factory=dict)
    parts: dict[int, bytes] = field(default_factory=dict)
    """The bytes of each block."""
    content: bytes = b""
    epochs: list[Epoch] = field(default_factory=list)
    is_deleted: bool = False
