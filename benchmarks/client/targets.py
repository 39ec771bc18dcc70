"""What was asked for beside other clients, and whether it is reached."""

from typing import Final, NamedTuple

from benchmarks.client.calls import name_of
from benchmarks.client.clients import AETCD, ASYNCIO, ETCD3, SYNC
from benchmarks.client.driving import CALLS
from benchmarks.common.stats import Spread
from benchmarks.etcd.targets import NARROWLY, NO, YES

LEAST_TIMES: Final = 4.0
IN_FLIGHT: Final = 64


class Pair(NamedTuple):
    """Ours beside another client, at the same call."""

    what: str
    ours: str
    other: str


PAIRS: Final = tuple(
    Pair(name_of(call, IN_FLIGHT), ours, other)
    for ours, other in ((ASYNCIO, AETCD), (ASYNCIO, ETCD3), (SYNC, ETCD3))
    for call in CALLS
)


def verdict(times: Spread) -> str:
    """Whether so many times is enough, and in the worse quartile too."""
    if times.median < LEAST_TIMES:
        return NO
    return YES if times.low >= LEAST_TIMES else NARROWLY
