"""How objects on the loop are made and closed.

These are the parts of `Client`, `RemoteLandlord` and `RenewalManager` that are not generated, and
the base of `Discovery` and `Join`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import End
from leasehold.basics.forgotten import report_forgotten_client
from leasehold.basics.pending import Pending
from leasehold.basics.workers import SerialExecutor
from leasehold.client.client import Client as AsyncClient
from leasehold.discovery.client import RemoteDiscovery as AsyncDiscovery
from leasehold.events.state import RemoteEvent
from leasehold.leases import renewal_manager
from leasehold.leases.lease import Lease as AsyncLease
from leasehold.registry.health import HealthCheck
from leasehold.registry.named_items import Service, ServiceChange, check_service
from leasehold.registry.registered_service import TTL_S
from leasehold.registry.registered_service import RegisteredService as AsyncRegisteredService
from leasehold.renewal.set_events import ExpirationWarning, RenewalFailure
from leasehold.sync.block_exit import begin, block_exit
from leasehold.sync.blocking_call import BlockingCall
from leasehold.sync.generated.discovery_client import RemoteDiscovery
from leasehold.sync.generated.lease import Lease
from leasehold.sync.generated.registered_service import RegisteredService
from leasehold.sync.generated.renewal_client import RenewalSet
from leasehold.sync.lease_base import LeaseBase
from leasehold.sync.loop_thread import LoopThread, loop_thread
from leasehold.sync.registry import Changes
from leasehold.sync.renewal_set import blocking_event

logger = logging.getLogger(__name__)

RenewalSetEvent = ExpirationWarning[RenewalSet, Lease] | RenewalFailure[RenewalSet, Lease]
"""An event of a renewal set."""

T = TypeVar("T")
N = TypeVar("N")
B = TypeVar("B", bound=AbstractAsyncContextManager[object])
C = TypeVar("C", bound="ClientBase")


class ClientBase:
    """A client on the loop, closed at interpreter exit if not before."""

    def __new__(cls, *arguments: object, **_options: object) -> Self:
        """Raise TypeError for arguments of a program, before there is an object to finalize."""
        if not arguments or not isinstance(arguments[0], LoopThread):
            raise TypeError("use leasehold.sync.connect() or leasehold.sync.open() for a client")
        return super().__new__(cls)

    def __init__(self, thread: LoopThread, client: AsyncClient) -> None:
        self._thread = thread
        self._client = client

    def close(self) -> None:
        """End all leases of this client, then close the engine. Does nothing in a forked child."""
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._close)

    async def _close(self) -> None:
        try:
            await self._client.close()
        finally:
            self._thread.open_objects.discard(self._client)

    def renewal_event(self, event: RemoteEvent) -> RenewalSetEvent:
        """Return an event of a renewal set out of one from a mailbox or a served listener."""

        async def decode() -> RenewalSetEvent:
            return blocking_event(RenewalSet, self._thread, self._client.renewal_event(event))

        return self._thread.run(decode)

    @property
    def discovery_service(self) -> RemoteDiscovery:
        """The discovery service of the server, which finds registrars on behalf of clients."""

        async def get() -> AsyncDiscovery:
            return self._client.discovery_service

        return RemoteDiscovery(self._thread, self._thread.run(get))

    def find_discovery_service(
        self,
        id: str | None = None,  # noqa: A002  the name of the attribute
    ) -> RemoteDiscovery:
        """Find a discovery service in the registry, by its type: to be closed, or entered.

        `id` is that of its item. Without one it is the service of this server, or else any. One of
        another cluster has a connection of its own, which is closed at the end of the block, or
        with this client. Raises `NoSuchObject` if the registry does not have it.
        """

        async def find() -> AsyncDiscovery:
            return await self._client.find_discovery_service(id)

        found = self._thread.run(find, undo=AsyncDiscovery.close)
        return RemoteDiscovery(self._thread, found)

    def register(
        self,
        name: str,
        endpoint: str,
        *,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        check: HealthCheck | None = None,
        ttl: float | timedelta = TTL_S,
        lease: "LeaseBase | int | Literal['session'] | None" = None,
    ) -> RegisteredService:
        """Register a service by name, and keep it registered: to be closed, or entered.

            with client.register("web", "10.0.0.7:8080", tags=["v2"]):
                ...

        It has a lease of its own with this TTL, or `lease`: one that is held, or "session" for that
        of this client. If its lease is lost it is registered again. At the end of the block it is
        removed. `check` is a health check that this process makes.
        """
        ours: Any = lease.held if isinstance(lease, LeaseBase) else lease

        async def make() -> AsyncRegisteredService:
            return await self._client.register(
                name, endpoint, tags=tags, metadata=metadata, check=check, ttl=ttl, lease=ours
            )

        made = self._thread.run(make, undo=AsyncRegisteredService.close)
        return RegisteredService(self._thread, made)

    def services(self, name: str, *, tag: str | None = None) -> Changes[ServiceChange]:
        """Iterate over the services with a name: first the present ones, then each change.

        Only passing services count. It continues after a lost connection.
        """
        self._thread.check()
        return Changes(self._thread, self._client.services(name, tag=tag))

    def report_failure(self, service: Service) -> None:
        """Report that a service has failed, for the strategy `least_recently_failed`."""
        self._thread.check()
        check_service(service)  # what the thread raises is not seen
        self._thread.post(self._client.report_failure, service)  # before any later `pick`

    def __enter__(self) -> Self:
        self._thread.check_process()
        begin(self, self)
        return self

    def abandon(self) -> None:
        """Have the loop close it, unless it was closed: its block was interrupted."""
        self._thread.post(BlockingCall(self._close).start)

    @block_exit
    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._thread.post(_report_forgotten, self._thread, self._client)


def _report_forgotten(thread: LoopThread, client: AsyncClient) -> None:
    """Report a client that was garbage-collected; the thread closes it at the end."""
    if client in thread.open_objects and not thread.is_ending:
        report_forgotten_client(client.engine, client.who, "it is closed when the program ends")


def make_client(kind: type[C], pending: Pending[AsyncClient]) -> C:
    """Make a client on the loop of this process, and wait for it."""
    pending.handed_over()
    thread = loop_thread()

    async def make() -> AsyncClient:
        client = await pending
        thread.open_objects.add(client)
        return client

    async def undo(client: AsyncClient) -> None:
        thread.open_objects.discard(client)
        await client.close()

    return kind(thread, thread.run(make, undo=undo))


class LoopObject(Generic[B]):
    """An object on the loop of this process, made by a program and closed by its block."""

    def __init__(self, make: Callable[[], B]) -> None:
        self._thread = loop_thread()
        self._on_loop = self._run(make, undo=self._end)

    def _run(self, work: Callable[[], T], *, undo: Callable[[T], Any] | None = None) -> T:
        """Call a plain function on the loop."""

        async def run() -> T:
            return work()

        return self._thread.run(run, undo=undo)

    async def _end(self, on_loop: B) -> None:
        await on_loop.__aexit__(None, None, None)

    def _close(self) -> None:
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(lambda: self._end(self._on_loop))

    def _notify(self, listener: Callable[[N], object], event: N, described: object) -> None:
        """Call a function of the program; not in the loop's thread."""
        try:
            listener(event)
        except BaseException:
            if not self._thread.is_ending:  # else this thread is ending as well
                logger.exception("the listener for %r failed", described)

    def __enter__(self) -> Self:
        self._thread.check_process()
        begin(self, self)
        return self

    def abandon(self) -> None:
        """Have the loop close it, unless it was closed: its block was interrupted."""
        self._thread.post(BlockingCall(lambda: self._end(self._on_loop)).start)

    @block_exit
    def __exit__(self, *exc_info: object) -> None:
        self._close()


