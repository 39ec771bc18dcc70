"""Is it still the keyspace that it was?

Theory of operation. Every answer has a header with the id of the cluster and a revision. The id
never changes. A revision that was seen stays: a call that is *linearizable* (it changes something,
or reads the latest state) and was sent after a revision was seen has at least that one in its
answer. Answers to calls that were under way at the same time may come in any order, so each call
keeps the `floor` that there was when it was sent. Other answers (renewals, headers of watches) come
from one member's own view, which may lag: of them only the id counts.

What is found lost stays lost. Whoever has the engine is told by everything that it does.
"""

from collections.abc import Callable

from leasehold.errors import ClusterMismatch, HistoryLost
from leasehold.stored_errors import fresh


class History:
    """The id of the cluster, and how far its revisions have come."""

    __slots__ = ("_first_address", "_on_lost", "_where", "cluster_id", "floor", "lost")

    def __init__(
        self, on_lost: Callable[[HistoryLost], None], where: Callable[[], str] = str
    ) -> None:
        """`where` returns the address that is connected to, if it is known."""
        self._on_lost = on_lost
        self._where = where
        self._first_address = ""
        self.cluster_id = 0
        """0 until the first answer."""
        self.floor = 0
        """The last revision that was seen."""
        self.lost: HistoryLost | None = None

    def check(self) -> None:
        """Raise what was found out, if anything was."""
        if self.lost is not None:
            raise fresh(self.lost)

    def saw_cluster(self, cluster_id: int) -> None:
        """Take the id in an answer, 0 if it does not say; raises `HistoryLost`."""
        if not cluster_id or cluster_id == self.cluster_id:
            self.check()
            return
        address = self._where()
        if self.cluster_id and address != self._first_address:
            addresses = self._first_address, address
            self._lose(ClusterMismatch(addresses, (self.cluster_id, cluster_id)))
        elif self.cluster_id:
            self._lose(
                f"cluster {self.cluster_id:x} has become {cluster_id:x}: another server answers "
                "there, or it was restored from a backup; connect again to go on with that one"
            )
        self.cluster_id, self._first_address = cluster_id, address

    def saw(self, cluster_id: int, revision: int, floor: int = 0) -> None:
        """Take the header of a linearizable call that was sent at a floor; raises `HistoryLost`."""
        self.saw_cluster(cluster_id)
        if revision < floor:
            self._lose(
                f"revision {floor} was there, and now {revision} is the last one: the server has "
                "lost what it had acknowledged; connect again to go on with what is left"
            )
        self.rise(revision)

    def rise(self, revision: int) -> None:
        """Note a revision that is there for good, such as that of an event."""
        if revision > self.floor:
            self.floor = revision

    def _lose(self, why: str | HistoryLost) -> None:
        if self.lost is None:
            self.lost = HistoryLost(why) if isinstance(why, str) else why
            self._on_lost(self.lost)
        self.check()
