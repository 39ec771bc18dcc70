"""The parts of `Files` for blocking code that are not generated: opening, and listings."""

from collections.abc import Generator
from typing import overload

from leasehold.files import client as on_loop
from leasehold.files.client import ReadMode, WriteMode
from leasehold.files.fsck import Finding
from leasehold.files.holder import OpenFileInfo
from leasehold.files.namespace import FileInfo
from leasehold.sync.generated.reader import FileReader
from leasehold.sync.generated.writer import FileWriter
from leasehold.sync.iterators import listed
from leasehold.sync.loop_thread import LoopThread
from leasehold.sync.open_file import open_reader, open_writer


class FilesBase:
    """The files of a client on the loop."""

    def __init__(self, thread: LoopThread, twin: on_loop.Files) -> None:
        self._thread = thread
        self._on_loop = twin

    @overload
    def open(self, path: str, mode: ReadMode = "rb") -> FileReader: ...

    @overload
    def open(self, path: str, mode: WriteMode) -> FileWriter: ...

    def open(self, path: str, mode: ReadMode | WriteMode = "rb") -> FileReader | FileWriter:
        """Open a file: to be closed, or entered with `with`.

        `rb` reads what was flushed until now. `xb` creates the file, `ab` appends, and creates it
        if it is missing, `wb` replaces one that is closed. Raises `FileNotFound`, `FileExists`,
        `FileAlreadyOpen`, which names the holder, and `RecoveryInProgress`.
        """
        if mode == "rb":
            return open_reader(FileReader, self._thread, self._on_loop.open(path))
        return open_writer(FileWriter, self._thread, self._on_loop.open(path, mode))

    def list(self, path: str = "") -> Generator[FileInfo]:
        """Iterate over a directory in the order of its names, as it is now; a file as itself.

        If the history of keys is compacted meanwhile, the rest is as of later: each name is still
        listed at most once, and none that stays is missed. Raises `FileNotFound`.
        """
        yield from listed(self._thread, self._on_loop.list(path))

    def open_files(self, under: str = "") -> Generator[OpenFileInfo]:
        """Iterate over the files that are open for writing, at or below a path.

        Each is listed as it is when it is read: one that is opened or closed meanwhile may be
        listed or not. Raises `FileNotFound` if there is no such path.
        """
        yield from listed(self._thread, self._on_loop.open_files(under))

    def fsck(self, under: str = "", *, deep: bool = False) -> Generator[Finding]:
        """Check files at or below a path: iterate over findings, the last one is a summary.

        The sizes of all replicas are compared; with `deep` all bytes are read, and their checksums
        compared. Raises `FileNotFound`.
        """
        yield from listed(self._thread, self._on_loop.fsck(under, deep=deep))
