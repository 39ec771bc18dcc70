"""Naming what runs, and closing what must not run any more."""

import asyncio
import contextlib
import ctypes
import inspect
from collections.abc import Coroutine
from typing import Any

MAX_CLOSE_ATTEMPTS = 100  # of one coroutine that awaits again while it is being closed


def name_of(thing: object) -> str:
    """Name without an address; never a task's own name, whose number is process-wide."""
    if isinstance(thing, asyncio.Task):
        thing = thing.get_coro()
    return getattr(thing, "__qualname__", type(thing).__qualname__)


def name_of_handle(handle: asyncio.Handle) -> str:
    """Name a callback, by its coroutine if it is a step of a task."""
    callback: Any = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001
    owner = getattr(callback, "__self__", None)
    return f"task {name_of(owner)}" if isinstance(owner, asyncio.Task) else name_of(callback)


def forget_callback(handle: asyncio.Handle) -> None:
    """Empty a handle that has run.

    The traceback of an exception holds the frames below it, thus the handle and, by its callback,
    the failed task itself. Without that cycle a task that nobody keeps is freed, and reported, at
    once instead of when the garbage collector comes by.
    """
    handle._callback = None  # type: ignore[attr-defined]  # noqa: SLF001
    handle._args = ()  # noqa: SLF001


def close_quietly(coro: object) -> None:
    """Close a coroutine that may await or raise while it is being closed."""
    assert isinstance(coro, Coroutine)
    for _ in range(MAX_CLOSE_ATTEMPTS):
        with contextlib.suppress(BaseException):
            coro.close()
        if not inspect.iscoroutine(coro) or inspect.getcoroutinestate(coro) == "CORO_CLOSED":
            return
    # It swallows every exception. Freeing it would throw one more into it, and without a loop it
    # may then run for ever, at the latest when the interpreter exits: so it is never freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))
