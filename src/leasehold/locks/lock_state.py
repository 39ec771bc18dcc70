"""The states of a lock in one client, and the table of transitions between them.

A client is one contender in the queue of a lock, whichever of its tasks and threads want the lock.

- `FREE`: the client has no key in the queue.
- `CONTENDING`: its key is in the queue, or may be, or is about to be put there.
- `OWNED`: its key is the oldest. The lock is in use by a guard, or idle in the cache.
- `YIELDING`: the lock was taken out of the cache for good, and the key is being deleted.

*Idle* and *in use* are one state here. A cached lock is acquired and released in the caller's
thread, in a few microseconds, and a signal handler may raise an exception between any two
instructions of it. So the right to the lock moves from list to list in one call of C code
(`ownership.py`), and the place of the right is the state: a second variable could contradict it.
Before the event loop lets go of an owned lock it takes the right in the same way. That is what
makes `OWNED` to `YIELDING` one step, after which nothing is served from the cache.
"""

from enum import Enum
from typing import Final


class State(Enum):
    """The state of a lock in a client."""

    FREE = "free"
    CONTENDING = "contending"
    OWNED = "owned"
    YIELDING = "yielding"


class LockChange(Enum):
    """An event that changes the state."""

    ENTERED = "the client enters the queue: its key may exist from now on"
    LEFT = "its key is not in the queue: it was deleted, never put, or its session is over"
    GRANTED = "no key is ahead of its own"
    GIVEN_UP = "it gives the lock up, for another client or because the lock was idle for long"
    DELETED = "its key is deleted, as intended"
    ENDED = "it lost the lock, or its session or the client has ended"


TRANSITIONS: Final = {
    (State.FREE, LockChange.ENTERED): State.CONTENDING,
    (State.CONTENDING, LockChange.LEFT): State.FREE,
    (State.CONTENDING, LockChange.GRANTED): State.OWNED,
    (State.OWNED, LockChange.GIVEN_UP): State.YIELDING,
    (State.OWNED, LockChange.ENDED): State.FREE,
    (State.YIELDING, LockChange.DELETED): State.FREE,
    (State.YIELDING, LockChange.ENDED): State.FREE,
}
"""All transitions. Any other is an error in this program, which could make two holders."""


def next_state(state: State, change: LockChange) -> State:
    """Return the state after a change; an illegal one is an `AssertionError`."""
    following = TRANSITIONS.get((state, change))
    if following is None:
        raise AssertionError(f"a lock that is {state.value} cannot change: {change.value}")
    return following
