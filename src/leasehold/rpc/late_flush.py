"""One write for all that a connection has to say in a turn of the loop."""

from abc import ABC, abstractmethod

from leasehold.rpc.host import Host


class LateFlush(ABC):
    """A connection whose output can wait for the end of the turn."""

    host: Host
    _is_flush_due = False

    @abstractmethod
    def flush(self) -> None:
        """Hand on what can be sent now."""

    def flush_soon(self) -> None:
        """Hand on what was put out, with what else is put out in this turn of the loop."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.host.call_soon(self._flush_late)

    def _flush_late(self) -> None:
        self._is_flush_due = False
        self.flush()
