"""The profile of each operation, by the standard profiler."""

import asyncio
import cProfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from types import CodeType

from benchmarks.lease_core import operations
from benchmarks.lease_core.estate import SHORT_TERM_S, Estate, long_terms
from leasehold.leases.expiry_strategies import SLICE

TOP = 6


@dataclass(frozen=True, slots=True)
class Profiled:
    """The functions that an operation spends most in, with their own share of it."""

    operation: str
    parts: list[tuple[str, float]]


def measure_profile(size: int, operations_each: int) -> list[Profiled]:
    """Profile each operation at `size` live leases."""
    return asyncio.run(_measure(size, operations_each))


async def _measure(size: int, count: int) -> list[Profiled]:
    estate = Estate(size, with_control=False)
    terms, drawn = long_terms(estate.rng, count), estate.draw(count)
    result = [
        _profile(operations.GRANT, lambda: estate.grant(terms)),
        _profile(operations.RENEW, lambda: estate.renew(drawn)),
        _profile(operations.RENEW_ALL, lambda: estate.renew_all(drawn)),
    ]
    gone = estate.take_out(count)
    result.append(_profile(operations.CANCEL, lambda: estate.cancel(gone)))
    for _ in range(count):
        estate.landlord.grant(None, SHORT_TERM_S)
    estate.wait_until_due()
    result.append(_profile(operations.EXPIRE, lambda: _reap(estate)))
    return result


def _reap(estate: Estate) -> None:
    while estate.landlord.reap(SLICE):
        pass


def _profile(operation: str, run: Callable[[], object]) -> Profiled:
    profiler = cProfile.Profile(thread_time)
    profiler.runcall(run)
    shares = [(_name(entry.code), entry.inlinetime) for entry in profiler.getstats()]
    total = sum(own for _, own in shares)
    largest = sorted(shares, key=lambda pair: -pair[1])[:TOP]
    return Profiled(operation, [(name, own / total) for name, own in largest])


def _name(code: CodeType | str) -> str:
    if isinstance(code, str):
        return code.strip("<>").removeprefix("built-in method ").removeprefix("method ")
    if "." in code.co_qualname:  # it names its class
        return code.co_qualname.replace("<locals>.", "")
    return f"{Path(code.co_filename).stem}.{code.co_qualname}"
