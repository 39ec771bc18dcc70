"""Finds the send that an answer belongs to, where answers carry no request id.

A keep-alive stream answers with the lease's id and its new term, without a reference to the
request. Crediting an answer to a later send than its own would make a holder trust too long. So: at
most one renewal of a lease is outstanding on a connection, an answer belongs to the oldest
unanswered send of its lease there, and a new connection starts with none.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")


class SendLedger(Generic[K, S]):
    """The unanswered sends of one connection, at most one for each key."""

    __slots__ = ("_outstanding",)

    def __init__(self) -> None:
        self._outstanding: dict[K, S] = {}

    def __len__(self) -> int:
        return len(self._outstanding)

    def __contains__(self, key: K) -> bool:
        return key in self._outstanding

    def sent(self, key: K, send: S) -> bool:
        """Record a send; if one is outstanding, return False: then it must not be sent."""
        if key in self._outstanding:
            return False
        self._outstanding[key] = send
        return True

    def outstanding(self, key: K) -> S | None:
        """Return the send that has no answer yet, if there is one."""
        return self._outstanding.get(key)

    def answered(self, key: K) -> S | None:
        """Return the send that an answer belongs to; None if there is none on this connection."""
        return self._outstanding.pop(key, None)

    def broken(self) -> list[tuple[K, S]]:
        """Return and remove all unanswered sends: the connection is lost."""
        unanswered = list(self._outstanding.items())
        self._outstanding.clear()
        return unanswered
