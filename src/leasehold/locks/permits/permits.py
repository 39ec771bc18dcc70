"""`client.permits`: rights of subjects on resources, for as long as a lease lasts."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from leasehold.basics.durations import check_seconds
from leasehold.engine.arguments import LeaseLike, lease_id
from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.engine.values import KeyValue
from leasehold.locks.permits.permit import (
    PREFIX,
    Permit,
    check_name,
    check_rights,
    is_over,
    names_of,
    prefix_of,
    read,
)
from leasehold.locks.permits.permit_cache import PermitCache
from leasehold.locks.permits.permit_grants import PermitGrants
from leasehold.sessions.lease_keeper import Keeper

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
