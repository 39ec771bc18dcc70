"""The figure of what a fencing token is for can be drawn again, and is the one on the page."""

import re
from pathlib import Path

import pytest

from tools.draw_fencing import FIGURE, write_figure


def _texts(path: Path) -> list[str]:
    """What is written in a figure; each text is in a comment before its shapes."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))


def test_the_figure_is_drawn_and_says_what_the_one_on_the_page_says(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it is in the dependency group `bench`")
    path = tmp_path / FIGURE.name
    write_figure(path)
    assert "9 with 41:" in _texts(path)
    assert _texts(path) == _texts(FIGURE)
