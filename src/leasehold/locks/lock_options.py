"""The options of a lock, as given to `client.lock`, and of acquisitions in general."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import check_seconds
from leasehold.engine.time_limits import Timeout

RECALL_S: Final = 1.0
"""With `timeout=0`: how long to wait for the holder's answer, by default."""

OnLoss: TypeAlias = Callable[[Any, BaseException | None], object]
"""Called with a guard that was lost, and the cause: the error of its session's last renewal."""


def check_wait(timeout: Timeout) -> float | None:
    """Check a timeout: None for no limit, 0 to not wait for others."""
    if timeout is None:
        return None
    if not isinstance(timeout, bool) and timeout in (0, timedelta()):
        return 0.0
    return check_seconds(timeout, "timeout")


@dataclass(frozen=True, slots=True)
class LockOptions:
    """The options of one acquisition of a lock."""

    cache: bool
    """Keep the lock when it is released, until another client wants it or it was idle for long."""
    recall: bool
    """Give it up for others as soon as it is idle."""
    idle_s: float
    recall_s: float
    on_loss: OnLoss | None = None
    cancel_on_loss: bool = False
    count: bool = False
    """Keep the number of acquisitions when the lock is free."""


def options_of(
    defaults: LockOptions,
    *,
    cache: bool,
    recall: bool,
    idle_timeout: float | timedelta | None,
    recall_timeout: float | timedelta,
    on_loss: OnLoss | None,
    cancel_on_loss: bool,
    count: bool,
) -> LockOptions:
    """Check and return the options of a lock."""
    given = (cache, recall, idle_timeout, recall_timeout, on_loss, cancel_on_loss, count)
    if given == (True, True, None, RECALL_S, None, False, False):
        return defaults  # as almost always; this is called often
    check_plain_callback(on_loss, "on_loss")
    idle_s = defaults.idle_s
    if idle_timeout is not None:
        idle_s = check_seconds(idle_timeout, "idle_timeout")
    recall_s = check_seconds(recall_timeout, "recall_timeout")
    return LockOptions(cache, recall, idle_s, recall_s, on_loss, cancel_on_loss, count)
