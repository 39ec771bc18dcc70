"""`RegisteredService`: a service that is kept registered under its name.

One task brings the item up to date with the wanted state, whenever its lease was lost, or its
health or attributes have changed. Twice in a TTL it checks that the item exists. Its lease is
renewed by the client, like any other lease of it.

If several processes register one name and endpoint, the item is that of the latest one, so that a
new process takes over from one that is about to end. The others are *replaced*: they register it
again when it is gone, or with `update`, but not when their health changes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, Final, Literal, Self, TypeAlias

from leasehold.basics.backoff import Backoff, exponential
from leasehold.engine.time_limits import CallTimeouts
from leasehold.errors import Closed, Forked, HistoryLost, LeaseholdError, LeaseLost, UnknownLease
from leasehold.registry.client import Registration, Registry
from leasehold.registry.codecs import service_template
from leasehold.registry.health import HealthCheck, HealthMonitor
from leasehold.registry.named_items import (
    named_item,
    service_of,
)
from leasehold.registry.state import Health, Item
from leasehold.sessions.client_session import Sessions
from leasehold.sessions.held_lease import HeldLease, number_of
from leasehold.sessions.lease_keeper import Keeper
from leasehold.sessions.session import Session

logger = logging.getLogger(__name__)

TTL_S: Final = 15.0
"""The default TTL of a service's own lease: how long one that has crashed is still found."""

CHECK: Final = 0.5
"""After which fraction of the TTL it is checked that the item of a service is there."""

RETRIES: Final = exponential(1.0, 60.0)
"""The longest waits before a service is registered again."""

CLOSE_S: Final = 2.0
"""How long the end of a block waits for the end of the registration."""

_OVER: Final = (Closed, Forked, HistoryLost)
"""Errors after which the client makes no further calls."""

SharedLease: TypeAlias = HeldLease | int | Literal["session"]
"""A lease for a service: one that is held, the number of one, or that of the client's session."""


def check_shared(lease: SharedLease | None, check: HealthCheck | None) -> None:
    """Raise TypeError if the lease or the check of a service has a wrong type."""
    if lease is not None and not isinstance(lease, str):
        number_of(lease)
    elif lease not in {None, "session"}:
        raise ValueError(f'lease must be a lease, the id of one, or "session", got {lease!r}')
    if not isinstance(check, HealthCheck | None):
        raise TypeError(f"check must be a health check, such as HttpCheck, not {check!r}")


# The lease of a service.


class OwnLeases:
    """A lease of its own for a service, another one after each loss."""

    def __init__(self, keeper: Keeper, patience: CallTimeouts, ttl_s: float) -> None:
        self._keeper = keeper
        self._patience = patience
        self.ttl_s = ttl_s
        self._lease: HeldLease | None = None

    async def obtain(self, on_lost: Callable[[], object]) -> int:
        """Return the id of a live lease; `on_lost` is called when it is lost."""
        if self._lease is not None and not self._lease.is_held:
            await self._lease.end()
            self._lease = None
        if self._lease is None:
            granting = self._keeper.grant(self.ttl_s, on_loss=lambda _lease, _error: on_lost())
            kept = await self._patience.wait(granting, None)
            self._lease = HeldLease(self._keeper, kept, is_reported=False)
        return self._lease.id

    def is_live(self) -> bool:
        """Return whether the lease that was obtained is held."""
        return self._lease is not None and self._lease.is_held

    def found_lost(self) -> bool:
        """Return False: another lease is obtained for one that was lost."""
        return False

    async def close(self) -> bool:
        """End the lease, and the item with it; return False if the item has to be cancelled."""
        if self._lease is not None:
            await self._lease.end()
        return True


