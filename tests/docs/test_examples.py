"""Every example in the docs is run, and prints what the page says it prints.

Where a page says that there is a server, on the port that it has by default, there is one.
"""

import os
import re
import subprocess
import sys
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


@pytest.mark.parametrize("example", _examples(), ids=lambda example: example.where)
def test_example_runs_and_prints_what_the_page_says(example: Example, tmp_path: Path) -> None:
    with LocalServer() as server:
        run = subprocess.run(  # noqa: S603  our own docs
            [sys.executable, "-W", "error", "-c", _at(server, example.code)],
            cwd=tmp_path,
            env={**os.environ, "LEASEHOLD_ENDPOINTS": server.endpoint},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    if example.prints is not None:
        pattern = re.escape(example.prints).replace(r"\.\.\.", ".*")
        assert re.fullmatch(pattern, run.stdout), run.stdout


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


def _lines_of(example: str) -> list[str]:
    run = subprocess.run(  # noqa: S603  our own example
        [sys.executable, "-W", "error", REPOSITORY / "examples" / example],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    )
    return run.stdout.splitlines()


def test_the_example_of_a_landlord_of_ones_own_keeps_two_seats_of_three() -> None:
    assert _lines_of("own_landlord.py") == [
        "A1: held",
        "A2: held",
        "A3: free",
        "A1 is taken",
        "A1 again, for 3 s",
    ]


def test_the_example_of_threads_takes_back_the_desks_that_are_not_renewed() -> None:
    said = _lines_of("threaded_landlord.py")
    assert said == [
        "desk 1 is taken for 1.0 s",
        "desk 2 is taken for 0.2 s",
        "desk 2 is free again: expired",
        "desk 2 is taken for 0.2 s",
        "desk 2 is free again: expired",
        "desk 1 is free again: cancelled",
    ]


def test_make_demo_shows_a_holder_that_stops_renewing_losing_its_lease() -> None:
    said = [line.split("s  ", 1)[1] for line in _lines_of("first_lease.py")]
    assert said[2:] == [
        "desk 2 is free again: expired",
        "bob is too late: expired",
        "desk 1 is free again: expired",
        "desks still taken: 0",
    ]
