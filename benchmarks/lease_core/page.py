"""The page of documentation that holds the results, between two markers."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.lease_core.tables import Table

BEGIN = "<!-- results: written by make bench, do not edit -->"
END = "<!-- results end -->"

PAGE = "benchmarks.md"
PLOT = "img/lease-core.svg"


def write_page(directory: Path, machine: str, tables: Sequence[Table], *, plot: bool) -> Path:
    """Put the results into the page, and leave what people wrote around them as it is."""
    page = directory / PAGE
    text = (
        page.read_text(encoding="utf-8") if page.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    )
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has lost its markers; it needs {BEGIN!r} and {END!r}")
    parts = [f"Measured with {machine}."]
    if plot:
        parts.append(f"![Cost per operation, and memory over grants and cancels]({PLOT})")
    parts.extend(table.as_markdown() for table in tables)
    body = "\n\n".join(parts)
    page.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")
    return page
