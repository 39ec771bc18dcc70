"""What the parts of a simulation need of it: the narrow side that hosts and networks see."""

from collections.abc import Callable
from random import Random
from typing import Protocol


class World(Protocol):
    """True time, chance, things to come, and the trace."""

    @property
    def now(self) -> float:
        """True time in seconds."""
        ...

    @property
    def random(self) -> Random:
        """The one source of chance."""
        ...

    def after(self, delay: float, callback: Callable[[], object]) -> None:
        """Run `callback` in `delay` seconds, unless the simulation is closing by then."""
        ...

    def carry(self, delay: float, callback: Callable[[], object]) -> None:
        """Run `callback` in `delay` seconds, even while the simulation is closing."""
        ...

    def record(self, what: str, host: str | None = None) -> None:
        """Write a line into the trace."""
        ...
