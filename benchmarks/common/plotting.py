"""Plots: whether there can be any, and how all of them look."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NO_PLOT = "no plot: matplotlib is not installed (it is in the dependency group `bench`)"


def can_plot() -> bool:
    """Whether matplotlib is there; it comes with the `bench` dependency group."""
    return find_spec("matplotlib") is not None


@contextmanager
def drawing(path: Path, rows: int, columns: int, **layout: Any) -> Iterator[Any]:
    """Yield the axes to draw on, and save the figure; the suffix of `path` chooses the format."""
    import matplotlib as mpl  # noqa: PLC0415  optional

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    settings: Any = {
        "font.size": 11,
        "svg.fonttype": "path",
        "svg.hashsalt": path.stem,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(settings):
        figure, axes = plt.subplots(rows, columns, layout="constrained", **layout)
        figure.patch.set_facecolor("white")
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata, dpi=110)
        plt.close(figure)
