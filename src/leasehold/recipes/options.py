"""How a lock is to be held: what `client.lock` takes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from leasehold.client.patience import Timeout
from leasehold.core.duration import check_seconds

if TYPE_CHECKING:
    from leasehold.recipes.guard import Guard

RECALL_S: Final = 1.0
"""How long who only asks waits for a holder's answer, unless told otherwise."""

OnLoss: TypeAlias = Callable[["Guard", BaseException | None], object]
"""Told of a guard that was lost, and of what its session's last renewal met with."""


def check_wait(timeout: Timeout) -> float | None:
    """Check how long somebody waits: None for as long as it takes, 0 to ask only."""
    if timeout is None:
        return None
    if not isinstance(timeout, bool) and timeout in (0, timedelta()):
        return 0.0
    return check_seconds(timeout, "timeout")


@dataclass(frozen=True, slots=True)
class LockOptions:
    """What one acquisition asks for."""

    cache: bool
    """Keep it when it is released, until somebody wants it or it was idle for long."""
    recall: bool
    """Give it up for others as soon as it is idle."""
    idle_s: float
    recall_s: float
    on_loss: OnLoss | None = None
    cancel_on_loss: bool = False
