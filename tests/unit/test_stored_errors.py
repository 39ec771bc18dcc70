"""No stored exception is raised: each raise would add to its traceback, and keep frames alive."""

import ast
import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.engine.embedded import MEMORY, open_engine
from leasehold.engine.remote.caller import History
from leasehold.engine.remote.remote_watch import RemoteWatch
from leasehold.errors import (
    Closed,
    Compacted,
    ConnectFailed,
    HistoryLost,
    LeaseholdError,
    LockDenied,
    LockLost,
    Status,
    fresh,
)
from leasehold.grpc.client_call import NotProcessed, StreamingCall
from leasehold.grpc.connecting import Connector
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Exchange
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.header_encoder import literals
from leasehold.wire import rpc_pb2 as pb

SOURCES = Path(leasehold.__file__).parent
RAISES = 10_000
MAX_GROWTH_BYTES = 200_000
"""20 bytes for each raise; one entry of a traceback has more than 60, without its frame."""


def grown_bytes(raise_once: Callable[[], object]) -> int:
    for _ in range(100):
        raise_once()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(RAISES):
            raise_once()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def raises_again(call: Callable[[], object], error: type[BaseException]) -> Callable[[], None]:
    def once() -> None:
        try:
            call()
        except error:
            return
        raise AssertionError("nothing was raised")

    return once


def awaits_again(
    call: Callable[[], Awaitable[object]], error: type[BaseException]
) -> Callable[[], None]:
    """Run the coroutine without an event loop: a stored error needs none."""

    def once() -> None:
        try:
            call().__await__().send(None)
        except error:
            return
        raise AssertionError("nothing was raised")

    return once


