"""What was asked for, and whether it is reached."""

from typing import Final

from benchmarks.common.stats import Spread
from benchmarks.etcd.targets import NARROWLY, NO, YES
from benchmarks.locks.contenders import CACHED, CACHED_SYNC

MOST_US: Final = {CACHED: 3.0, CACHED_SYNC: 5.0}
"""For acquiring a cached lock again."""

TERM_S, SHARE = 10.0, 0.1
"""Consistency traffic at this term, beside that of no lease at all."""


def within(value: Spread, most: float) -> str:
    """Whether it is no more than that, and in the worse quartile too."""
    if value.median > most:
        return NO
    return YES if value.high <= most else NARROWLY
