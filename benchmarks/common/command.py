"""What the commands of all benchmarks have in common: options, printing, where results go."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.common.machine import on_memory
from benchmarks.common.page import write_results
from benchmarks.common.progress import tell
from benchmarks.common.tables import Table

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"


class Measured(Protocol):
    """The results of a run."""

    @property
    def machine(self) -> str:
        """What they were measured with."""
        ...

    def as_json(self) -> dict[str, Any]:
        """The same in plain lists and dicts."""
        ...


def command(prog: str, about: str | None, parts: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=about)
    parser.add_argument("--quick", action="store_true", help="short, to see that it works")
    if parts:
        parser.add_argument(
            "--only",
            action="append",
            choices=parts,
            metavar="PART",
            help=f"only this part (may be given again): {', '.join(parts)}",
        )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="where pages and plots are written (docs/, if everything is measured at full size)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw results as well")
    return parser


def with_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add the option for the directory of servers and engines."""
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="on a disk; a temporary one")


def disk_of(options: argparse.Namespace) -> Path:
    """The directory for data, which must be on a disk."""
    base: Path = options.data_dir or Path(tempfile.gettempdir())
    if on_memory(base):
        sys.exit(f"{base} is kept in memory, where a sync costs nothing: give --data-dir on a disk")
    return base


def show(results: Measured, tables: Sequence[Table], json_file: Path | None = None) -> None:
    """Print the tables, and write the raw results if requested."""
    print(f"\n{results.machine}")
    for table in tables:
        print(table.as_text())
    if json_file is not None:
        json_file.write_text(json.dumps(results.as_json(), indent=1), encoding="utf-8")


def write_page(
    directory: Path, page: str, command: str, results: Measured, tables: Sequence[Table]
) -> None:
    """Put the tables into a page, below what they were measured with."""
    directory.mkdir(parents=True, exist_ok=True)
    parts = [f"Measured with {results.machine}."]
    parts.extend(table.as_markdown() for table in tables if table.rows)
    write_results(directory / page, command, parts)
    tell(f"wrote {page}")
