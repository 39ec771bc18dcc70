"""Snapshots: a backup as a stream, which `etcdctl snapshot save` writes to a file.

What arrives is what `leasehold backup` would have written: a journal, and the SHA-256 of all its
bytes. It is first copied to a file beside the journal, because what is copied while others write
may change until the last page is there; then it is sent, as fast as the client takes it.
"""

import asyncio
import hashlib
from typing import Final

from leasehold.engine.backup import Backups
from leasehold.engine.nameless_file import NamelessFile
from leasehold.rpc.conversations import Conversation
from leasehold.wire.maintenance_pb2 import SnapshotResponse

BLOB_BYTES: Final = 64 * 1024
"""In one message; a client in Python takes no more than 4 MiB unless it says so."""

READ_BYTES: Final = 16 * BLOB_BYTES
"""Read and hashed at once, in a thread: what a snapshot has in memory, about."""


async def send_snapshot(backups: Backups, call: Conversation) -> None:
    """Make a snapshot, and send it; nothing is left of it, whoever goes away before."""
    async with backups.snapshot() as file:
        digest = hashlib.sha256()
        total, sent = file.size_bytes, 0
        while sent < total:
            piece = await asyncio.to_thread(_read, file, sent, digest)
            for start in range(0, len(piece), BLOB_BYTES):
                blob = piece[start : start + BLOB_BYTES]
                sent += len(blob)
                answer = SnapshotResponse(remaining_bytes=total - sent, blob=blob)
                await call.send(answer.SerializeToString())
        await call.send(SnapshotResponse(blob=digest.digest()).SerializeToString())


def _read(file: NamelessFile, at: int, digest: "hashlib._Hash") -> bytes:
    piece = file.read(at, READ_BYTES)
    assert piece, "nobody else could have made it shorter"
    digest.update(piece)
    return piece
