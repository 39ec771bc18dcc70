"""The text format, judged by Prometheus' own parser."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from leasehold.basics.histogram import Histogram
from leasehold.server.pages import Exposition


def _parsed(out: Exposition) -> Any:
    return list(text_string_to_metric_families(out.encode().decode()))


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(st.characters(codec="ascii")))
def test_values_and_labels_come_back_as_they_were(value: float, label: str) -> None:
    out = Exposition()
    out.family("things", "gauge", 'a "help"\nof \\ two lines', [({"label": label}, value)])
    (family,) = _parsed(out)
    assert family.type == "gauge"
    assert family.documentation == 'a "help"\nof \\ two lines'
    (sample,) = family.samples
    assert sample.labels == {"label": label}
    assert sample.value == value


def test_a_counter_without_labels_has_none() -> None:
    out = Exposition()
    out.counter("things_total", "Things.", 3)
    assert (
        out.encode()
        == b"# HELP things_total Things.\n# TYPE things_total counter\nthings_total 3\n"
    )


def test_a_histogram_has_all_its_buckets() -> None:
    histogram = Histogram((0.5, 2.0))
    for value in (0.25, 0.5, 1.0, 8.0):
        histogram.observe(value)
    out = Exposition()
    out.histogram("took_seconds", "How long it took.", histogram)
    (family,) = _parsed(out)
    assert family.type == "histogram"
    assert [(each.name, each.labels, each.value) for each in family.samples] == [
        ("took_seconds_bucket", {"le": "0.5"}, 2),
        ("took_seconds_bucket", {"le": "2"}, 3),
        ("took_seconds_bucket", {"le": "+Inf"}, 4),
        ("took_seconds_sum", {}, 9.75),
        ("took_seconds_count", {}, 4),
    ]
