"""A process that writes records to a single-writer file, and reports what was acknowledged.

It waits for a message before it opens the file. Its reports, each sent immediately:

    ready                   it is connected
    opening
    open LENGTH             it has the file, which has this length
    flushed NUMBER LENGTH   a flush has returned: so many records are acknowledged
    closing
    closed NUMBER LENGTH    `close` has returned
    recovering              a call has raised `RecoveryInProgress`
    short                   a call has raised `TooFewReplicas`
    lost ERROR              the file is lost for this writer
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import leasehold
from leasehold.errors import (
    FileAlreadyOpen,
    FileNotFound,
    LeaseExpired,
    RecoveryInProgress,
    TooFewReplicas,
)
from leasehold.files.client import Files
from leasehold.files.writer import FileWriter
from tests.faults.file_records import record

DEADLINE_S: Final = 60.0
"""How long a call is repeated."""
RETRY_S: Final = 0.05
MAX_PAUSE_S: Final = 0.02
MAX_RECORDS: Final = 6
"""Records between two flushes."""
SIZES: Final = ((0.7, 200), (0.95, 20_000), (1.0, 400_000))
"""The largest records, up to these parts of all."""
LOSSES: Final = (LeaseExpired, FileNotFound)

Say = Callable[..., None]


@dataclass(frozen=True)
class Settings:
    """The part of one writer."""

    endpoint: str
    path: str
    writer: str
    """Its letter."""
    seed: str
    flushes: int


async def _repeated(call: Callable[[], Awaitable[None]], say: Say) -> None:
    """Make a call until it succeeds, or the file is lost."""
    give_up_at = time.monotonic() + DEADLINE_S
    while True:
        try:
            return await call()
        except RecoveryInProgress:
            say("recovering")
        except TooFewReplicas:
            say("short")
        assert time.monotonic() < give_up_at, "neither flushed nor lost"
        await asyncio.sleep(RETRY_S)


async def _open(files: Files, path: str) -> FileWriter:
    give_up_at = time.monotonic() + DEADLINE_S
    while True:
        try:
            return await files.open(path, "ab")
        except (FileAlreadyOpen, RecoveryInProgress, TooFewReplicas):
            assert time.monotonic() < give_up_at, "the file is not free"
            await asyncio.sleep(RETRY_S)


def _payload(rng: random.Random) -> bytes:
    drawn = rng.random()
    largest = next(size for part, size in SIZES if drawn <= part)
    return rng.randbytes(rng.randint(0, largest))


async def _write(file: FileWriter, settings: Settings, say: Say) -> None:
    number, rng = 0, random.Random(settings.seed)
    for _ in range(settings.flushes):
        for _ in range(rng.randint(1, MAX_RECORDS)):
            data = record(settings.writer, number, _payload(rng))
            number += 1
            try:
                await file.write(data)
            except (RecoveryInProgress, TooFewReplicas):
                break  # it is in memory, and the flush is made again
        await _repeated(file.flush, say)
        say("flushed", number, file.tell())
        if rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0, MAX_PAUSE_S))
    say("closing")
    with suppress(RecoveryInProgress, TooFewReplicas):  # as above, and `close` is made again
        await file.write(record(settings.writer, number, _payload(rng)))
    length = file.tell()
    await _repeated(file.close, say)
    say("closed", number + 1, length)


async def _main(settings: Settings, connection: Connection) -> None:
    def say(*words: object) -> None:
        connection.send_bytes(" ".join(map(str, words)).encode())

    async with leasehold.connect(settings.endpoint, name=settings.writer) as client:
        say("ready")
        await asyncio.to_thread(connection.recv_bytes)
        say("opening")
        file = await _open(client.files, settings.path)
        say("open", file.tell())
        try:
            await _write(file, settings, say)
        except LOSSES as error:
            say("lost", type(error).__name__)
            await file.abort()


def write_records(settings: Settings, connection: Connection, log: Path) -> None:
    """Write until the end of the list, or until the file is lost."""
    with log.open("ab") as output:
        os.dup2(output.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(_main(settings, connection))
