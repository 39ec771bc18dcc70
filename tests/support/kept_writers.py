"""Files of a process that keeps its writers, also when a test has stopped it and drops them."""

from typing import Any

from leasehold.files.client import Files
from leasehold.files.holder import LiveHolder
from leasehold.files.namespace import FoundFile
from leasehold.files.writer import FileWriter


class FilesKeepingWriters(Files):
    """Files whose writers are not garbage-collected, which would recover their files."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.writers: list[FileWriter] = []

    def _made(self, live: LiveHolder, found: FoundFile) -> FileWriter:
        writer = super()._made(live, found)
        self.writers.append(writer)
        return writer
