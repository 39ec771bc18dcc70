"""The registrars that registrations of the discovery service have, in plain keys.

The keys are `leasehold/registrars/<id>`, shared by all servers of a cluster. A registrar is written
before a registration that has it: one whose key is missing after a crash counts as lost.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from google.protobuf.message import DecodeError

from leasehold.basics.callbacks import ignore
from leasehold.discovery.announced import Registrar
from leasehold.discovery.discovery_messages import registrar_in, registrar_info
from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import time_limit
from leasehold.keyspace.operations import Delete, Put, Step
from leasehold.services.record_storage import RecordStorage

PREFIX: Final = b"leasehold/registrars/"

CALL_S: Final = 10.0
"""The timeout of one call to the engine."""

WRITES_TOGETHER: Final = 60
"""Keys in one transaction."""

WRITE_BYTES: Final = 512 * 1024
"""Bytes in one transaction after which no further key is added."""


class KnownRegistrars:
    """The last descriptions of registrars, by id."""

    def __init__(self, engine: Engine, random: Random) -> None:
        self._engine = engine
        self._storage = RecordStorage(engine, "", random)
        self._known: dict[str, Registrar] = {}
        self._stored: dict[str, bytes] = {}
        """The values of the keys."""
        self._unwritten: dict[str, None] = {}
        self._lock = asyncio.Lock()
        """Held while registrars are written, so that an earlier value is not written last."""

    def get(self, registrar: str) -> Registrar | None:
        """Return a registrar as it was last described."""
        return self._known.get(registrar)

    def set(self, registrar: Registrar) -> None:
        """Record the description of a registrar."""
        if self._known.get(registrar.id) is not registrar:
            self._known[registrar.id] = registrar
            self._unwritten[registrar.id] = None

    def forget(self, registrar: str) -> None:
        """Remove a registrar that no registration has."""
        if self._known.pop(registrar, None) is not None:
            self._unwritten[registrar] = None

    @property
    def has_unwritten(self) -> bool:
        """Whether `write` has something to do."""
        return bool(self._unwritten)

    async def write(self) -> None:
        """Write the changes."""
        async with self._lock:
            await self._write()

    async def _write(self) -> None:
        while self._unwritten:
            values: dict[str, bytes | None] = {}
            for registrar in list(self._unwritten)[:WRITES_TOGETHER]:
                values[registrar] = self._value(registrar)
                if sum(len(each or b"") for each in values.values()) > WRITE_BYTES:
                    break  # the rest follows
            changed = {
                each: value for each, value in values.items() if value != self._stored.get(each)
            }
            if changed:
                steps: Sequence[Step] = [
                    Delete(_key(each)) if value is None else Put(_key(each), value)
                    for each, value in changed.items()
                ]
                async with time_limit(CALL_S, self._engine):
                    await self._engine.txn((), steps)
            for each, value in values.items():
                if value is None:
                    self._stored.pop(each, None)
                else:
                    self._stored[each] = value
                if self._value(each) == value:
                    self._unwritten.pop(each, None)

    def _value(self, registrar: str) -> bytes | None:
        known = self._known.get(registrar)
        return None if known is None else registrar_info(known, sorted(known.groups))

    async def read(self) -> None:
        """Read the registrars that this or another server has stored."""
        async for pair in self._storage.pages(PREFIX, ignore):
            try:
                registrar = registrar_in(pair.value)
            except DecodeError:  # written by another program
                continue
            if _key(registrar.id) == pair.key:
                self._stored[registrar.id] = pair.value
                self._known.setdefault(registrar.id, registrar)


def _key(registrar: str) -> bytes:
    return PREFIX + registrar.encode()
