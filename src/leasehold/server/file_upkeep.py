"""The upkeep of single-writer files, as a service of `leasehold serve`.

Files need no calls of their own: clients use the engine and the stores. A server that has at least
one replica store closes files whose writers are gone, removes deleted data and repairs blocks.
"""

from leasehold.files.service import FilesService
from leasehold.server.engine_services import EngineService, ServiceHost
from leasehold.server.pages import Exposition


class FileUpkeep(EngineService):
    """Runs `FilesService` while the server serves, if stores are set."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._service: FilesService | None = None

    async def start(self) -> None:
        """Begin, if there are stores."""
        settings = self._host.settings.services
        if settings.file_stores:
            self._service = FilesService(
                self._host.engine, settings.file_stores, settings.files_interval_s
            )
            self._service.start()

    async def close(self) -> None:
        """Stop; recoveries that are under way are left to other servers."""
        if self._service is not None:
            await self._service.close()

    def metrics(self, out: Exposition) -> None:
        """Add the metrics of files to a scrape; all are 0 on a server without stores."""
        for name, what in (
            ("recoveries", "Files that are being recovered, or wait for it."),
            (
                "locked",
                "Files that cannot be recovered: no replica in reach has their bytes.",
            ),
        ):
            out.gauge(f"leasehold_files_{name}", what, getattr(self._service, name, 0))
        for name, what in (
            ("recovered", "Files that this server has closed after their writers."),
            ("failed", "Recoveries of this server that failed and are tried again."),
            ("collected", "Objects of files that this server has deleted from stores."),
            ("repaired", "Blocks of files whose replicas this server has repaired."),
        ):
            out.counter(f"leasehold_files_{name}_total", what, getattr(self._service, name, 0))
