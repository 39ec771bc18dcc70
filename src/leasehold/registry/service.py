"""The registry in a server: registrations, and lookups in its index.

- A lookup sees every registration that was answered before it, at any server, unless it is `stale`.
- An item whose lease has ended does not match, even if its key is not deleted yet.
- A key that cannot be decoded matches the empty template only.
- Long searches and sorts are done in slices: the event loop is not blocked by many matches. The
  result is that of the index when the search began (`ItemIndex.search`).
- All pages of a lookup are of one revision. The matches of some lookups are kept for their next
  pages; those of the others are found again, in the index if that has not changed, else in the
  keys at that revision.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from random import Random, SystemRandom
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from leasehold.basics.durations import Requested
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.index import STEP
from leasehold.registry.item_feed import ItemFeed, name_of, undecodable_item
from leasehold.registry.messages import encoded_item
from leasehold.registry.registrar_groups import RegistrarGroups
from leasehold.registry.state import EVERYTHING, Item, ItemVersion, Template
from leasehold.registry.storage import ItemStorage, scan_items
from leasehold.store.slices import Slicer

PAGE_ITEMS: Final = 10_000
"""Items in one answer."""

PAGE_BYTES: Final = 4 * 1024 * 1024 - 64 * 1024
"""The size of the items in one answer: gRPC clients accept messages of 4 MiB by default."""

MAX_SNAPSHOTS: Final = 16
"""Results of lookups that are kept for their next pages."""

MAX_KEPT: Final = 1_000_000
"""Items in these results, except the last one."""

SLICE: Final = 500
"""Items that are encoded before other work runs: some milliseconds."""

RUN: Final = 1_000
"""Matches that are sorted in one slice; more are divided into runs of about this length."""

SAMPLES: Final = 4
"""Matches for each run that are compared to find where the runs end."""

M = TypeVar("M", bound="Match")


class Undecodable(NamedTuple):
    """An item that cannot be decoded."""

    id: str
    raw: bytes
    """The message that is sent in its place."""


Match: TypeAlias = ItemVersion | Undecodable
"""An item in a lookup."""


class Page(NamedTuple):
    """The answer to a lookup: the first items, or further ones."""

    items: list[bytes]
    total: int
    revision: int
    next: str = ""


class RegistryService:
    """The calls of the registry, in one server."""

    def __init__(
        self,
        engine: Engine,
        policy: DurationPolicy,
        *,
        endpoint: Callable[[], str] = str,
        random: Random | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`endpoint` returns where this server is reached."""
        self._engine = engine
        self._clock = clock
        self._random = random or SystemRandom()
        self.feed = ItemFeed(engine, self._random, endpoint)
        self.index = self.feed.index
        self.storage = ItemStorage(engine, policy, find=self.index.get, random=self._random)
        self.registrar = RegistrarGroups(engine)
        self.lookups = 0
        self._snapshots: dict[tuple[Template, bool, int], list[Match]] = {}

    async def start(self) -> None:
        """Start the background work."""
        await self.feed.start()

    async def close(self) -> None:
        """Stop. Calls that wait fail."""
        await self.feed.close()
        await self.storage.close()

    async def register(self, item: Item, requested: Requested, lease: int = 0) -> ItemVersion:
        """Register an item: see `ItemStorage.register`.

        Without an id, one with an equal descriptor is replaced.
        """
        self.feed.begin()
        if not item.id and item.descriptor is not None:
            await self.feed.fresh()
            if found := self.index.by_descriptor(item.descriptor):
                item = replace(item, id=found)
        return await self.storage.register(item, requested, lease)

    def live(self, versions: Iterable[ItemVersion], *, passing: bool = False) -> list[ItemVersion]:
        """Return those whose leases have not ended; with `passing` only those for use.

        The lease of a version that was replaced since has ended, too: such an item is live.
        """
        has_ended = self._engine.has_ended
        return [
            version
            for version in versions
            if (not passing or version.item.is_passing)
            and (not has_ended(version.lease) or self._is_replaced(version))
        ]

    def _is_replaced(self, version: ItemVersion) -> bool:
        return self.index.get(version.item.id) not in (None, version)

    def slicer(self) -> Slicer:
        """Return a pause for long work, to be awaited between its slices."""
        return Slicer(self._clock.monotonic)

    async def search(self, template: Template, *, passing: bool = False) -> list[ItemVersion]:
        """Return the items that match a template in the index as it is now, in slices."""
        few = self.index.few_matching(template)
        if few is not None:  # almost every lookup: slices would cost more than the search
            return self.live(few, passing=passing)
        slicer = self.slicer()
        found: list[ItemVersion] = []
        with closing(self.index.search(template)) as steps:
            for step in steps:
                found += self.live(step, passing=passing)
                await slicer.pause()
        return found

    async def matching(self, template: Template) -> list[ItemVersion]:
        """Return the items that match a template now, in no particular order."""
        await self._begin(stale=False)
        return await self.search(template, passing=False)

    async def _begin(self, *, stale: bool) -> None:
        self.lookups += 1
        await (self.feed.ready() if stale else self.feed.fresh())

    async def one(self, template: Template, *, passing: bool = False, stale: bool = False) -> Page:
        """Return one item that matches, chosen at random, or none."""
        await self._begin(stale=stale)
        revision, total = self.index.revision, 0
        chosen: ItemVersion | None = None
        slicer = self.slicer()
        with closing(self.index.search(template)) as steps:
            for step in steps:
                live = self.live(step, passing=passing)
                total += len(live)
                if live and self._random.randrange(total) < len(live):
                    chosen = self._random.choice(live)
                await slicer.pause()
        return Page([] if chosen is None else [encoded_item(chosen)], total, revision)

    async def lookup(
        self, template: Template, limit: int, *, passing: bool = False, stale: bool = False
    ) -> Page:
        """Return the first items that match, in the order of their ids, and their number."""
        _check_limit(limit)
        await self._begin(stale=stale)
        revision = self.index.revision
        matches = await self._matches(template, passing=passing)
        total = len(matches)
        is_whole = limit > PAGE_ITEMS or total <= PAGE_ITEMS
        matches = await self.sort(matches, total if is_whole else limit)
        page = await _page(matches, 0, limit, total, revision)
        if page.next and len(page.items) < limit and is_whole:  # another page is wanted
            self._keep(template, passing, revision, matches)
        return page

    async def _matches(self, template: Template, *, passing: bool) -> list[Match]:
        """Return the matches in the index as it is now, in slices."""
        undecodable = _undecodable(self.feed.undecodable, template, passing=passing)
        found: list[Any] = await self.search(template, passing=passing)
        found += undecodable
        return found

    async def sort(self, matches: list[M], limit: int) -> list[M]:
        """Return the first matches in the order of their ids, at least `limit`.

        Many are moved into runs, each of which has the ids between two others, and the runs are
        sorted. `matches` is empty then: a long list that is freed as a whole blocks, too.
        """
        if len(matches) <= RUN:
            return sorted(matches, key=_id_of)
        slicer = self.slicer()
        ends = sorted(map(_id_of, matches[:: RUN // SAMPLES]))[::SAMPLES]
        runs: list[list[M]] = [[] for _ in range(len(ends) + 1)]
        while matches:
            for match in matches[-STEP:]:
                runs[bisect_right(ends, _id_of(match))].append(match)
            del matches[-STEP:]
            await slicer.pause()
        found: list[M] = []
        runs.reverse()
        while runs:
            run = runs.pop()
            if len(found) < limit:
                found += sorted(run, key=_id_of)
            await slicer.pause()
        return found

    def _keep(self, template: Template, passing: bool, revision: int, matches: list[Match]) -> None:
        kept = self._snapshots
        while kept and (
            len(kept) >= MAX_SNAPSHOTS or sum(map(len, kept.values())) + len(matches) > MAX_KEPT
        ):
            del kept[next(iter(kept))]
        kept[template, passing, revision] = matches

    async def further(
        self, template: Template, limit: int, after: str, revision: int, *, passing: bool = False
    ) -> Page:
        """Return the items after the id `after` that matched at the revision of a page before.

        Raises `Compacted` if that revision is not available any more.
        """
        _check_limit(limit)
        self.lookups += 1
        await self.feed.ready()
        matches = self._snapshots.get((template, passing, revision))
        if matches is None:
            matches = await self._matches_at(template, revision, passing=passing)
            self._keep(template, passing, revision, matches)
        first = bisect_right(matches, after, key=_id_of)
        return await _page(matches, first, limit, len(matches), revision)

    async def _matches_at(self, template: Template, revision: int, *, passing: bool) -> list[Match]:
        """Return the matches at a revision: from the index if it has not changed since."""
        if self.index.last_change <= revision <= self.index.revision:
            matches = await self._matches(template, passing=passing)
        else:
            matches = await self._read_at(template, revision, passing=passing)
        return await self.sort(matches, len(matches))

    async def _read_at(self, template: Template, revision: int, *, passing: bool) -> list[Match]:
        """Return the matches at a revision, from the keys.

        The lease of an item that has changed since, or is gone, has ended, too.
        """
        found: list[Match] = []
        undecodable: dict[bytes, bytes] = {}
        own = self.feed.own()
        async for _, pairs in scan_items(self._engine, revision):
            for pair in pairs:
                version = self.feed.read(pair.key, pair)
                if version is None:
                    undecodable[pair.key] = undecodable_item(pair)
                elif version.item.id in own:
                    own[version.item.id] = version
                elif template.matches(version.item) and (not passing or version.item.is_passing):
                    is_current = self.index.get(version.item.id) == version
                    if not is_current or not self._engine.has_ended(version.lease):
                        found.append(version)
            await asyncio.sleep(0)
        matching = (version for version in own.values() if template.matches(version.item))
        found += self.live(matching, passing=passing)
        found += _undecodable(undecodable, template, passing=passing)
        return found


def _undecodable(
    raw: Mapping[bytes, bytes], template: Template, *, passing: bool
) -> list[Undecodable]:
    """Return the items that cannot be decoded, if they match: only the empty template does."""
    if template != EVERYTHING or passing:
        return []
    return [Undecodable(name_of(key), each) for key, each in raw.items()]


async def _page(
    matches: Sequence[Match], first: int, limit: int, total: int, revision: int
) -> Page:
    """Return a page of matches, which are sorted."""
    items: list[bytes] = []
    size_bytes = 0
    for match in islice(matches, first, first + min(limit, PAGE_ITEMS)):
        item = match.raw if isinstance(match, Undecodable) else encoded_item(match)
        size_bytes += len(item)
        if items and size_bytes > PAGE_BYTES:
            break
        items.append(item)
        if not len(items) % SLICE:
            await asyncio.sleep(0)
    end = first + len(items)
    last = _id_of(matches[end - 1]) if items and end < total else ""
    return Page(items, total, revision, last)


def _id_of(match: Match) -> str:
    return match.item.id if isinstance(match, ItemVersion) else match.id


def _check_limit(limit: int) -> None:
    if limit < 0:
        raise ValueError(f"limit must be at least 0, got {limit}")
