"""The registry in a server: registrations, and lookups in its index.

- A lookup sees every registration that was answered before it, at any server, unless it is `stale`.
- An item whose lease has ended does not match, even if its key is not deleted yet.
- A key that cannot be decoded matches the empty template only.
- All pages of a lookup are of one revision. What matched is kept for the next pages of some
  lookups; for the others it is found again, in the index if that has not changed, else in the keys
  at that revision.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from random import Random, SystemRandom
from typing import Final, NamedTuple

from leasehold.basics.durations import Requested
from leasehold.engine.interface import Engine
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.item_feed import ItemFeed, name_of, undecodable_item
from leasehold.registry.messages import encoded_item
from leasehold.registry.registrar import RegistrarState
from leasehold.registry.state import EVERYTHING, Item, ItemVersion, Template
from leasehold.registry.storage import ItemStorage, scan_items

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


class Match(NamedTuple):
    """An item that matches a template, or one that cannot be decoded."""

    id: str
    version: ItemVersion | None
    raw: bytes = b""
    """If there is no version: what is sent in its place."""

    def encode(self) -> bytes:
        """Return the message of the item."""
        return self.raw if self.version is None else encoded_item(self.version)


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
    ) -> None:
        """`endpoint` returns where this server is reached."""
        self._engine = engine
        self._random = random or SystemRandom()
        self.feed = ItemFeed(engine, self._random, endpoint)
        self.index = self.feed.index
        self.storage = ItemStorage(engine, policy, find=self.index.get, random=self._random)
        self.registrar = RegistrarState(engine)
        self.lookups = 0
        self._snapshots: dict[tuple[Template, bool, int], list[Match]] = {}

    async def start(self) -> None:
        """Begin the work that no call asks for."""
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
        """Return those whose leases have not ended; with `passing` only those for use."""
        has_ended = self._engine.has_ended
        return [
            version
            for version in versions
            if not has_ended(version.lease) and (not passing or version.item.is_passing)
        ]

    async def matching(
        self, template: Template, *, passing: bool = False, stale: bool = False
    ) -> list[ItemVersion]:
        """Return the items that match a template now, in no particular order."""
        self.lookups += 1
        await (self.feed.ready() if stale else self.feed.fresh())
        return self.live(self.index.matching(template), passing=passing)

    async def one(self, template: Template, *, passing: bool = False, stale: bool = False) -> Page:
        """Return one item that matches, chosen at random, or none."""
        found = await self.matching(template, passing=passing, stale=stale)
        items = [encoded_item(self._random.choice(found))] if found else []
        return Page(items, len(found), self.index.revision)

    async def lookup(
        self, template: Template, limit: int, *, passing: bool = False, stale: bool = False
    ) -> Page:
        """Return the first items that match, in the order of their ids, and their number."""
        _check_limit(limit)
        versions = await self.matching(template, passing=passing, stale=stale)
        revision = self.index.revision
        matches = self._matches(versions, template, self.feed.undecodable, passing=passing)
        total = len(matches)
        if limit > PAGE_ITEMS or total <= PAGE_ITEMS:
            matches.sort(key=_id_of)
        else:
            matches = nsmallest(limit, matches, key=_id_of)
        page = await _page(matches, 0, limit, total, revision)
        is_whole = len(matches) == total
        if page.next and len(page.items) < limit and is_whole:  # another page is wanted
            self._keep(template, passing, revision, matches)
        return page

    def _matches(
        self,
        versions: Iterable[ItemVersion],
        template: Template,
        undecodable: Mapping[bytes, bytes],
        *,
        passing: bool,
    ) -> list[Match]:
        matches = [Match(version.item.id, version) for version in versions]
        if template == EVERYTHING and not passing:
            matches += [Match(name_of(key), None, raw) for key, raw in undecodable.items()]
        return matches

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
        """Return what matched at a revision: from the index if it has not changed since."""
        if self.index.last_change <= revision <= self.index.revision:
            versions = self.live(self.index.matching(template), passing=passing)
            undecodable = self.feed.undecodable
        else:
            versions, undecodable = await self._read_at(template, revision)
            # The lease of a version that was replaced since has ended, too.
            replaced = [each for each in versions if self.index.get(each.item.id) != each]
            current = [each for each in versions if self.index.get(each.item.id) == each]
            versions = [
                *self.live(current, passing=passing),
                *(each for each in replaced if not passing or each.item.is_passing),
            ]
        return sorted(self._matches(versions, template, undecodable, passing=passing), key=_id_of)

    async def _read_at(
        self, template: Template, revision: int
    ) -> tuple[list[ItemVersion], dict[bytes, bytes]]:
        versions: list[ItemVersion] = []
        undecodable: dict[bytes, bytes] = {}
        own = self.feed.own()
        async for _, pairs in scan_items(self._engine, revision):
            for pair in pairs:
                version = self.feed.read(pair.key, pair)
                if version is None:
                    undecodable[pair.key] = undecodable_item(pair)
                elif version.item.id in own:
                    own[version.item.id] = version
                elif template.matches(version.item):
                    versions.append(version)
            await asyncio.sleep(0)
        versions += [version for version in own.values() if template.matches(version.item)]
        return versions, undecodable


async def _page(
    matches: Sequence[Match], first: int, limit: int, total: int, revision: int
) -> Page:
    """Return a page of matches, which are sorted."""
    items: list[bytes] = []
    size_bytes = 0
    for match in islice(matches, first, first + min(limit, PAGE_ITEMS)):
        item = match.encode()
        size_bytes += len(item)
        if items and size_bytes > PAGE_BYTES:
            break
        items.append(item)
        if not len(items) % SLICE:
            await asyncio.sleep(0)
    end = first + len(items)
    return Page(items, total, revision, matches[end - 1].id if items and end < total else "")


def _id_of(match: Match) -> str:
    return match.id


def _check_limit(limit: int) -> None:
    if limit < 0:
        raise ValueError(f"limit must be at least 0, got {limit}")
