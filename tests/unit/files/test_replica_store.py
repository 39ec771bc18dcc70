"""Replica stores: the rules of all stores, those of URLs, and how calls run in threads."""

import asyncio
import errno
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import known_implementations

from leasehold.basics.fork_hooks import stop_calling_in_child
from leasehold.errors import Closed
from leasehold.files import fsspec_store, threaded_store
from leasehold.files.replica_store import (
    STORE_THREADS,
    FsspecStore,
    LocalStore,
    ReplicaStore,
    open_store,
)
from leasehold.files.threaded_store import OWNER, ThreadedStore
from tests.support.asynchronous import asynchronous, until
from tests.support.replica_store_rules import NAME, RULES, Rule, check, open_owned

WITHIN_S = 30.0


@pytest.fixture
def memory() -> Iterator[str]:
    yield "memory://replicas/store"
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path, memory: str) -> str:
    return str(tmp_path / "made" / "store") if request.param == "local" else memory


@pytest.mark.parametrize("rule", RULES)
@asynchronous
async def test_every_rule_holds(rule: Rule, url: str) -> None:
    await check(rule, url)


# URLs.


def test_a_path_or_file_url_is_a_local_store(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"file://{tmp_path}", f"file://localhost{tmp_path}/"):
        store = open_store("s1", url)
        assert isinstance(store, LocalStore)
        assert (store.id, store.url, store.appends) == ("s1", url, True)
        assert store._root == tmp_path


def test_a_file_url_may_have_escapes(tmp_path: Path) -> None:
    store = open_store("s1", f"file://{tmp_path}/a%20b")
    assert isinstance(store, LocalStore)
    assert store._root == tmp_path / "a b"


def test_another_url_is_a_store_of_fsspec_that_does_not_append() -> None:
    for url in ("memory://x", "s3://bucket/prefix"):
        store = open_store("s1", url)
        assert isinstance(store, FsspecStore)
        assert (store.id, store.url, store.appends) == ("s1", url, False)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "absolute path"),
        ("data/store", "'data/store' must be an absolute path, or a URL"),
        ("s3:bucket", "absolute path, or a URL"),
        ("/a\0b", "absolute path"),
        ("file://data/store", "file URL without a host"),
        ("s3://", "needs a path after s3://"),
        ("simplecache::s3://bucket/x", "absolute path, or a URL"),
        ("filecache://x::s3://bucket/x", "must be a plain URL"),
        ("nosuch://x", "unknown protocol 'nosuch'"),
    ],
)
def test_an_unusable_url_is_refused(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        open_store("s1", url)


def test_without_fsspec_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in [each for each in sys.modules if each.split(".")[0] == "fsspec"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"pip install leasehold\[files\]$"):
        open_store("s1", "s3://bucket/x")
    assert open_store("s1", str(tmp_path)).appends


def test_without_the_package_of_a_protocol_the_error_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"class": "nosuchpackage.core.NoSuchFileSystem", "err": ""}
    monkeypatch.setitem(known_implementations, "nosuch", known)
    with pytest.raises(ValueError, match=r"pip install leasehold\[files\] nosuchpackage$"):
        open_store("s1", "nosuch://x")


# Threads.


class Held:
    """Calls of a store that wait until they are let go."""

    def __init__(self, store: ReplicaStore) -> None:
        assert isinstance(store, ThreadedStore)
        self.store = store
        self.gate = threading.Event()
        self.threads: list[threading.Thread] = []

    def start(self, count: int) -> "list[asyncio.Future[bool]]":
        return [asyncio.ensure_future(self.store._in_thread(self._wait)) for _ in range(count)]

    def _wait(self) -> bool:
        self.threads.append(threading.current_thread())
        return self.gate.wait(WITHIN_S)


@asynchronous
async def test_a_store_that_hangs_does_not_delay_another_one(tmp_path: Path) -> None:
    held = Held(open_store("hangs", str(tmp_path / "a")))
    other = await open_owned(str(tmp_path / "b"))
    calls = held.start(3 * STORE_THREADS)
    await until(lambda: len(held.threads) == STORE_THREADS)
    await other.put(NAME, b"data")
    assert not any(call.done() for call in calls)
    assert len(held.threads) == STORE_THREADS
    assert all(thread.daemon for thread in held.threads)
    held.gate.set()
    assert all(await asyncio.gather(*calls))
    await other.close()
    await held.store.close()


@asynchronous
async def test_a_call_that_is_cancelled_before_it_has_a_thread_is_not_performed(
    tmp_path: Path,
) -> None:
    held = Held(open_store("s1", str(tmp_path)))
    calls = held.start(STORE_THREADS)
    await until(lambda: len(held.threads) == STORE_THREADS)
    write = asyncio.ensure_future(held.store.put(NAME, b"data"))
    await asyncio.sleep(0)
    assert len(held.store._waiting) == 1
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    assert not held.store._waiting
    held.gate.set()
    await asyncio.gather(*calls)
    assert await held.store.size(NAME) is None
    await held.store.close()


