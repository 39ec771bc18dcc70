"""The figure of what a lease promises can be drawn again."""

from pathlib import Path

import pytest

from tools.draw_lease_promise import write_figure


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it is in the dependency group `bench`")
    path = tmp_path / "lease-promise.svg"
    write_figure(path)
    assert "<svg" in path.read_text(encoding="utf-8")
