"""The keys in which the servers of a cluster share the search of the discovery service.

The key `leasehold/reach/<server>` is under the lease of that server, and is deleted with it. It has
the interests of the server's registrations, which the other servers then search for too, and the
registrars that have answered this server. A registrar that is only assumed to exist, after a
restart, is left out: otherwise two servers could each keep it because of the other.
"""

import asyncio
import logging
from collections.abc import Iterable
from random import Random
from typing import Final

from google.protobuf.message import DecodeError

from leasehold.basics.backoff import Backoff
from leasehold.discovery.cluster_search import ClusterSearch, PeerSearch
from leasehold.discovery.discovery_messages import (
    groups_in,
    groups_message,
    registrar_in,
    registrar_info,
)
from leasehold.discovery.locators import Locator
from leasehold.discovery.registration import ReachableRegistrar
from leasehold.discovery.state import UNANSWERED
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.errors import LeaseholdError
from leasehold.services.elected_shards import ElectedShards
from leasehold.sessions.session import OVER, RETRIES
from leasehold.wire import discovery_pb2 as pb

logger = logging.getLogger(__name__)

PREFIX: Final = b"leasehold/reach/"

CALL_S: Final = 10.0
"""The timeout of one call to the engine."""

MAX_VALUE_BYTES: Final = 1024 * 1024
"""Of a key; registrars beyond that are not shared."""

MAX_GROUPS_BYTES: Final = 256 * 1024
"""Of the names of wanted groups in a key; with more, the other servers search for all groups."""


class SearchExchange:
    """Writes the key of this server, and follows those of the others."""

    def __init__(
        self, engine: Engine, shards: ElectedShards, search: ClusterSearch, random: Random
    ) -> None:
        self._engine = engine
        self._shards = shards
        self._search = search
        self._random = random
        self._changed = asyncio.Event()
        self._is_read = asyncio.Event()
        self._others: dict[str, PeerSearch] = {}
        self._tasks: list[asyncio.Task[None]] = []
        search.on_change = shards.on_session = self._changed.set

    def start(self) -> None:
        """Begin to write and to follow."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_writing()), loop.create_task(self._follow())]

    async def read(self) -> None:
        """Wait until the keys of the other servers were read."""
        await self._is_read.wait()

    async def close(self) -> None:
        """Stop. The key is deleted with the lease of the server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # The key of this server.

    async def _keep_writing(self) -> None:
        backoff = Backoff(RETRIES, self._random)
        written: tuple[int, bytes] | None = None
        while True:
            await self._changed.wait()
            self._changed.clear()
            lease, value = self._shards.session, self._value()
            if lease is None or (lease, value) == written:
                continue
            try:
                async with time_limit(CALL_S, self._engine):
                    key = PREFIX + self._shards.server.encode()
                    await self._engine.put(key, value, lease=lease)
            except OVER:
                return
            except (LeaseholdError, OSError) as error:
                logger.info(
                    "the registrars that this server has found are not stored yet: %s", error
                )
                await asyncio.sleep(backoff.next_s())
                self._changed.set()
            else:
                backoff.reset()
                written = lease, value

    def _value(self) -> bytes:
        groups = groups_message(self._search.groups)
        if groups.ByteSize() > MAX_GROUPS_BYTES:
            groups = pb.GroupNames(all=True)
        shared = pb.ServerReach(groups=groups, locators=map(str, self._search.locators))
        size_bytes = shared.ByteSize()
        for registrar, reached in sorted(self._search.all_own().items()):
            if reached.answered_at == UNANSWERED:
                continue
            message = pb.ReachedRegistrar(
                registrar=registrar_info(reached.registrar, sorted(reached.registrar.groups)),
                by_group=reached.by_group,
                locators=sorted(map(str, reached.locators)),
            )
            size_bytes += message.ByteSize()
            if size_bytes > MAX_VALUE_BYTES:
                logger.warning(
                    "registrar %s and later ones are not shared with other servers: "
                    "more than %d bytes",
                    registrar,
                    MAX_VALUE_BYTES,
                )
                break
            shared.registrars.append(message)
        return shared.SerializeToString()

    # The keys of other servers.

    async def _follow(self) -> None:
        backoff = Backoff(RETRIES, self._random)
        while True:
            try:
                revision = await self._read_all()
                self._is_read.set()
                async with self._engine.watch(
                    PREFIX, prefix_end(PREFIX), start=revision + 1
                ) as watch:
                    backoff.reset()
                    await self._follow_watch(watch)
            except OVER:
                return
            except (LeaseholdError, OSError) as error:
                logger.info(
                    "the watch of registrars that other servers have found was interrupted and is "
                    "started again: %s",
                    error,
                )
            except Exception:
                logger.exception(
                    "the watch of registrars that other servers have found has failed and is "
                    "started again"
                )
            await asyncio.sleep(backoff.next_s())

    async def _read_all(self) -> int:
        async with time_limit(CALL_S, self._engine):
            found = await self._engine.range(PREFIX, prefix_end(PREFIX))
        servers = {_server(pair.key) for pair in found.pairs}
        for server in [each for each in self._others if each not in servers]:
            self._see(server, None)
        for pair in found.pairs:
            self._see(_server(pair.key), pair.value)
        return found.revision

    async def _follow_watch(self, watch: Watch) -> None:
        async for _, events in watch:
            for event in events:
                self._see(_server(event.key), None if event.pair is None else event.pair.value)

    def _see(self, server: str, value: bytes | None) -> None:
        if server == self._shards.server:
            return
        before = self._others.pop(server, PeerSearch())
        after = None if value is None else _decoded(value, before)
        if after is not None:
            self._others[server] = after
        self._search.other(server, after)


def _server(key: bytes) -> str:
    return key[len(PREFIX) :].decode(errors="replace")


def _decoded(value: bytes, before: PeerSearch) -> PeerSearch | None:
    """Return the search in the key of a server; equal registrars keep their times."""
    now = asyncio.get_running_loop().time()
    try:
        shared = pb.ServerReach.FromString(value)
        registrars = {}
        for message in shared.registrars:
            registrar = registrar_in(message.registrar)
            reached = ReachableRegistrar(
                registrar, message.by_group, _locators(message.locators), now
            )
            earlier = before.registrars.get(registrar.id)
            is_same = earlier is not None and _is_same(earlier, reached)
            registrars[registrar.id] = earlier if earlier is not None and is_same else reached
        return PeerSearch(groups_in(shared.groups), _locators(shared.locators), registrars)
    except (DecodeError, ValueError):  # written by another program
        return None


def _locators(texts: Iterable[str]) -> frozenset[Locator]:
    return frozenset(map(Locator.parse, texts))


def _is_same(one: ReachableRegistrar[Locator], other: ReachableRegistrar[Locator]) -> bool:
    return (
        registrar_info(one.registrar, sorted(one.registrar.groups))
        == registrar_info(other.registrar, sorted(other.registrar.groups))
        and one.by_group == other.by_group
        and one.locators == other.locators
    )
