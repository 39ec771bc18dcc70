"""`client.kv` for blocking code: keys, transactions and watches."""

from typing import Self

from leasehold.client import kv as on_loop
from leasehold.client.lease_like import LeaseLike
from leasehold.client.patience import Timeout
from leasehold.client.texts import Octets
from leasehold.core.ops import Compare, SortBy, Step
from leasehold.engine.values import DeleteResult, KeyValue, PutResult, RangeResult, TxnResult
from leasehold.sync.loop_thread import LoopThread
from leasehold.sync.watch import Watch, begin_watch


class KV:
    """Keys and values. Both may be given as bytes or str, and are bytes when they come back.

    `KeyValue.text` and `.name` have them as str. Each call takes a `timeout` in seconds.
    """

    def __init__(self, thread: LoopThread, kv: on_loop.KV) -> None:
        self._thread = thread
        self._kv = kv

    def get(self, key: Octets, *, revision: int = 0, timeout: Timeout = None) -> KeyValue | None:
        """Read a key, now or as it was at a revision; None if it is not there."""
        return self._thread.run(lambda: self._kv.get(key, revision=revision, timeout=timeout))

    def range(
        self,
        key: Octets,
        end: Octets = b"",
        *,
        prefix: bool = False,
        revision: int = 0,
        limit: int = 0,
        sort_by: SortBy = SortBy.KEY,
        descending: bool = False,
        count_only: bool = False,
        timeout: Timeout = None,
    ) -> RangeResult:
        """Read keys from `key` up to but without `end`, or all that begin with `key`."""
        return self._thread.run(
            lambda: self._kv.range(
                key,
                end,
                prefix=prefix,
                revision=revision,
                limit=limit,
                sort_by=sort_by,
                descending=descending,
                count_only=count_only,
                timeout=timeout,
            )
        )

    def put(
        self,
        key: Octets,
        value: Octets | None,
        *,
        lease: LeaseLike = None,
        keep_lease: bool = False,
        timeout: Timeout = None,
    ) -> PutResult:
        """Set a key, and let it end with a lease.

        A value of None keeps the one that it has, and `keep_lease` its lease; `UnknownKey` if there
        is nothing to keep. A lease that is lost is refused before anything is sent.
        """
        return self._thread.run(
            lambda: self._kv.put(key, value, lease=lease, keep_lease=keep_lease, timeout=timeout)
        )

    def delete(
        self, key: Octets, end: Octets = b"", *, prefix: bool = False, timeout: Timeout = None
    ) -> DeleteResult:
        """Delete a key, or all from `key` up to `end`, or all that begin with `key`."""
        return self._thread.run(lambda: self._kv.delete(key, end, prefix=prefix, timeout=timeout))

    def txn(self, *conditions: Compare) -> "TxnBuilder":
        """Begin a transaction, on conditions as `Key` makes them.

        done = client.kv.txn(Key("a").is_missing()).then(Key("a").put("1")).commit()
        """
        return TxnBuilder(self._thread, self._kv.txn(*conditions))

    def watch(
        self,
        key: Octets,
        end: Octets = b"",
        *,
        prefix: bool = False,
        start: int = 0,
        previous: bool = False,
        puts: bool = True,
        deletes: bool = True,
        timeout: Timeout = None,
    ) -> Watch:
        """Watch keys: an iterator of `Events`, each with all that one revision did.

            with client.kv.watch("jobs/", prefix=True) as watch:
                for events in watch:
                    for event in events.events:
                        ...

        It begins with `start`, or with whatever happens once this returns, and goes on after any
        loss of the connection, without missing or repeating anything. It ends if it is cancelled,
        also by another thread, and with `Compacted` or `HistoryLost`. `timeout` is for beginning:
        until the server watches; what happens then is waited for without a limit.
        """
        return begin_watch(
            self._thread,
            lambda: self._kv.watch(
                key,
                end,
                prefix=prefix,
                start=start,
                previous=previous,
                puts=puts,
                deletes=deletes,
                timeout=timeout,
            ),
        )

    def compact(self, revision: int, *, wait: bool = False, timeout: Timeout = None) -> int:
        """Forget what cannot be seen at `revision` or later; give the current revision."""
        return self._thread.run(lambda: self._kv.compact(revision, wait=wait, timeout=timeout))


class TxnBuilder:
    """A transaction in the making: conditions, what then, and what else."""

    __slots__ = ("_builder", "_thread")

    def __init__(self, thread: LoopThread, builder: on_loop.TxnBuilder) -> None:
        self._thread = thread
        self._builder = builder

    def when(self, *conditions: Compare) -> Self:
        """Add conditions: all must hold."""
        self._builder.when(*conditions)
        return self

    def then(self, *steps: Step) -> Self:
        """Add what is done if they do: puts, deletes, gets."""
        self._builder.then(*steps)
        return self

    def otherwise(self, *steps: Step) -> Self:
        """Add what is done if they do not."""
        self._builder.otherwise(*steps)
        return self

    def commit(self, *, timeout: Timeout = None) -> TxnResult:
        """Do it, all at one revision; the result has what each step gives."""
        return self._thread.run(lambda: self._builder.commit(timeout=timeout))
