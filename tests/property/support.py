"""What the property tests share: how much to search, and durations in every form."""

import os
from datetime import timedelta
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st

from leasehold.basics.durations import ANY, FOREVER, DurationLike, Requested

PROFILE: Final = "HYPOTHESIS_PROFILE"
DEEP: Final = "deep"
DEEP_FACTOR: Final = 40


def effort(examples: int, steps: int = 50) -> settings:
    """How many examples to try, and steps for a machine; far more in the deep profile."""
    if os.environ.get(PROFILE) == DEEP:
        examples, steps = examples * DEEP_FACTOR, steps * 2
    return settings(max_examples=examples, stateful_step_count=steps)


TINY_S: Final = (1e-9, 1e-6, 0.001)
ORDINARY_S: Final = (0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 1.0, 1.5, 2.0, 3.3, 5.0, 7.0, 10.0, 30.0)
HUGE_S: Final = (1e9, 2.0**62, 2.0**63, 2.0**70, 1e300)

ordinary = st.sampled_from(ORDINARY_S) | st.floats(0.01, 30.0)
finite = ordinary | st.sampled_from(TINY_S + HUGE_S)
positive: st.SearchStrategy[DurationLike] = st.one_of(
    ordinary,
    finite,
    st.sampled_from([1, 2, 5, 2**63, 2**64 + 1, 10**30]),
    st.sampled_from([timedelta(seconds=1.5), timedelta(microseconds=1), timedelta.max]),
    st.just(FOREVER),
    st.just(ANY),
)
"""What may be asked for in a grant."""

bad_durations: st.SearchStrategy[object] = st.sampled_from(
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        -1.0,
        -1e-9,
        -(10**30),
        -1e300,
        10**400,
        True,
        False,
        None,
        "1",
        b"1",
        timedelta(microseconds=-1),
        timedelta.min,
        1j,
        [1.0],
    ]
)
"""What no call may accept."""


def naive_seconds(duration: DurationLike) -> Requested:
    """What a checked duration must be equal to, computed without the code under test."""
    if duration is ANY or duration is FOREVER:
        return duration
    if isinstance(duration, timedelta):
        return duration / timedelta(seconds=1)
    return float(duration)
