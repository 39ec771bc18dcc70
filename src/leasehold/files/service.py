"""`FilesService`: the upkeep of files in a server, with the stores that its operator has listed.

It closes the files of holders whose leases have ended, retries recoveries, removes deleted data and
repairs blocks. Several servers may do this for the same keyspace: no step needs an election.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final

from leasehold.basics.backoff import Backoff, exponential
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.errors import Closed, LeaseholdError
from leasehold.files.client import Files
from leasehold.files.collector import Collector
from leasehold.files.file_keys import RECOVERIES, UndecodableValue, decode_recovery
from leasehold.files.monitor import INTERVAL_S, Monitor
from leasehold.files.repairer import Repairer
from leasehold.files.replica_io import OpenStore
from leasehold.files.replica_store import normal_url, open_store
from leasehold.sessions.lease_keeper import Keeper

logger = logging.getLogger(__name__)

COLLECT_S: Final = 30.0
"""The time between two rounds of the collector."""

REPAIR_S: Final = 30.0
"""The time between two rounds of the repairer."""

COUNT_S: Final = 10.0
"""The time between two counts of recoveries."""

PAUSE_S: Final = 0.05
"""The time between two passes of a round: clients come first."""

START_RETRIES: Final = exponential(5.0, 60.0)
"""The waits until the configuration can be written."""


class FilesService:
    """The upkeep of files, in one server."""

    def __init__(
        self,
        engine: Engine,
        store_urls: Sequence[str],
        monitor_interval_s: float = INTERVAL_S,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        *,
        open_store: OpenStore = open_store,
    ) -> None:
        """`store_urls` are the only stores that it uses. A simulation passes `open_store`."""
        self._urls = tuple(dict.fromkeys(map(normal_url, store_urls)))
        self._keeper = Keeper(engine, clock, random)
        self.files = Files(
            engine,
            self._keeper,
            "server",
            clock=clock,
            random=random,
            open_store=open_store,
            allowed=frozenset(self._urls),
        )
        parts = (self.files.namespace, self.files.stores, self.files.known_config)
        self._monitor = Monitor(
            self.files.namespace, self.files.recoverer, interval_s=monitor_interval_s
        )
        self._collector = Collector(*parts)
        self._repairer = Repairer(*parts)
        self._tasks: list[asyncio.Task[None]] = []
        self.recoveries = 0
        """Files that are being recovered, or wait for it, in the whole keyspace."""
        self.locked = 0
        """Those of them whose flushed bytes no replica has."""

    @property
    def recovered(self) -> int:
        """Files that this server has closed."""
        return self.files.recoverer.recovered

    @property
    def failed(self) -> int:
        """Recoveries of this server that have failed, and are tried again."""
        return self.files.recoverer.failed

    @property
    def collected(self) -> int:
        """Objects that this server has deleted from stores."""
        return self._collector.collected

    @property
    def repaired(self) -> int:
        """Blocks to which this server has added replicas."""
        return self._repairer.repaired

    def start(self) -> None:
        """Begin to work. The stores are added to the configuration of the keyspace."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._begin()))

    async def close(self) -> None:
        """Stop. Work under way is left to other servers."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._monitor.close()
        await self.files.close()
        await self._keeper.close()

    async def _begin(self) -> None:
        backoff = Backoff(START_RETRIES, self.files.namespace.random)
        while True:
            try:
                # Adding a store that is being removed would keep it.
                known = {store.url for store in (await self.files.config()).stores}
                await self.files.configure(add=[url for url in self._urls if url not in known])
                break
            except Closed:
                return
            except (LeaseholdError, OSError, ValueError) as error:
                logger.error("the replica stores of files cannot be configured: %s", error)
            await asyncio.sleep(backoff.next_s())
        self._monitor.start()
        loop = asyncio.get_running_loop()
        self._tasks += [
            loop.create_task(_repeat(self._collector.make_pass, COLLECT_S)),
            loop.create_task(_repeat(self._repairer.make_pass, REPAIR_S)),
            loop.create_task(_repeat(self._count_recoveries, COUNT_S)),
        ]

    async def _count_recoveries(self) -> bool:
        recoveries = locked = 0
        async for pairs in self.files.namespace.pages(RECOVERIES):
            for pair in pairs:
                recoveries += 1
                try:
                    locked += decode_recovery(pair.value).is_locked
                except UndecodableValue as error:
                    logger.warning("%s", error)
        self.recoveries, self.locked = recoveries, locked
        return False


async def _repeat(make_pass: Callable[[], Awaitable[bool]], interval_s: float) -> None:
    """Make passes, with a longer pause when nothing is left."""
    while True:
        is_work_left = False
        try:
            is_work_left = await make_pass()
        except Closed:
            return
        except (LeaseholdError, OSError) as error:
            logger.warning("upkeep of files failed, and is repeated: %s", error)
        except Exception:
            logger.exception("upkeep of files failed, and is repeated")
        await asyncio.sleep(PAUSE_S if is_work_left else interval_s)
