"""Moves the wall-clock end of a permit whenever its lease is renewed.

A permit that was granted with a TTL has an end in its value (`permit.py`), which bounds it in real
time: a server that restarts or stalls may keep the lease for longer. So whatever extends the lease
has to extend the permit, too. `client.keep` does: it reads which permits the lease has, and from
then on each renewal that is answered writes the new end, the time of the answer plus the term.

Each write is a transaction on the revision of the permit's key. It never replaces a permit that was
changed or revoked in the meantime, and never revives one whose end has passed.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

from leasehold.client.ending import PAUSE_MAX_S, PAUSE_MIN_S
from leasehold.client.held_lease import HeldLease
from leasehold.client.keeper import Keeper
from leasehold.client.key import Key
from leasehold.engine.interface import Engine
from leasehold.errors import EndReason, LeaseholdError, UnknownLease, is_definite
from leasehold.lease_ids import shown_lease
from leasehold.recipes.permits import naming
from leasehold.recipes.permits.permit import Permit, end_after, is_over, read, written
from leasehold.rpc.backoff import Backoff

logger = logging.getLogger(__name__)


class Extension:
    """The permits of one kept lease that have a wall-clock end."""

    def __init__(self, engine: Engine, keeper: Keeper, permits: Iterable[Permit]) -> None:
        self._engine = engine
        self._keeper = keeper
        self._permits = {permit.names.key: permit for permit in permits}
        self._lease: HeldLease
        self._is_moving = False
        self._is_due = False

    async def begin(self, lease: HeldLease) -> None:
        """Extend the permits for the first time, after the lease was renewed by `keep`."""
        self._lease = lease
        await self._move_all()

    def renewed(self) -> None:
        """Extend the permits, in the background: a renewal of the lease was answered."""
        self._is_due = True
        if not self._is_moving and self._permits:
            self._is_moving = True
            self._keeper.see_to(self._follow())

    async def _follow(self) -> None:
        """Extend the permits until there is nothing more to do; retry while the lease is held."""
        backoff = Backoff(self._keeper.random, PAUSE_MIN_S, PAUSE_MAX_S)
        try:
            while self._is_due and self._lease.is_held:
                self._is_due = False
                try:
                    await self._move_all()
                except (LeaseholdError, OSError) as error:
                    logger.warning(
                        "permits of lease %s could not be extended: %s",
                        shown_lease(self._lease.id),
                        str(error) or "no answer",
                    )
                    if is_definite(error):
                        return
                    self._is_due = True
                    await asyncio.sleep(backoff.next_s())
        finally:
            self._is_moving = False

    async def _move_all(self) -> None:
        for key in list(self._permits):
            moved = await self._move(key, self._permits[key])
            if moved is None:
                del self._permits[key]
            else:
                self._permits[key] = moved

    async def _move(self, key: bytes, permit: Permit | None) -> Permit | None:
        """Write the new end of a permit; None if it is not to be extended any more."""
        lease = self._lease
        while permit is not None and permit.lease == lease.id and permit.ends_at is not None:
            now_s = self._keeper.clock.wall()
            if is_over(permit, now_s):
                logger.warning(
                    "the permit of %r for %r ended at %s, and is not extended",
                    *permit.names,
                    permit.ends_at.isoformat(timespec="seconds"),
                )
                return None
            ends_at = max(permit.ends_at, end_after(now_s, lease.holding.term_s))
            moved = replace(permit, ends_at=ends_at)
            done = await self._engine.txn(
                [Key(key).mod_revision == permit.revision],
                [Key(key).put(written(moved), lease=lease.id)],
                [Key(key).get()],
            )
            if done.succeeded:
                return replace(moved, revision=done.revision)
            found = done.results[0].pairs
            permit = read(found[0]) if found else None
        return None


async def extension_of(engine: Engine, keeper: Keeper, lease: int) -> Extension | None:
    """Find the permits that have to be extended with a lease; None if there are none.

    Raises `UnknownLease` if the end of one of them has passed: it was not extended in time, though
    the server may still have the lease.
    """
    keys = (await engine.time_to_live(lease, keys=True)).keys or ()
    permits = []
    for key in keys:
        if not key.startswith(naming.PREFIX):
            continue
        found = (await engine.range(key)).pairs
        permit = read(found[0]) if found else None
        if permit is None or permit.ends_at is None or permit.lease != lease:
            continue
        if is_over(permit, keeper.clock.wall()):
            raise UnknownLease(lease, EndReason.EXPIRED)
        permits.append(permit)
    return Extension(engine, keeper, permits) if permits else None
