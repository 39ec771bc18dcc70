"""Snapshots: a backup as a stream, which `etcdctl snapshot save` writes to a file.

What arrives is what `leasehold backup` would have written: a journal, and the SHA-256 of all its
bytes. It is first copied to a file beside the journal, because what is copied while others write
may change until the last page is there; then it is sent, as fast as the client takes it. A client
that is too slow is told so, and gets no more: the copy takes room on the disk of the journal.
"""

import asyncio
import hashlib
from typing import Final

from leasehold.engine.backup import Backups
from leasehold.engine.nameless_file import NamelessFile
from leasehold.errors import Status
from leasehold.rpc.conversations import Conversation
from leasehold.rpc.grpc import RpcError
from leasehold.wire.maintenance_pb2 import SnapshotResponse

BLOB_BYTES: Final = 64 * 1024
"""In one message; a client in Python takes no more than 4 MiB unless it says so."""

READ_BYTES: Final = 16 * BLOB_BYTES
"""Read and hashed at once, in a thread: what a snapshot has in memory, about."""


PATIENCE_S: Final = 60
"""How long a client may take nothing at all."""

MIN_BYTES_PER_S: Final = 256 * 1024
"""How fast a client has to be that takes something all the time: 2 GiB in two hours and some."""


async def send_snapshot(backups: Backups, call: Conversation) -> None:
    """Make a snapshot, and send it; nothing is left of it, whoever goes away before."""
    async with backups.snapshot() as file:
        digest, allowance = hashlib.sha256(), Allowance()
        total, sent = file.size_bytes, 0
        while sent < total:
            piece = await asyncio.to_thread(_read, file, sent, digest)
            for start in range(0, len(piece), BLOB_BYTES):
                blob = piece[start : start + BLOB_BYTES]
                sent += len(blob)
                answer = SnapshotResponse(remaining_bytes=total - sent, blob=blob)
                await _send(call, answer, allowance)
        await _send(call, SnapshotResponse(blob=digest.digest()), allowance)


def _read(file: NamelessFile, at: int, digest: "hashlib._Hash") -> bytes:
    piece = file.read(at, READ_BYTES)
    assert piece, "nobody else could have made it shorter"
    digest.update(piece)
    return piece


class Allowance:
    """How long a client may take: a while at first; what it has taken is worth some time again."""

    def __init__(self) -> None:
        self.left_s = float(PATIENCE_S)

    def took(self, size_bytes: int, elapsed_s: float) -> None:
        """Count what a client has taken, and the time that it had to be waited for."""
        left_s = self.left_s - elapsed_s + size_bytes / MIN_BYTES_PER_S
        self.left_s = max(0.0, min(left_s, PATIENCE_S))


async def _send(call: Conversation, answer: SnapshotResponse, allowance: Allowance) -> None:
    message = answer.SerializeToString()
    now = asyncio.get_running_loop().time
    began = now()
    try:
        async with asyncio.timeout(allowance.left_s):
            await call.send(message)
    except TimeoutError:
        raise RpcError(
            Status.DEADLINE_EXCEEDED,
            f"the snapshot was given up: it was taken more slowly than {MIN_BYTES_PER_S:,} bytes a "
            f"second, by {PATIENCE_S:g} s; use `leasehold backup` where the server is",
        ) from None
    allowance.took(len(message), now() - began)
