"""The server, put together: journal, store, committer, services, one port."""

import asyncio
import gc
import json
import logging
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Self

from leasehold.engine.committer import SWITCH_INTERVAL_S, Committer
from leasehold.engine.journal import Journal
from leasehold.engine.store import Store
from leasehold.rpc.gate import Gate
from leasehold.rpc.http1 import Reply
from leasehold.rpc.routes import Methods
from leasehold.rpc.server import ServerProtocol, Site
from leasehold.server.etcd.desk import Desk
from leasehold.server.etcd.kv import KV
from leasehold.server.etcd.lease import Lease
from leasehold.server.etcd.watch import Watch

logger = logging.getLogger(__name__)


class LeaseholdServer:
    """One process, one data directory, one port.

    Opening reads the journal, which takes as long as it is long. `start` needs an event loop.
    """

    def __init__(self, directory: Path, *, vfs: str | None = None) -> None:
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        """Set when the server cannot go on; `failure` says why."""
        self._journal = Journal(directory, vfs=vfs)
        try:
            self.store = Store()
            for row in self._journal.rows():
                self.store.restore(row)
        except BaseException:
            self._journal.close()
            raise
        self._gate = Gate()
        self.store.on_durable = self._gate.release
        self._site = Site(self._methods(), {"/health": self._health}, self._gate, self._enter)
        self._listener: asyncio.Server | None = None
        self._committer: Committer | None = None

    def _methods(self) -> Methods:
        desk = Desk(self.store, self._gate, self._journal.identity)
        return {**KV(desk).methods(), **Lease(desk).methods(), **Watch(desk).methods()}

    def _enter(self) -> None:
        self.store.leases.enter()

    async def start(self, host: str, port: int) -> int:
        """Begin to serve; return the port, which the system chooses for 0."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: ServerProtocol(self._site), host, port, start_serving=False
        )
        self.store.start()
        self._committer = Committer(self.store, self._journal, self._fail)
        await self._listener.start_serving()
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Take no more calls, write what is left, answer it, and leave a clean journal."""
        if self._listener is not None:
            self._listener.close()
        self.store.leases.close()
        if self._committer is not None:
            await self._committer.close()
        for connection in list(self._site.connections):
            connection.good_bye()
        if self._listener is not None:
            await self._listener.wait_closed()
        self._journal.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _fail(self, error: BaseException) -> None:
        logger.critical("a commit failed, and the server stops: %s", error)
        self.failure = error
        for connection in list(self._site.connections):
            connection.cut_off()
        self.stopped.set()

    def _health(self) -> Reply:
        well = self.failure is None
        body = {"health": str(well).lower(), "reason": "" if well else str(self.failure)}
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return Reply(status, "application/json", json.dumps(body).encode() + b"\n")


def tune_interpreter() -> None:
    """Make this process a server: for programs that do nothing else."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()  # what start-up made is not garbage, and need not be looked at again
    gc.set_threshold(*GC_THRESHOLDS)


GC_THRESHOLDS = (50_000, 20, 100)
"""Rarely: almost nothing here is in cycles, and a collection is a pause."""
