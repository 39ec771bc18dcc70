"""`RemoteLandlord` for blocking code: a landlord in another process."""

import ssl
from typing import Self

from leasehold.basics.durations import ANY, DurationLike
from leasehold.grpc.endpoints import Endpoints
from leasehold.landlord import remote_landlord as on_loop
from leasehold.sync.landlord import Lease
from leasehold.sync.loop_thread import loop_thread


class RemoteLandlord:
    """A client of a landlord that another process serves with `serve_landlord`. Thread-safe.

    Nothing is connected until the first call, and a lost connection is made again. Failures of a
    call are errors of the library. After `ConnectFailed`, `ConnectionLost` and `TimeoutError` the
    state of a lease is unknown, and a renewal manager retries.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = on_loop.TIMEOUT_S,
        margin: float = 0.0,
    ) -> None:
        """Create a client; `timeout` in seconds is for each call, `margin` as for `Lease`."""

        async def make() -> on_loop.RemoteLandlord:
            return on_loop.RemoteLandlord(endpoints, tls=tls, timeout=timeout, margin=margin)

        self._thread = loop_thread()
        self._landlord = self._thread.run(make)

    def grant(self, resource: str = "", duration: DurationLike = ANY, *, holder: str = "") -> Lease:
        """Request a lease on `resource`, which is any text that the landlord understands.

        `holder` is the name that we give ourselves. Raise `LeaseDenied` if the landlord refuses.
        After any other error there may be a lease without a holder; it expires. If the caller is
        interrupted, the lease is cancelled.
        """
        lease = self._thread.run(
            lambda: self._landlord.grant(resource, duration, holder=holder),
            undo=on_loop.RemoteLease.cancel,
        )
        return Lease(lease, self._thread)

    def lease_from_bytes(self, data: bytes) -> Lease:
        """Return a lease from `Lease.to_bytes`, made here or in the landlord's process."""
        self._thread.check_process()
        return Lease(self._landlord.lease_from_bytes(data), self._thread)

    def close(self) -> None:
        """Abort the calls that are under way, and close the connection. No lease is ended.

        Does nothing in a forked child.
        """
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._landlord.close)

    def __enter__(self) -> Self:
        self._thread.check_process()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
