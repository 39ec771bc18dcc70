"""The targets against other clients, and whether they are reached."""

from typing import Final, NamedTuple

from benchmarks.client.calls import name_of
from benchmarks.client.clients import AETCD, ASYNCIO, ETCD3, SYNC
from benchmarks.client.driving import CALLS
from benchmarks.common.stats import Spread
from benchmarks.etcd.targets import NARROWLY, NO, YES

LEAST_TIMES: Final = 4.0
IN_FLIGHT: Final = 64


class Pair(NamedTuple):
    """Leasehold's client and another one, with the same call."""

    what: str
    ours: str
    other: str


PAIRS: Final = tuple(
    Pair(name_of(call, IN_FLIGHT), ours, other)
    for ours, other in ((ASYNCIO, AETCD), (ASYNCIO, ETCD3), (SYNC, ETCD3))
    for call in CALLS
)


def verdict(times: Spread) -> str:
    """Whether the ratio reaches the target, and the worse quartile too."""
    if times.median < LEAST_TIMES:
        return NO
    return YES if times.low >= LEAST_TIMES else NARROWLY
