"""`client.permits`: rights of subjects on resources, for as long as a lease lasts; and their cache.

Theory of operation. A check is answered from a cache, in which each permit is kept for as long as
it can be relied on. An answer is a permit as it was read, and the remaining TTL of its lease. It is
trusted until its *trusted end*: counted from when the second request was *sent*, on a clock that
runs through suspend, less a margin (`session_margin_s`), never beyond the permit's wall-clock end
(`permit.is_over`), and never for longer than `MAX_AGE_S`. The server cannot end the lease before
that unless it is revoked, which the watch reports:

- one watch of all permits drops an answer as soon as its key is changed or deleted. It begins with
  the revision after the first answer, so nothing between the two is missed. An answer that is older
  than the watch is returned, but not kept;
- an event that only extends the wall-clock end of a permit leaves its answer, with the trusted end
  that it had;
- a change during a request, after the revision that the request has read, invalidates its answer:
  it is returned, but not kept. Events that are older than an answer do not affect it;
- a watch that ends (`Compacted`, `HistoryLost`, the end of the engine) drops all answers, and the
  next request begins another one. A watch without contact cannot be told from one without events:
  answers are valid until their trusted end then, and no longer. After that a request is sent, and
  its error is raised. A right is never confirmed without a trusted answer;
- when an event comes and every answer is past its end, the watch is cancelled, too: a client that
  checks no more receives no more events.

*No permit* is not kept. It has no end that would bound its trust: a client without contact would
deny for ever, long after the permit was granted. Also, requests for names that do not exist could
fill the memory. A right that is missing from a permit that *does* exist is answered from the cache.

`get` may be called in any thread; everything else belongs to the loop.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, NamedTuple

from leasehold.basics.durations import NEVER, check_seconds
from leasehold.clock import Clock
from leasehold.engine.arguments import LeaseLike, lease_id
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.engine.values import Event, KeyValue
from leasehold.errors import LeaseholdError, UnknownLease
from leasehold.leases.holder_view import session_margin_s
from leasehold.locks.permit import (
    END,
    PREFIX,
    Names,
    Permit,
    check_name,
    check_rights,
    honoured_until_s,
    is_over,
    names_of,
    prefix_of,
    read,
    read_names,
)
from leasehold.locks.permit_grants import PermitGrants
from leasehold.sessions.lease_keeper import Keeper

logger = logging.getLogger(__name__)

MAX_CACHED: Final = 10_000
"""Limit of cached permits; the oldest is dropped beyond it."""

MAX_AGE_S: Final = 60.0
"""How long an answer is relied on, whatever the remaining TTL of its lease. A revocation may take
this long to reach a client whose watch is cut off."""


class _CachedPermit(NamedTuple):
    permit: Permit
    end: float
    revision: int
    """The revision at which it was read."""


class _PermitRequest:
    """A request under way, and the last revision that is known to have changed its permit."""

    __slots__ = ("changed_at",)

    def __init__(self) -> None:
        self.changed_at: float = 0


class PermitCache:
    """Reads permits, and keeps those that can be relied on."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._kept: dict[Names, _CachedPermit] = {}
        self._requests: defaultdict[Names, set[_PermitRequest]] = defaultdict(set)
        self._watch: Watch | None = None
        self._watched_from = 0
        self._following: asyncio.Task[None] | None = None
        self._last_end = 0.0
        """When the last of the kept answers ends."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, names: Names) -> Permit | None:
        """Return a permit that can be relied on now; None if it is not in the cache."""
        self._engine.check()
        kept = self._kept.get(names)
        return kept.permit if kept is not None and self._clock.boottime() < kept.end else None

    async def ask(self, names: Names, *, keep: bool) -> Permit | None:
        """Read a permit that can be relied on now, and keep it; None if there is none.

        Also None if its trusted end has passed when the answer comes.
        """
        request = _PermitRequest()
        self._requests[names].add(request)
        try:
            return await self._ask(names, request if keep else None)
        finally:
            self._requests[names].discard(request)
            if not self._requests[names]:
                del self._requests[names]

    async def _ask(self, names: Names, request: _PermitRequest | None) -> Permit | None:
        found = await self._engine.range(names.key)
        permit = read(found.pairs[0]) if found.pairs else None
        if permit is None or is_over(permit, self._clock.wall()):
            return None
        if request is not None:
            self._begin_watch(found.revision + 1)
        sent_at, sent_wall_s = self._clock.boottime(), self._clock.wall()
        try:
            info = await self._engine.time_to_live(permit.lease)
        except UnknownLease:
            return None  # it has ended since
        left_s = info.remaining - session_margin_s(info.remaining)
        if (until_s := honoured_until_s(permit)) is not None:
            left_s = min(left_s, until_s - sent_wall_s)
        if self._clock.boottime() >= sent_at + left_s:
            return None
        if request is not None and self._is_current(request, found.revision):
            self._keep(
                names, _CachedPermit(permit, sent_at + min(left_s, MAX_AGE_S), found.revision)
            )
        return permit

    def _is_current(self, request: _PermitRequest, revision: int) -> bool:
        """Return whether all changes since a revision were received, and none was of the permit."""
        is_told = self.is_watching and self._watched_from <= revision + 1
        return is_told and request.changed_at <= revision

    def _keep(self, names: Names, kept: _CachedPermit) -> None:
        self._kept.pop(names, None)  # so that the first one is the oldest
        while len(self._kept) >= MAX_CACHED:
            del self._kept[next(iter(self._kept))]
        self._kept[names] = kept
        self._last_end = max(self._last_end, kept.end)

    def _changed(self, names: Names, event: Event) -> None:
        """Drop a permit that was changed, unless only its end was extended."""
        kept = self._kept.get(names)
        permit = None if event.pair is None else read(event.pair)
        self.drop(names, event.revision)
        if kept is None or permit is None or names in self._kept:
            return
        before = kept.permit
        if before.ends_at is None or permit.ends_at is None or permit.ends_at < before.ends_at:
            return
        if replace(before, ends_at=permit.ends_at, revision=permit.revision) == permit:
            self._keep(names, _CachedPermit(permit, kept.end, event.revision))

    def drop(self, names: Names, revision: float = NEVER) -> None:
        """Drop a permit that was changed, at this revision or an unknown one.

        The answers to requests under way are not kept either.
        """
        kept = self._kept.get(names)
        if kept is not None and kept.revision < revision:
            del self._kept[names]
        for request in self._requests.get(names, ()):
            request.changed_at = max(request.changed_at, revision)

    def clear(self) -> None:
        """Drop all permits."""
        for names in [*self._kept, *self._requests]:
            self.drop(names)

    # The watch.

    @property
    def is_watching(self) -> bool:
        """Whether it receives changes."""
        return self._watch is not None

    def _begin_watch(self, start: int) -> None:
        if self._watch is not None:
            return
        watch = self._engine.watch(PREFIX, END, start=start)
        self._watch, self._watched_from = watch, start
        self._following = asyncio.get_running_loop().create_task(self._follow(watch))

    async def _follow(self, watch: Watch) -> None:
        try:
            async for events in watch:
                for event in events.events:
                    if (names := read_names(event.key)) is not None:
                        self._changed(names, event)
                if self._clock.boottime() >= self._last_end:
                    return
        except LeaseholdError as error:
            logger.info(
                "the watch of permits ended, and cached permits are no longer used: %s", error
            )
        finally:
            watch.cancel()
            self._watch = None
            self.clear()

    async def close(self) -> None:
        """Cancel the watch, and drop all permits."""
        following, self._following = self._following, None
        if following is not None and not following.done():
            following.cancel()
            await asyncio.wait([following])
        if self._watch is not None:  # the task was cancelled before it began
            self._watch.cancel()
            self._watch = None
        self.clear()


PAGE: Final = 1_000
"""Permits that `list` reads at a time."""


class Permits:
    """Rights that end with a lease: a subject that has lost contact has lost its rights.

        permit = await client.permits.grant("worker-7", "reports/2031", {"read"}, ttl=60)
        await client.permits.check("worker-7", "reports/2031", "read")  # True, for a minute

    Subjects, resources and rights are arbitrary non-empty texts. Each call takes a `timeout` in
    seconds.
    """

    def __init__(self, engine: Engine, keeper: Keeper, patience: CallTimeouts, who: str) -> None:
        self._engine = engine
        self._keeper = keeper
        self._patience = patience
        self._who = who
        self.cache = PermitCache(engine, keeper.clock)
        """For the client, and for the blocking counterpart in `leasehold.sync`."""
        self.grants = PermitGrants(engine, keeper, self.cache.drop)

    async def grant(
        self,
        subject: str,
        resource: str,
        rights: Iterable[str],
        ttl: float | timedelta | None = None,
        *,
        lease: LeaseLike = None,
        granted_by: str | None = None,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Permit:
        """Grant rights for `ttl` seconds, or for as long as `lease` lasts: give one of the two.

        With `ttl` a lease is granted for the permit, which also ends at `permit.ends_at` by the
        wall clock. `client.keep(permit.lease)` extends both; other ways to renew the lease extend
        only the lease. With `lease` the permit is put under that lease, such as the subject's own,
        and has no other end; raises `UnknownLease` if the lease does not exist. `granted_by` is the
        client's name by default.

        A permit that the subject already has for the resource is replaced atomically. Its lease is
        revoked if it was granted for it and has no other key; otherwise it is left to its owner.

        If this fails or is cancelled, a lease that it has begun is revoked. Without an answer
        (`TimeoutError`, `ConnectionLost`) the subject has its earlier permit, or none if `ttl` was
        given, or the new one if `lease` was: `get` returns which.
        """
        names = names_of(subject, resource)
        checked = check_rights(rights)
        by = self._who if granted_by is None else check_name(granted_by, "granted_by")
        if (ttl is None) == (lease is None):
            raise ValueError("give either ttl or lease: a duration, or an existing lease")
        if ttl is not None:
            call = self.grants.grant_for(names, checked, by, check_seconds(ttl, "ttl"))
        else:
            number = lease_id(lease)
            if not number:
                raise ValueError("lease must be the id of an existing lease, not 0")
            call = self.grants.grant_under(names, checked, by, number)
        return await self._patience.wait(call, timeout)

    async def check(
        self,
        subject: str,
        resource: str,
        right: str,
        *,
        cache: bool = True,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> bool:
        """Return whether a subject has a right on a resource now.

        The answer may come from the cache of this client: for no longer than the lease is sure to
        last, and only until a change is received. With `cache` False the server is asked. If the
        server must be asked and does not answer, an error is raised; the result is never True then.
        """
        names = names_of(subject, resource)
        check_name(right, "right")
        permit = self.cache.get(names) if cache else None
        if permit is None:
            permit = await self._patience.wait(self.cache.ask(names, keep=cache), timeout)
        return permit is not None and permit.allows(right)

    async def get(
        self,
        subject: str,
        resource: str,
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Permit | None:
        """Read the permit of a subject for a resource from the server; None if there is none."""
        call = self._engine.range(names_of(subject, resource).key)
        found = await self._patience.wait(call, timeout)
        return self._read(found.pairs[0]) if found.pairs else None

    def _read(self, pair: KeyValue) -> Permit | None:
        """Decode a permit; None if the value is not a permit, or its wall-clock end has passed."""
        permit = read(pair)
        return None if permit is None or is_over(permit, self._keeper.clock.wall()) else permit

    async def revoke(
        self,
        subject: str,
        resource: str,
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> bool:
        """Revoke a permit; False if there is none.

        Its lease is revoked if it was granted for it and has no other key. All connected clients
        are notified immediately; others rely on their cached answers for at most as long as the
        lease was sure to last, or a minute.
        """
        call = self.grants.revoke(names_of(subject, resource))
        return await self._patience.wait(call, timeout)

    async def list(
        self,
        subject: str | None = None,
        resource: str | None = None,
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Sequence[Permit]:
        """List permits, all of them or those of a subject or for a resource, in order.

        All are read, page by page, unless a subject is given.
        """
        if subject is not None:
            check_name(subject, "subject")
        if resource is not None:
            check_name(resource, "resource")
        return await self._patience.wait(self._list(subject, resource), timeout)

    async def _list(self, subject: str | None, resource: str | None) -> Sequence[Permit]:
        found: dict[tuple[str, str], Permit] = {}
        first = PREFIX if subject is None else prefix_of(subject)
        end, revision, more = prefix_end(first), 0, True
        while more:  # all pages are of one revision
            page = await self._engine.range(first, end, revision=revision, limit=PAGE)
            for permit in filter(None, map(self._read, page.pairs)):
                if resource is None or permit.resource == resource:
                    found[permit.subject, permit.resource] = permit
            revision, more = page.revision, page.more
            first = page.pairs[-1].key + b"\0" if page.pairs else end
        return [permit for _, permit in sorted(found.items())]
