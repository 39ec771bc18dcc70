"""Checks on what users hand in to be called."""

import inspect
from collections.abc import Callable


def check_callable(callback: Callable[..., object] | None, name: str) -> None:
    """Refuse what is neither None nor callable."""
    if callback is not None and not callable(callback):
        raise TypeError(f"{name} must be callable, not {callback!r}")


def check_plain_callback(callback: Callable[..., object] | None, name: str) -> None:
    """Refuse, too, what would have to be awaited: nobody would."""
    check_callable(callback, name)
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004  an object with an async __call__
    ):
        raise TypeError(f"{name} must be a plain function; {callback!r} is a coroutine's")
