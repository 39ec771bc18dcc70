"""The hooks that run in forked children."""

import gc
import logging
import os
import warnings
from collections.abc import Callable

import pytest

from leasehold.basics.fork_hooks import call_in_child, stop_calling_in_child


class Owner:
    def __init__(self, calls: list[str], name: str) -> None:
        self._calls = calls
        self._name = name

    def abandon(self) -> None:
        self._calls.append(self._name)

    def fail(self) -> None:
        self._calls.append(f"{self._name} fails")
        raise ValueError("bad copy")


def in_child(report: Callable[[], str]) -> str:
    """Return what a function returns in a forked child."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the test run
        pid = os.fork()
    if pid == 0:
        os.write(writer, report().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def test_hooks_run_in_the_child_in_the_order_of_registration() -> None:
    calls: list[str] = []
    owners = [Owner(calls, name) for name in "abc"]
    for owner in owners:
        call_in_child(owner, Owner.abandon)
    assert in_child(lambda: ",".join(calls)) == "a,b,c"
    assert calls == []  # the parent is not affected


def test_an_object_is_held_weakly() -> None:
    calls: list[str] = []
    owner, gone = Owner(calls, "kept"), Owner(calls, "gone")
    call_in_child(gone, Owner.abandon)
    call_in_child(owner, Owner.abandon)
    del gone
    gc.collect()
    assert in_child(lambda: ",".join(calls)) == "kept"


def test_a_removed_hook_is_not_called() -> None:
    calls: list[str] = []
    owner, removed = Owner(calls, "kept"), Owner(calls, "removed")
    call_in_child(removed, Owner.abandon)
    call_in_child(owner, Owner.abandon)
    stop_calling_in_child(removed)
    stop_calling_in_child(removed)  # removing it twice does no harm
    assert in_child(lambda: ",".join(calls)) == "kept"


def test_a_hook_that_raises_is_logged_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []
    failing, owner = Owner(calls, "a"), Owner(calls, "b")
    call_in_child(failing, Owner.fail)
    call_in_child(owner, Owner.abandon)
    with caplog.at_level(logging.ERROR):
        report = in_child(lambda: ",".join([*calls, *(r.exc_text or "" for r in caplog.records)]))
    assert report.startswith("a fails,b,")
    assert report.endswith("ValueError: bad copy")
