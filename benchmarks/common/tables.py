"""Tables, as aligned text and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common.stats import Spread


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a line of headings, rows of cells, and a note below."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def as_text(self) -> str:
        """The first column to the left, the others to the right."""
        lines = [self.headings, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [f"\n{self.title}"]
        for line in lines:
            first, *others = zip(line, widths, strict=True)
            cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
            text.append("  " + "   ".join(cells).rstrip())
        if self.note:
            text.append(f"  ({self.note})")
        return "\n".join(text)

    def as_markdown(self) -> str:
        """The same for a page of documentation."""
        text = [f"### {self.title}", ""]
        text.append(_row(self.headings))
        text.append(_row(["---", *("---:" for _ in self.headings[1:])]))
        text.extend(map(_row, self.rows))
        if self.note:
            text.extend(["", f"{self.note[0].upper()}{self.note[1:]}."])
        return "\n".join(text)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def figure(value: float) -> str:
    """Three digits that count, no more."""
    if value == 0.0:
        return "0"
    if abs(value) >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10.0 else f"{value:.2f}"


def spread(value: Spread) -> str:
    """A median and the quartiles."""
    if value.low == value.high:
        return figure(value.median)
    return f"{figure(value.median)} ({figure(value.low)}..{figure(value.high)})"


def count(number: int) -> str:
    """A number of leases, short."""
    if number >= 1_000_000 and number % 1_000_000 == 0:
        return f"{number // 1_000_000} M"
    return f"{number // 1_000} k" if number >= 1_000 and number % 1_000 == 0 else f"{number:,}"
