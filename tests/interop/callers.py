"""Clients behind one face, so that the same tests can be made with each of them.

What a call has come to is an `Outcome`, which is the same whoever has made the call.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from leasehold.errors import Status
from tests.interop.demo import DEADLINE_S, Kind, Pairs


@dataclass(frozen=True)
class Outcome:
    """What has come of a call."""

    status: Status
    message: str = ""
    answers: tuple[bytes, ...] = ()
    head: Pairs = ()
    trailers: Pairs = ()

    @property
    def answer(self) -> bytes:
        """The only answer of a call that went well."""
        assert self.status == Status.OK, self
        [message] = self.answers
        return message


@dataclass(frozen=True)
class Request:
    """A call to be made. If it asks many, more can be said later."""

    kind: Kind
    path: str
    messages: tuple[bytes, ...]
    timeout_s: float | None = DEADLINE_S
    metadata: Pairs = ()
    waits: bool = False
    is_packed: bool = False


class Call(ABC):
    """A call under way."""

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Say something."""

    @abstractmethod
    def end(self) -> None:
        """Say that nothing more will be said."""

    @abstractmethod
    def head(self) -> Pairs:
        """What the server says before its first message, which need not be there yet."""

    @abstractmethod
    def receive(self) -> bytes | None:
        """Give the next answer; None if there is no other, for whatever reason."""

    @abstractmethod
    def cancel(self) -> None:
        """Take the call back."""

    @abstractmethod
    def outcome(self) -> Outcome:
        """Read what is left, and tell what has come of it."""


class Caller(ABC):
    """A client of one server, with one connection."""

    @abstractmethod
    def begin(self, request: Request) -> Call:
        """Begin a call."""

    @abstractmethod
    def close(self) -> None:
        """End."""

    def open(self, kind: Kind, path: str, *messages: bytes, **conditions: Any) -> Call:
        """Begin a call, and say this much already."""
        return self.begin(Request(kind, path, messages, **conditions))

    def call(self, kind: Kind, path: str, *messages: bytes, **conditions: Any) -> Outcome:
        """Make a call in which no more than this is said."""
        call = self.open(kind, path, *messages, **conditions)
        call.end()
        return call.outcome()

    def ask(self, path: str, message: bytes, **conditions: Any) -> Outcome:
        """Make a unary call."""
        return self.call(Kind.ONE_TO_ONE, path, message, **conditions)