@asynchronous
async def test_a_call_that_is_cancelled_under_way_is_completed_and_its_result_dropped(
    tmp_path: Path,
) -> None:
    held = Held(open_store("s1", str(tmp_path)))
    (call,) = held.start(1)
    await until(lambda: bool(held.threads))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    held.gate.set()
    await until(lambda: held.store._active == 0)
    await held.store.put(NAME, b"data")
    assert await held.store.size(NAME) == 4
    await held.store.close()


def test_a_call_may_outlive_its_event_loop(tmp_path: Path) -> None:
    held = Held(open_store("s1", str(tmp_path)))

    async def start() -> None:
        held.start(1)
        await until(lambda: bool(held.threads))

    asyncio.run(start())
    held.gate.set()
    assert asyncio.run(held.store.size(NAME)) is None
    asyncio.run(held.store.close())


@asynchronous
async def test_too_many_waiting_calls_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threaded_store, "MAX_WAITING_CALLS", 2)
    held = Held(open_store("s1", str(tmp_path)))
    calls = held.start(STORE_THREADS)
    await until(lambda: len(held.threads) == STORE_THREADS)
    calls += held.start(2)
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="store 's1' is too slow") as refused:
        await held.store.size(NAME)
    assert refused.value.errno == errno.EBUSY
    held.gate.set()
    assert all(await asyncio.gather(*calls))
    assert await held.store.size(NAME) is None
    await held.store.close()


@asynchronous
async def test_close_refuses_waiting_calls_and_does_not_wait_for_others(tmp_path: Path) -> None:
    held = Held(open_store("s1", str(tmp_path)))
    calls = held.start(STORE_THREADS + 1)
    await until(lambda: len(held.threads) == STORE_THREADS)
    await held.store.close()
    with pytest.raises(Closed):
        await calls[-1]
    held.gate.set()
    assert all(await asyncio.gather(*calls[:-1]))
    assert len(held.threads) == STORE_THREADS


@asynchronous
async def test_the_copy_of_a_forked_child_refuses_calls(tmp_path: Path) -> None:
    store = open_store("s1", str(tmp_path))
    assert isinstance(store, ThreadedStore)
    store._disable()
    with pytest.raises(Closed, match=r"opened in process \d+: open another one after the fork"):
        await store.size(NAME)
    stop_calling_in_child(store)


@asynchronous
async def test_a_call_at_interpreter_exit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    store = open_store("s1", str(tmp_path))
    with monkeypatch.context() as exiting:
        exiting.setattr(threading.Thread, "start", refuse)
        with pytest.raises(Closed, match="interpreter shutdown"):
            await store.put(NAME, b"data")
    assert await store.size(NAME) is None
    await store.close()


# File systems of fsspec.


class OddFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A file system with directories, without modification times; it can be made to fail."""

    protocol = "odd"
    cachable = False
    error: Exception | None = None

    def __init__(self, **options: Any) -> None:
        if OddFileSystem.error is not None:
            raise OddFileSystem.error
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.removeprefix("odd://")))

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        if OddFileSystem.error is not None:
            raise OddFileSystem.error
        if not self.isdir(self._parent(path)):
            raise FileNotFoundError(path)
        super().pipe_file(path, value, **options)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        if not create_parents and not self.isdir(self._parent(path)):
            raise FileNotFoundError(path)
        super().mkdir(path, create_parents, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        for each in (found := super().ls(path, detail, **options)):
            each.pop("created", None)
        return found

    def info(self, path: str, **options: Any) -> Any:
        found = super().info(path, **options)
        found.pop("created", None)
        return found

    def modified(self, path: str) -> Any:
        raise NotImplementedError


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch, memory: str) -> str:
    fsspec.register_implementation("odd", OddFileSystem, clobber=True)
    monkeypatch.setattr(OddFileSystem, "error", None)
    MemoryFileSystem.pseudo_dirs.append("/parent")
    return "odd://parent/store"


@pytest.mark.parametrize("rule", RULES)
@asynchronous
async def test_every_rule_holds_where_directories_must_be_made(rule: Rule, odd: str) -> None:
    await check(rule, odd)


@asynchronous
async def test_the_parents_of_a_root_are_not_made_and_the_error_is_that_of_the_store(
    odd: str,
) -> None:
    store = open_store("s1", "odd://missing/store")
    with pytest.raises(OSError, match="odd://missing/store does not exist") as raised:
        await store.put(OWNER, b"keyspace")
    assert not isinstance(raised.value, FileNotFoundError)
    assert MemoryFileSystem.pseudo_dirs == ["", "/parent"]
    await store.close()


@asynchronous
async def test_an_object_without_a_modification_time_has_age_0(odd: str) -> None:
    store = await open_owned(odd)
    await store.put(NAME, b"data")
    assert await store.list("", 10) == [(NAME, 4, 0.0)]
    await store.close()


@asynchronous
async def test_any_error_of_a_file_system_is_an_os_error_with_its_cause(odd: str) -> None:
    store = await open_owned(odd)
    await store.put(NAME, b"data")
    for error in (ValueError("no credentials"), NotImplementedError(), StopIteration()):
        OddFileSystem.error = error
        with pytest.raises(OSError, match=type(error).__name__) as raised:
            await store.put(NAME, b"data")
        assert raised.value.__cause__ is error
    for os_error in (PermissionError(errno.EACCES, "denied"), TimeoutError("too late")):
        OddFileSystem.error = os_error
        with pytest.raises(type(os_error)):
            await store.put(NAME, b"data")
    await store.close()


class RangeRefusedError(Exception):
    """As clients of HTTP raise it."""

    status = 416


@pytest.mark.parametrize("error", [OSError(errno.EINVAL, "invalid range"), RangeRefusedError()])
@asynchronous
async def test_a_read_behind_the_end_is_empty_where_the_file_system_refuses_it(
    error: Exception, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise error

    store = await open_owned(odd)
    await store.put(NAME, b"data")
    monkeypatch.setattr(OddFileSystem, "cat_file", refuse)
    assert await store.read(NAME, 4, 10) == b""
    with pytest.raises(FileNotFoundError):
        await store.read(f"{NAME}.1", 0, 10)
    with pytest.raises(OSError, match=r"invalid range|RangeRefusedError"):
        await store.read(NAME, 3, 10)
    await store.close()


@asynchronous
async def test_a_connection_that_failed_is_tried_again_by_the_next_call(odd: str) -> None:
    OddFileSystem.error = RuntimeError("unreachable")
    store = open_store("s1", odd)
    with pytest.raises(OSError, match="unreachable"):
        await store.size(NAME)
    OddFileSystem.error = None
    assert await store.size(NAME) is None
    await store.close()


@pytest.mark.parametrize("uses_event_loop", [False, True])
@asynchronous
async def test_only_a_file_system_with_an_event_loop_is_shared_by_threads(
    uses_event_loop: bool, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OddFileSystem, "async_impl", uses_event_loop)
    store = await open_owned(odd)
    assert isinstance(store, FsspecStore)
    together = threading.Barrier(3)

    def connected() -> list[object]:
        together.wait(WITHIN_S)
        return [store._connected()[0] for _ in range(2)]

    found = await asyncio.gather(*(store._in_thread(connected) for _ in range(3)))
    assert all(first is second for first, second in found)
    assert len({id(first) for first, _ in found}) == (1 if uses_event_loop else 3)
    await store.close()
    await until(lambda: store._shared is None)


@asynchronous
async def test_listings_of_a_file_system_are_not_cached(memory: str) -> None:
    store = open_store("s1", memory)
    assert isinstance(store, FsspecStore)
    fs, _ = await store._in_thread(store._connected)
    fs.dircache["/replicas/store"] = []
    assert len(fs.dircache) == 0
    await store.close()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1.5, 1.5),
        ("1970-01-01T00:00:02+00:00", 2.0),
        ("1970-01-01T00:00:02", 2.0),
        ("yesterday", None),
        (None, None),
    ],
)
@asynchronous
async def test_a_modification_time_may_have_any_form(
    value: object, seconds: float | None, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OddFileSystem, "modified", lambda *_: value)
    store = await open_owned(odd)
    assert isinstance(store, FsspecStore)
    await store.put(NAME, b"data")
    listing = partial(store._list_objects, "3f", "", 10, 10.0)
    (found,) = await store._in_thread(listing)
    assert found.age_s == (0.0 if seconds is None else 10.0 - seconds)
    await store.close()


@asynchronous
async def test_the_owner_is_read_again_after_a_while_and_not_for_each_write(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_owned(memory)
    await store.put(f"{NAME}.0", b"data")
    other = open_store("s2", memory)
    await other.put(OWNER, b"another")
    await store.put(f"{NAME}.1", b"data")
    monkeypatch.setattr(fsspec_store, "OWNER_CHECK_S", 0.0)
    with pytest.raises(OSError, match="belongs to another keyspace"):
        await store.put(f"{NAME}.2", b"data")
    assert await other.size(f"{NAME}.2") is None
    await other.close()
    await store.close()
