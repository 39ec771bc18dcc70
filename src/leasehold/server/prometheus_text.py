"""Prometheus' text format, version 0.0.4: families of samples, each with its help and kind."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from leasehold.basics.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
_NO_LABELS: Final[Labels] = {}


class Exposition:
    """One answer to a scrape, while it is written."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, what: str, value: float) -> None:
        """Add a value that goes up and down."""
        self.family(name, "gauge", what, [(_NO_LABELS, value)])

    def counter(self, name: str, what: str, value: float) -> None:
        """Add a value that only grows."""
        self.family(name, "counter", what, [(_NO_LABELS, value)])

    def family(
        self, name: str, kind: str, what: str, samples: Iterable[tuple[Labels, float]]
    ) -> None:
        """Add values of one name with different labels."""
        self._head(name, kind, what)
        self._lines += [_sample(name, labels, value) for labels, value in samples]

    def histogram(self, name: str, what: str, histogram: Histogram) -> None:
        """Add a histogram of durations."""
        self._head(name, "histogram", what)
        counts = histogram.cumulative()
        for bound, count in zip((*histogram.bounds, inf), counts, strict=True):
            self._lines.append(_sample(f"{name}_bucket", {"le": _number(bound)}, count))
        self._lines.append(_sample(f"{name}_sum", _NO_LABELS, histogram.total))
        self._lines.append(_sample(f"{name}_count", _NO_LABELS, counts[-1]))

    def _head(self, name: str, kind: str, what: str) -> None:
        what = what.replace("\\", r"\\").replace("\n", r"\n")
        self._lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]

    def encode(self) -> bytes:
        """Return the whole answer."""
        return "\n".join((*self._lines, "")).encode()


def _sample(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
