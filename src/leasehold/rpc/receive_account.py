"""Counts the received data that a server holds: incomplete messages and large request heads.

A connection may hold `Limits.max_buffered_bytes`, and all together `SHARES` times as much; more is
refused. Small messages are counted, but never refused: whatever a few clients do with large ones,
the renewals of the others go on. Their number is limited instead. When too many small messages are
incomplete, the one that has been incomplete for longest is given up: clients that mean to complete
a message do so within moments.
"""

from typing import Final, Protocol

from leasehold.rpc.limits import Limits

SHARES: Final = 8
"""No connection may take more than one of so many equal shares, of the octets as of the number of
incomplete small messages, which is at most that of its streams."""

SMALL_BYTES: Final = 4096
"""A message that has this much or less so far is never refused. A renewal has 11 bytes."""

TOO_MANY: Final = "too many messages are incomplete, and this one was incomplete for longest"


class Incomplete(Protocol):
    """A call or a request whose message has arrived in part."""

    def give_up(self) -> None:
        """End the call: its message has been incomplete for longest, and there are too many."""
        ...


class ReceiveAccount:
    """What connections with these limits hold together: octets, and incomplete small messages."""

    __slots__ = ("_max_bytes", "_max_small", "_small", "used_bytes")

    def __init__(self, limits: Limits) -> None:
        self._max_bytes = SHARES * limits.max_buffered_bytes
        self._max_small = SHARES * limits.max_streams
        self._small: dict[Incomplete, None] = {}
        """In the order in which their messages began."""
        self.used_bytes = 0

    @property
    def is_overdrawn(self) -> bool:
        """Whether more is held than allowed."""
        return self.used_bytes > self._max_bytes

    @property
    def small_messages(self) -> int:
        """How many small messages are incomplete."""
        return len(self._small)

    def track(self, call: Incomplete, held_bytes: int, *, is_new: bool) -> None:
        """Note how much a call holds of an incomplete message, and whether that has just begun."""
        small = self._small
        if is_new or held_bytes > SMALL_BYTES:
            small.pop(call, None)
        if is_new and 0 < held_bytes <= SMALL_BYTES:
            small[call] = None
            if len(small) > self._max_small:
                first = next(iter(small))
                del small[first]
                first.give_up()

    def forget(self, call: Incomplete) -> None:
        """Note that a call holds nothing of a message any more."""
        self._small.pop(call, None)
