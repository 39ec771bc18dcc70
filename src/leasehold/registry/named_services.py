"""Services by name: `client.register`, `client.services` and `client.pick`.

Only services whose health is PASSING are found for use.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.registry.client import Registry
from leasehold.registry.health import HealthCheck
from leasehold.registry.named_items import (
    CHANGE_KINDS,
    Picker,
    Service,
    ServiceChange,
    Strategy,
    check_service,
    check_strategy,
    named_template,
    service_of,
)
from leasehold.registry.registered_service import (
    OwnLeases,
    RegisteredService,
    SharedLease,
    SharedLeases,
)
from leasehold.registry.state import Item, Template
from leasehold.sessions.client_session import Sessions
from leasehold.sessions.lease_keeper import Keeper

MAX_PICKERS: Final = 1_000
"""Names and tags whose last choice and failures are remembered; the oldest is forgotten first."""


class NamedServices:
    """Services by name, of one client."""

    def __init__(
        self, registry: Registry, keeper: Keeper, sessions: Sessions, patience: CallTimeouts
    ) -> None:
        self._registry = registry
        self._keeper = keeper
        self._patience = patience
        self._sessions = sessions
        self._pickers: dict[tuple[str, str | None], Picker] = {}
        self._registered: set[RegisteredService] = set()

    async def register(
        self, item: Item, check: HealthCheck | None, ttl_s: float, lease: SharedLease | None
    ) -> RegisteredService:
        """Register a service, and keep it registered until it is closed."""
        made = RegisteredService(
            self._registry,
            SharedLeases(self._sessions, lease)
            if lease is not None
            else OwnLeases(self._keeper, self._patience, ttl_s),
            item,
            check,
            random=self._keeper.random,
            on_closed=self._registered.discard,
        )
        await made.begin()
        self._registered.add(made)
        return made

    async def services(self, template: Template, name: str) -> AsyncGenerator[ServiceChange, None]:
        """Yield the present services with a name as joined, and then their changes."""
        async with aclosing(self._registry.watched(template, passing=True)) as changes:
            async for change in changes:
                item = change.before if change.item is None else change.item
                assert item is not None
                yield ServiceChange(CHANGE_KINDS[change.transition], service_of(item, name))

    async def pick(
        self,
        name: str,
        tag: str | None,
        strategy: Strategy,
        timeout: Timeout,  # noqa: ASYNC109
    ) -> Service | None:
        """Return one of the services with a name."""
        check_strategy(strategy)
        template = named_template(name, tag)
        if strategy == "random":  # the server chooses: there may be very many
            item = await self._registry.one_passing(template, timeout=timeout)
            return None if item is None else service_of(item, name)
        items = await self._registry.passing(template, timeout=timeout)
        picker = self._picker(name, tag)
        services = [service_of(item, name) for item in items]
        return picker.choose(services, strategy)

    def _picker(self, name: str, tag: str | None) -> Picker:
        """Return the picker of a name and a tag; a new one has the failures of that name."""
        found = self._pickers.pop((name, tag), None)
        if found is None:
            of_name = self._pickers.get((name, None))
            found = Picker(() if of_name is None else of_name.failures)
        self._pickers[name, tag] = found  # the one that was used last comes last
        if len(self._pickers) > MAX_PICKERS:
            del self._pickers[next(iter(self._pickers))]
        return found

    def failed(self, service: Service) -> None:
        """Record that a service has failed, for all tags with which it is picked."""
        check_service(service)
        self._picker(service.name, None)  # has the failures for tags that are picked later
        for (name, _), picker in self._pickers.items():
            if name == service.name:
                picker.failed(service.id)

    async def close(self) -> None:
        """End all registrations."""
        await asyncio.gather(*(each.close() for each in tuple(self._registered)))