@pytest.mark.slow
def test_an_unknown_method_costs_no_memory() -> None:
    connection = ServerConnection(
        {"/a.B/C": Exchange(lambda _: (b"", 0))}, DurabilityGate(), lambda _: None
    )
    connection.receive(frames.settings({}))
    block = literals(
        (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/a.B/Unknown"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    ids = iter(range(1, 10 * RAISES, 2))
    flags = frames.END_HEADERS | frames.END_STREAM

    def call() -> None:
        connection.receive(frames.frame(frames.HEADERS, flags, next(ids), block))

    assert grown_bytes(call) < MAX_GROWTH_BYTES
    assert not connection.is_closing


@pytest.mark.slow
def test_a_lost_history_costs_no_memory() -> None:
    history = History(lambda _: None)
    history.check_cluster_id(1)
    assert (
        grown_bytes(raises_again(lambda: history.check_cluster_id(2), HistoryLost))
        < MAX_GROWTH_BYTES
    )
    assert grown_bytes(raises_again(history.check, HistoryLost)) < MAX_GROWTH_BYTES


@pytest.mark.slow
def test_a_failed_stream_costs_no_memory() -> None:
    call = StreamingCall((), 1024)
    call.failed(RpcError(Status.UNAVAILABLE, "gone"))
    for each in (call.receive, call.metadata, lambda: call.send(b"")):
        assert grown_bytes(awaits_again(each, RpcError)) < MAX_GROWTH_BYTES


@pytest.mark.slow
def test_a_failed_remote_watch_costs_no_memory() -> None:
    async def made() -> RemoteWatch:
        return RemoteWatch(pb.WatchCreateRequest(key=b"k"), lambda _: None, lambda _: None)

    watch = asyncio.run(made())
    watch.fail(Compacted(1, 2))
    for each in (watch.ready, watch.__anext__):
        assert grown_bytes(awaits_again(each, Compacted)) < MAX_GROWTH_BYTES


def test_a_watch_of_a_closed_engine_costs_no_memory() -> None:
    async def ended() -> Any:
        engine = await open_engine(MEMORY)
        watch = engine.watch(b"k")
        await engine.close()
        return watch

    watch = asyncio.run(ended())
    assert grown_bytes(awaits_again(watch.__anext__, LeaseholdError)) < MAX_GROWTH_BYTES


def test_a_closed_channel_costs_no_memory() -> None:
    async def closed() -> Connector:
        loop = asyncio.get_running_loop()
        connector = Connector((), loop, None, None)  # type: ignore[arg-type]
        await connector.close(RpcError(Status.CANCELLED, "closed"))
        return connector

    connector = asyncio.run(closed())
    again = raises_again(lambda: connector.wait(wait_for_ready=True), RpcError)
    assert grown_bytes(again) < MAX_GROWTH_BYTES


@pytest.mark.parametrize(
    "error",
    [
        Closed("it was closed"),
        Compacted(3, 7),
        LockLost("name", 5, "why"),
        LockDenied("name", "anna", 2.0),
        ConnectFailed("no route"),
        NotProcessed("refused"),
        RpcError(Status.ABORTED, "no", 7, ((b"a", b"b"),)),
        FileNotFoundError(2, "No such file", "x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_fresh_error_is_like_the_stored_one(error: BaseException) -> None:
    with pytest.raises(type(error)):
        raise error
    error.__cause__ = ValueError("cause")
    copy = fresh(error)
    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    assert copy.__cause__ is error.__cause__
    assert error.__traceback__ is not None
    assert copy.__traceback__ is None
    if isinstance(error, FileNotFoundError):
        assert isinstance(copy, FileNotFoundError)
        assert (copy.errno, copy.strerror) == (error.errno, error.strerror)
        assert copy.filename == error.filename


# The rule, for all of the source.


@pytest.mark.slow
def test_no_stored_exception_is_raised() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line in stored_raises(ast.parse(path.read_text()))
    ]
    assert not found, "raise `fresh(stored)` of `leasehold.errors` instead"


@pytest.mark.parametrize(
    ("source", "is_stored"),
    [
        ("raise self._failure", True),
        ("raise head.error from None", True),
        ("raise self._failure.with_traceback(None)", True),
        ("failure = self._failure\n    raise failure", True),
        ("if (lost := self.lost) is not None:\n        raise lost", True),
        ("failure = self._failure\n    raise failure.with_traceback(None)", True),
        ("waiter.set_exception(self._failure)", True),
        ("raise fresh(self._failure)", False),
        ("failure, self._failure = self._failure, None\n    raise failure", False),
        ("raise self._error()", False),
        ("raise errors.Closed", False),
        ("failure = self._make()\n    raise failure", False),
    ],
)
def test_the_rule_finds_stored_exceptions(source: str, is_stored: bool) -> None:
    assert bool(list(stored_raises(ast.parse(f"def f():\n    {source}")))) is is_stored


def stored_raises(tree: ast.AST) -> Iterator[int]:
    """Find the lines that raise an attribute, or a local name that was read from one."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            read = set(_names_of_attributes(function))
            for node in ast.walk(function):
                raised = _raised(node)
                if _is_stored(raised) or (isinstance(raised, ast.Name) and raised.id in read):
                    assert isinstance(node, ast.stmt | ast.expr)
                    yield node.lineno


def _raised(node: ast.AST) -> ast.expr | None:
    raised = node.exc if isinstance(node, ast.Raise) else None
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "set_exception"
    ):
        raised = node.args[0]
    if (
        isinstance(raised, ast.Call)
        and isinstance(raised.func, ast.Attribute)
        and raised.func.attr == "with_traceback"
    ):
        raised = raised.func.value
    return raised


def _is_stored(node: ast.expr | None) -> bool:
    """Whether this reads an attribute that is no class of a module, and not `__cause__`."""
    return (
        isinstance(node, ast.Attribute)
        and not node.attr[0].isupper()
        and not node.attr.startswith("__")
    )


def _names_of_attributes(function: ast.AST) -> Iterator[str]:
    """Names that are assigned from an attribute alone; `x, self.x = self.x, None` takes it out."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_stored(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.NamedExpr) and _is_stored(node.value):
            yield node.target.id
