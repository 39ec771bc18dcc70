"""The registry of a client without a registrar: on a bare etcd cluster, or in its own process.

Items are registered and changed by the same transactions as on a server. Without an index each
lookup reads all items, and matches them here; so it costs more than on a server, and sees items
until the engine has ended their leases. There are no events, but `watch_items` works: it watches
the keys.

The services of servers are not items here: their keys have attributes, and no endpoint.
"""

from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar, cast

from google.protobuf.message import Message

from leasehold.basics.durations import (
    Duration,
    Requested,
    from_wire_ms,
    to_wire_ms,
)
from leasehold.clock import Clock
from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.engine.values import KeyValue
from leasehold.leases.lease import BatchedLease, Lease, Outcome
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.item_watch import Update
from leasehold.registry.messages import (
    ITEMS,
    UNDECODABLE,
    browsed,
    change_of,
    item_key,
    item_message,
    item_of,
    template_of,
)
from leasehold.registry.own_services import own_ids
from leasehold.registry.state import Item, Template
from leasehold.registry.storage import ItemStorage, cookie_of, scan_items, stored_key
from leasehold.wire import registry_pb2 as pb

MAXIMUM_S: Final = 3600.0
DEFAULT_S: Final = 60.0
"""The bounds of leases that a client grants for its items."""

M = TypeVar("M", bound=Message)


class ScanningRegistrar:
    """The calls of a registrar, executed on an engine."""

    def __init__(self, engine: Engine, patience: CallTimeouts, clock: Clock) -> None:
        self._engine = engine
        self._patience = patience
        self._clock = clock
        self._random = Random()  # noqa: S311  chooses one of several items
        self._storage = ItemStorage(engine, DurationPolicy(MAXIMUM_S, DEFAULT_S))
        self._of_servers = {item_key(item_id) for item_id in own_ids(engine.cluster_id)}

    async def call(
        self,
        method: str,
        request: Message,
        kind: type[M],
        timeout: Timeout = None,  # noqa: ASYNC109
        *,
        known: Mapping[str, object] | None = None,
    ) -> M:
        """Execute a call; `request` and answer are those of the service `leasehold.v1.Registry`."""
        execute: Any = getattr(self, f"_{method.lower()}")
        return cast("M", await self._patience.wait(execute(request), timeout))

    async def close(self) -> None:
        """Stop revoking leases of items that were replaced; they expire."""
        await self._storage.close()

    @property
    def grantor(self) -> str:
        """The name of the grantor of items' leases: that of a registrar of this cluster."""
        return f"{self._engine.cluster_id:016x}/registry"

    def lease(self, grantor: str, cookie: str, ttl_ms: int, sent_at: float) -> "ScannedLease":
        """Return the lease of an item."""
        granted = cast("Duration", from_wire_ms(ttl_ms))
        return ScannedLease(self._storage, grantor, cookie, granted, sent_at, self._clock)

    # Calls.

    async def _register(self, request: pb.RegisterRequest) -> pb.RegisterResponse:
        item = item_of(request.item)
        if not item.id and item.descriptor is not None:
            for known in (await self._items())[0]:
                if known is not None and known.descriptor == item.descriptor:
                    request.item.id = known.id
                    item = item_of(request.item)
                    break
        version = await self._storage.register(item, from_wire_ms(request.ttl_ms), request.lease)
        return pb.RegisterResponse(
            id=version.item.id,
            registration=version.registration,
            ttl_ms=to_wire_ms(self._storage.term_of(version.ttl_s)),
            grantor=self.grantor,
            cookie=cookie_of(version),
        )

    async def _change(self, request: pb.ChangeRequest) -> pb.ChangeResponse:
        cookie = f"{request.id}.{request.registration}"
        await self._storage.change(cookie, change_of(request))
        return pb.ChangeResponse()

    async def _lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        template = template_of(request.template)
        items, revision = await self._items()
        is_all = request.template == pb.ItemTemplate()
        has_undecodable = is_all and not request.passing and not request.one
        found: list[bytes] = []
        for item in items:
            if item is None:
                if has_undecodable:
                    found.append(UNDECODABLE)
            elif template.matches(item) and (item.is_passing or not request.passing):
                found.append(item_message(item).SerializeToString())
        total = len(found)
        if request.one:
            found = [self._random.choice(found)] if found else []
        else:
            found = found[: request.limit]
        return pb.LookupResponse(items=found, total=total, revision=revision)

    async def _browse(self, request: pb.BrowseRequest) -> pb.BrowseResponse:
        template = template_of(request.template)
        items = [
            item for item in (await self._items())[0] if item is not None and template.matches(item)
        ]
        return pb.BrowseResponse(found=browsed(request, items, template))

    # Reading.

    async def _items(self) -> tuple[list[Item | None], int]:
        """Read all items, and their revision; None for one that cannot be decoded."""
        items: list[Item | None] = []
        revision = 0
        async for revision, pairs in scan_items(self._engine):  # noqa: B007  it is returned
            items += [
                _item_of(pair)
                for pair in pairs
                if not self._engine.has_ended(pair.lease) and pair.key not in self._of_servers
            ]
        return items, revision

    async def updates(
        self,
        template: Template,
        *,
        passing: bool,
    ) -> AsyncGenerator[Update, None]:
        """Yield all items, and then the changes of any."""
        items, revision = await self._items()
        yield Update({item.id: item for item in items if item is not None})
        async with self._engine.watch(ITEMS, prefix_end(ITEMS), start=revision + 1) as watch:
            async for change in watch:
                if change.events:
                    yield Update(
                        None,
                        [
                            (
                                event.key.removeprefix(ITEMS).decode(errors="replace"),
                                None if event.pair is None else _item_of(event.pair),
                            )
                            for event in change.events
                            if event.key not in self._of_servers
                        ],
                    )


def _item_of(pair: KeyValue) -> Item | None:
    version = stored_key([pair]).version
    return None if version is None else version.item


class ScannedLease(BatchedLease):
    """The lease of an item, on an engine."""

    __slots__ = ("_storage",)

    def __init__(
        self,
        storage: ItemStorage,
        grantor: str,
        cookie: str,
        granted: Duration,
        sent_at: float,
        clock: Clock,
    ) -> None:
        super().__init__(grantor, cookie, granted, sent_at=sent_at, clock=clock)
        self._storage = storage

    @property
    def batch_key(self) -> Hashable:
        return (id(self._storage), self.grantor)

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        return await self._storage.renew_all(
            [(lease.cookie, requested) for lease, requested in wants]
        )

    async def ask_cancel_all(self, leases: Sequence[Lease]) -> Sequence[Outcome]:
        return await self._storage.renew_all([(lease.cookie, 0.0) for lease in leases])
