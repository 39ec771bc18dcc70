"""ARCHITECTURE.md is short, and every path and function that it names exists."""

import ast
import re
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
PAGE: Final = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
DECISIONS: Final = (REPOSITORY / "docs" / "decisions.md").read_text(encoding="utf-8")
ROOTS: Final = (REPOSITORY, REPOSITORY / "src" / "leasehold")

MAX_LINES: Final = 200
PATHS: Final = re.compile(r"(?<![\w./<-])\w[\w./-]*(?:\.(?:py|md|proto)\b|/(?![\w<]))")
STEPS: Final = re.compile(r"^\d+\. `([\w/]+\.py): (\w+)`", re.MULTILINE)
NUMBERED: Final = re.compile(r"^\d+\. ", re.MULTILINE)
ROWS_OF_CHANGES: Final = 20


def _missing(text: str) -> list[str]:
    """Return the paths in a text that exist neither in the repository nor in the package."""
    paths = PATHS.findall(text)
    return [path for path in paths if not any((root / path).exists() for root in ROOTS)]


def _functions(path: str) -> set[str]:
    tree = ast.parse((ROOTS[1] / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_the_page_has_at_most_200_lines() -> None:
    assert len(PAGE.splitlines()) <= MAX_LINES


def test_every_path_on_the_page_exists() -> None:
    assert not _missing(PAGE)


def test_every_path_among_the_decisions_exists() -> None:
    assert not _missing(DECISIONS.replace("](../", "](").replace("leasehold/sessions/<hex>", ""))


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`locks/lock.py`, `locks/gone.py`, `gone/` and `tests/docs/`; see docs/gone.md"
    assert _missing(text) == ["locks/gone.py", "gone/", "docs/gone.md"]


def test_every_step_names_a_function_of_its_file() -> None:
    steps = STEPS.findall(PAGE)
    assert len(steps) == len(NUMBERED.findall(PAGE)) > 0
    assert not [step for step in steps if step[1] not in _functions(step[0])]


def test_every_package_is_described() -> None:
    described = set(re.findall(r"^\| `([\w/]+/)` \|", PAGE, re.MULTILINE))
    package = ROOTS[1]
    packages = {
        f"{path.parent.relative_to(package)}/"
        for path in package.rglob("*/__init__.py")
        if path.parent != package
    }
    assert packages <= described


def test_the_table_of_changes_has_at_least_twenty_rows() -> None:
    section = PAGE.partition("## To change X, open Y")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) - 1 >= ROWS_OF_CHANGES  # without the head
