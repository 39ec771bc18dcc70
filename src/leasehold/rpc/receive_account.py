"""Counts the received data that a server holds: incomplete messages and large heads of unary calls.

A connection may hold `Limits.max_buffered_bytes`, and all together `SHARES` times as much. Small
messages are counted, but never refused: whatever a few clients do with large ones, the renewals of
the others go on.
"""

from typing import Final

SHARES: Final = 8
"""No connection may take more than one of so many equal shares."""

SMALL_BYTES: Final = 4096
"""A message that has this much or less so far is never refused. A renewal has 11 bytes."""


class ReceiveAccount:
    """The octets that all connections of a server hold."""

    __slots__ = ("_max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used_bytes = 0

    @property
    def is_overdrawn(self) -> bool:
        """Whether more is held than allowed."""
        return self.used_bytes > self._max_bytes
