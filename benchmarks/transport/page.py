"""The page of documentation that holds the results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.common.page import write_results
from benchmarks.common.tables import Table

COMMAND: Final = "make bench"
SKELETON_COMMAND: Final = "python -m benchmarks.transport.skeleton"
PAGE: Final = "benchmarks-transport.md"
PLOT: Final = "img/transport.svg"


def write_page(directory: Path, machine: str, tables: Sequence[Table], *, plot: bool) -> Path:
    """Put the results into the page, and leave what people wrote around them as it is."""
    page = directory / PAGE
    parts = [f"Measured with {machine}."]
    if plot:
        parts.append(f"![Calls in a second, processor time, and bytes of a connection]({PLOT})")
    parts.extend(table.as_markdown() for table in tables)
    write_results(page, COMMAND, parts)
    return page


def write_skeleton(directory: Path, machine: str, table: Table) -> Path:
    """Put the comparison of two versions into the page."""
    page = directory / PAGE
    write_results(page, SKELETON_COMMAND, [f"Measured with {machine}.", table.as_markdown()])
    return page
