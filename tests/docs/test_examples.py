"""Every example in the docs is run, and prints what the page says it prints.

Where a page says that there is a server, on the port that it has by default, there is one.

Examples have leases of a few seconds, which a starved process may lose. So an example is run again
if it prints something else, a few times at most.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from leasehold.testing import LocalServer

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
DEFAULT_ENDPOINT = "127.0.0.1:2379"
WITHIN_S = 300.0
TRIES_MAX = 3
ANYTHING = r"(?s:.*)"
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


class Example(NamedTuple):
    """A block of Python, and the block of text that follows it, if one does."""

    where: str
    code: str
    prints: str | None


def _examples() -> list[Example]:
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = list(BLOCK.finditer(text))
        for block, following in zip_longest(blocks, blocks[1:]):
            if block[1] != "python":
                continue
            line = text.count("\n", 0, block.start()) + 1
            prints = following[2] if following is not None and following[1] == "text" else None
            found.append(Example(f"{page.name}:{line}", block[2], prints))
    return found


Run = Callable[[Path], "subprocess.CompletedProcess[str]"]


def _check(run: Run, pattern: str, tmp_path: Path) -> None:
    """Run an example, each time in a new directory, until it prints what it should."""
    for attempt in range(TRIES_MAX):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        done = run(directory)
        if done.returncode == 0 and re.fullmatch(pattern, done.stdout):
            return
    assert done.returncode == 0, done.stderr
    pytest.fail(f"{TRIES_MAX} times it printed something else, such as {done.stdout}")


@pytest.mark.parametrize("example", _examples(), ids=lambda example: example.where)
def test_example_runs_and_prints_what_the_page_says(example: Example, tmp_path: Path) -> None:
    def run(directory: Path) -> "subprocess.CompletedProcess[str]":
        with LocalServer() as server:
            return subprocess.run(  # noqa: S603  our own docs
                [sys.executable, "-W", "error", "-c", _at(server, example.code)],
                cwd=directory,
                env={**os.environ, "LEASEHOLD_ENDPOINTS": server.endpoint},
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
            )

    prints = ANYTHING if example.prints is None else re.escape(example.prints)
    _check(run, prints.replace(r"\.\.\.", ".*"), tmp_path)


def _at(server: LocalServer, code: str) -> str:
    return code.replace(DEFAULT_ENDPOINT, server.endpoint)


def test_the_first_example_of_the_tutorial_has_twenty_lines() -> None:
    tutorial = next(each for each in _examples() if each.where.startswith("tutorial.md"))
    lines = [line for line in tutorial.code.splitlines() if line.strip()]
    assert len(lines) <= 20


@pytest.mark.parametrize("page", [*PAGES, REPOSITORY / "ARCHITECTURE.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _check_script(example: str, pattern: str, tmp_path: Path) -> None:
    def run(directory: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603  our own example
            [sys.executable, "-W", "error", REPOSITORY / "examples" / example],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    _check(run, pattern, tmp_path)


def test_the_example_of_a_landlord_of_ones_own_keeps_two_seats_of_three(tmp_path: Path) -> None:
    lines = ["A1: held", "A2: held", "A3: free", "A1 is taken", "A1 again, for 3 s", ""]
    _check_script("own_landlord.py", re.escape("\n".join(lines)), tmp_path)


def test_the_example_of_threads_takes_back_the_desks_that_are_not_renewed(tmp_path: Path) -> None:
    lines = [
        "desk 1 is taken for 1.0 s",
        "desk 2 is taken for 0.2 s",
        "desk 2 is free again: expired",
        "desk 2 is taken for 0.2 s",
        "desk 2 is free again: expired",
        "desk 1 is free again: cancelled",
        "",
    ]
    _check_script("threaded_landlord.py", re.escape("\n".join(lines)), tmp_path)


def test_make_demo_shows_a_holder_that_stops_renewing_losing_its_lease(tmp_path: Path) -> None:
    lines = [
        "ada and bob have a desk each, for 1 s unless they renew",
        "ada renews her lease for 3 s, bob does not renew",
        "desk 2 is free again: expired",
        "bob is too late: expired",
        "desk 1 is free again: expired",
        "desks still taken: 0",
    ]
    pattern = "".join(rf" *[0-9.]+ s  {re.escape(line)}\n" for line in lines)
    _check_script("first_lease.py", pattern, tmp_path)
