"""Reads single-writer files without the code that writes them, and judges what is in them.

Keys are read over etcd's API, and decoded as protobuf messages; replicas are read as plain files.

A file is made of records. Each has the letter of its writer, a number from 0 on, and a checksum. A
writer appends after the end that it has found when it opened the file: up to there the file belongs
to the writers before. What a writer has flushed must be there once and in order, and in all
replicas that are listed. The last record of a writer that was killed may be cut off.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from leasehold.wire import files_pb2 as pb
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.file_records import HEADER, MAGIC, checksum_of

FILES: Final = b"leasehold/files/"
ROOT: Final = b"0" * 32
CHUNK_BYTES: Final = 1024 * 1024
CLOSED: Final = 3


@dataclass
class Written:
    """The reports of a writer."""

    writer: str
    opened_at: int | None = None
    """The length of the file when it was opened; None if that was not reported."""
    flushed: list[tuple[int, int]] = field(default_factory=list)
    """The number of records, and the length of the file, after each flush and the close."""


class FileJudge:
    """Reads files of one server."""

    def __init__(self, calls: EtcdCalls) -> None:
        self._calls = calls

    def _get(self, key: bytes) -> bytes | None:
        found = self._calls.range(FILES + key).kvs
        return found[0].value if found else None

    def _all(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        first = FILES + prefix
        end = first[:-1] + bytes([first[-1] + 1])
        return [(pair.key[len(first) :], pair.value) for pair in self._calls.range(first, end).kvs]

    def directories(self) -> dict[str, Path]:
        """Return the directory of each replica store."""
        config = pb.FilesConfig.FromString(self._get(b"config") or b"")
        return {store.id: Path(urlsplit(store.url).path) for store in config.stores}

    def id_of(self, path: str) -> str:
        """Return the id of a file."""
        each = ROOT
        for name in path.split("/"):
            value = self._get(b"dirent/" + each + b"/" + name.encode())
            assert value is not None, f"{path!r} has no entry for {name!r}"
            each = value[1:]
        return each.decode()

    def record_of(self, path: str) -> pb.FileRecord:
        """Return the record of a file."""
        value = self._get(b"record/" + self.id_of(path).encode())
        assert value is not None, f"{path!r} has no record"
        return pb.FileRecord.FromString(value)

    def blocks_of(self, path: str) -> list[pb.FileBlock]:
        """Return the blocks of a file, whose numbers must be those from 0 on."""
        found = self._all(b"block/" + self.id_of(path).encode() + b"/")
        assert [key for key, _ in found] == [b"%08d" % number for number in range(len(found))]
        return [pb.FileBlock.FromString(value) for _, value in found]

    def check_closed(self, path: str) -> None:
        """Check that a file is closed, and that nothing is left of writers and recoveries."""
        closed, file_id = self.record_of(path), self.id_of(path).encode()
        assert closed.state == CLOSED, f"{path!r} has the state {closed.state}"
        assert not closed.holder
        for prefix in (b"recovery/", b"worker/"):
            assert self._get(prefix + file_id) is None, f"{path!r} has a key in {prefix!r}"
        left = [key for key, _ in self._all(b"open/") if key.endswith(file_id)]
        assert not left, f"{path!r} is still in {left}"

    def content_of(self, path: str, *, lost: str = "", replicas: int = 1) -> bytes:
        """Return the content of a file, after all replicas of its blocks were compared.

        Each block must have so many replicas at least. Those in the store `lost` may be missing.
        """
        self.check_closed(path)
        stores, content = self.directories(), b""
        for number, block in enumerate(self.blocks_of(path)):
            where = f"{path!r}, block {number}"
            assert len(block.replicas) >= replicas, f"{where} has {len(block.replicas)} replicas"
            assert len({each.store for each in block.replicas}) == len(block.replicas)
            found: set[bytes] = set()
            for replica in block.replicas:
                data = _bytes_of(replica, stores[replica.store])
                if data is None and replica.store == lost:
                    continue
                assert data is not None, f"{where}: {replica.name} is missing in {replica.store}"
                assert len(data) >= block.length, f"{where}: {replica.name} is too short"
                data = data[: block.length]
                assert _checksums(data) == block.checksums, f"{where}: {replica.name} is damaged"
                found.add(data)
            assert len(found) == 1, f"{where}: {len(found)} different contents"
            content += found.pop()
        assert len(content) == self.record_of(path).length
        return content


def _bytes_of(replica: pb.BlockReplica, directory: Path) -> bytes | None:
    names = [f"{replica.name}.{number}" for number in range(len(replica.pieces))]
    try:
        return b"".join((directory / name).read_bytes() for name in names or [replica.name])
    except FileNotFoundError:
        return None


def _checksums(data: bytes) -> bytes:
    starts = range(0, len(data), CHUNK_BYTES)
    return b"".join(zlib.crc32(data[at : at + CHUNK_BYTES]).to_bytes(4) for at in starts)


def _turn(written: Written) -> tuple[int, int]:
    """Return the place of a writer in their order: a stopped one may open the file much later."""
    at = written.opened_at or 0
    return at, max((length for _, length in written.flushed), default=at)


def judge(content: bytes, reports: Sequence[Written]) -> None:
    """Check a file against the reports of its writers, which had it one after another."""
    opened = sorted(filter(lambda each: each.opened_at is not None, reports), key=_turn)
    starts = [each.opened_at or 0 for each in opened]
    assert not starts or starts[0] == 0
    assert starts or not content, "a file without a writer has content"
    for each, start, end in zip(opened, starts, [*starts[1:], len(content)], strict=True):
        _judge_writer(content, each, start, end)


def _judge_writer(content: bytes, written: Written, start: int, end: int) -> None:
    """Check the part of a file that one writer has written."""
    ends = [start]
    at = start
    while at < end:
        head = content[at : min(end, at + HEADER.size)]
        if len(head) < HEADER.size:
            break
        magic, letter, number, size, checksum = HEADER.unpack(head)
        assert (magic, letter.decode()) == (MAGIC, written.writer), (
            f"a record of {letter!r} at {at}, where {written.writer} has written"
        )
        assert number == len(ends) - 1, f"record {number} follows {len(ends) - 2} at {at}"
        payload = content[at + HEADER.size : at + HEADER.size + size]
        at += HEADER.size + size
        if at > end:  # cut off
            break
        expected = checksum_of(letter, number, payload)
        assert checksum == expected, f"record {number} of {written.writer} is damaged"
        ends.append(at)
    for count, length in written.flushed:
        assert count < len(ends), (
            f"{written.writer} has flushed {count} records, {len(ends) - 1} are there"
        )
        assert ends[count] == length, f"record {count} of {written.writer} ends at {ends[count]}"
