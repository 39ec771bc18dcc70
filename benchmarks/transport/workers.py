"""Processes that stay through a run and do one thing after the other."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import ParamSpec, TypeVar

from benchmarks.common.children import Child, MeasurementFailed

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """A process that calls functions of modules; after a failure it is another process."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def call(
        self, limit_s: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function there. Raises `MeasurementFailed`, also if it takes too long."""
        if self._child is None:
            self._child = Child(_work)
        self._child.send((function, args, kwargs))
        try:
            answer: T = self._child.receive(limit_s)
        except MeasurementFailed:
            self.end()
            raise
        return answer

    def end(self) -> None:
        """Let the process end."""
        if self._child is not None:
            self._child.end()
            self._child = None


def _work(connection: Connection) -> None:
    while True:
        function, args, kwargs = connection.recv()
        connection.send(function(*args, **kwargs))
