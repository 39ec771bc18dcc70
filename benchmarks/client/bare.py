"""The same calls from no client at all: bytes that were made before the clock started.

No client can be faster than that on the machine, so it says how many times another one's calls in
a second can be reached at all while the server takes its share.
"""

from dataclasses import replace
from typing import Final

from benchmarks.client.driving import GET, PUT, RENEW, Order
from benchmarks.etcd.load import put_load
from benchmarks.etcd.workloads import CASES
from benchmarks.transport.samples import CPU_US, OTHER_CPU_US, P50_MS, P99_MS, RATE, Figures

_CASES: Final = {PUT: CASES["put"], GET: CASES["range"], RENEW: CASES["stream"]}


def measure(order: Order) -> Figures:
    """Keep calls in flight on one connection; renewals are messages on one stream."""
    case = _CASES[order.call]
    result = put_load(
        order.port,
        replace(case, connections=1, in_flight=order.in_flight, streams=min(case.streams, 1)),
        seconds=order.seconds,
        changing=False,
        server_pid=order.server_pid,
    )
    return {
        RATE: result.calls_per_s,
        CPU_US: result.own_cpu_us_per_call,
        OTHER_CPU_US: result.server_cpu_us_per_call or 0.0,
        P50_MS: result.p50_ms or 0.0,
        P99_MS: result.p99_ms or 0.0,
    }
