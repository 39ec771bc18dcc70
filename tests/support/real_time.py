"""A pytest plugin that lists the tests that depend on real time or on other processes.

    pytest -p tests.support.real_time --list-real-time FILE tests/integration

writes one line `path::test` for each test that started a process or a thread, slept, read a clock,
used a timer of a real event loop or opened a socket. pytest reads the file back: `pytest @FILE`.
Only the test process itself is observed. `tools/starved_tests.py` runs such a list under load.
"""

import asyncio
import functools
import multiprocessing.process
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

AUDITED: Final = {
    "subprocess.Popen": "process",
    "os.fork": "process",
    "os.forkpty": "process",
    "os.posix_spawn": "process",
    "socket.connect": "socket",
    "socket.bind": "socket",
}
"""Audit events of the interpreter, and the kind of dependence they show."""

WRAPPED: Final = (
    (time, "sleep", "sleep"),
    (time, "monotonic", "clock"),
    (time, "time", "clock"),
    (time, "perf_counter", "clock"),
    (time, "clock_gettime", "clock"),
    (threading.Thread, "start", "thread"),
    (multiprocessing.process.BaseProcess, "start", "process"),
    (asyncio.BaseEventLoop, "call_at", "timer"),
)
"""Functions that show it, too. Simulated event loops have a `call_at` of their own."""

OURS: Final = tuple(str(Path(__file__).parents[2] / folder) for folder in ("src", "tests"))
"""A call counts if this code makes it; asyncio and pytest read the clock in every test."""


class RealTime:
    """The kinds of dependence that were seen, by test."""

    def __init__(self) -> None:
        self.kinds: dict[str, set[str]] = {}
        self._test = ""
        sys.addaudithook(lambda event, _: self._record(AUDITED.get(event)))
        for owner, name, kind in WRAPPED:
            setattr(owner, name, self._recording(getattr(owner, name), kind))

    def _record(self, kind: str | None) -> None:
        if self._test and kind is not None:
            self.kinds.setdefault(self._test, set()).add(kind)

    def _recording(self, function: Any, kind: str) -> Any:
        @functools.wraps(function)  # pickled by its name, for child processes
        def recording(*args: Any, **kwargs: Any) -> Any:
            is_ours = sys._getframe(1).f_code.co_filename.startswith(OURS)
            self._record(kind if is_ours or kind in {"timer", "process"} else None)
            return function(*args, **kwargs)

        return recording

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Attribute everything from setup to teardown to the test."""
        self._test = item.nodeid.partition("[")[0]
        try:
            return (yield)
        finally:
            self._test = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--list-real-time", type=Path, metavar="FILE", help=__doc__.split("\n")[0])


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record; workers of pytest-xdist send their records to the main process."""
    if config.getoption("--list-real-time"):
        config.pluginmanager.register(RealTime(), "real-time")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Merge the record of a worker of pytest-xdist, unless the worker crashed."""
    seen = node.config.pluginmanager.get_plugin("real-time")
    if seen is not None:
        for test, kinds in getattr(node, "workeroutput", {}).get("real_time", {}).items():
            seen.kinds.setdefault(test, set()).update(kinds)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list."""
    seen = session.config.pluginmanager.get_plugin("real-time")
    if seen is None:
        return
    if hasattr(session.config, "workeroutput"):
        kinds = {test: sorted(kinds) for test, kinds in seen.kinds.items()}
        session.config.workeroutput["real_time"] = kinds
        return
    lines = sorted(seen.kinds)
    session.config.getoption("--list-real-time").write_text("".join(f"{x}\n" for x in lines))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how many tests depend on what."""
    seen = config.pluginmanager.get_plugin("real-time")
    if seen is not None:
        for kind in sorted(set().union(*seen.kinds.values())):
            tests = sum(kind in kinds for kinds in seen.kinds.values())
            terminalreporter.write_line(f"real time: {kind}: {tests} tests")
