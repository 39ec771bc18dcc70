"""A server whose files are followed by an oracle, in order, over all its restarts."""

from collections.abc import Sequence

from leasehold.engine.interface import prefix_end
from leasehold.engine.values import LeaseInfo, Renewed
from leasehold.files.file_keys import FILES
from tests.simulation.far_server import EtcdLikeServer, KeyspaceServer
from tests.simulation.files_oracle import FilesOracle


class FilesServer(KeyspaceServer):
    """A server whose files are followed by an oracle."""

    oracle: FilesOracle | None = None

    def _start(self) -> None:
        super()._start()
        if self.oracle is not None:
            self.oracle.restarted()
            self.host.start(self._follow)

    def crash(self) -> None:
        """End, in the middle of whatever it does."""
        super().crash()
        if self.oracle is not None:
            self.oracle.stopped()

    def follow(self, oracle: FilesOracle) -> None:
        """Let an oracle see all changes of files from now on."""
        self.oracle = oracle
        self.host.start(self._follow)

    async def _follow(self) -> None:
        oracle = self.oracle
        assert oracle is not None
        start = oracle.revision + 1
        async for told in self.engine.watch(FILES, prefix_end(FILES), start=start):
            oracle.changed(told.events)

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        """Begin a lease."""
        granted = await super().grant(ttl, lease=lease)
        if self.oracle is not None:
            self.oracle.renewed(lease)
        return granted

    async def renew_all(self, leases: Sequence[int]) -> Renewed:
        """Renew leases."""
        renewed = await super().renew_all(leases)
        if self.oracle is not None:
            for lease in renewed.terms:
                self.oracle.renewed(lease)
        return renewed


class EtcdLikeFilesServer(FilesServer, EtcdLikeServer):
    """The same with leases as an etcd has them."""
