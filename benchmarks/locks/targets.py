"""The targets, and whether they are reached."""

from typing import Final

from benchmarks.common.stats import Spread
from benchmarks.etcd.targets import NARROWLY, NO, YES
from benchmarks.locks.contenders import CACHED, CACHED_SYNC

MOST_US: Final = {CACHED: 3.0, CACHED_SYNC: 5.0}
"""For acquiring a cached lock again."""

TERM_S, SHARE = 10.0, 0.1
"""Consistency traffic at this term, relative to that without leases."""


def within(value: Spread, most: float) -> str:
    """Whether the median is within the limit, and the worse quartile too."""
    if value.median > most:
        return NO
    return YES if value.high <= most else NARROWLY
