"""The records that are written to single-writer files: numbered, and with checksums."""

import struct
import zlib
from typing import Final

HEADER: Final = struct.Struct(">2scIII")
"""The constant `MAGIC`, the letter of the writer, number, length of the payload, checksum."""
MAGIC: Final = b"LR"


def checksum_of(letter: bytes, number: int, payload: bytes) -> int:
    """Return the checksum of a record."""
    return zlib.crc32(payload, zlib.crc32(letter + number.to_bytes(4)))


def record(writer: str, number: int, payload: bytes) -> bytes:
    """Return a record."""
    letter = writer.encode()
    checksum = checksum_of(letter, number, payload)
    return HEADER.pack(MAGIC, letter, number, len(payload), checksum) + payload
