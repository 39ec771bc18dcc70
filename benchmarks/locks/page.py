"""The page of documentation that holds the results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.common.page import write_results
from benchmarks.common.tables import Table

COMMAND: Final = "make bench"
PAGE: Final = "benchmarks-locks.md"
PLOT: Final = "img/locks.svg"


def write_page(directory: Path, machine: str, tables: Sequence[Table], *, plot: bool) -> Path:
    """Put the results into the page, and leave what people wrote around them as it is."""
    page = directory / PAGE
    parts = [f"Measured with {machine}."]
    if plot:
        parts.append(f"![Acquiring, handing over, a crowd, and consistency traffic]({PLOT})")
    parts.extend(table.as_markdown() for table in tables)
    write_results(page, COMMAND, parts)
    return page
