"""Cost per operation at several numbers of live leases, measured in turns.

Theory of operation. Each size has a process of its own, all of them alive through the whole run
and all but one asleep. A round visits every size with the collector on, then every size with it
off, so that what disturbs the machine for a while disturbs all of them, and a ratio compares
neighbours in time.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

from benchmarks.common.children import SPAWN
from benchmarks.lease_core.collector import CollectorMeter, collector, full_collection_ns
from benchmarks.lease_core.estate import Built, Estate, long_terms

Round = dict[str, float]
"""Nanoseconds per operation, by its name."""

RENEW, RENEW_IN_ORDER, RENEW_ALL = "renew", "renew, neighbours", "renew_all, per lease"
GRANT, CANCEL, EXPIRE = "grant", "cancel", "expire"
WRITE, INSERT = "dict lookup, attribute write", "dict insert, heap push"
DELETE, POP = "dict delete", "heap pop, dict delete"
COLLECTOR: Final = "collector"
"""Of the time of a round's grants and cancels, what the collector took, per pair."""

CONTROLS: Final = {
    RENEW: WRITE,
    RENEW_ALL: WRITE,
    GRANT: INSERT,
    CANCEL: DELETE,
    EXPIRE: POP,
}

PORTION: Final = 200
SETTLE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure."""

    rounds: int
    operations: int
    """Of each kind, in one round at one size."""


@dataclass(frozen=True, slots=True)
class Collections:
    """One full collection over all leases of a size, in nanoseconds."""

    normal_ns: float
    frozen_ns: float


@dataclass(frozen=True, slots=True)
class SizeResult:
    """All that was measured at one number of live leases."""

    size: int
    built: Built
    collections: Collections
    on: list[Round]
    off: list[Round]


def measure_operations(
    sizes: Sequence[int], effort: Effort, tell: Callable[[str], None]
) -> list[SizeResult]:
    """Measure all sizes, in turns."""
    workers = []
    for size in sizes:
        tell(f"operations: granting {size:,} leases")
        workers.append(_Worker(size, effort.operations))
    for number in range(effort.rounds):
        tell(f"operations: round {number + 1} of {effort.rounds}")
        for collector_on in (True, False):
            for worker in workers:
                worker.run_round(collector_on=collector_on)
    return [worker.finish() for worker in workers]


class _Worker:
    """A process with an estate, as the measuring process sees it."""

    def __init__(self, size: int, operations: int) -> None:
        self._connection, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, size, operations))
        self._process.start()
        theirs.close()
        built: Built = self._connection.recv()
        self._result = SizeResult(size, built, Collections(0.0, 0.0), [], [])

    def run_round(self, *, collector_on: bool) -> None:
        self._connection.send(collector_on)
        (self._result.on if collector_on else self._result.off).append(self._connection.recv())

    def finish(self) -> SizeResult:
        self._connection.send(None)
        collections: Collections = self._connection.recv()
        self._process.join()
        done = self._result
        return SizeResult(done.size, done.built, collections, done.on, done.off)


def _serve(connection: Connection, size: int, operations: int) -> None:
    asyncio.run(_serve_rounds(connection, size, operations))


async def _serve_rounds(connection: Connection, size: int, operations: int) -> None:
    estate = Estate(size)
    connection.send(estate.built)
    while (collector_on := connection.recv()) is not None:
        # To the landlord the wait was a stall. It has to see it, and the sockets polled after it.
        assert estate.landlord.now >= 0.0
        await asyncio.sleep(SETTLE_S)
        with collector(on=collector_on):
            connection.send(_round(estate, operations))
    connection.send(Collections(full_collection_ns(frozen=False), full_collection_ns(frozen=True)))


def _round(estate: Estate, operations: int) -> Round:
    drawn = estate.draw(operations)
    batch = min(1000, operations)
    batches = [drawn[start : start + batch] for start in range(0, len(drawn), batch)]
    row = estate.run_of(operations)
    result = {
        WRITE: estate.control_write(drawn) / len(drawn),
        RENEW: estate.renew(drawn) / len(drawn),
        RENEW_ALL: sum(map(estate.renew_all, batches)) / len(drawn),
        RENEW_IN_ORDER: estate.renew(row) / len(row),
    }
    return result | _turnover(estate, operations) | _expiry(estate, operations)


def _turnover(estate: Estate, operations: int) -> Round:
    """Grant and cancel, in portions that leave the number of live leases about what it is.

    The portions are the same at all sizes: what the collector does depends on them.
    """
    portion = min(PORTION, operations)
    portions = operations // portion
    spent = dict.fromkeys((GRANT, CANCEL, INSERT, DELETE, COLLECTOR), 0)
    meter = CollectorMeter()
    exchanged: list[tuple[list[float], list[object], list[object]]] = []
    for _ in range(portions):
        terms = long_terms(estate.rng, portion)
        spent[GRANT] += estate.grant(terms)
        granted = estate.cookies[-portion:]
        gone = estate.take_out(portion)
        spent[CANCEL] += estate.cancel(gone)
        exchanged.append((terms, granted, gone))
    meter.close()
    spent[COLLECTOR] = meter.total_ns
    for terms, granted, gone in exchanged:
        spent[INSERT] += estate.control_insert(granted, terms)
        spent[DELETE] += estate.control_delete(gone)
        estate.control_tidy()
    return {name: ns / (portions * portion) for name, ns in spent.items()}


def _expiry(estate: Estate, operations: int) -> Round:
    count = max(1, min(operations, estate.size // 2))
    cookies: list[object] = [secrets.token_hex(16) for _ in range(count)]
    return {
        EXPIRE: estate.expire(count) / count,
        POP: estate.control_pop(cookies) / count,
    }
