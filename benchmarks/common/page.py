"""The page of documentation that holds the results, between two markers."""

from collections.abc import Sequence
from pathlib import Path

END = "<!-- results end -->"


def begin(command: str) -> str:
    """The line above the results that a command writes."""
    return f"<!-- results: written by {command}, do not edit -->"


def write_results(page: Path, command: str, parts: Sequence[str]) -> None:
    """Put the results into the page, and leave what people wrote around them as it is."""
    mark = begin(command)
    text = page.read_text(encoding="utf-8") if page.exists() else f"# Benchmarks\n\n{mark}\n{END}\n"
    before, found, rest = text.partition(mark)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"{page} has lost its markers; it needs {mark!r} and {END!r}")
    body = "\n\n".join(parts)
    page.write_text(f"{before}{mark}\n\n{body}\n\n{END}{after}", encoding="utf-8")
