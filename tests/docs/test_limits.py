"""The limits and times on the pages are those of the code."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pytest

from leasehold.http2.limits import ConnectionLimits, Rate

DOCS = Path(__file__).parents[2] / "docs"
AMOUNT = re.compile(r"(?:about )?(\d[\d,]*(?:\.\d+)?)(?: (KiB|MiB|GiB|Mi|ms|s|min|h)\b)?")
CONSTANT = re.compile(r"`((?:[a-z0-9_]+\.)+)([A-Z][A-Z0-9_]*)`")
SIZES = {"": 1, "KiB": 1 << 10, "Mi": 1 << 20, "MiB": 1 << 20, "GiB": 1 << 30}
UNITS = {**SIZES, "ms": 0.001, "s": 1, "min": 60, "h": 3600}
PAGES = [
    *("backup.md", "configuration.md", "discovery-service.md", "dns.md", "engine.md", "events.md"),
    *("files.md", "gateway.md", "leases-service.md", "renewal.md", "server.md", "transport.md"),
]


class Limit(NamedTuple):
    """A row of a table: a constant, and the first amount beside it."""

    module: str
    name: str
    amount: float


def _limits(text: str) -> Iterator[Limit]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        constants = [cell for cell in cells if CONSTANT.match(cell)]
        amounts = [amount for cell in cells if (amount := AMOUNT.match(cell))]
        if line.startswith("| ") and constants and amounts:
            module, name = CONSTANT.match(constants[0]).groups()  # type: ignore[union-attr]
            number, unit = amounts[0].groups("")
            yield Limit(module.rstrip("."), name, float(number.replace(",", "")) * UNITS[unit])


@pytest.mark.parametrize("page", PAGES)
def test_the_limits_on_the_page_are_those_of_the_code(page: str) -> None:
    limits = list(_limits((DOCS / page).read_text()))
    assert len(limits) > 3
    for limit in limits:
        module = importlib.import_module(f"leasehold.{limit.module}")
        unit = 0.001 if limit.name.endswith("_MS") else 1
        assert getattr(module, limit.name) * unit == pytest.approx(limit.amount), limit


def test_no_page_with_limits_is_left_out() -> None:
    found = {page.name for page in DOCS.glob("*.md") if len(list(_limits(page.read_text()))) > 1}
    assert found == set(PAGES)


def test_the_limits_of_a_connection_on_the_page_are_those_of_the_code() -> None:
    text = (DOCS / "transport.md").read_text()
    said = dict(re.findall(r"^\| `([a-z_]+)` \| ([\d.]+(?: \+ [\d.]+/s)?)", text, re.MULTILINE))
    assert said == {name: _shown(value) for name, value in asdict(ConnectionLimits()).items()}


def _shown(value: float | Rate) -> str:
    return f"{value[0]} + {value[1]:.10g}/s" if isinstance(value, Rate) else f"{value:.10g}"
