"""A file system that forgets what was not synced: an apsw VFS over real files.

Theory of operation. SQLite reads and writes the real files, so it sees what a program sees: all it
wrote, synced or not. Beside each file the disk keeps what a power cut would leave of it: the
content at the last sync, and the writes since. The same goes for names: a new file has none on disk
before its first sync (which syncs the directory too, as SQLite's own VFS does for a log), and until
such a sync a name that was deleted still stands for what it stood for.

The power goes at a call that was chosen before (`cut_at`), and from then on every call fails.
`after_the_cut` writes a directory as the next start would find it: what was synced, and of
everything else nothing (`mercy` 0), or each operation with the probability `mercy`, writes also in
parts, torn at sectors. `restart` instead brings the process back on a machine that kept running,
which has forgotten nothing, but has not synced anything either.

Files that were there before SQLite opened them count as synced: the journal makes them itself, and
tests/unit/journal/test_data_dir.py is about how.
"""

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path

import apsw

SECTOR_BYTES = 512
NAMES = itertools.count()


class PowerCut(Exception):
    """The power is gone."""


@dataclass
class Remembered:
    """What a power cut leaves of a file: for sure, and perhaps."""

    synced: bytes | None
    """Its content at the last sync; None if there was none yet."""
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Offset and data of each write since; None in place of data for a new length."""
    ghost: bytes | None = None
    """What the name still stands for on disk, until the directory is synced."""


class ForgetfulDisk(apsw.VFS):
    """The disk. The power goes at the `cut_at`th call."""

    def __init__(self, cut_at: int | None = None) -> None:
        self.name = f"forgetful-{next(NAMES)}"
        self.calls = 0
        self.is_cut = False
        self.files: dict[str, Remembered] = {}
        self._cut_at = cut_at
        super().__init__(self.name, "")

    def count(self) -> None:
        """Count a call, and fail if the power is gone."""
        self.calls += 1
        if self.calls == self._cut_at:
            self.is_cut = True
        if self.is_cut:
            raise PowerCut

    def restart(self) -> None:
        """Go on as after the end of the process alone: the machine has forgotten nothing."""
        self.is_cut = False

    def after_the_cut(
        self, before: Path, after: Path, rng: random.Random, *, mercy: float = 0.0
    ) -> None:
        """Make the directory `after` of what a power cut leaves of the directory `before`."""
        after.mkdir()
        for path in before.iterdir():
            if str(path) not in self.files:
                (after / path.name).write_bytes(path.read_bytes())
        for name, file in self.files.items():
            content = _survives(file, rng, mercy)
            if content is not None:
                (after / Path(name).name).write_bytes(content)

    def sync_directory(self) -> None:
        """Let names stand for what they stand for."""
        for file in self.files.values():
            file.ghost = None

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> "ForgetfulFile":
        """Open a file."""
        self.count()
        assert name is not None, "a temporary file, which the journal has no need of"
        return ForgetfulFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Delete a file. Its name may come back if the directory is not synced."""
        self.count()
        super().xDelete(filename, syncdir)
        file = self.files[filename]
        ghost = file.ghost if file.synced is None else file.synced
        self.files[filename] = Remembered(None, ghost=ghost)
        if syncdir:
            self.sync_directory()

    def excepthook(self, *_: object) -> bool:
        """Keep quiet about what cannot be raised: with the power gone nobody listens."""
        return True


class ForgetfulFile(apsw.VFSFile):
    """A file on the disk."""

    def __init__(self, disk: ForgetfulDisk, name: str | apsw.URIFilename, flags: list[int]) -> None:
        self._disk = disk
        path = Path(name if isinstance(name, str) else name.filename())
        there = path.read_bytes() if path.exists() else None
        super().__init__("", name, flags)
        self._file = disk.files.setdefault(str(path), Remembered(there))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        """Write, so that it can be read but not so that it stays."""
        self._disk.count()
        super().xWrite(data, offset)
        self._file.unsynced.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        """Give the file another length."""
        self._disk.count()
        super().xTruncate(newsize)
        self._file.unsynced.append((newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Make what was written stay."""
        self._disk.count()
        content = bytearray(self._file.synced or b"")
        for offset, data in self._file.unsynced:
            _change(content, offset, data)
        if self._file.synced is None:
            self._disk.sync_directory()
        self._file.synced = bytes(content)
        self._file.unsynced.clear()

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        """Read what was written, synced or not."""
        self._disk.count()
        return super().xRead(amount, offset)

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: N802
        """Take no hint: a file has the length that was written, no more."""
        if op in {apsw.SQLITE_FCNTL_SIZE_HINT, apsw.SQLITE_FCNTL_CHUNK_SIZE}:
            return True
        return super().xFileControl(op, ptr)

    def excepthook(self, *_: object) -> bool:
        """Keep quiet about what cannot be raised: with the power gone nobody listens."""
        return True


def _change(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset + len(data) - len(content))))
    content[offset : offset + len(data)] = data


def _survives(file: Remembered, rng: random.Random, mercy: float) -> bytes | None:
    if file.synced is None and rng.random() >= mercy:
        return file.ghost
    content = bytearray(file.synced or b"")
    for offset, data in file.unsynced:
        if rng.random() < mercy:
            _change_in_part(content, offset, data, rng)
    return bytes(content)


def _change_in_part(
    content: bytearray, offset: int, data: bytes | None, rng: random.Random
) -> None:
    """Let all of a write survive, or some of its sectors."""
    if data is None or rng.random() < 0.5:
        _change(content, offset, data)
        return
    end = offset + len(data)
    for sector in range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
        first = max(offset, sector * SECTOR_BYTES)
        last = min(end, (sector + 1) * SECTOR_BYTES)
        if rng.random() < 0.5:
            _change(content, first, data[first - offset : last - offset])
