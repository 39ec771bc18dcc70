"""The page of documentation that holds the results."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.page import write_results
from benchmarks.common.tables import Table

COMMAND = "make bench"
PAGE = "benchmarks-engine.md"
PLOT = "img/engine.svg"
PAUSES_PLOT = "img/engine-pauses.svg"


def write_page(directory: Path, machine: str, tables: Sequence[Table], *, plot: bool) -> Path:
    """Put the results into the page, and leave what people wrote around them as it is."""
    page = directory / PAGE
    parts = [f"Measured with {machine}."]
    if plot:
        parts.append(f"![Calls in a second, watches, and lateness of expiry]({PLOT})")
        parts.append(f"![Longest pauses of the event loop, and the target]({PAUSES_PLOT})")
    parts.extend(table.as_markdown() for table in tables)
    write_results(page, COMMAND, parts)
    return page
