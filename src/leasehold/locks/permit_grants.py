"""Grants, revokes and extends permits, without leftovers and late effects of failed calls.

Theory of operation. Each write is a transaction that compares the revision of the permit's key with
the one that was read, so it replaces only the permit that was read; if the permit was changed in
the meantime, the write is retried on the new one. Leases are handled as follows:

- a lease that a grant has begun is revoked if the grant fails, is cancelled, or has no answer. Its
  id is chosen here, so that this can be done whatever the answer was;
- the lease of a permit that is replaced or revoked is revoked if a grant has begun it (`own_lease`)
  and it has no key any more. A client that keeps it alive is notified by that. The two requests are
  not atomic: a key that is put under it between them is deleted with it. Other leases are left as
  they are: they have other owners.

A call without an answer may still be executed, when an abandoned connection is read to its end. It
must not be, once a later call has read the state: a permit that was revoked in the meantime would
exist again. So a grant is *taken back* first: its lease is revoked, without which a put is refused;
or for a lease that was given, the key is deleted that its transaction compares, and which was put
under that lease before (`permit.CALLS`). Later grants and revocations of the same permit by
this client wait for that. A revocation without an answer is completed: a late one does no harm,
since a permit that is granted later has another revision.

A permit that was granted with a TTL has an end in its value, which bounds it in real time: a server
that restarts or stalls may keep the lease for longer. So a renewal of the lease has to extend the
permit, too. `client.keep` does so: it reads the permits of the lease, and from then on each renewal
that is answered writes the new end, the time of the answer plus the term. That never replaces a
permit that was changed or revoked in the meantime, and never revives one whose end has passed.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, Final

from leasehold.basics.backoff import Backoff
from leasehold.basics.lease_ids import shown_lease
from leasehold.engine.interface import Engine
from leasehold.engine.key import Key
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue, TxnResult
from leasehold.errors import CallFailed, EndReason, LeaseholdError, UnknownLease, is_definite
from leasehold.keyspace.operations import Step
from leasehold.locks.permit import (
    CALLS,
    PREFIX,
    Names,
    Permit,
    end_after,
    is_over,
    read,
    written,
)
from leasehold.sessions.kept_lease import KeptCallback, KeptLease
from leasehold.sessions.lease_keeper import (
    LOOK_PAUSES_S,
    LOST_S,
    REVOKE_RETRIES,
    Keeper,
    end_one,
    retry_until_answered,
)

logger = logging.getLogger(__name__)

TRIES: Final = 32
"""How often a write is tried if others change the permit each time."""

CONCURRENT_SETTLEMENTS: Final = 64
"""Calls without an answer that are settled at the same time; the others wait."""


class _GrantAttempt:
    """A grant under way, and its state."""

    __slots__ = ("before", "call", "ends_at", "has_begun", "is_own", "lease", "names")

    def __init__(self, names: Names, lease: int, ends_at: datetime | None) -> None:
        self.names = names
        self.lease = lease
        self.ends_at = ends_at
        """The permit's wall-clock end, if the lease was granted for it."""
        self.is_own = is_own = ends_at is not None
        self.call = b"" if is_own else CALLS + secrets.token_hex(8).encode()
        """The key that must exist, for a lease that was given."""
        self.has_begun = is_own
        """Whether something has to be taken back: the lease, or that key once its put was
        answered."""
        self.before: Permit | None = None
        """The permit to be replaced, as last read."""


