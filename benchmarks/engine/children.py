"""Every measurement in a process of its own, which has only so much time."""

import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from benchmarks.lease_core.children import SPAWN

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
        """Ask for something."""
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
        pass  # nobody asks any more
    except Exception:  # noqa: BLE001  whatever it is, it is told
        with suppress(OSError):
            connection.send(_Failure(traceback.format_exc()))
