"""The index of a registry's items, which follows their keys.

The index is loaded from the keys, and then fed by a watch. It starts with the first call, or with
the server if there are items: a server that is not used as a registry has no watch.

- Changes are applied in the order of revisions, and reported to `listeners` one by one. If some may
  have been missed, because they were compacted before they were read, all keys are read again,
  `on_gap` is called, and the differences are reported as changes at that revision.
- `fresh` waits until the index has everything that was answered before, at any server: it asks the
  engine for its revision, and waits for that. Callers that arrive while a question is under way
  share the next one.
- A key that cannot be decoded is not in the index, but in `undecodable`.
- The services of this server are items without keys. The key of one has attributes that were set,
  and nothing else of it has an effect: `read` combines the two.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from leasehold.basics.backoff import Backoff, exponential
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue
from leasehold.errors import Compacted, LeaseholdError, Status
from leasehold.registry.index import ItemIndex
from leasehold.registry.messages import ITEMS, UNDECODABLE, encoded_item, item_key, version_of
from leasehold.registry.own_services import own_ids, own_items
from leasehold.registry.registrar_groups import REGISTRAR_KEY
from leasehold.registry.state import EVERYTHING, ItemVersion, Transition
from leasehold.registry.storage import CALL_S, scan_items
from leasehold.sessions.lease_keeper import retry_until_answered
from leasehold.sessions.session import OVER, RETRIES
from leasehold.wire import registry_pb2 as pb

logger = logging.getLogger(__name__)

SLICE: Final = 500
"""Items that are applied before other work runs: some milliseconds."""

PROGRESS_REQUESTS: Final = exponential(0.2, 1.0)
"""The waits for progress before it is requested again: etcd ignores a request while any watch of
the connection is behind."""

MAX_UNDECODABLE_BYTES: Final = 256
"""The part of a value that cannot be decoded that is kept and sent."""

LOADING_S: Final = 1.0
"""How long a call waits for the index to be loaded; then it fails with UNAVAILABLE."""


class IndexNotReady(LeaseholdError):
    """The index of the registry is being loaded, or is behind; a later retry helps."""

    status = Status.UNAVAILABLE
    not_executed = True


class IndexChange:
    """A change of an item, from one version to another; None before it existed, or after."""

    __slots__ = ("_events", "after", "before", "id", "revision")

    def __init__(
        self, item_id: str, before: ItemVersion | None, after: ItemVersion | None, revision: int
    ) -> None:
        self.id = item_id
        self.before = before
        self.after = after
        self.revision = revision
        self._events: dict[Transition, bytes] = {}

    def event(self, kind: Transition) -> bytes:
        """Return the message `ItemEvent` of a transition, the same bytes for all listeners."""
        if kind not in self._events:
            message = pb.ItemEvent(
                transition=kind.name, id=self.id, item=self.encoded, revision=self.revision
            )
            self._events[kind] = message.SerializeToString()
        return self._events[kind]

    @property
    def encoded(self) -> bytes:
        """The new state as a message `ServiceItem`; empty if it is gone."""
        return b"" if self.after is None else encoded_item(self.after)


def decoded(pair: KeyValue) -> ItemVersion | None:
    """Return the item of a key; None if it cannot be decoded."""
    try:
        version = version_of(pair.value, pair.lease, pair.mod_revision)
    except ValueError:
        return None
    return version if version.item.id == name_of(pair.key) else None


def undecodable_item(pair: KeyValue) -> bytes:
    """Return the bytes that are sent in the place of a key that cannot be decoded."""
    return UNDECODABLE + pair.value[:MAX_UNDECODABLE_BYTES]


class ItemFeed:
    """The index of all items in one server."""

    def __init__(self, engine: Engine, random: Random, endpoint: Callable[[], str] = str) -> None:
        """`endpoint` returns where this server is reached; it is called when that is needed."""
        self._engine = engine
        self._random = random
        self._endpoint = endpoint
        self.own_ids = own_ids(engine.cluster_id)
        """The services of this server."""
        self.index = ItemIndex()
        self.listeners: list[Callable[[IndexChange], object]] = []
        """Called with each change; must not raise."""
        self.on_gap: list[Callable[[int], object]] = []
        """Called with a revision, up to which changes may have been missed."""
        self.undecodable: dict[bytes, bytes] = {}
        """Keys that cannot be decoded, and the bytes that are sent in their place."""
        self._own_keys: set[bytes] = set()
        """Keys that have the ids of services of this server."""
        self._feeding: asyncio.Task[None] | None = None
        self._loaded = asyncio.Event()
        self._watch: Watch | None = None
        self._waiting: dict[asyncio.Future[None], int] = {}
        """The revisions that calls wait for."""
        self._comparing: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        """A question that was not sent yet."""

    @property
    def items(self) -> int:
        """The number of items that are stored, as far as they are loaded."""
        stored = max(0, len(self.index) - len(self.own_ids))
        return stored + len(self.undecodable) + len(self._own_keys)

    def is_own(self, key: bytes) -> bool:
        """Return whether a key has the id of a service of this server, which needs no key."""
        return name_of(key) in self.own_ids

    def own(self) -> dict[str, ItemVersion]:
        """Return the services of this server by id, as they are without keys."""
        items = own_items(self._engine.cluster_id, self._endpoint())
        return {item_id: ItemVersion(item, "", 0, 0.0, 0) for item_id, item in items.items()}

    def read(self, key: bytes, pair: KeyValue | None) -> ItemVersion | None:
        """Return the item of a key, which may be deleted; None if it cannot be decoded, either."""
        version = None if pair is None else decoded(pair)
        if not self.is_own(key):
            return version
        own = self.own()[name_of(key)]
        if version is None or pair is None:
            return own
        item = replace(own.item, attributes=version.item.attributes)
        return own._replace(item=item, revision=pair.mod_revision)

    async def start(self) -> None:
        """Load the index if there are items or groups; else it is loaded with the first call."""
        for first, end in ((ITEMS, prefix_end(ITEMS)), (REGISTRAR_KEY, b"")):
            count = partial(self._engine.range, first, end, count_only=True)
            found = await retry_until_answered(count, Backoff(RETRIES, self._random))
            if found.total:
                self.begin()

    def begin(self) -> None:
        """Load the index, and keep it up to date. Idempotent."""
        if self._feeding is None:
            self._feeding = asyncio.get_running_loop().create_task(self._feed())

    async def close(self) -> None:
        """Stop. Calls that wait fail."""
        running = (self._feeding, self._next, self._comparing)
        tasks = [task for task in running if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._give_up()

    def _give_up(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(IndexNotReady("the registry is being closed"))
        self._waiting.clear()

    async def _feed(self) -> None:
        """Load the index and follow the keys; load it again if changes were missed."""
        backoff = Backoff(RETRIES, self._random)
        has_all = False
        while True:
            try:
                if not has_all:
                    await self._load()
                    has_all = True
                next_revision = self.index.revision + 1
                async with self._engine.watch(
                    ITEMS, prefix_end(ITEMS), start=next_revision
                ) as watch:
                    self._watch = watch
                    self._settle()
                    self._request_progress()
                    async for found in watch:
                        backoff.reset()
                        for event in found.events:
                            self._take(event.key, event.pair, found.revision)
                        self.index.advance(found.revision)
                        self._settle(is_progress=not found.events)
            except OVER:
                self._give_up()
                return
            except Compacted as error:
                has_all = False
                logger.warning("the items of the registry are read again: %s", error)
            except (LeaseholdError, OSError) as error:
                logger.warning("the items of the registry are not up to date: %s", error)
            except Exception:
                has_all = False
                logger.exception("the items of the registry are read again")
            finally:
                self._watch = None
            await asyncio.sleep(backoff.next_s())

    async def _load(self) -> None:
        """Read all keys, and apply the differences from the index."""
        pairs: list[KeyValue] = []
        revision = 0
        async for at, page in scan_items(self._engine):
            revision = at
            pairs += page
            await asyncio.sleep(0)
        if self._loaded.is_set():
            for callback in self.on_gap:
                callback(revision)
        for item_id, version in self.own().items():
            if self.index.get(item_id) is None:
                self.index.apply(item_id, version, revision)
        keys: set[bytes] = set()
        for place, pair in enumerate(pairs, 1):
            keys.add(pair.key)
            known = self.index.get(name_of(pair.key))
            if known is None or known.revision != pair.mod_revision:
                self._take(pair.key, pair, revision)
            if not place % SLICE:
                await asyncio.sleep(0)
        known_keys = [item_key(version.item.id) for version in self.index.matching(EVERYTHING)]
        self._own_keys.intersection_update(pair.key for pair in pairs)
        for key in (*known_keys, *self.undecodable):
            if key not in keys:
                self._take(key, None, revision)
        self.index.advance(revision)
        self._loaded.set()

    def _take(self, key: bytes, pair: KeyValue | None, revision: int) -> None:
        """Apply a change of a key."""
        item_id, version = name_of(key), self.read(key, pair)
        if version is not None and self.is_own(key):
            (self._own_keys.discard if pair is None else self._own_keys.add)(key)
            known = self.index.get(item_id)
            if known is not None and known.item == version.item:
                return
        self.undecodable.pop(key, None)
        if pair is not None and version is None:
            logger.error("key %r is not an item that can be decoded", key)
            self.undecodable[key] = undecodable_item(pair)
        before, after = self.index.apply(item_id, version, revision)
        if before is not None or after is not None:
            change = IndexChange(item_id, before, after, revision)
            for listener in self.listeners:
                listener(change)

    # Freshness.

    async def ready(self) -> None:
        """Wait until the index is loaded. Raises `IndexNotReady` if that takes too long."""
        self.begin()
        if self._loaded.is_set():
            return
        try:
            async with asyncio.timeout(LOADING_S):
                await self._loaded.wait()
        except TimeoutError:
            raise IndexNotReady("the items of the registry are being loaded") from None

    async def fresh(self) -> None:
        """Wait until the index has everything that was answered before this was called."""
        await self.ready()
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._refresh())
            self._next.add_done_callback(_retrieve)
        try:
            async with asyncio.timeout(CALL_S):
                await asyncio.shield(self._next)
        except TimeoutError as error:
            text = str(error) or self._engine.trouble or "its index is behind"
            raise IndexNotReady(f"the registry cannot answer now: {text}") from None

    async def _refresh(self) -> None:
        """Ask the engine for its revision, and wait until the index has it."""
        async with self._asking:
            self._next = None  # callers from now on need another question
            async with time_limit(CALL_S, self._engine):
                found = await self._engine.range(REGISTRAR_KEY, count_only=True)
        if found.revision > self.index.revision:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = found.revision
            backoff = Backoff(PROGRESS_REQUESTS, self._random)
            try:
                async with asyncio.timeout(CALL_S):
                    while not waiter.done():
                        self._request_progress()
                        await asyncio.wait((waiter,), timeout=backoff.next_s())
                    waiter.result()
            finally:
                self._waiting.pop(waiter, None)

    def _request_progress(self) -> None:
        if self._waiting and self._watch is not None:
            self._watch.request_progress()

    def _settle(self, *, is_progress: bool = False) -> None:
        """Wake the calls whose revision the index has.

        Progress that was requested and is below that revision comes from an etcd server whose
        progress cannot be trusted: then a read shows whether the index has everything.
        """
        for waiter, revision in list(self._waiting.items()):
            if revision <= self.index.revision:
                del self._waiting[waiter]
                if not waiter.done():
                    waiter.set_result(None)
        if self._waiting and is_progress and self._comparing is None:
            self._comparing = asyncio.get_running_loop().create_task(self._compare())

    async def _compare(self) -> None:
        """Compare the index with the keys until no call waits for it."""
        backoff = Backoff(RETRIES, self._random)
        try:
            while self._waiting:
                seen = self.index.revision
                async with time_limit(CALL_S, self._engine):
                    newer = await self._engine.range(
                        ITEMS, prefix_end(ITEMS), min_mod_revision=seen + 1, limit=1
                    )
                is_known = not newer.pairs and newer.total == self.items
                if is_known and self.index.last_change <= seen:
                    self.index.advance(newer.revision)
                    self._settle()
                else:
                    await asyncio.sleep(backoff.next_s())
        except (LeaseholdError, OSError) as error:
            logger.info("the items of the registry could not be compared: %s", error)
        finally:
            self._comparing = None


def name_of(key: bytes) -> str:
    """Return the id of an item from its key."""
    return key[len(ITEMS) :].decode(errors="replace")


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Mark the error of a task as seen, if all its callers are gone."""
    if not task.cancelled():
        task.exception()
