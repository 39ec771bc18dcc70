"""The items of a registry as keys of an engine: how they are registered, changed and cancelled.

An item is the key `leasehold/items/<id>`. It is under a lease that was granted for it, or under one
that its client has named, such as that of a session. Every server of a cluster, and a client of a
bare etcd cluster, writes these keys directly: a write compares the mod revision of the key that it
was made from, and is repeated if another one came first.

- Each registration has a random token, which is stored in the item. A registration that was
  replaced by a later one is not renewed, changed or cancelled any more: `UnknownLease`.
- A new version of an item is written first, and the lease of the former one is revoked after that.
  So an item that is registered again changes once, and never disappears. A lease that a client has
  named is never revoked here.
- The name of an item's lease, its *cookie*, is `<id>.<token>`. The lease of the engine is replaced
  if another term is requested, and the cookie stays.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from dataclasses import replace
from random import Random, SystemRandom
from typing import Any, Final, NamedTuple
from uuid import UUID

from leasehold.basics.backoff import Backoff
from leasehold.basics.callbacks import ignore
from leasehold.basics.durations import ANY, Duration, Requested, duration_of, seconds_of
from leasehold.engine.arguments import ttl_of
from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue, TxnResult
from leasehold.errors import (
    EndReason,
    LeaseDenied,
    LeaseholdError,
    TooBusy,
    TooLarge,
    UnknownLease,
    fresh,
    is_definite,
)
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Relation, Step, Target
from leasehold.leases.lease import Outcome
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.messages import (
    ITEMS,
    check_item_id,
    item_key,
    item_message,
    item_of,
    stored_item,
    version_of,
)
from leasehold.registry.own_services import derived_id, own_ids
from leasehold.registry.state import Descriptor, Item, ItemVersion
from leasehold.services.record_storage import was_not_executed
from leasehold.sessions.lease_keeper import END_S, LOST_S, MAX_ID, end_one
from leasehold.sessions.session import RETRIES

CALL_S: Final = 10.0
"""The timeout of a registration, or of one call to the engine."""

MAX_CONFLICTS: Final = 100
"""How often a write is repeated because another one came first."""

CONCURRENT_ITEMS: Final = 64
"""Items of a batch that are read, moved or cancelled at the same time."""

RENEWAL_RATE: Final = 500
"""Leases of a batch for which one second more is waited."""

KEYS_PER_PAGE: Final = 1_000
"""Keys that are read by one call; fewer if they are too large for one answer."""

Wants = Sequence[tuple[Hashable, Requested]]
Check = Callable[[Hashable], object]


def descriptor_id(descriptor: Descriptor) -> str:
    """Return the id of an item that is registered with a descriptor and without an id.

    It is always the same one: so two registrations of one descriptor write one key.
    """
    parts = (descriptor.type.encode(), descriptor.encoding.encode(), descriptor.data)
    return derived_id(b"item", *(b"%d:%b" % (len(part), part) for part in parts))


def cookie_of(version: ItemVersion) -> str:
    """Return the name of an item's lease."""
    return f"{version.item.id}.{version.registration}"


def is_item_cookie(cookie: Hashable) -> bool:
    """Return whether a cookie may be that of an item: the ids of other objects have no period."""
    return isinstance(cookie, str) and "." in cookie


class StoredKey(NamedTuple):
    """The key of an item, as it was read."""

    version: ItemVersion | None
    """None if there is no key, or if its value cannot be decoded."""
    revision: int
    """When it was written last; 0 if there is no key."""


def stored_key(pairs: Sequence[KeyValue]) -> StoredKey:
    """Return the key of an item from the result of reading it."""
    if not pairs:
        return StoredKey(None, 0)
    pair = pairs[0]
    try:
        version = version_of(pair.value, pair.lease, pair.mod_revision)
    except ValueError:
        return StoredKey(None, pair.mod_revision)
    return StoredKey(version if item_key(version.item.id) == pair.key else None, pair.mod_revision)


def _not_indexed(_item_id: str) -> ItemVersion | None:
    return None


