"""Every measurement in a process of its own: no heap, cache or collector shared with another."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.common.children import SPAWN

P = ParamSpec("P")
T = TypeVar("T")


def in_child(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function of a module in a fresh process and return its result."""
    with ProcessPoolExecutor(max_workers=1, mp_context=SPAWN) as pool:
        return pool.submit(function, *args, **kwargs).result()


def resident_bytes() -> int | None:
    """The resident memory of this process, where the system reports it."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return None
    import resource  # noqa: PLC0415  not on every system

    return int(statm.read_text().split()[1]) * resource.getpagesize()
