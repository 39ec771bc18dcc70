"""A disk that fails on demand: an apsw VFS over real files.

Theory of operation. Calls go to the real files, unless a `Fault` that was planned strikes: it says
which operation on which file fails, at which call, how, and for how long. A fault counts the calls
that it fits, and one that never strikes does nothing else. So a test can count the calls of a
scenario, and then let each of them fail, one after the other:

    syncs = Fault(Operation.SYNC)
    scenario(FailingDisk(syncs))
    for at in range(1, syncs.calls + 1):
        scenario(FailingDisk(Fault(Operation.SYNC, at=at)))

A call that fails raises apsw's exception for the result code; SQLite gets the code, and the caller
of SQLite the exception. In one thing this differs from a disk that fails in C: apsw also raises
what SQLite has passed over, such as a log that could not be deleted on closing.

The disk is a forgetful one as well: `after_the_cut` tells what a power cut leaves after something
has failed. A sync that fails may lose what it was to sync (`loses`). Then it is as on Linux: the
pages count as clean, they can be read as before but are not on disk, and the next sync says that
all is well. Only what is written again gets there.

What does not go through SQLite is not seen here: the making of the database, and the zeros that the
log is lengthened with.
"""

import enum
import random
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import apsw

from tests.faults.forgetful_disk import ForgetfulDisk, ForgetfulFile


class Operation(enum.Enum):
    """What can fail. The value is the result code that it usually fails with."""

    OPEN = apsw.SQLITE_CANTOPEN
    READ = apsw.SQLITE_IOERR_READ
    WRITE = apsw.SQLITE_IOERR_WRITE
    TRUNCATE = apsw.SQLITE_IOERR_TRUNCATE
    SYNC = apsw.SQLITE_IOERR_FSYNC
    FILE_SIZE = apsw.SQLITE_IOERR_FSTAT
    DELETE = apsw.SQLITE_IOERR_DELETE


class File(enum.Enum):
    """Where it can fail. The value is how the name of the file ends."""

    DATABASE = ".db"
    LOG = "-wal"


EVERY_OPERATION: Final = frozenset(Operation)
CHANGES: Final = EVERY_OPERATION - {Operation.OPEN, Operation.READ, Operation.FILE_SIZE}
"""The operations that leave the disk in another state."""


@dataclass(eq=False)
class Fault:
    """Something that fails, from when it is planned.

    With neither `at` nor `chance` it never does, and only counts.
    """

    operations: Operation | AbstractSet[Operation] = EVERY_OPERATION
    file: File | None = None
    """The file on which it fails; None for any."""
    at: int | None = None
    """It fails at this call of those that it fits, counted from 1."""
    chance: float = 0.0
    """It fails at each call that it fits with this probability, drawn from `seed`."""
    seed: int = 0
    lasts: bool = False
    """Whether it fails at every call once it has failed."""
    code: int | None = None
    """SQLite's result code; None for the usual one of the operation."""
    part: float = 0.0
    """How much of a write is written before it fails, or of a short read is read."""
    loses: bool = False
    """Whether a sync that fails loses what it was to sync."""

    calls: int = field(default=0, init=False)
    """How many calls it has fitted."""
    failures: int = field(default=0, init=False)
    """How many of those have failed."""

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def fits(self, operation: Operation, path: Path) -> bool:
        """Say whether a call is of the kind that fails."""
        if self.file is not None and not path.name.endswith(self.file.value):
            return False
        return operation is self.operations or (
            isinstance(self.operations, AbstractSet) and operation in self.operations
        )

    def strikes(self) -> bool:
        """Count a call that it fits, and say whether that fails."""
        self.calls += 1
        by_chance = self._rng.random() < self.chance
        again = self.lasts and self.failures > 0
        if self.calls == self.at or by_chance or again:
            self.failures += 1
            return True
        return False

    def error(self, operation: Operation, path: Path) -> Exception:
        """Make the exception that a call fails with."""
        code = operation.value if self.code is None else self.code
        error = apsw.exception_for(code)
        error.args = (f"{code_name(code)} as planned, at {operation.name} of {path.name}",)
        return error


def code_name(code: int) -> str:
    """Give SQLite's name of a result code; it is in the text of the exceptions."""
    names = apsw.mapping_result_codes | apsw.mapping_extended_result_codes
    return str(names[code])


class FailingDisk(ForgetfulDisk):
    """The disk, with the faults that are planned. Its `name` is that of the VFS."""

    def __init__(self, *faults: Fault, cut_at: int | None = None) -> None:
        self.faults = list(faults)
        super().__init__(cut_at)

    def plan(self, fault: Fault) -> Fault:
        """Let something fail from now on, beside what was planned before."""
        self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """Let nothing fail any more. What was lost stays lost."""
        self.faults.clear()

    def struck_by(self, operation: Operation, path: Path) -> Fault | None:
        """Count a call, and give the fault that it fails by."""
        fitting = [fault for fault in self.faults if fault.fits(operation, path)]
        striking = [fault for fault in fitting if fault.strikes()]
        return striking[0] if striking else None

    def step(self, operation: Operation, path: Path) -> None:
        """Count a call, and fail if a fault says so."""
        fault = self.struck_by(operation, path)
        if fault is not None:
            raise fault.error(operation, path)

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> "FailingFile":
        """Open a file."""
        assert name is not None, "a temporary file, which the journal has no need of"
        path = Path(name if isinstance(name, str) else name.filename())
        self.step(Operation.OPEN, path)
        self.count()
        return FailingFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Delete a file."""
        self.step(Operation.DELETE, Path(filename))
        super().xDelete(filename, syncdir)


class FailingFile(ForgetfulFile):
    """A file on the disk."""

    def __init__(self, disk: FailingDisk, name: str | apsw.URIFilename, flags: list[int]) -> None:
        self._failing = disk
        self._path = Path(name if isinstance(name, str) else name.filename())
        super().__init__(disk, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        """Read; a short read gives the first part, which SQLite fills up with zeros."""
        fault = self._failing.struck_by(Operation.READ, self._path)
        if fault is None:
            return super().xRead(amount, offset)
        if fault.code == apsw.SQLITE_IOERR_SHORT_READ:
            return super().xRead(amount, offset)[: int(amount * fault.part)]
        raise fault.error(Operation.READ, self._path)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        """Write all of it, or, if that is planned, the first part."""
        fault = self._failing.struck_by(Operation.WRITE, self._path)
        if fault is None:
            super().xWrite(data, offset)
            return
        written = int(len(data) * fault.part)
        if written:
            super().xWrite(data[:written], offset)
        raise fault.error(Operation.WRITE, self._path)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        """Give the file another length."""
        self._failing.step(Operation.TRUNCATE, self._path)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Make what was written stay, unless it has been lost."""
        fault = self._failing.struck_by(Operation.SYNC, self._path)
        if fault is None:
            super().xSync(flags)
            return
        if fault.loses:
            self._file.unsynced.clear()
        raise fault.error(Operation.SYNC, self._path)

    def xFileSize(self) -> int:  # noqa: N802
        """Give the length of the file."""
        self._failing.step(Operation.FILE_SIZE, self._path)
        return super().xFileSize()
