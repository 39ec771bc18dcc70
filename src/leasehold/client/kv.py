"""`client.kv`: keys, transactions and watches."""

from collections.abc import Coroutine

from leasehold.client.lease_like import LeaseLike, lease_id
from leasehold.client.patience import Patience, Timeout
from leasehold.client.texts import Octets, octets_of, range_of
from leasehold.core.ops import Compare, Delete, Put, Range, SortBy, Step, Txn
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.values import DeleteResult, KeyValue, PutResult, RangeResult, TxnResult


class KV:
    """Keys and values. Both may be given as bytes or str, and are bytes when they come back.

    `KeyValue.text` and `.name` have them as str. Each call takes a `timeout` in seconds.
    """

    def __init__(self, engine: Engine, patience: Patience) -> None:
        self._engine = engine
        self._patience = patience

    async def get(
        self,
        key: Octets,
        *,
        revision: int = 0,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> KeyValue | None:
        """Read a key, now or as it was at a revision; None if it is not there."""
        call = self._engine.range(octets_of(key, "key"), revision=revision)
        found = await self._patience.wait(call, timeout)
        return found.pairs[0] if found.total else None

    async def range(
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
        key: Octets,
        value: Octets | None,
        *,
        lease: LeaseLike = None,
        keep_lease: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> PutResult:
        """Set a key, and let it end with a lease.

        A value of None keeps the one that it has, and `keep_lease` its lease; `UnknownKey` if there
        is nothing to keep. A lease that is lost is refused before anything is sent.
        """
        if keep_lease and lease is not None:
            raise ValueError("lease and keep_lease exclude each other: give one of them")
        octets = None if value is None else octets_of(value, "value")
        wanted = None if keep_lease else lease_id(lease)
        call = self._engine.put(octets_of(key, "key"), octets, lease=wanted)
        return await self._patience.wait(call, timeout)

    async def delete(
        self,
        key: Octets,
        end: Octets = b"",
        *,
        prefix: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> DeleteResult:
        """Delete a key, or all from `key` up to `end`, or all that begin with `key`."""
        call = self._engine.delete(*range_of(key, end, prefix=prefix))
        return await self._patience.wait(call, timeout)

    def txn(self, *conditions: Compare) -> "TxnBuilder":
        """Begin a transaction, on conditions as `Key` makes them.

        done = await client.kv.txn(Key("a").is_missing()).then(Key("a").put("1")).commit()
        """
        return TxnBuilder(self._engine, self._patience).when(*conditions)

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
        """Watch keys: an async iterator of `Events`, each with all that one revision did.

            async with client.kv.watch("jobs/", prefix=True) as watch:
                async for events in watch:
                    for event in events.events:
                        ...

        It begins with `start`, or with whatever happens once the block is entered, and goes on
        after any loss of the connection, without missing or repeating anything. It ends with
        `Compacted` or `HistoryLost` only. `timeout` is for entering the block: until the server
        watches; what happens then is waited for without a limit.
        """
        first, last = range_of(key, end, prefix=prefix)
        patience_s = self._patience.seconds(timeout)
        watch = self._engine.watch(
            first, last, start=start, previous=previous, puts=puts, deletes=deletes
        )
        watch.patience_s = patience_s
        return watch

    async def compact(
        self,
        revision: int,
        *,
        wait: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> int:
        """Forget what cannot be seen at `revision` or later; give the current revision."""
        call = self._engine.compact(revision, wait=wait)
        return await self._patience.wait(call, timeout)


class TxnBuilder:
    """A transaction in the making: conditions, what then, and what else."""

    __slots__ = ("_compares", "_engine", "_failure", "_patience", "_success")

    def __init__(self, engine: Engine, patience: Patience) -> None:
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
                    "a condition is made with Key, such as Key('a').version == 0; "
                    f"not {condition!r}"
                )
        self._compares += conditions
        return self

    def then(self, *steps: Step) -> "TxnBuilder":
        """Add what is done if they do: puts, deletes, gets."""
        self._success += _checked(steps)
        return self

    def otherwise(self, *steps: Step) -> "TxnBuilder":
        """Add what is done if they do not."""
        self._failure += _checked(steps)
        return self

    async def commit(self, *, timeout: Timeout = None) -> TxnResult:  # noqa: ASYNC109
        """Do it, all at one revision; the result has what each step gives."""
        call = self._engine.txn(self._compares, self._success, self._failure)
        return await self._patience.wait(call, timeout)


def _checked(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Refuse what is no step of a transaction, such as a call of `kv`."""
    for step in steps:
        _check_step(step)
    return steps


def _check_step(step: object) -> None:
    if isinstance(step, Put | Delete | Range | Txn):
        return
    if isinstance(step, Coroutine):
        step.close()  # nobody will await it
    raise TypeError(
        f"a step of a transaction is made with Key, such as Key('a').put('1'); not {step!r}"
    )
