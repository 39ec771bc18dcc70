"""`Join`: keeps a service registered with every registrar of its groups and locators.

There is one task for each registrar that is found. It registers the service, sends changes in the
order of the calls, and handles errors:

- `UnknownLease`, or a lease that has ended before it could be renewed: the service is registered
  again; if that recurs within a minute, after a wait of up to 1 s, which grows to 1 min.
- Any other definite error: the registrar is discarded, and discovery tries it again later.
- An indefinite error, such as a lost connection: the call is made again after a wait.

A registration has the state of the service at that time, so earlier changes need not be sent. The
same holds after a change whose outcome is unknown: all attributes are set again.

The service has one id everywhere, since a registration without an id that is repeated after a lost
answer would make another item. A service with neither id nor descriptor gets a random id before the
first call. That of a descriptor is returned by the first registrar that answers, and all others get
it: that registrar may have an item with an equal descriptor already.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from random import Random
from typing import Final, Self, TypeAlias
from uuid import uuid4

from leasehold.basics.backoff import Backoff, exponential
from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import ANY, FOREVER, DurationLike
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.discovery.announced import Registrar
from leasehold.discovery.discovery import Discovery
from leasehold.discovery.locators import LocatorLike
from leasehold.discovery.registrar_connection import (
    ConnectedRegistrar,
    JoinedRegistration,
    RegistrarConnection,
)
from leasehold.discovery.state import NO_GROUPS, DiscoveryEvent, EventKind
from leasehold.errors import (
    LeaseholdError,
    LeaseLost,
    UnknownLease,
    is_definite,
)
from leasehold.leases.lease import Lease
from leasehold.leases.renewal_manager import RenewalManager, RenewalNotice
from leasehold.registry.codecs import AttributesLike, attributes_of
from leasehold.registry.messages import change_of, item_message, item_of, set_message
from leasehold.registry.state import Health, Item, modify_attributes
from leasehold.wire import registry_pb2 as pb

logger = logging.getLogger(__name__)

RETRIES: Final = exponential(1.0, 60.0)
"""The longest waits before a service is registered again."""

STABLE_S: Final = 60.0
"""A registration that was lost after this time is registered again without a wait."""

CLOSE_S: Final = 5.0
"""How long `close` waits until all leases are cancelled."""

MAX_CHANGES: Final = 100
"""Changes that wait for one registrar; more are replaced by one that sets all attributes."""

Connect: TypeAlias = Callable[[Registrar], Awaitable[RegistrarConnection]]
Change: TypeAlias = Callable[[JoinedRegistration], Awaitable[None]]


class Join:
    """Keeps a service registered with every registrar that is found, until it is closed.

        item = service_item(types=["printer"], endpoint="10.0.0.7:631")
        async with Join(item, groups=["office"]) as join:
            join.add_attributes([Location(floor=3)])

    `groups` and `locators` are those of `Discovery`; `discovery` is one that the program has, in
    their place, and does not close before the join. `on_id` is called once, with the id of the
    service: immediately if the item has one, otherwise after the first registration. `duration` is
    requested for each lease. `excluded` are ids of registrars that are not joined, such as one that
    has the service in another way.

    Calls that change the service return immediately. They raise ValueError, and change nothing, if
    registrars would refuse the result, such as one with too many attribute sets. After `close` they
    raise RuntimeError.
    """

    def __init__(
        self,
        item: Item,
        groups: Iterable[str] | None = NO_GROUPS,
        locators: Iterable[LocatorLike] | None = (),
        *,
        duration: DurationLike = ANY,
        excluded: Container[str] = (),
        on_id: Callable[[str], object] | None = None,
        tls: ssl.SSLContext | None = None,
        discovery: Discovery | None = None,
        connect: Connect | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not isinstance(item, Item):
            raise TypeError(f"item must be an Item, as service_item returns it, not {item!r}")
        check_plain_callback(on_id, "on_id")
        is_named = bool(item.id)
        if not is_named and item.descriptor is None:
            item = replace(item, id=str(uuid4()))
        item_of(item_message(item))  # raises what registrars would refuse
        self._item = item
        self._duration = duration
        self._excluded = excluded
        self._on_id = on_id
        self._connect = connect or (lambda registrar: ConnectedRegistrar.open(registrar, tls))
        self._random = Random()  # noqa: S311  spreads retries
        self._manager = RenewalManager(clock=clock)
        self._naming = asyncio.Lock()
        self._members: dict[Registrar, _Membership] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._is_own = discovery is None
        self._discovery = Discovery(groups, locators, tls=tls) if discovery is None else discovery
        if is_named:
            self._report_id()
        self._discovery.add_listener(self._changed)

    @property
    def item(self) -> Item:
        """The service as it is now; its id may be empty until the first registration."""
        return self._item

    @property
    def discovery(self) -> Discovery:
        """The discovery that finds its registrars, such as to change their groups."""
        return self._discovery

    def registrars(self) -> list[Registrar]:
        """Return the registrars at which the service is registered now."""
        self._check()
        return [each.registrar for each in self._members.values() if each.registration is not None]

    # Changes.

    def add_attributes(self, attributes: Iterable[AttributesLike]) -> None:
        """Add attribute sets, at all registrars."""
        sets = [attributes_of(each) for each in attributes]
        request = pb.ChangeRequest(add=pb.AttributeSets(sets=map(set_message, sets)))
        self._change(request, lambda at: at.add_attributes(sets))

    def set_attributes(self, attributes: Iterable[AttributesLike]) -> None:
        """Replace all attribute sets, at all registrars."""
        sets = [attributes_of(each) for each in attributes]
        request = pb.ChangeRequest(set=pb.AttributeSets(sets=map(set_message, sets)))
        self._change(request, lambda at: at.set_attributes(sets))

    def modify_attributes(
        self, templates: Sequence[AttributesLike], updates: Sequence[AttributesLike | None]
    ) -> None:
        """Update the attribute sets that match templates; see `Registration.modify_attributes`."""
        wanted = [attributes_of(each) for each in templates]
        new = [None if each is None else attributes_of(each) for each in updates]
        modify_attributes(self._item, wanted, new)  # raises if the lengths differ
        messages = [
            pb.AttributeUpdate(
                template=set_message(template),
                update=None if update is None else set_message(update),
            )
            for template, update in zip(wanted, new, strict=True)
        ]
        request = pb.ChangeRequest(modify=pb.AttributeUpdates(updates=messages))
        self._change(request, lambda at: at.modify_attributes(wanted, new))

    def set_health(self, health: Health) -> None:
        """Set the health of the service, at all registrars."""
        checked = Health(health)
        request = pb.ChangeRequest(health=checked.name)
        self._change(request, lambda at: at.set_health(checked))

    def _change(self, request: pb.ChangeRequest, change: Change) -> None:
        """Make a change. Raises ValueError, as a registrar does, before anything is changed."""
        self._check()
        item = change_of(request)(self._item)
        item_of(item_message(item))
        self._item = item
        for member in self._members.values():
            member.add(change)

    def all_state(self) -> Change:
        """Return a change that sets everything that can be changed to its present state."""
        item = self._item

        async def change(at: JoinedRegistration) -> None:
            await at.set_attributes(item.attributes)
            await at.set_health(item.health)

        return change

    # Registrars.

    def _changed(self, event: DiscoveryEvent) -> None:
        for registrar in event.registrars:
            if registrar.id in self._excluded:
                continue
            if event.kind is EventKind.DISCOVERED:
                self._members[registrar] = _Membership(self, registrar)
            elif event.kind is EventKind.DISCARDED and registrar in self._members:
                leaving = asyncio.create_task(self._members.pop(registrar).leave())
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)

    def discard(self, registrar: Registrar, error: BaseException) -> None:
        """Drop a registrar that has refused the service."""
        logger.warning("registrar %s is discarded: %s", registrar.id, error)
        if not self._is_closed:
            self._discovery.discard(registrar)

    async def connect(self, registrar: Registrar) -> RegistrarConnection:
        """Connect to a registrar, at the endpoints that it has now."""
        found = self._discovery.registrars()
        return await self._connect(next((each for each in found if each == registrar), registrar))

    async def register(self, at: RegistrarConnection, changes: deque[Change]) -> JoinedRegistration:
        """Register the service; as long as it has no id, one registrar at a time.

        `changes` are those that wait: they are dropped, since the item that is sent has them.
        """
        async with nullcontext() if self._item.id else self._naming:
            changes.clear()
            made = await at.register(self._item, self._duration)
            if not self._item.id:
                self._item = replace(self._item, id=made.id)
        self._report_id()
        return made

    def _report_id(self) -> None:
        on_id, self._on_id = self._on_id, None
        if on_id is not None:
            try:
                on_id(self._item.id)
            except Exception:
                logger.exception("a callback of a join has failed: %r", on_id)

    def keep(self, lease: Lease, lost: Callable[[RenewalNotice], object]) -> None:
        """Renew a lease, and call `lost` when that is not possible any more."""
        self._manager.renew_until(lease, FOREVER, self._duration, lost)

    def release(self, lease: Lease) -> None:
        """Stop renewing a lease."""
        if lease in self._manager:
            self._manager.remove(lease)

    def backoff(self) -> Backoff:
        """Return the waits of one registrar."""
        return Backoff(RETRIES, self._random)

    # The end.

    def _check(self) -> None:
        if self._is_closed:
            raise RuntimeError("the Join was closed: create another one")

    async def close(self) -> None:
        """Cancel all leases, and wait for that at most `CLOSE_S`. Later changes raise errors."""
        await self._end(cancels=True)

    async def abort(self) -> None:
        """Stop like `close`, but leave the registrations as they are.

        They end with their leases, unless another process registers the service, with its id.
        """
        await self._end(cancels=False)

    async def _end(self, *, cancels: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(RuntimeError):  # a discovery of the program may be closed already
            self._discovery.remove_listener(self._changed)
        members = self._members.values()
        leaving = [asyncio.create_task(each.leave(cancels=cancels)) for each in members]
        self._members.clear()
        if tasks := (*leaving, *self._leaving):
            _, late = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            if late:
                logger.warning(
                    "%d registrations were not cancelled, and will expire: no answer within %g s",
                    len(late),
                    CLOSE_S,
                )
                await asyncio.wait(late)
        self._manager.close()
        if self._is_own:
            await self._discovery.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()


class _Membership:
    """The service at one registrar."""

    def __init__(self, join: Join, registrar: Registrar) -> None:
        self._join = join
        self.registrar = registrar
        self.registration: JoinedRegistration | None = None
        self._connection: RegistrarConnection | None = None
        self._changes: deque[Change] = deque()
        self._news = asyncio.Event()
        self._lost: BaseException | None = None
        self._backoff = join.backoff()
        self._loss_backoff = join.backoff()
        self._registering: asyncio.Task[JoinedRegistration] | None = None
        self._losses = 0
        """Registrations that were lost soon after they were made."""
        self._began_at = asyncio.get_running_loop().time()
        """When the registration was made, or the last one was lost."""
        self._task = asyncio.create_task(self._run())

    def add(self, change: Change) -> None:
        """Send a change after those that wait."""
        if len(self._changes) >= MAX_CHANGES:
            self._changes.clear()
            change = self._join.all_state()
        self._changes.append(change)
        self._news.set()

    async def _run(self) -> None:
        while True:
            try:
                if self.registration is None:
                    await self._register()
                await self._work()
            except (UnknownLease, LeaseLost) as error:
                logger.info("registering again with registrar %s: %s", self.registrar.id, error)
                await self._forget()
                await self._wait_if_it_recurs()
            except Exception as error:  # noqa: BLE001  it is decided on here
                if is_definite(error):
                    self._join.discard(self.registrar, error)
                    return
                logger.info("registrar %s does not answer: %s", self.registrar.id, error)
                if self.registration is None:
                    await self._disconnect()
                elif self._changes:
                    self._changes.clear()  # it is unknown whether the last one was executed
                    self._changes.append(self._join.all_state())
                await asyncio.sleep(self._backoff.next_s())

    async def _wait_if_it_recurs(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._began_at >= STABLE_S:
            self._losses = 0
            self._loss_backoff.reset()
        if self._losses:
            await asyncio.sleep(self._loss_backoff.next_s())
        self._losses += 1
        self._began_at = asyncio.get_running_loop().time()

    async def _register(self) -> None:
        if self._connection is None:
            self._connection = await self._join.connect(self.registrar)
        self._lost = None
        registering = self._join.register(self._connection, self._changes)
        self._registering = asyncio.create_task(registering)
        made = await asyncio.shield(self._registering)  # `leave` cancels what it makes
        self.registration, self._registering = made, None
        self._backoff.reset()
        self._began_at = asyncio.get_running_loop().time()
        if made.lease is not None:
            self._join.keep(made.lease, self._lease_lost)

    def _lease_lost(self, notice: RenewalNotice) -> None:
        self._lost = notice.error or LeaseLost(notice.lease.cookie, "it was not renewed in time")
        self._news.set()

    async def _work(self) -> None:
        """Send changes until the lease is lost."""
        assert self.registration is not None
        while True:
            if self._lost is not None:
                error, self._lost = self._lost, None
                if is_definite(error) and not isinstance(error, UnknownLease):
                    raise error
                raise LeaseLost(self.registration.id, str(error)) from error
            if not self._changes:
                self._news.clear()
                await self._news.wait()
                continue
            change = self._changes[0]
            await change(self.registration)
            self._backoff.reset()
            if self._changes and self._changes[0] is change:  # more may have replaced it
                self._changes.popleft()

    async def _forget(self) -> None:
        """Drop a registration that has ended, and connect again before the next one."""
        made, self.registration = self.registration, None
        if made is not None and made.lease is not None:
            self._join.release(made.lease)
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def leave(self, *, cancels: bool = True) -> None:
        """Cancel the registration, if `cancels`, and disconnect."""
        self._task.cancel()
        await asyncio.wait([self._task])
        made, self.registration = self.registration, None
        registering = self._registering
        try:
            if registering is not None:  # a call under way may be executed
                await asyncio.wait([registering], timeout=CLOSE_S if cancels else 0)
                if registering.done() and not registering.cancelled():
                    made = None if registering.exception() else registering.result()
            if made is not None:
                if made.lease is not None:
                    self._join.release(made.lease)
                if cancels:
                    async with asyncio.timeout(CLOSE_S):
                        await made.cancel()
        except (LeaseholdError, OSError) as error:  # it ends with its lease
            logger.debug("not cancelled at registrar %s: %s", self.registrar.id, error)
        finally:
            if registering is not None:
                registering.cancel()
            await self._disconnect()
