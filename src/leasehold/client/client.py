"""`Client`: the main API of Leasehold, on any engine."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import cache, partial
from random import Random
from typing import Any, Self

from leasehold.admin.client import Admin
from leasehold.basics.callbacks import check_callable, check_plain_callback
from leasehold.basics.durations import ANY, FOREVER, DurationLike, Forever, check_seconds
from leasehold.basics.event_loop import post
from leasehold.basics.forgotten import report_forgotten_client
from leasehold.basics.pending import Pending
from leasehold.client.kv import KV
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.discovery.client import RemoteDiscovery
from leasehold.discovery.service_lookup import DiscoveryServices
from leasehold.engine.interface import Engine
from leasehold.engine.key import BytesOrText, to_bytes
from leasehold.engine.time_limits import TIMEOUT_S, CallTimeouts, Timeout
from leasehold.engine.values import LeaseInfo
from leasehold.events.client import Mailbox
from leasehold.events.state import RemoteEvent
from leasehold.files.client import Files
from leasehold.locks.barrier import Barrier
from leasehold.locks.election import Election
from leasehold.locks.guards import RECALL_S, OnLoss, check_wait, options_of
from leasehold.locks.lock import Lock, LockRegistry
from leasehold.locks.lock_count import AcquisitionCounts, count_acquisitions
from leasehold.locks.lock_events import Listener as LockListener
from leasehold.locks.lock_keys import counter_key, name_of, stored_count
from leasehold.locks.permit_grants import keep_with_permits
from leasehold.locks.permits import Permits
from leasehold.locks.queued_locks import RWLock, Semaphore
from leasehold.locks.recipe_context import RecipeContext, check_client
from leasehold.registry.client import Registry
from leasehold.registry.health import HealthCheck
from leasehold.registry.named_items import (
    Service,
    ServiceChange,
    Strategy,
    named_item,
    named_template,
)
from leasehold.registry.named_services import NamedServices
from leasehold.registry.registered_service import (
    TTL_S,
    RegisteredService,
    SharedLease,
    check_shared,
)
from leasehold.renewal.arguments import check_leased
from leasehold.renewal.client import RenewalCalls, RenewalSet, RenewalSetEvent, SetInfo
from leasehold.sessions.client_session import SESSION_TTL_S, Sessions
from leasehold.sessions.held_lease import Callback, HeldLease, callback_of, number_of
from leasehold.sessions.kept_lease import Check
from leasehold.sessions.lease_keeper import Keeper


class Client:
    """Leases, keys and watches. Made by `leasehold.connect` and `leasehold.open`.

    It belongs to the event loop and the process that made it. Calls from another event loop raise
    `RuntimeError`, calls in a child process raise `Forked`; neither has any other effect.
    """

    _is_open = False
    """Whether it was created, and not closed."""

    def __init__(
        self,
        engine: Engine,
        *,
        timeout: float | timedelta = TIMEOUT_S,
        session_ttl: float | timedelta = SESSION_TTL_S,
        name: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        """Create a client on an engine, which it closes at the end.

        `timeout` is for each call; `session_ttl` is the TTL of the one lease of all its locks, and
        `name` its name as their holder. `random` draws lease ids and the pauses between attempts; a
        simulation passes one with a seed.
        """
        if not isinstance(engine, Engine):
            raise TypeError(f"engine must be an Engine, got {engine!r}; use leasehold.connect()")
        self.engine = engine
        self._patience = CallTimeouts(engine, timeout)
        self._keeper = Keeper(engine, clock, random)
        session_ttl_s, who = check_client(session_ttl, name)
        self._sessions = Sessions(engine, self._keeper, session_ttl_s, who)
        self._recipes = RecipeContext(engine, self._sessions, self._patience)
        self._locks = LockRegistry(self._recipes)
        self.who = who
        """Its name as a holder of locks."""
        self._closing: asyncio.Future[None] | None = None
        self.kv = KV(engine, self._patience)
        """Keys and values."""
        self.permits = Permits(engine, self._keeper, self._patience, who)
        """Rights of subjects on resources, for as long as a lease lasts."""
        self.files = Files(engine, self._keeper, who, clock=clock)
        """Files with one writer at a time, whose flushed bytes survive their writer."""
        self._clock = clock
        # Without a reference to this client: it must be collected as soon as it is forgotten.
        self._renewal = renewal = cache(partial(RenewalCalls, engine, self._patience, clock))
        self.registry = Registry(engine, self._patience, lambda: renewal().callbacks, clock)
        """Services that are found while they live, by types and attributes."""
        self._discovery = DiscoveryServices(
            engine, self._patience, self.registry, lambda: renewal().callbacks, clock
        )
        self.admin = Admin(engine, self._patience)
        """Administration of the server's own services."""
        self._services = NamedServices(self.registry, self._keeper, self._sessions, self._patience)
        self._is_open = True

    def lease(
        self,
        ttl: float | timedelta,
        *,
        renew_for: float | timedelta | Forever = FOREVER,
        while_healthy: Check | None = None,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        cancel_on_loss: bool = False,
        timeout: Timeout = None,
    ) -> Pending[HeldLease]:
        """Get a lease that is renewed automatically: to be awaited, or entered with `async with`.

            async with client.lease(10) as lease:
                await client.kv.put("workers/7", "here", lease=lease)
                ...

        It is revoked at the end of the block, and its keys are deleted with it. `renew_for` limits
        how long it is renewed; `while_healthy` is a check, a plain or an async function, that must
        return True for each renewal. `on_jeopardy(lease, error)` and `on_loss(lease, error)` are
        callbacks; with `cancel_on_loss` the block is cancelled if the lease is lost, and raises
        `LeaseLost`.
        """
        ttl_s = check_seconds(ttl, "ttl")
        bound = (
            renew_for if isinstance(renew_for, Forever) else check_seconds(renew_for, "renew_for")
        )
        check_callable(while_healthy, "while_healthy")
        grant = partial(
            self._keeper.grant,
            ttl_s,
            renew_for_s=bound,
            while_healthy=while_healthy,
            on_jeopardy=callback_of(self._keeper, on_jeopardy, "on_jeopardy"),
            on_loss=callback_of(self._keeper, on_loss, "on_loss"),
            cancel_on_loss=cancel_on_loss,
        )

        async def make() -> HeldLease:
            return HeldLease(self._keeper, await self._patience.wait(grant(), timeout))

        return Pending(make, "client.lease()")

    def keep(
        self,
        lease: int,
        *,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        timeout: Timeout = None,
    ) -> Pending[HeldLease]:
        """Keep an existing lease alive, such as one that a script or a permit's grant has begun.

        It is renewed now, and from then on like one of `lease`, and revoked at the end of the block
        unless `release` was called. Permits that were granted with a TTL are extended with their
        lease. Raises `UnknownLease` if the lease does not exist, or is that of a permit which has
        ended.
        """
        keep = partial(
            keep_with_permits,
            self.engine,
            self._keeper,
            number_of(lease),
            on_jeopardy=callback_of(self._keeper, on_jeopardy, "on_jeopardy"),
            on_loss=callback_of(self._keeper, on_loss, "on_loss"),
        )

        async def make() -> HeldLease:
            return HeldLease(self._keeper, await self._patience.wait(keep(), timeout))

        return Pending(make, "client.keep()")

    async def revoke(self, lease: HeldLease | int, *, timeout: Timeout = None) -> None:  # noqa: ASYNC109
        """Revoke any lease, and delete its keys. Raises `UnknownLease` if it does not exist."""
        if isinstance(lease, HeldLease):
            await self._patience.wait(lease.end(), timeout)
        else:
            await self._patience.wait(self.engine.revoke(number_of(lease)), timeout)

    async def lease_info(
        self,
        lease: HeldLease | int,
        *,
        keys: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> LeaseInfo:
        """Return the remaining time and the keys of a lease; `UnknownLease` if it is over."""
        call = self.engine.time_to_live(number_of(lease), keys=keys)
        return await self._patience.wait(call, timeout)

    async def leases(self, *, timeout: Timeout = None) -> Sequence[LeaseInfo]:  # noqa: ASYNC109
        """List all leases, in order of their ends."""
        return await self._patience.wait(self.engine.leases(), timeout)

    def lock(
        self,
        name: BytesOrText,
        *,
        timeout: Timeout = None,
        cache: bool = True,
        recall: bool = True,
        idle_timeout: float | timedelta | None = None,
        recall_timeout: float | timedelta = RECALL_S,
        reentrant: bool = False,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
        count: bool = False,
    ) -> Lock:
        """Return a handle of a lock: to be entered with `async with`, or acquired.

            async with client.lock("cron/backup") as guard:
                ...
                guard.check()

        It waits without limit, or for `timeout` seconds; 0 does not wait for a release. Raises
        `LockDenied`, which names the holder. A released lock is kept in the cache for
        `idle_timeout` (by default the session's TTL) and given up when another client waits,
        unless `cache` or `recall` is False. `recall_timeout` is how long to wait for the holder's
        answer with `timeout=0`.

        `on_loss(guard, error)` is called if the lock is lost; with `cancel_on_loss` the block is
        cancelled, and raises `LockLost`. With `reentrant` this handle may be acquired again while
        it is held. With `count` the number of acquisitions is stored when the lock becomes free,
        see `count_acquisitions`.
        """
        data = name_of(name)
        options = options_of(
            self._locks.defaults,
            cache=cache,
            recall=recall,
            idle_timeout=idle_timeout,
            recall_timeout=recall_timeout,
            on_loss=on_loss,
            cancel_on_loss=cancel_on_loss,
            count=count,
        )
        timeout_s = check_wait(timeout)
        return Lock(self._locks, data, options, timeout_s=timeout_s, is_reentrant=reentrant)

    def rwlock(self, name: BytesOrText) -> RWLock:
        """Return a handle of a lock for many readers or one writer.

            async with client.rwlock("config").read() as guard:
                ...

        First come, first served: a reader behind a waiting writer waits, too.
        """
        return RWLock(self._recipes, name)

    def semaphore(
        self,
        name: BytesOrText,
        limit: int,
        *,
        timeout: Timeout = None,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Semaphore:
        """Return a handle of a semaphore with up to `limit` holders, first come, first served.

            async with client.semaphore("downloads", limit=3) as guard:
                ...

        All clients must use the same limit: otherwise raises `ValueError`, which names the limit in
        use. It waits without limit, or for `timeout` seconds; 0 does not wait for a free place.
        Raises `LockDenied` after that. `on_loss(guard, error)` is called if it is lost; with
        `cancel_on_loss` the block is cancelled, and raises `LockLost`.
        """
        return Semaphore(
            self._recipes,
            name,
            limit,
            timeout=timeout,
            on_loss=on_loss,
            cancel_on_loss=cancel_on_loss,
        )

    def barrier(self, name: BytesOrText, parties: int) -> Barrier:
        """Return a handle of a barrier, at which all wait until `parties` are present.

        await client.barrier("start", parties=3).wait()
        """
        return Barrier(self._recipes, name, parties)

    def election(self, name: BytesOrText) -> Election:
        """Return a handle of an election of one leader, compatible with etcd's elections.

        async with client.election("scheduler").campaign("host-1") as leadership:
            ...
        """
        return Election(self._recipes, name)

    async def count_acquisitions(
        self,
        *names: BytesOrText,
        prefix: BytesOrText | None = None,
        recall_timeout: float | timedelta = RECALL_S,
    ) -> AcquisitionCounts:
        """Count how often locks were acquired: those named, and those whose names have a prefix.

        No lock is taken for this: their holders respond within `recall_timeout`.
        Locks whose holders do not are in `not_reached` of the result, the others in `counts`. Each
        client counts, and the count is passed on when a lock is handed over. It is lost when the
        lock has no holder any more, unless the lock was made with `count=True`.
        """
        named = [name_of(name) for name in names]
        below = None if prefix is None else to_bytes(prefix, "prefix")
        recall_s = check_seconds(recall_timeout, "recall_timeout")
        return await count_acquisitions(self._locks, named, below, recall_s)

    async def remove_count(self, name: BytesOrText, *, timeout: Timeout = None) -> int:  # noqa: ASYNC109
        """Remove the stored count of a lock made with `count=True`; return what it was.

        Acquisitions of its current holder, if it has one, are not removed.
        """
        removing = self.engine.delete(counter_key(name_of(name)), previous=True)
        removed = await self._patience.wait(removing, timeout)
        return stored_count(next(iter(removed.previous), None))

    def on_lock_event(self, listener: LockListener) -> Callable[[], None]:
        """Call `listener(event)` for events of locks; returns a function that removes it."""
        check_plain_callback(listener, "listener")
        return self._locks.log.listen(listener)

    def renewal_set(
        self,
        duration: DurationLike = ANY,
        *,
        id: str | None = None,  # noqa: A002  the name of the attribute
        timeout: Timeout = None,
    ) -> Pending[RenewalSet]:
        """Create a set of leases that the server keeps alive: to be awaited, or entered.

            async with client.renewal_set(duration=3600) as renewals:
                await renewals.renew_for(lease, desired_duration=86_400)

        The set is leased for `duration`, or less if the server has a lower limit. It outlives the
        block and this client: it ends with its lease, or with `destroy`. With `id` it is a set that
        exists, of any client; raises `NoSuchObject` if it has ended.
        """
        requested = check_leased(duration, id, "renewal set")

        async def make() -> RenewalSet:
            service = self._renewal_calls()
            if id is None:
                return await service.create(requested, timeout)
            return await service.find(id, timeout)

        return Pending(make, "client.renewal_set()")

    def renewal_event(self, event: RemoteEvent) -> RenewalSetEvent:
        """Return an event of a renewal set out of one from a mailbox or a served listener."""
        return self._renewal_calls().event(event)

    async def renewal_sets(self) -> list[SetInfo]:
        """Return the state of all renewal sets of the cluster, for its operator."""
        return await self._renewal_calls().sets()

    @property
    def discovery_service(self) -> RemoteDiscovery:
        """The discovery service of the server, which finds registrars on behalf of clients."""
        return self._discovery.own()

    def find_discovery_service(self, id: str | None = None) -> Pending[RemoteDiscovery]:  # noqa: A002
        """Find a discovery service in the registry, by its type: to be awaited, or entered.

        `id` is that of its item. Without one it is the service of this server, or else any. One of
        another cluster has a connection of its own, which is closed at the end of the block, or
        with this client. Raises `NoSuchObject` if the registry does not have it.
        """
        return Pending(partial(self._discovery.find, id), "client.find_discovery_service()")

    async def mailbox(
        self,
        duration: DurationLike = ANY,
        *,
        id: str | None = None,  # noqa: A002  the name of the attribute
    ) -> Mailbox:
        """Create a queue of events on the server, which is read later.

            mailbox = await client.mailbox(3600)
            await renewals.set_failure_listener(mailbox)

        The mailbox is leased for `duration`, or less if the server has a lower limit. It outlives
        this client: it ends with its lease. With `id` it is a mailbox that exists, of any client;
        raises `NoSuchObject` if it has ended.
        """
        requested = check_leased(duration, id, "mailbox")
        channel, limit_s = self._renewal_calls().channel, self._patience.timeout_s
        if id is None:
            return await Mailbox.create(channel, requested, timeout=limit_s, clock=self._clock)
        return await Mailbox.find(channel, id, timeout=limit_s, clock=self._clock)

    def register(
        self,
        name: str,
        endpoint: str,
        *,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        check: HealthCheck | None = None,
        ttl: float | timedelta = TTL_S,
        lease: SharedLease | None = None,
    ) -> Pending[RegisteredService]:
        """Register a service by name, and keep it registered: to be awaited, or entered.

            async with client.register("web", "10.0.0.7:8080", tags=["v2"]):
                ...

        It has a lease of its own with this TTL, or `lease`: one that is held, or "session" for that
        of this client. If its lease is lost it is registered again. At the end of the block it is
        removed. `check` is a health check that this process makes.
        """
        item, ttl_s = named_item(name, endpoint, tags, metadata), check_seconds(ttl, "ttl")
        check_shared(lease, check)
        register = partial(self._services.register, item, check, ttl_s, lease)
        return Pending(register, "client.register()")

    def services(self, name: str, *, tag: str | None = None) -> AsyncGenerator[ServiceChange, None]:
        """Iterate over the services with a name: first the present ones, then each change.

        Only passing services count. It continues after a lost connection.
        """
        return self._services.services(named_template(name, tag), name)

    async def pick(
        self,
        name: str,
        *,
        tag: str | None = None,
        strategy: Strategy = "round_robin",
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Service | None:
        """Return one of the passing services with a name, or None if there is none."""
        return await self._services.pick(name, tag, strategy, timeout)

    def report_failure(self, service: Service) -> None:
        """Report that a service has failed, for the strategy `least_recently_failed`."""
        self._services.failed(service)

    def _renewal_calls(self) -> RenewalCalls:
        self._patience.check()
        return self._renewal()

    async def close(self) -> None:
        """End all leases of this client, then close the engine.

        It continues if the caller is cancelled; further calls wait for the same end.
        """
        if self._keeper.is_forked:
            return  # everything belongs to the parent
        self._patience.owner.check()
        self._is_open = False
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with AsyncExitStack() as last:  # in reverse order, and all even if one fails
            last.callback(self._patience.close)
            for close in (self.engine.close, self._keeper.close, self.permits.cache.close):
                last.push_async_callback(close)
            last.push_async_callback(self._locks.close)
            last.push_async_callback(self._recipes.end_tasks)
            if self._renewal.cache_info().currsize:
                last.push_async_callback(self._renewal().close)
            for close in (self._discovery.close, self.registry.close, self._services.close):
                last.push_async_callback(close)
            last.push_async_callback(self.files.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._is_open and self.engine.is_open:
            then = "its resources stay open until its event loop ends"
            post(self._patience.owner.loop, report_forgotten_client, self.engine, self.who, then)
