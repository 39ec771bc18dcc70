"""The one fork hook of Leasehold: it disables objects that a forked child must not use.

A child has copies of the parent's sockets, leases and records of threads. Each object that owns any
of these registers a method that disables the copy and does not touch what the parent still uses.
The registry holds the objects weakly.

The methods are called in the child, in the order of registration, before `os.fork` returns. An
exception in one is logged and does not stop the others.
"""

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

logger = logging.getLogger(__name__)

T = TypeVar("T")

_hooks: dict[ref[Any], Callable[[Any], None]] = {}


def call_in_child(owner: T, hook: Callable[[T], None]) -> None:
    """Call `hook(owner)` in each forked child, as long as the owner exists."""
    _hooks[ref(owner, _hooks.pop)] = hook


def stop_calling_in_child(owner: object) -> None:
    """Remove the hook of an owner, if it has one."""
    _hooks.pop(ref(owner), None)


def _forked() -> None:
    for reference, hook in list(_hooks.items()):
        owner = reference()
        if owner is not None:
            try:
                hook(owner)
            except Exception:
                logger.exception("%r failed in a forked child", hook)


os.register_at_fork(after_in_child=_forked)
