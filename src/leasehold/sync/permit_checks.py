"""Checks of permits for blocking code: cached permits are checked in the caller's thread."""

from leasehold.engine.time_limits import Timeout
from leasehold.locks.permits import permits as on_loop
from leasehold.locks.permits.permit import check_name, names_of
from leasehold.sync.loop_thread import LoopThread


class PermitChecks:
    """The part of `Permits` that is not generated."""

    def __init__(self, thread: LoopThread, permits: on_loop.Permits) -> None:
        self._thread = thread
        self._permits = permits

    def check(
        self,
        subject: str,
        resource: str,
        right: str,
        *,
        cache: bool = True,
        timeout: Timeout = None,
    ) -> bool:
        """Return whether a subject has a right on a resource now.

        The answer may come from the cache of this client: for no longer than the lease is sure to
        last, and only until a change is received. With `cache` False the server is asked. If the
        server must be asked and does not answer, an error is raised; the result is never True then.
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
