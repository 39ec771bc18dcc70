"""Every measurement in a process of its own, which has only so much time."""

import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

SPAWN: Final = multiprocessing.get_context("spawn")

P = ParamSpec("P")
T = TypeVar("T")

END_S: Final = 20.0
"""How long a process may take to end after its last answer."""


class MeasurementFailed(Exception):
    """A measuring process has failed, or did not end in time."""


class _Failure:
    """What a child sends instead of an answer."""

    def __init__(self, told: str) -> None:
        self.told = told


class Child:
    """A fresh process that runs `session`, which is given the other end of a connection."""

    def __init__(
        self,
        session: Callable[Concatenate[Connection, P], None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        self._connection, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(
            target=_run, args=(theirs, session, args, kwargs), daemon=True
        )
        self._process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        """Send an order."""
        self._connection.send(message)

    def receive(self, limit_s: float) -> Any:
        """Wait for the next answer, and end the process if there is none in time."""
        try:
            if not self._connection.poll(limit_s):
                self._process.kill()
                raise MeasurementFailed(f"not done within {limit_s:.0f} s")
            answer = self._connection.recv()
        except EOFError:
            self._process.join(END_S)
            how = f"the process ended with {self._process.exitcode}"
            raise MeasurementFailed(how) from None
        if isinstance(answer, _Failure):
            raise MeasurementFailed(answer.told)
        return answer

    def end(self) -> None:
        """Let the process end, or else end it."""
        self._connection.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def in_child(limit_s: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function of a module in a fresh process and return its result."""
    child = Child(_answer, function, args, kwargs)
    try:
        answer: T = child.receive(limit_s)
    finally:
        child.end()
    return answer


class Later(Generic[T]):
    """A function of a module that runs in a fresh process, while this one does something else."""

    def __init__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        self._child = Child(_answer, function, args, kwargs)

    def result(self, limit_s: float) -> T:
        """Wait for its result, and end the process."""
        try:
            answer: T = self._child.receive(limit_s)
        finally:
            self._child.end()
        return answer


def each_from_child(
    limit_s: float, function: Callable[P, Iterable[T]], *args: P.args, **kwargs: P.kwargs
) -> Iterator[T]:
    """Run a function in a fresh process and return, one by one, what it yields.

    What came before a failure counts. All of it together has `limit_s`.
    """
    deadline = monotonic() + limit_s
    child = Child(_answer_each, function, args, kwargs)
    try:
        while True:
            answer = child.receive(max(0.0, deadline - monotonic()))
            if isinstance(answer, _Done):
                return
            yield answer
    finally:
        child.end()


class _Done:
    """What a child sends after the last of its answers."""


def _answer_each(
    connection: Connection,
    function: Callable[..., Iterable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    for answer in function(*args, **kwargs):
        connection.send(answer)
    connection.send(_Done())


def _answer(
    connection: Connection,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    connection.send(function(*args, **kwargs))


def _run(
    connection: Connection,
    session: Callable[..., None],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    try:
        session(connection, *args, **kwargs)
    except EOFError:
        pass  # the parent has closed the connection
    except Exception:  # noqa: BLE001  every failure is reported
        with suppress(OSError):
            connection.send(_Failure(traceback.format_exc()))
