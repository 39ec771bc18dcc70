"""`client.permits` for blocking code. What is known already is answered in the caller's thread."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from leasehold.client.lease_like import LeaseLike
from leasehold.client.patience import Timeout
from leasehold.recipes.permits import Permit
from leasehold.recipes.permits import permits as on_loop
from leasehold.recipes.permits.naming import check_name, names_of
from leasehold.sync.loop_thread import LoopThread


class Permits:
    """Rights that end with a lease: who has lost contact has lost its rights.

        permit = client.permits.grant("worker-7", "reports/2031", {"read"}, ttl=60)
        client.permits.check("worker-7", "reports/2031", "read")  # True, for a minute

    Subjects, resources and rights are any texts, but not empty. Each call takes a `timeout` in
    seconds.
    """

    def __init__(self, thread: LoopThread, permits: on_loop.Permits) -> None:
        self._thread = thread
        self._permits = permits

    def grant(
        self,
        subject: str,
        resource: str,
        rights: Iterable[str],
        ttl: float | timedelta | None = None,
        *,
        lease: LeaseLike = None,
        granted_by: str | None = None,
        timeout: Timeout = None,
    ) -> Permit:
        """Grant rights for `ttl` seconds, or for as long as `lease` lasts: give one of the two.

        With `ttl` a lease is granted for the permit, which also ends at `permit.ends_at` by the
        wall clock. `client.keep(permit.lease)` extends both; other ways to renew the lease extend
        only the lease. With `lease` the permit is put under that lease, such as the subject's own,
        and has no other end; `UnknownLease` if the lease does not exist. `granted_by` is the
        client's name by default.

        A permit that the subject has for the resource is replaced, all at once. Its lease is ended
        if it was begun for it and has no other key; else it is left to whoever has it.

        If this fails or is given up, what it has begun is ended. Without an answer (`TimeoutError`,
        `ConnectionLost`) the subject has what it had before, or nothing if `ttl` was given, or what
        was granted if `lease` was: `get` tells.
        """
        return self._thread.run(
            lambda: self._permits.grant(
                subject,
                resource,
                rights,
                ttl,
                lease=lease,
                granted_by=granted_by,
                timeout=timeout,
            ),
            undo=None if ttl is None else self._permits.grants.undo,
        )

    def check(
        self,
        subject: str,
        resource: str,
        right: str,
        *,
        cache: bool = True,
        timeout: Timeout = None,
    ) -> bool:
        """Say whether a subject has a right on a resource now.

        The answer may come from what this client has asked before: no longer than the lease is
        sure to last, and only until it hears of a change. With `cache` False the server is asked.
        If it must be asked and does not answer, that is an error, never a yes.
        """
        if cache:
            self._thread.check_process()
            names = names_of(subject, resource)
            check_name(right, "right")
            permit = self._permits.cache.get(names)
            if permit is not None:
                return permit.allows(right)
        return self._thread.run(
            lambda: self._permits.check(subject, resource, right, cache=cache, timeout=timeout)
        )

    def get(self, subject: str, resource: str, *, timeout: Timeout = None) -> Permit | None:
        """Read the permit of a subject for a resource from the server; None if there is none."""
        return self._thread.run(lambda: self._permits.get(subject, resource, timeout=timeout))

    def revoke(self, subject: str, resource: str, *, timeout: Timeout = None) -> bool:
        """Take a permit away; False if there is none.

        Its lease is ended if it was begun for it and has no other key. All clients that are in
        touch hear of it at once; others believe in what they have asked for at most as long as the
        lease was sure to last, or a minute.
        """
        return self._thread.run(lambda: self._permits.revoke(subject, resource, timeout=timeout))

    def list(
        self,
        subject: str | None = None,
        resource: str | None = None,
        *,
        timeout: Timeout = None,
    ) -> Sequence[Permit]:
        """List permits, all of them or those of a subject or for a resource, in order.

        All are read, page by page, unless a subject is named.
        """
        return self._thread.run(lambda: self._permits.list(subject, resource, timeout=timeout))
