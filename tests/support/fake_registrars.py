"""Registrars for joins in virtual time: each has one service, and answers as a test decides."""

import asyncio
import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from uuid import NAMESPACE_DNS, uuid5

from leasehold.basics.durations import Duration, DurationLike, Requested
from leasehold.errors import UnknownLease
from leasehold.leases.lease import Lease
from leasehold.registry.codecs import AttributesLike, attributes_of
from leasehold.registry.state import (
    Health,
    Item,
    add_attributes,
    modify_attributes,
    set_attributes,
)
from leasehold.testing import current_host

TERM_S = 60.0


def id_of(name: str) -> str:
    """Return the id that a registrar chooses."""
    return str(uuid5(NAMESPACE_DNS, name))


class FakeLease(Lease):
    def __init__(self, registrar: "FakeRegistrar", cookie: str) -> None:
        super().__init__(TERM_S, clock=current_host().clock)
        self._registrar = registrar
        self._cookie = cookie

    @property
    def grantor(self) -> str:
        return self._registrar.name

    @property
    def cookie(self) -> Hashable:
        return self._cookie

    async def ask_renew(self, requested: Requested) -> Duration:
        self._registrar.requested.append(requested)
        await self._registrar.reply("renew")
        self._registrar.check(self._cookie)
        return TERM_S

    async def ask_cancel(self) -> None:
        await self._registrar.reply("cancel")
        self._registrar.check(self._cookie)
        self._registrar.item = None


class FakeRegistration:
    def __init__(self, registrar: "FakeRegistrar", cookie: str, item_id: str) -> None:
        self._registrar, self._cookie, self.id = registrar, cookie, item_id
        self.lease: Lease | None = FakeLease(registrar, cookie)

    async def _change(self, what: str, change: Callable[[Item], Item]) -> None:
        await self._registrar.reply(what)
        item = self._registrar.check(self._cookie)
        self._registrar.item = change(item)

    async def add_attributes(self, attributes: Iterable[AttributesLike]) -> None:
        sets = [attributes_of(each) for each in attributes]
        await self._change("add", lambda item: add_attributes(item, sets))

    async def set_attributes(self, attributes: Iterable[AttributesLike]) -> None:
        sets = [attributes_of(each) for each in attributes]
        await self._change("set", lambda item: set_attributes(item, sets))

    async def modify_attributes(
        self, templates: Sequence[AttributesLike], updates: Sequence[AttributesLike | None]
    ) -> None:
        wanted = [attributes_of(each) for each in templates]
        new = [None if each is None else attributes_of(each) for each in updates]
        await self._change("modify", lambda item: modify_attributes(item, wanted, new))

    async def set_health(self, health: Health) -> None:
        await self._change("health", lambda item: replace(item, health=health))

    async def cancel(self) -> None:
        assert self.lease is not None
        await self.lease.cancel()


class FakeRegistrar:
    """A registrar with one service."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.item: Item | None = None
        self.calls: list[str] = []
        self.times: list[float] = []
        """When the service was registered."""
        self.requested: list[object] = []
        """The durations that were requested, also by renewals."""
        self.ids: list[str] = []
        """The ids that it was registered with; empty ones are those that the registrar chooses."""
        self.errors: dict[str, list[BaseException]] = {}
        """The errors that the next calls of a kind raise; they are not executed."""
        self.is_hanging = False
        self._cookies = itertools.count()
        self._cookie = ""

    async def reply(self, what: str) -> None:
        self.calls.append(what)
        await asyncio.sleep(0.01)
        if self.is_hanging:
            await asyncio.Event().wait()
        if errors := self.errors.get(what):
            raise errors.pop(0)

    def check(self, cookie: str) -> Item:
        if self.item is None or cookie != self._cookie:
            raise UnknownLease(cookie)
        return self.item

    async def register(self, item: Item, duration: DurationLike) -> FakeRegistration:
        self.requested.append(duration)
        self.times.append(asyncio.get_running_loop().time())
        self.ids.append(item.id)
        await self.reply("register")
        self.item = item if item.id else replace(item, id=id_of(self.name))
        self._cookie = f"{self.name}-{next(self._cookies)}"
        return FakeRegistration(self, self._cookie, self.item.id)

    async def close(self) -> None:
        self.calls.append("disconnect")
