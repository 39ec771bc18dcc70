"""Writes the changes of registrations of the discovery service, many in a transaction.

A change of one registrar may concern all registrations. They are examined in turn, each under the
lock of its record, and up to `WRITES_TOGETHER` of those that have changed are written together.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from leasehold.basics.backoff import Backoff, exponential
from leasehold.discovery.cluster_search import ClusterSearch
from leasehold.discovery.known_registrars import KnownRegistrars
from leasehold.discovery.live_registration import LiveRegistration
from leasehold.discovery.locators import Locator
from leasehold.discovery.registration import ReachableRegistrar
from leasehold.discovery.registration_drafts import Draft, RegistrationDrafts
from leasehold.errors import LeaseholdError, NoSuchObject, ShardLost
from leasehold.keyspace.operations import Put
from leasehold.services.leased_records import LeasedRecords

logger = logging.getLogger(__name__)

WRITES_TOGETHER: Final = 60
"""Registrations in one transaction: each has a condition, and its shard may have one."""

MAX_WRITE_BYTES: Final = 512 * 1024
"""Bytes in one transaction, unless a single registration has more."""

MAX_EXAMINED: Final = 1_000
"""Registrars that are examined before other work of the event loop has its turn."""

RETRIES: Final = exponential(0.1, 10.0)
"""The waits between attempts to write."""


class RegistrationWriter:
    """The changes of registrations that are not written yet, and the task that writes them."""

    def __init__(
        self,
        records: LeasedRecords[LiveRegistration | None],
        known: KnownRegistrars,
        drafts: RegistrationDrafts,
        search: ClusterSearch,
        commit: Callable[[Draft], object],
        random: Random,
    ) -> None:
        """`commit` takes a draft that is stored."""
        self._records = records
        self._known = known
        self._drafts = drafts
        self._search = search
        self._commit = commit
        self._random = random
        self._unwritten: dict[LiveRegistration, None] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop. The next server finds the changes that were not written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def note(self, live: LiveRegistration, registrars: Iterable[str]) -> None:
        """Examine registrars for a registration, and write it if it has changed."""
        if not live.is_stopped:
            live.unexamined.update(registrars)
            self._unwritten[live] = None
            self._news.set()

    def drop(self, live: LiveRegistration) -> None:
        """Write nothing more of a registration that is stopped."""
        self._unwritten.pop(live, None)

    def wake(self) -> None:
        """Write registrars that have changed."""
        self._news.set()

    async def _run(self) -> None:
        backoff = Backoff(RETRIES, self._random)
        while True:
            await self._news.wait()
            self._news.clear()
            while self._unwritten or self._known.has_unwritten:
                is_written = False
                try:
                    is_written = await self._write_some()
                    await asyncio.sleep(0)  # nothing may have been written
                except (LeaseholdError, OSError) as error:
                    logger.warning("changes of registrations are not stored yet: %s", error)
                except Exception:
                    logger.exception("changes of registrations are not stored yet")
                if is_written:
                    backoff.reset()
                else:
                    await asyncio.sleep(backoff.next_s())

    async def _write_some(self) -> bool:
        """Examine and write the first registrations; return whether all of them succeeded."""
        some = list(self._unwritten)[:WRITES_TOGETHER]
        held: list[LiveRegistration] = []
        try:
            for live in some:
                await live.record.lock.acquire()
                held.append(live)
            return await self._write(self._examine(held))
        finally:
            for live in held:
                live.record.lock.release()

    def _examine(self, held: Iterable[LiveRegistration]) -> list[tuple[Draft, Put]]:
        """Examine registrations; return the changes of as many as fit into a transaction."""
        cache: dict[str, ReachableRegistrar[Locator] | None] = {}

        def find(registrar: str) -> ReachableRegistrar[Locator] | None:
            if registrar not in cache:
                cache[registrar] = self._search.get(registrar)
            return cache[registrar]

        drafts: list[tuple[Draft, Put]] = []
        done: list[Draft] = []
        size_bytes, examined, wall_minus_now = 0, 0, self._drafts.wall_minus_now()
        for live in held:
            if examined >= MAX_EXAMINED:
                break  # the rest follows
            if live.is_stopped or live.record.state is not live:
                self._unwritten.pop(live, None)
                continue
            examined += len(live.unexamined)
            interests = live.interests.copy()
            draft = self._drafts.make(live, interests, live.unexamined, (), find)
            if draft.events or live.stored or interests.found != live.interests.found:
                put = draft.put(wall_minus_now)
                size_bytes += len(put.value or b"")
                if drafts and size_bytes > MAX_WRITE_BYTES:
                    break  # the rest follows
                drafts.append((draft, put))
            done.append(draft)
        for draft in done:
            self._unwritten.pop(draft.live, None)
            draft.live.unexamined = set()
            for registrar in draft.examined - draft.interests.found.keys():
                self._drafts.check_again(draft.live, registrar)
        return drafts

    async def _write(self, made: list[tuple[Draft, Put]]) -> bool:
        drafts = [draft for draft, _ in made]
        writes = [(draft.live.record, [put]) for draft, put in made]
        try:
            await self._known.write()
            errors = await self._records.write_together(writes) if writes else []
        except BaseException:
            for draft in drafts:
                self.note(draft.live, draft.examined)
            raise
        for draft, error in zip(drafts, errors, strict=True):
            if error is None and not draft.live.is_stopped:
                self._commit(draft)
            elif error is not None and not isinstance(error, NoSuchObject | ShardLost):
                self.note(draft.live, draft.examined)
        return all(error is None or isinstance(error, NoSuchObject) for error in errors)