class ItemStorage:
    """Writes the items of a registry."""

    def __init__(
        self,
        engine: Engine,
        policy: DurationPolicy,
        *,
        find: Callable[[str], ItemVersion | None] = _not_indexed,
        random: Random | None = None,
    ) -> None:
        """`find` returns an item as it was lately, if it is known; that saves reading it."""
        self.engine = engine
        self.policy = policy
        self._find = find
        self._random = random or SystemRandom()
        self._own_ids = own_ids(engine.cluster_id)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Stop revoking leases; those that were not revoked expire."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Registering.

    async def register(self, item: Item, requested: Requested, lease: int = 0) -> ItemVersion:
        """Write an item under a new lease, or under `lease`, in the place of an earlier version.

        Without an id it gets the one that its descriptor gives, or a random one. Raises
        ValueError, and `UnknownLease` if `lease` has ended. A lease that was granted without an
        answer is revoked.
        """
        if item.id in self._own_ids:
            raise ValueError(
                f"item {item.id} is the registrar itself, or another service of its servers, and "
                "cannot be registered"
            )
        if not item.id:
            item = replace(item, id=self._new_id(item))
        ttl_s = 0.0 if lease else self.ttl_for(requested)
        registration = f"{self._random.getrandbits(64):016x}"
        version = ItemVersion(item, registration, lease, ttl_s, 0)
        if ttl_s:
            version = version._replace(lease=await self._grant(ttl_s))
        try:
            async with time_limit(CALL_S, self.engine):
                former, revision = await self._write(version)
        except BaseException as error:
            if ttl_s:
                self._end_later(version.lease, may_come=not was_not_executed(error))
            raise
        await self._end_former(former, version)
        return version._replace(revision=revision)

    def _new_id(self, item: Item) -> str:
        if item.descriptor is not None:
            return descriptor_id(item.descriptor)
        return str(UUID(int=self._random.getrandbits(128), version=4))

    async def _write(self, version: ItemVersion) -> tuple[ItemVersion | None, int]:
        """Write a new registration; return the version in whose place it is, and its revision.

        A call without an answer is repeated: its registration shows whether it was executed.
        """
        key = item_key(version.item.id)
        put = Put(key, stored_item(version), version.lease)
        known = self._find(version.item.id)
        stored = StoredKey(known, known.revision if known is not None else 0)
        backoff = Backoff(RETRIES, self._random)
        former, is_in_doubt = stored.version, False
        for _ in range(MAX_CONFLICTS):
            try:
                done = await self.engine.txn([_is_at(key, stored.revision)], [put], [Range(key)])
            except (LeaseholdError, OSError) as error:
                if is_definite(error) or (was_not_executed(error) and not is_in_doubt):
                    raise
                is_in_doubt = True
                await asyncio.sleep(backoff.next_s())
                continue
            if done.succeeded:
                return stored.version, done.revision
            former, stored = stored.version, stored_key(done.results[0].pairs)
            found = stored.version
            if found is not None and found.registration == version.registration:
                return former, stored.revision
        raise TooBusy(
            f"item {version.item.id} is registered by other clients at the same time: try again"
        )

    async def _end_former(self, former: ItemVersion | None, version: ItemVersion) -> None:
        """Revoke the lease of the version before, if it was granted for the item."""
        if former is not None and former.ttl_s and former.lease != version.lease:
            await self._end(former.lease)

    # Leases.

    def ttl_for(self, requested: Requested) -> float:
        """Return the TTL of a lease for a request, within the policy and the engine's limits."""
        wanted = self.policy.default if requested is ANY else requested
        limits = self.engine.limits
        most_s = min(seconds_of(self.policy.maximum), limits.max_ttl)
        return ttl_of(min(seconds_of(wanted), most_s), limits)

    def term_of(self, ttl_s: float) -> Duration:
        """Return the term that a TTL is for its holder; the longest one has no end."""
        return duration_of(float("inf") if ttl_s >= self.engine.limits.max_ttl else ttl_s)

    async def _grant(self, ttl_s: float) -> int:
        lease = self._random.randint(1, MAX_ID)
        try:
            async with time_limit(CALL_S, self.engine):
                await self.engine.grant(ttl_s, lease=lease)
        except BaseException as error:
            if not was_not_executed(error):
                self._end_later(lease, may_come=True)
            raise
        return lease

    async def _end(self, lease: int) -> None:
        """Revoke a lease; one that takes long is revoked in the background."""
        await asyncio.wait((self._end_later(lease),), timeout=END_S)

    def _end_later(self, lease: int, *, may_come: bool = False) -> "asyncio.Task[bool]":
        return self._spawn(end_one(self.engine, lease, LOST_S, self._random, may_come=may_come))

    def _spawn(self, work: "Coroutine[Any, Any, bool]") -> "asyncio.Task[bool]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def renew_all(self, wants: Wants, check: Check = ignore) -> list[Outcome]:
        """Renew the leases of items for the requested terms, or cancel items for 0.0.

        Return the outcome of each: its term, or an exception. `check` is called with each cookie
        before anything is sent for it.
        """
        outcomes: list[Outcome] = [0.0] * len(wants)
        by_lease: dict[int, list[int]] = {}
        others: list[int] = []
        for place, (cookie, requested) in enumerate(wants):
            known = self._known(cookie)
            if known is None or not requested or not self._is_term(known, requested):
                others.append(place)
                continue
            try:
                check(cookie)
            except LeaseholdError as error:
                outcomes[place] = error
            else:
                by_lease.setdefault(known.lease, []).append(place)
        others += await self._renew_known(by_lease, outcomes)
        turns = asyncio.Semaphore(CONCURRENT_ITEMS)

        async def renew_other(place: int) -> None:
            async with turns:
                outcomes[place] = await self._renew_one(*wants[place], check)

        await asyncio.gather(*map(renew_other, others))
        return outcomes

    def _known(self, cookie: Hashable) -> ItemVersion | None:
        """Return the item of a cookie, if it is known here and under a lease of its own."""
        item_id, registration = _split(cookie)
        known = self._find(item_id)
        return known if known is not None and known.registration == registration else None

    def _is_term(self, version: ItemVersion, requested: Requested) -> bool:
        """Return whether the lease of an item has the TTL that a request gives."""
        return version.ttl_s > 0.0 and self._renewal_ttl(version, requested) == version.ttl_s

    def _renewal_ttl(self, version: ItemVersion, requested: Requested) -> float:
        return self.ttl_for(version.ttl_s if requested is ANY else requested)

    async def _renew_known(
        self, by_lease: dict[int, list[int]], outcomes: list[Outcome]
    ) -> list[int]:
        """Renew leases by one call; return the places of those that have ended, or moved."""
        if not by_lease:
            return []
        try:
            async with time_limit(CALL_S + len(by_lease) / RENEWAL_RATE, self.engine):
                terms, failures = await self.engine.renew_all(by_lease)
        except (LeaseholdError, OSError) as no_answer:
            terms, failures = {}, dict.fromkeys(by_lease, no_answer)
        moved: list[int] = []
        for lease, places in by_lease.items():
            error = failures.get(lease)
            if isinstance(error, UnknownLease):  # as the index knows it, which may be late
                moved += places
                continue
            for place in places:
                outcomes[place] = self.term_of(terms[lease]) if error is None else fresh(error)
        return moved

    async def _renew_one(self, cookie: Hashable, requested: Requested, check: Check) -> Outcome:
        """Renew or cancel an item by its key."""
        try:
            check(cookie)
            if requested == 0.0:
                await self.cancel(cookie)
                return 0.0
            async with time_limit(CALL_S, self.engine):
                return await self._renew_stored(cookie, requested)
        except (LeaseholdError, OSError) as error:
            return error

    async def _renew_stored(self, cookie: Hashable, requested: Requested) -> Duration:
        version = await self._read(cookie)
        if not version.ttl_s:
            raise LeaseDenied(
                "the item has no lease of its own: renew the lease that it was registered with",
                lease=cookie,
                requested=requested,
            )
        ttl_s = self._renewal_ttl(version, requested)
        try:
            if ttl_s == version.ttl_s:
                return self.term_of(await self.engine.renew(version.lease))
            if ttl_s < version.ttl_s and ttl_s != requested:  # the bound is lower than it was
                left_s = (await self.engine.time_to_live(version.lease)).remaining
                if left_s > ttl_s:
                    return left_s  # a lease that is longer already keeps its end
        except UnknownLease as error:
            raise UnknownLease(cookie, error.reason) from None
        return await self._move(cookie, ttl_s)

    async def _move(self, cookie: Hashable, ttl_s: float) -> Duration:
        """Move an item to a new lease with another TTL."""
        lease = await self._grant(ttl_s)

        def step(version: ItemVersion) -> Step:
            moved = version._replace(lease=lease, ttl_s=ttl_s)
            return Put(item_key(version.item.id), stored_item(moved), lease)

        try:
            former, _ = await self._update(cookie, step)
        except BaseException as error:
            if was_not_executed(error):  # else the item may be under it
                self._end_later(lease)
            raise
        await self._end(former.lease)
        return self.term_of(ttl_s)

    # Changes.

    async def change(self, cookie: str, change: Callable[[Item], Item]) -> None:
        """Change an item; nothing is written if it stays as it is.

        Raises `UnknownLease` if the registration is over, and ValueError.
        """

        def step(version: ItemVersion) -> Step | None:
            item = change(version.item)
            if item == version.item:
                return None
            changed = version._replace(item=item_of(item_message(item)), encoded=b"")
            return Put(item_key(item.id), stored_item(changed), version.lease)

        async with time_limit(CALL_S, self.engine):
            await self._update(cookie, step)

    async def cancel(self, cookie: Hashable) -> None:
        """Delete an item, and end its lease if that was granted for it. Raises `UnknownLease`."""
        async with time_limit(CALL_S, self.engine):
            version, _ = await self._update(cookie, lambda each: Delete(item_key(each.item.id)))
        if version.ttl_s:
            await self._end(version.lease)

    async def _update(
        self, cookie: Hashable, step: Callable[[ItemVersion], Step | None]
    ) -> tuple[ItemVersion, int]:
        """Execute a step that is made from the latest version of an item.

        Return that version and the revision of the change. Raises `UnknownLease`.
        """
        version, is_read = self._known(cookie), False
        for _ in range(MAX_CONFLICTS):
            if version is None:
                version, is_read = await self._read(cookie), True
            made = step(version)
            if made is None:
                if is_read:
                    return version, version.revision
                version = None  # the index may be behind
                continue
            key = item_key(version.item.id)
            try:
                done = await self._ask([_is_at(key, version.revision)], [made], [Range(key)])
            except UnknownLease as error:
                raise UnknownLease(cookie, error.reason) from None
            if done.succeeded:
                return version, done.revision
            version, is_read = self._check(cookie, done.results[0].pairs), True
        raise TooBusy(
            f"item {_split(cookie)[0]} is changed by other clients at the same time: try again"
        )

    async def _read(self, cookie: Hashable) -> ItemVersion:
        """Read the item of a cookie. Raises `UnknownLease` if its registration is over."""
        item_id, _ = _split(cookie)
        found = await self.engine.range(item_key(item_id)) if item_id else None
        return self._check(cookie, () if found is None else found.pairs)

    def _check(self, cookie: Hashable, pairs: Sequence[KeyValue]) -> ItemVersion:
        version = stored_key(pairs).version
        if version is None or version.registration != _split(cookie)[1]:
            raise UnknownLease(cookie)
        if self.engine.has_ended(version.lease):
            raise UnknownLease(cookie, EndReason.EXPIRED)
        return version

    async def _ask(
        self, compares: Sequence[Compare], success: Sequence[Step], failure: Sequence[Step]
    ) -> TxnResult:
        async with time_limit(CALL_S, self.engine):
            return await self.engine.txn(compares, success, failure)


async def scan_items(
    engine: Engine, revision: int = 0
) -> AsyncIterator[tuple[int, Sequence[KeyValue]]]:
    """Read the keys of all items in order, in pages, at one revision: the latest, or a given one.

    Each page has that revision. Raises `Compacted` if it is not available any more.
    """
    start, end, limit = ITEMS, prefix_end(ITEMS), KEYS_PER_PAGE
    while True:
        try:
            async with time_limit(CALL_S, engine):
                page = await engine.range(start, end, revision=revision, limit=limit)
        except TooLarge:
            if limit == 1:
                raise
            limit //= 2
            continue
        revision = revision or page.revision
        yield revision, page.pairs
        if not page.more:
            return
        start = page.pairs[-1].key + b"\0"


def _is_at(key: bytes, revision: int) -> Compare:
    return Compare(key, Target.MOD_REVISION, Relation.EQUAL, revision)


def _split(cookie: Hashable) -> tuple[str, str]:
    """Return the id and the registration of a cookie; two empty texts if it is not of an item."""
    item_id, _, registration = cookie.partition(".") if isinstance(cookie, str) else ("", "", "")
    try:
        return (check_item_id(item_id), registration) if registration else ("", "")
    except ValueError:
        return "", ""
