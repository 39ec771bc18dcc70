"""The cost of work in processor time, for any speed of the machine, with or without a tracer."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import Final

STEPS: Final = 1_000_000
TIMES: Final = 3
COVERAGE: Final = "COVERAGE_PROCESS_CONFIG"


def cost(work: Callable[[], object], times: int = TIMES) -> float:
    """Return the processor time of `work`, the least of some, in the unit of `relative`."""
    with untraced():
        return relative(min(_time_s(work) for _ in range(times)))


def relative(used_s: float) -> float:
    """Return a processor time as a multiple of that of a loop of `STEPS` steps, about 10 ms."""
    with untraced():
        return used_s / min(_time_s(_loop) for _ in range(TIMES))


@contextmanager
def untraced() -> Iterator[None]:
    """Suspend the tracer of coverage here, and in threads and processes that begin meanwhile."""
    of_thread, of_threads = sys.gettrace(), threading.gettrace()
    of_processes = os.environ.pop(COVERAGE, None)
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(of_threads)
        sys.settrace(of_thread)
        if of_processes is not None:
            os.environ[COVERAGE] = of_processes


def _time_s(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began


def _loop() -> None:
    for _ in range(STEPS):
        pass
