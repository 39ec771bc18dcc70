"""The cost of a call for the server, compared with the first version of the transport.

    git worktree add DIR 80dd488
    python -m benchmarks.transport.skeleton DIR

runs `benchmarks.request_path` of both versions by turns, and writes the table into the
documentation. The costs are processor time, without sockets and disk.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.common.machine import machine_line
from benchmarks.common.progress import tell
from benchmarks.common.stats import Spread, ratios
from benchmarks.common.tables import Table, spread
from benchmarks.transport.page import write_skeleton
from benchmarks.transport.targets import no_slower

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
ALTERNATIONS: Final = 7
LIMIT_S: Final = 300.0

_LINE: Final = re.compile(r"(.+?)\s+([\d.]+) µs")

Costs = dict[str, float]


def parse_costs(output: str) -> Costs:
    """Read what `benchmarks.request_path` prints: microseconds, by what they are for."""
    found = {}
    for line in output.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is not None:
            found[match[1]] = float(match[2])
    if not found:
        raise ValueError(f"no costs in {output!r}")
    return found


def run(directory: Path) -> Costs:
    """Measure the version that is in a directory."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.request_path"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{directory / 'src'}{os.pathsep}{directory}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{directory} cannot be measured:\n{done.stderr}")
    return parse_costs(done.stdout)


def compared(then: Sequence[Costs], now: Sequence[Costs]) -> Table:
    """The costs of two versions that were measured by turns."""
    rows = []
    for what in then[0]:
        before, after = [each[what] for each in then], [each[what] for each in now]
        ratio = ratios(after, before)
        costs = [spread(Spread.of(values)) for values in (before, after)]
        rows.append([what, *costs, spread(ratio), no_slower(ratio)])
    headings = ["", "skeleton, µs", "now, µs", "now / skeleton", "no slower"]
    note = (
        f"{len(then)} alternations, median and quartiles; processor time for a call, the least of "
        "many rounds in each run; ratios are taken between neighbours in time"
    )
    return Table("Compared with the skeleton", headings, rows, note)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transport.skeleton",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the other version")
    parser.add_argument("--alternations", type=int, default=ALTERNATIONS, metavar="N")
    parser.add_argument(
        "--output", type=Path, default=DOCS, metavar="DIR", help="where the page is (docs/)"
    )
    options = parser.parse_args(arguments)
    then: list[Costs] = []
    now: list[Costs] = []
    sides = [(then, options.directory.resolve()), (now, ROOT)]
    for number in range(options.alternations):
        tell(f"alternation {number + 1} of {options.alternations}")
        for costs, directory in sides if number % 2 == 0 else reversed(sides):
            costs.append(run(directory))
    table = compared(then, now)
    print(table.as_text())
    tell(f"wrote {write_skeleton(options.output, machine_line(), table).name}")


if __name__ == "__main__":
    main()
