"""The operations of clients, with times and answers.

    history = History()
    with history.call("client 1", b"key", Put(b"value")) as call:
        answer = calls.put(b"key", b"value")
        call.returned(Written(answer.header.revision))

An operation is there from its invocation on. One that never gets an answer may take effect at any
later time, or never; a crash of the server alone ends nothing.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic

from tests.support.linearizability.actions import Action, R


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of one client."""

    client: Hashable
    key: bytes | None
    """None: it concerns no key, and only its revision counts."""
    action: Action[Any]
    invoked: float
    returned: float | None = None
    """None: no answer came."""
    result: Any = None
    transaction: Hashable | None = None
    """Equal for operations that are parts of one transaction, and so share a revision."""

    def __post_init__(self) -> None:
        if self.returned is not None and self.returned < self.invoked:
            raise ValueError(f"returned at {self.returned}, before it was invoked, {self.invoked}")
        if (self.returned is None) != (self.result is None):
            raise ValueError(f"returned is {self.returned}, but the result is {self.result}")

    def __str__(self) -> str:
        end = "?" if self.returned is None else f"{self.returned:.6f}"
        result = "no answer" if self.result is None else self.result
        return f"[{self.invoked:.6f}, {end}] {self.client}: {self.action} -> {result}"


class Call(Generic[R]):
    """An operation under way. One of its methods is called, once, or an exception ends it."""

    def __init__(self, operation: Operation, clock: Callable[[], float]) -> None:
        self._operation = operation
        self._clock = clock
        # Set once, whole, by the thread that calls: a snapshot sees all of it or nothing.
        self._answer: tuple[float, R] | None = None
        self.is_settled = False
        self.had_no_effect = False

    def returned(self, result: R) -> None:
        """Note the answer, which came just now. A refusal that tells the state is an answer."""
        returned = self._clock()
        self._settle()
        self._answer = (returned, result)

    def failed(self) -> None:
        """Leave it out: it is certain that it had no effect, and never will."""
        self._settle()
        self.had_no_effect = True

    def lost(self) -> None:
        """Say that no answer came, where no exception says it."""
        self._settle()

    def _settle(self) -> None:
        if self.is_settled:
            raise RuntimeError(f"this call has ended before: {self._operation}")
        self.is_settled = True

    def operation(self) -> Operation:
        """What is known of it now."""
        asked, answer = self._operation, self._answer
        if answer is None:
            return asked
        return Operation(
            asked.client, asked.key, asked.action, asked.invoked, *answer, asked.transaction
        )


class History:
    """All operations of some clients, on one clock. Any thread may call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: list[Call[Any]] = []
        self._lock = threading.Lock()

    @contextmanager
    def call(
        self,
        client: Hashable,
        key: bytes | None,
        action: Action[R],
        *,
        transaction: Hashable | None = None,
    ) -> Iterator[Call[R]]:
        """Record the call that the block makes.

        An exception that leaves the block before the call was settled means that no answer came.
        A block that ends otherwise, and has not said how the call ended, raises RuntimeError.
        """
        asked = Operation(client, key, action, self._clock(), transaction=transaction)
        call: Call[R] = Call(asked, self._clock)
        with self._lock:
            self._calls.append(call)
        yield call
        if not call.is_settled:
            raise RuntimeError(f"say returned, failed or lost of {call.operation()}")

    def operations(self) -> list[Operation]:
        """A snapshot. What is still under way has no answer in it."""
        with self._lock:
            calls = list(self._calls)
        return [call.operation() for call in calls if not call.had_no_effect]

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations())
