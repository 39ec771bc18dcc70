"""`client.kv`: keys, transactions and watches."""

from collections.abc import AsyncIterator, Coroutine

from leasehold.basics.event_loop import post, running_loop
from leasehold.basics.forgotten import warn_forgotten
from leasehold.engine.arguments import LeaseLike, lease_id
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.key import BytesOrText, range_of, to_bytes
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.engine.values import (
    DeleteResult,
    Events,
    KeyValue,
    PutResult,
    RangeResult,
    TxnResult,
)
from leasehold.errors import LeaseholdError
from leasehold.keyspace.operations import Compare, Delete, Put, Range, SortBy, Step, Txn


class KV:
    """Keys and values. Both may be given as bytes or str, and are returned as bytes.

    `KeyValue.text` and `.name` have them as str. Each call takes a `timeout` in seconds.
    """

    def __init__(self, engine: Engine, patience: CallTimeouts) -> None:
        self._engine = engine
        self._patience = patience

    async def get(
        self,
        key: BytesOrText,
        *,
        revision: int = 0,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> KeyValue | None:
        """Read a key, now or at a revision; None if it does not exist."""
        call = self._engine.range(to_bytes(key, "key"), revision=revision)
        found = await self._patience.wait(call, timeout)
        return found.pairs[0] if found.total else None

    async def range(
        self,
        key: BytesOrText,
        end: BytesOrText = b"",
        *,
        prefix: bool = False,
        revision: int = 0,
        limit: int = 0,
        sort_by: SortBy = SortBy.KEY,
        descending: bool = False,
        count_only: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> RangeResult:
        """Read keys from `key` up to but without `end`, or all that begin with `key`."""
        first, last = range_of(key, end, prefix=prefix)
        call = self._engine.range(
            first,
            last,
            revision=revision,
            limit=limit,
            sort_by=sort_by,
            descending=descending,
            count_only=count_only,
        )
        return await self._patience.wait(call, timeout)

    async def put(
        self,
        key: BytesOrText,
        value: BytesOrText | None,
        *,
        lease: LeaseLike = None,
        keep_lease: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> PutResult:
        """Set a key, optionally under a lease, with which it is deleted.

        A value of None keeps the current value, and `keep_lease` the current lease; raises
        `UnknownKey` if there is none to keep. A lost lease is refused before anything is sent.
        """
        if keep_lease and lease is not None:
            raise ValueError("lease and keep_lease are mutually exclusive; give only one")
        data = None if value is None else to_bytes(value, "value")
        wanted = None if keep_lease else lease_id(lease)
        call = self._engine.put(to_bytes(key, "key"), data, lease=wanted)
        return await self._patience.wait(call, timeout)

    async def delete(
        self,
        key: BytesOrText,
        end: BytesOrText = b"",
        *,
        prefix: bool = False,
        previous: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> DeleteResult:
        """Delete a key, or all from `key` up to `end`, or all that begin with `key`.

        The result has their number, and with `previous` also the deleted pairs; raises `TooLarge`
        if they do not fit into one answer, and nothing is deleted then.
        """
        call = self._engine.delete(*range_of(key, end, prefix=prefix), previous=previous)
        return await self._patience.wait(call, timeout)

    def txn(self, *conditions: Compare) -> "TxnBuilder":
        """Begin a transaction with conditions made by `Key`.

        done = await client.kv.txn(Key("a").is_missing()).then(Key("a").put("1")).commit()
        """
        return TxnBuilder(self._engine, self._patience).when(*conditions)

    def watch(
        self,
        key: BytesOrText,
        end: BytesOrText = b"",
        *,
        prefix: bool = False,
        start: int = 0,
        previous: bool = False,
        puts: bool = True,
        deletes: bool = True,
        timeout: Timeout = None,
    ) -> Watch:
        """Watch keys: an async iterator of `Events`, each with all changes of one revision.

            async with client.kv.watch("jobs/", prefix=True) as watch:
                async for events in watch:
                    for event in events.events:
                        ...

        It begins with `start`, or with the first change after the block is entered, and continues
        after any loss of the connection, without missing or repeating anything. It ends with
        `Compacted` or `HistoryLost` only. `timeout` is for entering the block, until the server has
        begun the watch; waiting for changes has no limit. A watch that is garbage-collected is
        cancelled, and reported by a `ResourceWarning` unless it was iterated.
        """
        first, last = range_of(key, end, prefix=prefix)
        patience_s = self._patience.seconds(timeout)
        watch = self._engine.watch(
            first, last, start=start, previous=previous, puts=puts, deletes=deletes
        )
        return WatchHandle(self._engine, watch, first, patience_s)

    async def compact(
        self,
        revision: int,
        *,
        wait: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> int:
        """Discard what is not visible at `revision` or later; return the current revision."""
        call = self._engine.compact(revision, wait=wait)
        return await self._patience.wait(call, timeout)


class TxnBuilder:
    """A transaction under construction: conditions, steps if they hold, and other steps."""

    __slots__ = ("_compares", "_engine", "_failure", "_patience", "_success")

    def __init__(self, engine: Engine, patience: CallTimeouts) -> None:
        self._engine = engine
        self._patience = patience
        self._compares: list[Compare] = []
        self._success: list[Step] = []
        self._failure: list[Step] = []

    def when(self, *conditions: Compare) -> "TxnBuilder":
        """Add conditions: all must hold."""
        for condition in conditions:
            if not isinstance(condition, Compare):
                raise TypeError(
                    "condition must be made with Key, such as Key('a').version == 0, not "
                    f"{condition!r}"
                )
        self._compares += conditions
        return self

    def then(self, *steps: Step) -> "TxnBuilder":
        """Add steps for the case that they hold: puts, deletes, gets."""
        self._success += _checked(steps)
        return self

    def otherwise(self, *steps: Step) -> "TxnBuilder":
        """Add steps for the case that they do not hold."""
        self._failure += _checked(steps)
        return self

    async def commit(self, *, timeout: Timeout = None) -> TxnResult:  # noqa: ASYNC109
        """Execute it at one revision; the result has the result of each step."""
        call = self._engine.txn(self._compares, self._success, self._failure)
        return await self._patience.wait(call, timeout)


def _checked(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Check the steps of a transaction; refuse anything else, such as a call of `kv`."""
    for step in steps:
        _check_step(step)
    return steps


def _check_step(step: object) -> None:
    if isinstance(step, Put | Delete | Range | Txn):
        return
    if isinstance(step, Coroutine):
        step.close()  # it will never be awaited
    raise TypeError(
        f"step of a transaction must be made with Key, such as Key('a').put('1'), not {step!r}"
    )


class WatchHandle(Watch):
    """A watch of an engine, as returned to a program.

    The engine refers to its own watch until that is cancelled. So a program gets this object, which
    can be garbage-collected: `leasehold.basics.forgotten` describes what happens then. Its
    coroutines refer to it while they wait.
    """

    __slots__ = ("_engine", "_is_iterated", "_is_over", "_key", "_loop", "_watch")

    def __init__(self, engine: Engine, watch: Watch, key: bytes, patience_s: float) -> None:
        self._engine = engine
        self._watch = watch
        self._key = key
        self._loop = running_loop()
        self._is_iterated = False
        self._is_over = False
        self.patience_s = patience_s

    def __aiter__(self) -> AsyncIterator[Events]:
        self._is_iterated = True
        return self

    async def __anext__(self) -> Events:
        try:
            return await self._watch.__anext__()
        except LeaseholdError:
            self._is_over = True
            raise

    async def ready(self) -> None:
        """Wait until all later changes are delivered; `async with` does that on entry."""
        await self._watch.ready()

    def request_progress(self) -> None:
        """Request `Events` without events, to be delivered after everything before them."""
        self._watch.request_progress()

    def cancel(self) -> None:
        """Cancel the watch."""
        self._watch.cancel()
        self._is_over = True

    def __del__(self) -> None:
        if not self._is_over and self._engine.is_open:
            key = None if self._is_iterated else self._key
            post(self._loop, _forgotten, self._engine, self._watch, key)


def _forgotten(engine: Engine, watch: Watch, key: bytes | None) -> None:
    """Cancel a watch, and report it if it has a key."""
    if not engine.is_open:
        return
    watch.cancel()
    if key is not None:
        text = f"a watch of {key!r} was garbage-collected without being cancelled"
        warn_forgotten(text, "it is cancelled now")
