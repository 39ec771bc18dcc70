"""How often a method was called, and how its calls ended: what a server shows of itself."""

from leasehold.errors import Status


class Tally:
    """The calls of one method."""

    __slots__ = ("begun", "ended", "failures")

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        """Calls that are over, whatever they ended with."""
        self.failures: dict[Status, int] = {}
        """Those of them that did not end with OK, by what they ended with."""

    def failed(self, status: Status) -> None:
        """Count a call that is about to end, and not well."""
        self.failures[status] = self.failures.get(status, 0) + 1

    @property
    def succeeded(self) -> int:
        """Calls that ended with OK."""
        return self.ended - sum(self.failures.values())
