"""Callbacks: the default for one that is not set, and checks on those that users pass."""

import inspect
from collections.abc import Callable


def ignore(*_: object) -> None:
    """Do nothing, whatever the arguments."""


def check_callable(callback: Callable[..., object] | None, name: str) -> None:
    """Raise unless `callback` is None or callable."""
    if callback is not None and not callable(callback):
        raise TypeError(f"{name} must be callable, not {callback!r}")


def check_plain_callback(callback: Callable[..., object] | None, name: str) -> None:
    """Like `check_callable`, and refuse coroutine functions, which would not be awaited."""
    check_callable(callback, name)
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004  an object with an async __call__
    ):
        raise TypeError(f"{name} must be a plain function, not the coroutine function {callback!r}")