class PermitGrants:
    """Writes permits, and manages their leases."""

    def __init__(self, engine: Engine, keeper: Keeper, on_change: Callable[[Names], None]) -> None:
        self._engine = engine
        self._keeper = keeper
        self._on_change = on_change
        """Called with each permit before and after it is written."""
        self._settling: dict[bytes, asyncio.Task[object]] = {}
        """Tasks that must end before a permit is written again. They have a time limit."""
        self._turns = asyncio.Semaphore(CONCURRENT_SETTLEMENTS)

    # Granting.

    async def grant_for(
        self, names: Names, rights: frozenset[str], granted_by: str, ttl_s: float
    ) -> Permit:
        """Grant a permit under a new lease."""
        await self._settled(names.key)
        lease, granted_s = await self._keeper.begin(ttl_s)
        ends_at = end_after(self._keeper.clock.wall(), granted_s)
        return await self._grant(_GrantAttempt(names, lease, ends_at), rights, granted_by)

    async def grant_under(
        self, names: Names, rights: frozenset[str], granted_by: str, lease: int
    ) -> Permit:
        """Grant a permit under an existing lease."""
        await self._settled(names.key)
        return await self._grant(_GrantAttempt(names, lease, None), rights, granted_by)

    async def _grant(
        self, attempt: _GrantAttempt, rights: frozenset[str], granted_by: str
    ) -> Permit:
        key = attempt.names.key
        self._on_change(attempt.names)
        try:
            permit = await self._write(attempt, rights, granted_by)
        except BaseException as error:
            if attempt.has_begun or not is_definite(error):
                self._settle_later(key, partial(self._take_back, attempt))
            raise
        finally:
            self._on_change(attempt.names)
        if attempt.before is not None and attempt.before.lease != permit.lease:
            self._end_unused_later(attempt.before)
        return permit

    async def _write(
        self, attempt: _GrantAttempt, rights: frozenset[str], granted_by: str
    ) -> Permit:
        key, lease = attempt.names.key, attempt.lease
        needs = []
        closes: list[Step] = []
        if attempt.call:
            await self._engine.put(attempt.call, b"", lease=lease)
            attempt.has_begun = True
            needs, closes = [Key(attempt.call).exists()], [Key(attempt.call).delete()]
        found = (await self._engine.range(key)).pairs
        for _ in range(TRIES):
            before = attempt.before = read(found[0]) if found else None
            own_lease, ends_at = attempt.is_own, attempt.ends_at
            if before is not None and before.lease == lease:  # new rights, the same lease
                own_lease, ends_at = before.own_lease, before.ends_at
            permit = Permit(*attempt.names, rights, lease, granted_by, own_lease, 0, ends_at)
            done = await self._engine.txn(
                [Key(key).mod_revision == _revision(found), *needs],
                [Key(key).put(written(permit), lease=lease), *closes],
                [Key(key).get(), *([Key(attempt.call).get()] if attempt.call else [])],
            )
            if done.succeeded:
                return replace(permit, revision=done.revision)
            if attempt.call and not done.results[1].pairs:
                raise UnknownLease(lease)  # which has deleted the key of the call
            found = done.results[0].pairs
        raise _too_often(attempt.names)

    # Revoking.

    async def revoke(self, names: Names) -> bool:
        """Delete a permit; False if there is none."""
        key = names.key
        await self._settled(key)
        self._on_change(names)
        try:
            found = (await self._engine.range(key)).pairs
            for _ in range(TRIES):
                if not found:
                    return False
                seen = found[0]
                try:
                    done = await self._delete(seen)
                except BaseException as error:
                    if not is_definite(error):
                        self._settle_later(key, partial(self._carry_through, names, seen))
                    raise
                if done.succeeded:
                    break
                found = done.results[0].pairs
            else:
                raise _too_often(names)
        finally:
            self._on_change(names)
        if (before := read(seen)) is not None:
            self._end_unused_later(before)
        return True

    async def _delete(self, seen: KeyValue) -> TxnResult:
        key = Key(seen.key)
        return await self._engine.txn(
            [key.mod_revision == seen.mod_revision], [key.delete()], [key.get()]
        )

    async def _carry_through(self, names: Names, seen: KeyValue) -> None:
        """Complete a revocation that had no answer."""
        await _until_answered(
            self._engine,
            lambda: self._delete(seen),
            f"permit {seen.key!r}",
            self._keeper.random,
        )
        self._on_change(names)
        if (before := read(seen)) is not None:
            await self._end_unused(before)

    # Leases, and calls without an answer.

    def _end_unused_later(self, permit: Permit) -> None:
        """Revoke the lease of a deleted permit, if it has no other use."""
        if permit.own_lease:
            self._keeper.run_cleanup(self._end_unused(permit))

    async def _end_unused(self, permit: Permit) -> None:
        if not permit.own_lease:
            return

        async def end() -> None:
            try:
                info = await self._engine.time_to_live(permit.lease, keys=True)
                if not info.key_count:
                    await self._engine.revoke(permit.lease)
            except UnknownLease:
                return

        await _until_answered(
            self._engine,
            end,
            f"lease {shown_lease(permit.lease)}, which has no permit any more,",
            self._keeper.random,
        )

    async def undo(self, permit: Permit) -> None:
        """Take back a granted permit that did not reach the caller."""
        if permit.own_lease:
            await end_one(self._engine, permit.lease, LOST_S, self._keeper.random)

    async def _take_back(self, attempt: _GrantAttempt) -> None:
        """Make sure that a grant that has failed is not executed later."""
        if attempt.is_own:
            await end_one(self._engine, attempt.lease, LOST_S, self._keeper.random)
        else:
            await self._hang_up(attempt)
        if attempt.before is not None and attempt.before.lease != attempt.lease:
            await self._end_unused(attempt.before)

    async def _hang_up(self, attempt: _GrantAttempt) -> None:
        """Delete the key of a call; if its put had no answer, it may yet appear."""

        async def delete() -> None:
            for look_s in (0.0,) if attempt.has_begun else LOOK_PAUSES_S:
                await asyncio.sleep(look_s)
                if (await self._engine.delete(attempt.call)).deleted:
                    return

        await _until_answered(self._engine, delete, f"key {attempt.call!r}", self._keeper.random)

    def _settle_later(self, key: bytes, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start work that must be done before the permit is written again."""
        earlier = self._settling.get(key)

        async def settle() -> None:
            if earlier is not None:
                await asyncio.wait([earlier])
            async with self._turns:
                await work()

        def done(task: asyncio.Task[object]) -> None:
            if self._settling.get(key) is task:
                del self._settling[key]

        task = self._settling[key] = self._keeper.run_cleanup(settle())
        task.add_done_callback(done)

    async def _settled(self, key: bytes) -> None:
        """Wait until abandoned calls can have no effect any more."""
        self._keeper.check()
        settling = self._settling.get(key)
        if settling is not None:
            await asyncio.wait([settling])


class PermitExtension:
    """The permits of one kept lease that have a wall-clock end."""

    def __init__(self, engine: Engine, keeper: Keeper, permits: Iterable[Permit]) -> None:
        self._engine = engine
        self._keeper = keeper
        self._permits = {permit.names.key: permit for permit in permits}
        self._lease: KeptLease
        self._is_moving = False
        self._is_due = False

    async def begin(self, lease: KeptLease) -> None:
        """Extend the permits for the first time, after the lease was renewed by `keep`."""
        self._lease = lease
        await self._move_all()

    def renewed(self) -> None:
        """Extend the permits, in the background: a renewal of the lease was answered."""
        self._is_due = True
        if not self._is_moving and self._permits:
            self._is_moving = True
            self._keeper.run_cleanup(self._follow())

    async def _follow(self) -> None:
        """Extend the permits until none is left to extend; retry while the lease is held."""
        backoff = Backoff(REVOKE_RETRIES, self._keeper.random)
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
        """Write the new end of a permit; None if it must not be extended any more."""
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


async def keep_with_permits(
    engine: Engine,
    keeper: Keeper,
    lease: int,
    *,
    on_jeopardy: KeptCallback | None,
    on_loss: KeptCallback | None,
) -> KeptLease:
    """Keep an existing lease alive, and extend its permits with it. Raises `UnknownLease`."""
    keeper.check()
    extension = await _extension_of(engine, keeper, lease)
    on_renewed = None if extension is None else extension.renewed
    held = await keeper.adopt(
        lease, on_jeopardy=on_jeopardy, on_loss=on_loss, on_renewed=on_renewed
    )
    if extension is not None:
        try:
            await extension.begin(held)
        except BaseException:
            keeper.release(held)
            raise
    return held


async def _extension_of(engine: Engine, keeper: Keeper, lease: int) -> PermitExtension | None:
    """Find the permits that have to be extended with a lease; None if there are none.

    Raises `UnknownLease` if the end of one of them has passed: it was not extended in time, though
    the server may still have the lease.
    """
    keys = (await engine.time_to_live(lease, keys=True)).keys or ()
    permits = []
    for key in keys:
        if not key.startswith(PREFIX):
            continue
        found = (await engine.range(key)).pairs
        permit = read(found[0]) if found else None
        if permit is None or permit.ends_at is None or permit.lease != lease:
            continue
        if is_over(permit, keeper.clock.wall()):
            raise UnknownLease(lease, EndReason.EXPIRED)
        permits.append(permit)
    return PermitExtension(engine, keeper, permits) if permits else None


async def _until_answered(
    engine: Engine, call: Callable[[], Awaitable[object]], what: str, random: Random
) -> None:
    """Repeat a call, with random pauses, until it is answered or `LOST_S` have passed."""
    try:
        async with time_limit(LOST_S, engine):
            await retry_until_answered(call, Backoff(REVOKE_RETRIES, random))
    except (LeaseholdError, OSError) as error:
        logger.warning("%s was not removed and will expire: %s", what, str(error) or "no answer")


def _revision(found: Sequence[KeyValue]) -> int:
    """Return the mod revision of the pair that was read; 0 if there is none, as in transactions."""
    return found[0].mod_revision if found else 0


def _too_often(names: Names) -> CallFailed:
    return CallFailed(
        f"the permit of {names.subject!r} for {names.resource!r} was changed by others {TRIES} "
        "times meanwhile: try again"
    )