class RenewalBase(LoopObject[renewal_manager.RenewalManager]):
    """A renewal manager on the loop, and the thread that calls its listeners."""

    def __init__(self, make: Callable[[], renewal_manager.RenewalManager]) -> None:
        self._listeners = SerialExecutor(loop_thread().callbacks)
        super().__init__(make)

    def __len__(self) -> int:
        return len(self._on_loop)

    def __contains__(self, lease: object) -> bool:
        return isinstance(lease, Lease) and self._run(lambda: lease.on_loop in self._on_loop)

    def __repr__(self) -> str:
        return f"<RenewalManager of {len(self)} leases>"

    def _listener(
        self, listener: Callable[[N], object] | None, notice_kind: Callable[..., N]
    ) -> renewal_manager.Listener | None:
        """Return a listener for the loop: it queues the call of the one given."""
        check_plain_callback(listener, "listener")
        if listener is None:
            return None

        def queue(notice: renewal_manager.RenewalNotice) -> None:
            lease = Lease(notice.lease, self._thread)
            ours = notice_kind(self, lease, notice.kind, notice.desired_end, notice.error)
            self._listeners.submit(partial(self._notify, listener, ours, lease))

        return queue


def managed_on_loop(lease: Lease) -> AsyncLease:
    """Return the lease on the loop for one of ours."""
    if not isinstance(lease, Lease):
        raise TypeError(f"lease must be a leasehold.sync.Lease, not {lease!r}")
    return lease.on_loop


def all_on_loop(leases: Mapping[Lease, End] | None) -> Mapping[AsyncLease, End] | None:
    """Return desired ends with the leases on the loop; return anything else unchanged."""
    if not isinstance(leases, Mapping):
        return leases
    return {managed_on_loop(lease): end for lease, end in leases.items()}
