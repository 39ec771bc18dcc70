"""Logs: what a line has, and that nobody ever waits or fails because of them."""

import io
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from leasehold.cli import logs
from leasehold.cli.logs import BackgroundHandler, ConsoleFormatter, JsonFormatter, set_up_logs
from leasehold.cli.serve import ServerOutput

WITHIN_S = 30.0


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("a.b", logging.WARNING, "f.py", 1, message, arguments, None)
    made.__dict__.update(more)
    return made


def failure() -> "tuple[type[BaseException], BaseException, object]":
    try:
        raise OSError("no such thing")
    except OSError:
        found = sys.exc_info()
        assert found[0] is not None
        return found


def test_a_line_for_machines_has_time_level_logger_message_and_fields() -> None:
    line = json.loads(JsonFormatter().format(record("%s\n%d", "é", 5, created=0.0, msecs=7.9)))
    assert line == {
        "time": "1970-01-01T00:00:00.007Z",
        "level": "warning",
        "logger": "a.b",
        "message": "é\n5",
    }
    line = json.loads(JsonFormatter().format(record("x", fields={"keys": 3, "odd": object})))
    assert line["keys"] == 3


def test_a_traceback_is_one_field_of_one_line() -> None:
    text = JsonFormatter().format(record("x", exc_info=failure()))
    assert "\n" not in text
    assert json.loads(text)["exception"].endswith("OSError: no such thing")


def test_a_line_for_people_is_short_and_a_traceback_follows() -> None:
    text = ConsoleFormatter().format(record("it is %d", 5, exc_info=failure()))
    first, *rest = text.splitlines()
    assert first.endswith(" warning: it is 5")
    assert len(first) == len("1970-01-01 00:00:00 warning: it is 5")
    assert rest[-1] == "OSError: no such thing"


class SlowStream(io.StringIO):
    """Takes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = threading.Semaphore(0)
        self.may = threading.Event()

    def write(self, text: str) -> int:
        self.taken.release()
        assert self.may.wait(WITHIN_S)
        return super().write(text)


@pytest.fixture
def handle(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[io.StringIO], BackgroundHandler]]:
    monkeypatch.setattr(logs, "LAST_LINES_S", WITHIN_S)  # the machine may be busy
    made: list[BackgroundHandler] = []

    def handle(stream: io.StringIO) -> BackgroundHandler:
        made.append(BackgroundHandler(stream))
        return made[-1]

    yield handle
    for each in made:
        each.close()


def test_lines_are_written_in_order_and_the_last_ones_before_the_end(
    handle: Callable[[io.StringIO], BackgroundHandler],
) -> None:
    stream = io.StringIO()
    handler = handle(stream)
    for number in range(1000):
        handler.emit(record("%d", number))
    handler.close()
    assert stream.getvalue().split() == [str(number) for number in range(1000)]


def test_a_line_that_is_printed_after_a_flush_is_after_all_logged_lines(
    handle: Callable[[io.StringIO], BackgroundHandler], monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowForLogs(SlowStream):
        def write(self, text: str) -> int:
            if threading.current_thread() is threading.main_thread():
                return io.StringIO.write(self, text)
            return super().write(text)

    stream = SlowForLogs()
    handler = handle(stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(sys, "stderr", stream)
    handler.emit(record("logged"))
    assert stream.taken.acquire(timeout=WITHIN_S)  # the line is not written yet
    threading.Timer(0.01, stream.may.set).start()
    ServerOutput("console").error("printed")
    first, last = stream.getvalue().splitlines()
    assert first.endswith("logged")
    assert last == "leasehold: printed"


def test_a_flush_waits_for_a_limited_time_and_not_at_all_after_the_end(
    handle: Callable[[io.StringIO], BackgroundHandler], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = SlowStream()
    handler = handle(stream)
    handler.emit(record("x"))
    with monkeypatch.context() as short:
        short.setattr(logs, "LAST_LINES_S", 0.01)
        handler.flush()
    assert not stream.getvalue()
    stream.may.set()
    handler.close()
    handler.flush()
    assert handler._lines.empty()


def test_a_reader_who_takes_nothing_keeps_nobody_waiting_and_learns_what_was_lost(
    handle: Callable[[io.StringIO], BackgroundHandler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING", 10)
    stream = SlowStream()
    handler = handle(stream)
    handler.emit(record("first"))
    assert stream.taken.acquire(timeout=WITHIN_S)  # the thread is stuck with it
    for number in range(25):
        handler.emit(record("%d", number))
    stream.may.set()
    until_empty(handler)
    handler.close()
    lines = stream.getvalue().splitlines()
    assert lines == ["first", "0", "15 lines were lost", *map(str, range(1, 10))]


def until_empty(handler: BackgroundHandler) -> None:
    reached = threading.Event()
    while not reached.wait(0.01) and not handler._lines.empty():
        continue


def test_a_stream_that_is_closed_or_broken_hurts_nobody(
    handle: Callable[[io.StringIO], BackgroundHandler],
) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    for stream in (Broken(), closed):
        handler = handle(stream)
        for _ in range(3):
            handler.emit(record("x"))
        handler.close()
        assert not handler._thread.is_alive()


def test_a_bad_record_is_told_and_hurts_nobody(
    handle: Callable[[io.StringIO], BackgroundHandler],
) -> None:
    stream = io.StringIO()
    handler = handle(stream)
    handler.emit(record("%d", "no number"))
    handler.close()
    assert "a record from a.b could not be written: TypeError" in stream.getvalue()


def test_without_standard_error_nothing_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    root, level = logging.getLogger(), logging.getLogger().level
    handlers = list(root.handlers)
    monkeypatch.setattr(sys, "stderr", None)
    try:
        assert isinstance(set_up_logs("debug", "json"), logging.NullHandler)
        logging.getLogger("a").error("nobody hears it")
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:] = handlers
        root.setLevel(level)
