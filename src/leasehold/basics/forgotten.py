"""Objects that were garbage-collected while they were open, such as guards, leases and watches.

All of them are reported, by a warning in the log and a `ResourceWarning`. The action then depends
on what may still be in use:

- A *guard* is released one session TTL later: the work that it was acquired for may still run.
- A *lease* is renewed until its client is closed: a program may use its id, or rely on its keys.
- A *watch* is cancelled: its events cannot be read any more. One that was iterated is not reported,
  because leaving a loop by `break` is how an iteration ends.
- A *writer* of a file gives the file up: nothing can be written to it any more.
- A *client* stays open: its `kv`, and its handles of locks and leases, work without it.

A finalizer may run in any thread, in the middle of anything, while the interpreter exits, after the
loop was closed, and in a forked child. All objects of a cycle are finalized, even if one of them
revives the others. So finalizers only post to the event loop, and not in a child. The function that
is posted looks at the state on the loop, and may run after the object has been closed or revived.
"""

import asyncio
import logging
import warnings
from collections.abc import Callable
from typing import Protocol

from leasehold.basics.event_loop import post

logger = logging.getLogger(__name__)


def warn_forgotten(text: str, then: str) -> None:
    """Report a forgotten object, and in the log what happens `then`; on the loop."""
    logger.warning("%s; %s", text, then)
    warnings.warn(text, ResourceWarning, stacklevel=1)


class _Opened(Protocol):
    """An engine."""

    @property
    def is_open(self) -> bool: ...


def report_forgotten_client(engine: _Opened, who: str, then: str) -> None:
    """Report a client that was garbage-collected; it is not closed."""
    if engine.is_open:
        warn_forgotten(f"client {who!r} was garbage-collected without being closed", then)


def post_forgotten(
    loop: asyncio.AbstractEventLoop | None,
    name: str,
    wait_s: float,
    is_held: Callable[[], bool],
    release: Callable[[], object],
) -> None:
    """Report a forgotten guard, and release it after `wait_s`; called from a finalizer.

    `is_held` and `release` run on the loop, and must not refer to the guard.
    """
    post(loop, _report, loop, name, wait_s, is_held, release)


def _report(
    loop: asyncio.AbstractEventLoop,
    name: str,
    wait_s: float,
    is_held: Callable[[], bool],
    release: Callable[[], object],
) -> None:
    if not is_held():
        return
    loop.call_later(wait_s, release)
    text = f"a guard of {name!r} was garbage-collected without being released"
    warn_forgotten(text, f"it is released in {wait_s:g} s")