class SharedLeases:
    """A lease that services share: that of the session, or one that the program holds."""

    def __init__(self, sessions: Sessions, lease: SharedLease) -> None:
        self._sessions = sessions
        self._given = lease
        self.ttl_s = sessions.ttl_s if lease == "session" else TTL_S
        self._is_lost = False
        self._session: Session | None = None
        self._forget: Callable[[], object] | None = None

    async def obtain(self, on_lost: Callable[[], object]) -> int:
        """Return the id of a live lease; `on_lost` is called when that of the session is lost."""
        if isinstance(self._given, HeldLease):
            self._given.check()
            return self._given.id
        if isinstance(self._given, int):
            return self._given
        session = await self._sessions.live()
        if session is not self._session:
            self._leave()
            session.use()
            self._session = session
            self._forget = session.on_lost(lambda _error: on_lost())
        return session.lease.id

    def is_live(self) -> bool:
        """Return whether the lease is held, as far as that is known."""
        if isinstance(self._given, HeldLease):
            return self._given.is_held
        if isinstance(self._given, int):
            return not self._is_lost
        return self._session is not None and self._session.is_live

    def found_lost(self) -> bool:
        """Return whether the lease is lost for good: one that the program has given."""
        self._is_lost = not isinstance(self._given, str)
        return self._is_lost

    async def close(self) -> bool:
        """Leave the lease to others; return False: the item has to be cancelled."""
        self._leave()
        return False

    def _leave(self) -> None:
        if self._session is not None:
            self._session.unuse()
            self._session = None
        if self._forget is not None:
            self._forget()
            self._forget = None


