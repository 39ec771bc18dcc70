"""The garbage collector: switched on and off between measurements, and timed while it is on."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time_ns as cpu_ns
from typing import Any


class CollectorMeter:
    """Adds up the processor time that the collector takes, from when the meter was made."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.longest_ns = 0
        self._started_ns = 0
        gc.callbacks.append(self._on_phase)

    def reset(self) -> None:
        """Begin again at zero."""
        self.total_ns = self.longest_ns = 0

    def close(self) -> None:
        """Stop listening."""
        gc.callbacks.remove(self._on_phase)

    def _on_phase(self, phase: str, _info: dict[str, Any]) -> None:
        if phase == "start":
            self._started_ns = cpu_ns()
            return
        took_ns = cpu_ns() - self._started_ns
        self.total_ns += took_ns
        self.longest_ns = max(self.longest_ns, took_ns)


@contextmanager
def collector(*, on: bool) -> Iterator[None]:
    """Run with the collector as Python starts it, or frozen and off. Both are cheap.

    Off is what a server does about it: `gc.freeze` after start-up, and thresholds that are rarely
    reached.
    """
    if on:
        gc.collect(1)  # what was made while it was off is not for this run to pay
    else:
        gc.freeze()
        gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def full_collection_ns(*, frozen: bool) -> int:
    """Time one full collection over all that lives now."""
    gc.collect()
    with collector(on=not frozen):
        start_ns = cpu_ns()
        gc.collect()
        return cpu_ns() - start_ns
