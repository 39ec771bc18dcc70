"""One watch of etcd's: what it is told of changes, now or later, and how it tells its client."""

from collections.abc import Generator, Sequence
from typing import Final, Protocol

from leasehold.core.keyspace import Change
from leasehold.core.ranges import LONG, SLICE
from leasehold.engine.store import Store
from leasehold.errors import LeaseholdError
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.routes import Speaker
from leasehold.wire.encode import field, key_value
from leasehold.wire.rpc_pb2 import WatchCreateRequest

REPLAY_BYTES: Final = 1024 * 1024
"""A response about the past is sent when it is as large as this: most clients take 4 MiB."""


class Stream(Protocol):
    """The stream of a watch, as the watch sees it."""

    @property
    def speaker(self) -> Speaker:
        """What is said to the client."""
        ...

    def tell(self, watch_id: int, revision: int, fields: bytes, position: int) -> None:
        """Send something about a watch, as of a revision."""
        ...

    def tell_in_parts(
        self, watch_id: int, revision: int, events: Sequence[bytes], position: int
    ) -> None:
        """Send events, in several responses if they would be too large for one."""
        ...

    def compacted(self, watch_id: int, revision: int, position: int) -> None:
        """End a watch whose next event is forgotten."""
        ...

    def answer_progress(self) -> None:
        """Tell how far all watches are, if the client has asked, once none of them lags."""
        ...


class OneWatch:
    """One watch: of a key, or of a range.

    While it is told of the past, it gathers: etcd sends the events of many revisions in one
    response then, and clients rely on it.
    """

    __slots__ = (
        "_gathered",
        "_gathered_bytes",
        "_gathered_revision",
        "_id",
        "_is_quiet",
        "_no_delete",
        "_no_put",
        "_start",
        "_store",
        "_stream",
        "_wants_parts",
        "_wants_progress",
        "end",
        "key",
        "next_revision",
        "said",
        "wants_previous",
        "weight",
    )

    def __init__(
        self,
        stream: Stream,
        store: Store,
        watch_id: int,
        request: WatchCreateRequest,
        weight: int,
    ) -> None:
        self._stream = stream
        self._store = store
        self._id = watch_id
        self.weight = weight
        """How many watches this one counts as in the limits."""
        self.said = store.position
        """The position that all that was said so far waits for."""
        self.key = request.key or b"\0"
        self.end = request.range_end
        self._start = self.next_revision = request.start_revision
        self.wants_previous = request.prev_kv
        self._wants_parts = request.fragment
        self._wants_progress = request.progress_notify
        self._is_quiet = True
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._gathered_revision = 0
        self._no_put = WatchCreateRequest.NOPUT in request.filters
        self._no_delete = WatchCreateRequest.NODELETE in request.filters

    @property
    def has_room(self) -> bool:
        """Whether the client takes what it is told."""
        return self._stream.speaker.has_room

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Send what concerns this watch of the changes of one revision, if there are few."""
        if not self._stream.speaker.has_room or len(changes) > LONG:
            return False
        if changes[0].revision >= self._start:
            self._take(self._events(changes), changes[0].revision, position)
        return True

    def notify_steps(self, changes: Sequence[Change], position: int) -> Generator[None, None, bool]:
        """Send what concerns this watch of very many changes of one revision."""
        if not self._stream.speaker.has_room:
            return False
        if changes[0].revision < self._start:
            return True
        events: list[bytes] = []
        for start in range(0, len(changes), SLICE):
            events += self._events(changes[start : start + SLICE])
            yield
        self._take(events, changes[0].revision, position)
        return True

    def _events(self, changes: Sequence[Change]) -> list[bytes]:
        return [
            self._event(change)
            for change in changes
            if not (self._no_delete if change.item is None else self._no_put)
        ]

    def _take(self, events: Sequence[bytes], revision: int, position: int) -> None:
        """Tell of events; those of a watch that is behind go together with the next ones."""
        if events:
            self._is_quiet = False
            self.said = max(self.said, position)
            if self in self._store.watchers.behind:
                self._gather(events, revision)
            else:
                self._tell(events, revision)

    def _tell(self, events: Sequence[bytes], revision: int) -> None:
        if self._wants_parts:
            self._stream.tell_in_parts(self._id, revision, events, self.said)
        else:
            self._stream.tell(self._id, revision, b"".join(events), self.said)

    def _gather(self, events: Sequence[bytes], revision: int) -> None:
        self._gathered += events
        self._gathered_bytes += sum(map(len, events))
        self._gathered_revision = revision
        if self._gathered_bytes >= REPLAY_BYTES:
            self._tell_gathered()

    def _tell_gathered(self) -> None:
        if self._gathered:
            events = self._gathered
            self.forget()
            self._tell(events, self._gathered_revision)

    def forget(self) -> None:
        """Forget what was gathered and not said yet."""
        self._gathered = []
        self._gathered_bytes = 0

    def _event(self, change: Change) -> bytes:
        if change.encoded is None:
            change.encoded = _encode(change)
        event = change.encoded
        if self.wants_previous and change.previous is not None:
            event += field(3, change.previous[0])
        return field(11, event)

    def joined(self, revision: int, position: int) -> None:
        """Learn that it is up to date."""
        self._tell_gathered()
        self._stream.answer_progress()

    def settle(self) -> None:
        """Send what was told."""
        self._tell_gathered()
        self._stream.speaker.flush()

    def failed(self, error: LeaseholdError) -> None:
        """Learn that what it had to be told next cannot be read: the whole stream ends."""
        self._tell_gathered()
        self._stream.speaker.end(RpcError(error.status, f"leasehold: {error}"))

    def cancelled(self, compacted: int) -> None:
        """Learn that what it had to be told next was compacted."""
        position = max(self.said, self._store.position)
        self._stream.compacted(self._id, compacted, position)

    def tell_progress(self, revision: int) -> None:
        """Tell how far this watch is, if it wants to and had nothing else to tell lately."""
        if self._wants_progress and self._is_quiet and self not in self._store.watchers.behind:
            self._stream.tell(self._id, revision, b"", self.said)
        self._is_quiet = True


def _encode(change: Change) -> bytes:
    """Encode an event without the pair before it."""
    if change.item is not None:
        return field(2, change.item[0])
    return b"\x08\x01" + field(2, key_value(change.key, 0, change.revision, 0, b"", 0))