class RegisteredService:
    """A service that is kept registered, until the end of the block or `close`.

    If its lease is lost or its item is gone it is registered again, with growing pauses from 1 s to
    1 min if that fails. While another process has registered the same name and endpoint later,
    `is_registered` is False. A service whose health check has been failing for long is not
    registered until it passes.
    """

    def __init__(
        self,
        registry: Registry,
        leases: OwnLeases | SharedLeases,
        item: Item,
        check: HealthCheck | None,
        *,
        random: Random,
        on_closed: "Callable[[RegisteredService], object]",
    ) -> None:
        self._registry = registry
        self._leases = leases
        self._monitor = HealthMonitor(check, self._health_changed, random=random)
        self._item = replace(item, health=self._monitor.health)
        """The item to be registered, unless it is withdrawn."""
        self._is_withdrawn = False
        self._present: Item | None = None
        """The item as it is registered, as far as that is known."""
        self._registration: Registration | None = None
        self._former_id = ""
        """The id of the item, if its registration was found to be over."""
        self._is_replaced = False
        """Whether another registration has the item."""
        self._random = random
        self._backoff = Backoff(RETRIES, random)
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._on_closed = on_closed
        self._is_writing = False
        """Whether the task that keeps it registered waits for the registry."""
        self._is_closed = False

    async def begin(self) -> None:
        """Register it for the first time; errors are raised. For the client."""
        try:
            await self._bring_up_to_date()
        except BaseException:
            await self.close()
            raise
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep()), loop.create_task(self._monitor.run())]

    @property
    def id(self) -> str:
        """The id of its item; empty while it is not registered."""
        return "" if self._registration is None else self._registration.id

    @property
    def health(self) -> Health:
        """Its health, as the checks have found it."""
        return self._monitor.health

    @property
    def is_registered(self) -> bool:
        """Whether it is registered, as far as that is known."""
        return self._registration is not None and self._leases.is_live()

    @property
    def last_error(self) -> str:
        """Why the last health check has failed; empty if it was good."""
        return self._monitor.last_error

    def maintain(self, *, is_on: bool = True) -> None:
        """Begin or end maintenance, in which it is not found for use."""
        self._monitor.maintain(is_on=is_on)

    def update(
        self, *, tags: Iterable[str] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Replace its tags or its metadata. It is written soon after this returns.

        If another process has registered it later, a change takes it back from that.
        """
        now = service_of(self._item, self._item.types[0].name)
        changed = named_item(
            now.name,
            now.endpoint,
            sorted(now.tags) if tags is None else tags,
            now.metadata if metadata is None else metadata,
        )
        self._item = replace(self._item, attributes=changed.attributes)
        self._changed.set()

    async def close(self) -> None:
        """End the registration; if no server answers within two seconds it expires."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_writing:  # its item has to be removed
            await asyncio.wait(self._tasks[:1], timeout=CLOSE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        registration, self._registration = self._registration, None
        try:
            async with asyncio.timeout(CLOSE_S):
                if not await self._leases.close() and registration is not None:
                    with suppress(UnknownLease):
                        await registration.cancel()
        except (LeaseholdError, OSError) as error:
            logger.info("%r was not cancelled, and will expire: %s", registration, error)
        finally:
            self._on_closed(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<RegisteredService {self._item!r}>"

    # The task that keeps it registered.

    @property
    def _shown(self) -> str:
        return f"{self._item.types[0].name} at {self._item.endpoint}"

    def _health_changed(self, health: Health, is_withdrawn: bool) -> None:
        if is_withdrawn:
            logger.warning(
                "service %s is not registered any more, until its checks pass", self._shown
            )
        elif health is Health.FAILING:
            logger.warning("service %s is failing: %s", self._shown, self._monitor.last_error)
        elif health is Health.PASSING and self._item.health is Health.FAILING:
            logger.warning("service %s is passing", self._shown)
        self._item = replace(self._item, health=health)
        self._is_withdrawn = is_withdrawn
        self._changed.set()

    async def _keep(self) -> None:
        while not self._is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    self._leases.ttl_s * CHECK * self._random.uniform(0.9, 1.0)
                ):
                    await self._changed.wait()
            self._changed.clear()
            self._is_writing = True
            try:
                await self._bring_up_to_date()
            except _OVER:
                return
            except LeaseLost as error:
                if self._leases.found_lost():
                    logger.warning("service %s has ended: %s", self._shown, error)
                    return
                await self._pause(self._backoff.next_s())
            except (LeaseholdError, OSError) as error:
                pause_s = self._backoff.next_s()
                logger.warning(
                    "service %s could not be registered or checked, and is retried in %.1f s: %s",
                    self._shown,
                    pause_s,
                    error,
                )
                await self._pause(pause_s)
            else:
                self._backoff.reset()
            finally:
                self._is_writing = False

    async def _pause(self, pause_s: float) -> None:
        self._is_writing = False
        self._changed.set()
        if not self._is_closed:
            await asyncio.sleep(pause_s)

    async def _bring_up_to_date(self) -> None:
        """Register, change or cancel the item, as is wanted."""
        wanted = self._item
        if self._is_withdrawn:
            if self._registration is not None:
                with suppress(UnknownLease):
                    await self._registration.cancel()
                self._registration = None
            return
        if self._registration is not None and self._leases.is_live():
            try:
                await self._change(self._registration, wanted)
            except UnknownLease:  # replaced by another registration, or ended
                self._former_id = self._registration.id
            else:
                return
        self._registration = None
        present = self._present
        is_updated = present is not None and wanted.attributes != present.attributes
        if self._former_id and not is_updated and await self._find_replaced():
            return
        lease = await self._leases.obtain(self._changed.set)
        try:
            self._registration = await self._registry.register(wanted, lease=lease)
        except UnknownLease as error:
            raise LeaseLost(lease, "it ended before the service was registered") from error
        if self._present is not None:
            logger.warning("service %s is registered again", self._shown)
        self._present = wanted
        self._former_id = ""
        self._is_replaced = False

    async def _find_replaced(self) -> bool:
        """Return whether another registration has the item; log it when that begins."""
        found = await self._registry.lookup(service_template(id=self._former_id))
        if found is not None and not self._is_replaced:
            logger.warning(
                "service %s is now registered by another process, and here again when that ends",
                self._shown,
            )
        self._is_replaced = found is not None
        return self._is_replaced

    async def _change(self, registration: Registration, wanted: Item) -> None:
        """Write the differences. Raises `UnknownLease` if the registration is over."""
        present = self._present
        assert present is not None
        if wanted.attributes != present.attributes:
            await registration.set_attributes(wanted.attributes)
            self._present = present = replace(present, attributes=wanted.attributes)
        # The health is sent even if it is the same: nothing is written then, but the registrar
        # checks that the registration is not over.
        await registration.set_health(wanted.health)
        self._present = replace(present, health=wanted.health)
